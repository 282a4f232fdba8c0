"""Says what is wrong with a run, why, and what to change: rules over a run's record, live or afterwards."""
# SPDX-License-Identifier: Apache-2.0
