"""Suites that every implementation of a seam must pass."""
# SPDX-License-Identifier: Apache-2.0
