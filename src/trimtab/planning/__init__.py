"""What a step will cost on other hardware: a simulator of the loop, fitted on measured runs."""
# SPDX-License-Identifier: Apache-2.0
