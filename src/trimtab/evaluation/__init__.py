"""How good a policy is: unbiased pass@k, maj@k and intervals, paired against the start."""
# SPDX-License-Identifier: Apache-2.0
