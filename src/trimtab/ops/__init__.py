"""Pure functions on tensors: segments of a packed batch, KL estimators, log-probabilities."""
# SPDX-License-Identifier: Apache-2.0
