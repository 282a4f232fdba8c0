"""Rollout engines and trainers in other processes, behind the protocols of rollout/ and trainer/.

The only room that imports Ray or vLLM, and only in the functions and files that need them.
"""
# SPDX-License-Identifier: Apache-2.0
