"""The fault benchmark of the doctor: runs with a caused fault, healthy runs, and who finds what in them."""
# SPDX-License-Identifier: Apache-2.0
