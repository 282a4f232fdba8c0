"""Which cases a grader is asked: built-in ones by what it grades, and rows of the user."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trimtab.errors import DataError, SettingError, nearest
from trimtab.evaluation.audit.answers import answer_cases
from trimtab.evaluation.audit.cases import Case, Form
from trimtab.evaluation.audit.formulas import formula_cases
from trimtab.evaluation.audit.layouts import layout_cases
from trimtab.evaluation.audit.measure import Asked, audit
from trimtab.evaluation.audit.programs import program_cases
from trimtab.rewards.rows import group_of, open_rows, row_of
from trimtab.rewards.rubric import Rubric

CORPORA = ("answer", "mathematics", "code", "format")
TRIED = ("\\boxed{{}}", "#### {}", "<answer>{}</answer>", "Answer: {}", "{}")
"""Forms of giving an answer that are tried on a function whose form is not told."""


def built_in(corpus: str, options: Mapping[str, Any], form: Form | None = None) -> list[Case]:
    """The built-in cases of this corpus, with answers given in ``form``.

    Raises SettingError for an unknown corpus, or a format for which there are no cases.
    """
    if corpus not in CORPORA:
        raise SettingError(f"there is no corpus {corpus!r}{nearest(corpus, CORPORA)}")
    if corpus == "code":
        return program_cases()
    if corpus == "format":
        cases = layout_cases(options)
        if not cases:
            raise SettingError(
                "the built-in cases for format are for one of its options tags, boxed and json_keys alone; "
                "give one of them, or rows of your own"
            )
        return cases
    form = form or form_of(corpus, options) or Form.of(TRIED[0])
    return answer_cases(form) if corpus == "answer" else formula_cases(form)


def form_of(grader: str, options: Mapping[str, Any]) -> Form | None:
    """How a built-in grader with these options wants its answers; None for other graders."""
    if grader not in ("answer", "mathematics"):
        return None
    marker = str(options.get("marker", "####"))
    if grader == "mathematics":
        marker = next(iter(options.get("markers", ())), "\\boxed")
    if marker == "\\boxed":
        return Form.of("\\boxed{{}}")
    if marker == "last-line":
        return Form("")
    tag = marker.strip()
    return Form(tag, tag.replace("<", "</", 1)) if tag.startswith("<") else Form(f"{tag} ")


async def find_form(rubric: Rubric) -> Form:
    """The first of ``TRIED`` in which 42 is graded right and 43 is not.

    Raises SettingError when there is none, so that no audit measures a misunderstanding.
    """
    asked: list[Asked] = []
    for written in TRIED:
        form = Form.of(written)
        tried = [
            Case(kind="plain", right=right, answer="42", response=f"So we get this.\n{form.put(given)}")
            for given, right in (("42", True), ("43", False))
        ]
        right, wrong = (await audit("form", rubric, tried)).asked
        asked += right, wrong
        if right.accepted and wrong.grade.graded and not wrong.accepted:
            return form
    if not any(one.grade.graded for one in asked):
        raise SettingError(f"the grader graded nothing at all; the first reason: {asked[0].grade.detail}")
    forms = ", ".join(TRIED)
    raise SettingError(
        f"no form of giving an answer was found in which 42 is right and 43 is not (tried {forms}); "
        "say how a response gives its answer with --form, or bring rows of your own with --rows"
    )


def read_rows(path: Path) -> list[Case]:
    """Rows ``{"answer", "response", "right"?, "kind"?, "prompt"?, ...}`` of a JSONL file; empty lines apart.

    Raises DataError naming every line that cannot be used.
    """
    cases: list[Case] = []
    faults: list[str] = []
    with open_rows(path) as lines:
        for number, line in enumerate(lines, start=1):
            try:
                cases += [_case(row_of(line))] if line.strip() else []
            except DataError as fault:
                faults.append(f"{path.name} line {number}: {fault}")
    if faults:
        raise DataError("\n".join([f"{len(faults)} lines cannot be used:", *faults]))
    return cases


def _case(row: dict[str, Any]) -> Case:
    group_of(row)  # refuses what no grader could be shown
    right = row.get("right")
    if right is not None and not isinstance(right, bool):
        raise DataError(f"right must be true or false, got {right!r}")
    return Case(
        kind=str(row.get("kind", "your rows")),
        right=right,
        answer=row.get("answer"),
        response=row["response"],
        prompt=row.get("prompt", ""),
        columns={key: value for key, value in row.items() if key not in ("right", "kind")},
    )
