"""Whole training steps of trimtab and of a peer, in turn on one machine, and the machine's own limits."""
# SPDX-License-Identifier: Apache-2.0
