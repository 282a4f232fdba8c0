"""Error rates of the mathematics grader on labelled pairs: ``python -m benchmarks.mathematics``.

A row is a gold answer, a whole response, and whether the two are equivalent. The hand-written rows
(``handmade.jsonl``) were written before the grader's rules; the generated ones are drawn with a seed, and
their labels are proved by sympy from what was drawn, never by the grader's own reader. A hash splits all
rows: rules may be tuned on the ``tuning`` part, the published figures are those of the ``scored`` part.
"""
# SPDX-License-Identifier: Apache-2.0
