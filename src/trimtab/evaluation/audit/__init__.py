"""Audits of graders: how often they accept what is wrong, refuse what is right, or can be cheated.

cases = built_in("mathematics", {})          # or your own rows
result = await audit("mathematics", rubric, cases)
result.share("false positive")
"""
# SPDX-License-Identifier: Apache-2.0

from trimtab.evaluation.audit.cases import EXPLOIT_KINDS, KINDS, RIGHT_KINDS, WRONG_KINDS, Case, Form
from trimtab.evaluation.audit.corpus import CORPORA, built_in, find_form, form_of, read_rows
from trimtab.evaluation.audit.measure import Asked, Audit, Disagreement, Share, audit, disagreements

__all__ = [
    "CORPORA",
    "EXPLOIT_KINDS",
    "KINDS",
    "RIGHT_KINDS",
    "WRONG_KINDS",
    "Asked",
    "Audit",
    "Case",
    "Disagreement",
    "Form",
    "Share",
    "audit",
    "built_in",
    "disagreements",
    "find_form",
    "form_of",
    "read_rows",
]
