"""Mathematics: strict about where the answer stands, exact about what it says.

placement    where the answer stands in a response
normal       one spelling of LaTeX, Unicode, Markdown
tokens, parsing, reading, relations    from text to a form: a value, a set, a tuple, a relation, words
evaluation, equality, reals, comparison    are two forms equivalent?
symbolic     sympy, in a worker that can be killed, for gold answers beyond these rules
"""
# SPDX-License-Identifier: Apache-2.0

from trimtab.rewards.mathematics.grader import MathematicsMatch

__all__ = ["MathematicsMatch"]
