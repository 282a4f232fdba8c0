"""Prompts and what happens to them: sources, order, selection, memory, packing."""
# SPDX-License-Identifier: Apache-2.0
