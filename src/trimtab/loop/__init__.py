"""The loop: collect, grade, select, shape, pack, annotate, advantages, update, sync. One function each."""
# SPDX-License-Identifier: Apache-2.0
