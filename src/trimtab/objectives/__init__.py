"""What an update minimises: ratio, surrogate, regularizers, value loss, and how tokens are weighted."""
# SPDX-License-Identifier: Apache-2.0
