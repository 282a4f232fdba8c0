"""How much better than expected an answer, or a token, turned out."""
# SPDX-License-Identifier: Apache-2.0
