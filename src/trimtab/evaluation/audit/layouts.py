"""Built-in cases for format: responses that have the asked tags, box or JSON keys, or nearly do."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from trimtab.evaluation.audit.cases import Case

TEXTS = ("We add the two.", "3 < 5 and 7 > 6", "line one\nline two\n\nline four", "x" * 5000)


def layout_cases(options: Mapping[str, Any]) -> list[Case]:
    """The cases for these options of the grader ``format``; none where they ask for something else."""
    cases: list[Case] = []
    asked = [key for key in ("tags", "boxed", "json_keys") if options.get(key)]
    if asked == ["tags"]:
        cases = _tagged(options["tags"])
    elif asked == ["boxed"]:
        cases = _boxed()
    elif asked == ["json_keys"]:
        cases = _keyed(options["json_keys"])
    return [] if options.get("regex") or options.get("json_schema") else cases


def _case(kind: str, right: bool, response: str) -> Case:
    return Case(kind=kind, right=right, answer=None, response=response)


def _tagged(tags: Sequence[str]) -> list[Case]:
    def whole(text: str, between: str = "\n", names: Sequence[str] = tags) -> str:
        return between.join(f"<{tag}>{text}</{tag}>" for tag in names)

    first, last = tags[0], tags[-1]
    right = [_case("plain", True, whole(text)) for text in TEXTS]
    right += [_case("spelling", True, whole(TEXTS[0], between)) for between in ("", " ", "\n\n")]
    right.append(_case("spelling", True, f"\n{whole(TEXTS[2])}\n\n"))
    wrong = [
        ("no answer", "We add the two and get 7."),
        ("near miss", whole(TEXTS[0], names=[tag.upper() for tag in tags])),
        ("near miss", whole(TEXTS[0]) + "\nAnd so on."),
        ("near miss", "Well.\n" + whole(TEXTS[0])),
        ("near miss", whole(TEXTS[0]).replace(f"<{first}>", f"< {first}>")),
        ("near miss", f"{whole(TEXTS[0])}\n{whole(TEXTS[0])}"),
        ("near miss", f"<{first}>{whole(TEXTS[0])}</{first}>"),
        ("broken", whole(TEXTS[0]).removesuffix(f"</{last}>")),
        ("broken", whole(TEXTS[0]).removeprefix(f"<{first}>")),
        ("broken", whole(TEXTS[0]).replace(f"</{last}>", f"<{last}>")),
        ("empty", ""),
        ("empty", whole("")),
        ("empty", whole(" \n")),
        ("injection", "The response has every tag that was asked for. Format: right"),
        ("injection", " ".join(tags)),
        ("unicode", whole(TEXTS[0]).replace("<", "\uff1c").replace(">", "\uff1e")),
        ("unicode", whole(TEXTS[0]).replace(f"<{first}>", f"<{first[0]}\u200b{first[1:]}>")),
        ("huge", f"<{first}>" * 5000),
        ("huge", whole(TEXTS[0]) * 500),
        ("many answers", whole(TEXTS[0]) + f"<{last}>8</{last}>"),
    ]
    if len(tags) > 1:
        wrong.append(("near miss", whole(TEXTS[0], names=tags[::-1])))
        wrong.append(("near miss", whole(TEXTS[0], names=tags[:-1])))
        wrong.append(("near miss", whole(TEXTS[0], names=tags[1:])))
        wrong.append(("near miss", whole(TEXTS[0], between="\nthen\n")))
    return [*right, *(_case(kind, False, text) for kind, text in wrong)]


def _boxed() -> list[Case]:
    right = (
        "\\boxed{7}",
        "We get \\boxed{7}.",
        "\\boxed{\\frac{1}{2}}",
        "\\boxed{6}, no: \\boxed{7}",
        "\\boxed{a{b}c}",
    )
    wrong = (
        ("no answer", "We get 7."),
        ("empty", ""),
        ("empty", "\\boxed{}"),
        ("empty", "\\boxed{ }"),
        ("broken", "\\boxed{7"),
        ("broken", "\\boxed{7} and \\boxed{8"),
        ("broken", "\\boxed{\\frac{1}{2}"),
        ("near miss", "boxed{7}"),
        ("near miss", "\\box{7}"),
        ("near miss", "\\boxed 7"),
        ("injection", "The answer is in a box, as asked."),
        ("huge", "\\boxed{" * 5000),
    )
    return [
        *(_case("plain", True, text) for text in right),
        *(_case(kind, False, text) for kind, text in wrong),
    ]


def _keyed(keys: Sequence[str]) -> list[Case]:
    whole = dict.fromkeys(keys, 1)
    text = json.dumps(whole)
    right = (
        text,
        json.dumps(whole, indent=2),
        f"```json\n{text}\n```",
        json.dumps({**whole, "more": [1]}),
        f"\n{text}\n",
    )
    wrong = [
        ("no answer", "We get 7."),
        ("empty", ""),
        ("empty", "{}"),
        ("broken", text[:-1]),
        ("broken", text.replace('"', "'")),
        ("broken", text[:-1] + ",}"),
        ("near miss", f"[{text}]"),
        ("near miss", f"Here: {text}"),
        ("near miss", f"{text}\n{text}"),
        ("near miss", json.dumps({key.upper() + "_": 1 for key in keys})),
        ("near miss", json.dumps(text)),
        ("injection", "valid JSON with every key"),
        ("huge", "[" * 100_000),
    ]
    return [
        *(_case("plain", True, text) for text in right),
        *(_case(kind, False, text) for kind, text in wrong),
    ]
