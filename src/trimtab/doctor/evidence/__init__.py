"""What the recorded rollouts show, measured once for a case and shared by rules and causes."""
# SPDX-License-Identifier: Apache-2.0
