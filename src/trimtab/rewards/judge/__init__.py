"""A language model as a judge, over an OpenAI-compatible endpoint.

``grader`` the options and the grade, ``question`` what is asked and how a reply is read, ``endpoint`` the
requests with their limits and retries, ``cache`` the verdicts that are known already.
"""
# SPDX-License-Identifier: Apache-2.0

from trimtab.rewards.judge.grader import Judge

__all__ = ["Judge"]
