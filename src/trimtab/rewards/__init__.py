"""Rewards: graders, the rubric that asks them, and the shaping that comes after.

Nothing is imported here: who needs a reward's scale does not load a sandbox.
"""
# SPDX-License-Identifier: Apache-2.0
