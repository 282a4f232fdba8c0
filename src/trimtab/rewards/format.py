"""Format match: does the response have the asked form? It says nothing about being right.

A chat template may already have written the beginning, such as ``<think>``. What the prompt ends with
is read as the beginning of the response, so that an asked tag need not be said twice; but the prompt
never earns the point: at least one asked thing must be completed by the response itself.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from trimtab.errors import SettingError
from trimtab.types import Grade, GradeState, Prompt, Rollout


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatMatch:
    """Grades right when every asked thing holds, else wrong, with the first that does not.

    tags: ("think", "answer") asks for ``<think>…</think> <answer>…</answer>``: each once, in this
        order, none empty, and only blanks outside them.
    boxed: the last ``\\\\boxed{`` that is opened is closed and not empty.
    json_keys: what follows the thinking is one JSON object (a ```` ```json ```` fence is fine) with
        these keys; ``()`` asks for any JSON object, None for none.
    regex: a Python regular expression that must match the whole response; ``.`` matches line ends.

    Raises SettingError when nothing is asked for, or the expression cannot be compiled.
    """

    tags: tuple[str, ...] = ()
    boxed: bool = False
    json_keys: tuple[str, ...] | None = None
    regex: str | None = None
    name: str = "format"

    def __post_init__(self) -> None:
        if not (self.tags or self.boxed or self.json_keys is not None or self.regex is not None):
            raise SettingError(
                f"grader {self.name!r} asks for nothing; set one of its options tags, boxed, json_keys, regex"
            )
        for tag in self.tags:
            if not re.fullmatch(r"[A-Za-z][\w-]*", tag) or self.tags.count(tag) > 1:
                raise SettingError(
                    f"grader {self.name!r}: tags are different names without brackets, "
                    f"such as think, got {tag!r}"
                )
        try:
            re.compile(self.regex or "")
        except re.error as fault:
            raise SettingError(f"grader {self.name!r}: regex {self.regex!r} is not valid: {fault}") from None

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        response = rollout.text
        if self.tags:
            begun = prefilled(prompt.text, self.tags)
            if begun.endswith(f"</{self.tags[-1]}>"):
                return Grade(
                    state=GradeState.NOT_GRADABLE,
                    value=None,
                    detail="the chat template has already written all the tags that this format asks for",
                )
            if (fault := tags_fault(self.tags, begun, response)) is not None:
                return Grade.of(0.0, detail=fault)
        if self.boxed and not last_box(response):
            return Grade.of(0.0, detail="no complete \\boxed{…}, or an empty one")
        if self.json_keys is not None and (fault := json_fault(response, self.json_keys)) is not None:
            return Grade.of(0.0, detail=fault)
        if self.regex is not None and not self._matches(prompt, response):
            return Grade.of(0.0, detail="the response as a whole does not match the regular expression")
        return Grade.of(1.0)

    def _matches(self, prompt: Prompt, response: str) -> bool:
        """The response alone, or together with one tag that the template has opened."""
        expression = re.compile(self.regex or "", re.DOTALL)
        if expression.fullmatch(response.strip()):
            return True
        opened = re.search(r"<\w[\w-]*>\s*\Z", prompt.text)
        if opened is None or expression.fullmatch(opened[0].strip()):
            return False
        return expression.fullmatch((opened[0] + response).strip()) is not None


def prefilled(prompt: str, tags: tuple[str, ...]) -> str:
    """The tags of this format with which the prompt ends, blanks between them included.

    They must be a beginning of the asked form: ``<think>`` or ``<think></think>``, never a closing tag
    that some example in the prompt left at the end.
    """
    names = "|".join(map(re.escape, tags))
    found = re.search(rf"(?:\s*</?(?:{names})>)+\s*\Z", prompt)
    tail = found[0] if found else ""
    said = re.findall(r"</?[\w-]+>", tail)
    asked = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    return tail.strip() if said == asked[: len(said)] else ""


def tags_fault(tags: tuple[str, ...], begun: str, response: str) -> str | None:
    """Why ``begun + response`` does not have these tags in order; None when it has."""
    whole = begun + response
    position = 0
    for tag in tags:
        opening, closing = f"<{tag}>", f"</{tag}>"
        for mark in (opening, closing):
            if (count := whole.count(mark)) != 1:
                return f"{mark} stands {count} times instead of once"
        start, end = whole.index(opening), whole.index(closing)
        if start < position or end < start:
            return f"{opening}…{closing} is not in the order {' '.join(tags)}"
        if whole[position:start].strip():
            return f"there is text before {opening}"
        by_response = end + len(closing) > len(begun)
        if by_response and not whole[start + len(opening) : end].strip():
            return f"{opening}{closing} is empty"
        position = end + len(closing)
    return f"there is text after </{tags[-1]}>" if whole[position:].strip() else None


def last_box(text: str) -> str:
    """What stands in the last ``\\boxed{`` that is opened; empty when it is not closed or there is none."""
    start = text.rfind("\\boxed{")
    if start < 0:
        return ""
    start += len("\\boxed{")
    depth = 1
    for position in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[start:position].strip()
    return ""


def json_fault(response: str, keys: tuple[str, ...]) -> str | None:
    """Why what follows the thinking is not one JSON object with these keys; None when it is."""
    body = response.rpartition("</think>")[2].strip()
    fenced = re.fullmatch(r"```(?:json)?\s*\n(.*?)\n?```", body, re.DOTALL)
    try:
        parsed = json.loads(fenced[1] if fenced else body)
    except (ValueError, RecursionError) as fault:
        return f"not valid JSON: {fault}"
    if not isinstance(parsed, dict):
        return "the JSON is not an object"
    missing = [key for key in keys if key not in parsed]
    return f"the JSON has no key {missing[0]!r}" if missing else None
