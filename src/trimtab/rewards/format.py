"""Format match: does the response have the asked form? It says nothing about being right.

A chat template may already have written the beginning, such as ``<think>``, ``{`` or ``\\boxed{``. What the
prompt ends with is read as the beginning of the response, so that an asked thing need not be said twice; but
the prompt never earns the point: at least one asked thing must be completed by the response itself.

Regular expressions and JSON schemas meet text that a model wrote, and some expressions take for ever on some
texts. They are tried in a worker process that is killed at a limit; that answer is then ungraded.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

from trimtab.errors import SettingError
from trimtab.rewards.expression import not_valid
from trimtab.rewards.json_schema import unusable
from trimtab.rewards.json_validation import parse
from trimtab.rewards.shown import concluded
from trimtab.rewards.workers import WorkerTimeoutError, shared_pool
from trimtab.types import Grade, GradeState, Prompt, Rollout

BOX = "\\boxed{"
TAIL = 500
"""Characters of a prompt's end in which a chat template's beginning of the answer is looked for."""

_BEGUN = re.compile(r"(?:<(\w[\w-]*)>\s*</\1>\s*)+(?:<\w[\w-]*>\s*)?\Z|<\w[\w-]*>\s*\Z")
"""What a chat template may leave at a prompt's end: empty pairs of tags, an open tag, or both."""

_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatMatch:
    """Grades right when every asked thing holds, else wrong, with the first that does not.

    tags: ("think", "answer") asks for ``<think>…</think> <answer>…</answer>``: each once, in this
        order, none empty, and only blanks outside them.
    boxed: after the thinking, the last ``\\\\boxed{`` that is opened is closed and not empty.
    json_keys: what follows the thinking is one JSON object (a ```` ```json ```` fence is fine) with
        these keys; ``()`` asks for any JSON object, None for none.
    json_schema: what follows the thinking is JSON of this schema, a table or the path of a .json file; see
        ``json_schema.py`` for what is known.
    regex: a Python regular expression that must match the whole response; ``.`` matches line ends.
    seconds: limit for the expression, and for the schema, on one answer; beyond it the answer is ungraded.

    Raises SettingError when nothing is asked for, or the schema or the expression cannot be used.
    """

    limits_itself: ClassVar[Literal[True]] = True

    tags: tuple[str, ...] = ()
    boxed: bool = False
    json_keys: tuple[str, ...] | None = None
    json_schema: dict[str, Any] | str | None = None
    regex: str | None = None
    seconds: float = 1.0
    name: str = "format"

    def __post_init__(self) -> None:
        asked = (self.json_keys, self.json_schema, self.regex)
        if not (self.tags or self.boxed or any(one is not None for one in asked)):
            raise SettingError(
                f"grader {self.name!r} asks for nothing; set one of its options "
                "tags, boxed, json_keys, json_schema, regex"
            )
        for tag in self.tags:
            if not re.fullmatch(r"[A-Za-z][\w-]*", tag) or self.tags.count(tag) > 1:
                raise SettingError(
                    f"grader {self.name!r}: tags are different names without brackets, "
                    f"such as think, got {tag!r}"
                )
        if not self.seconds > 0.0:
            raise SettingError(f"grader {self.name!r}: seconds must be > 0, got {self.seconds}")
        if (fault := not_valid(self.regex or "")) is not None:
            raise SettingError(f"grader {self.name!r}: regex {self.regex!r} is not valid: {fault}")
        if self.json_schema is not None and (fault := unusable(self._schema())) is not None:
            raise SettingError(f"grader {self.name!r}: json_schema cannot be used: {fault}")

    async def __call__(self, prompt: Prompt, rollout: Rollout) -> Grade:
        if (grade := self._tagged(prompt, rollout.text)) is not None:
            return grade
        body = concluded(prompt.text, rollout.text)
        if self.boxed and not last_box(prefilled_end(prompt, rollout.text, (BOX,)) + body):
            return Grade.of(0.0, detail="no complete \\boxed{…} after the thinking, or an empty one")
        texts = json_texts(prompt, body)
        if self.json_keys is not None and (fault := json_fault(texts, self.json_keys)) is not None:
            return Grade.of(0.0, detail=fault)
        try:
            if self.json_schema is not None and (fault := await self._schema_fault(texts)) is not None:
                return Grade.of(0.0, detail=fault)
            if self.regex is not None and not await self._matches(prompt, rollout.text):
                return Grade.of(0.0, detail="the response as a whole does not match the regular expression")
        except WorkerTimeoutError:
            what = "expression or schema not tried to its end"
            detail = f"{what} on {rollout.key} within {self.seconds:g} s"
            return Grade(state=GradeState.TIMEOUT, value=None, detail=detail)
        return Grade.of(1.0)

    def _tagged(self, prompt: Prompt, response: str) -> Grade | None:
        """The grade that the tags decide; None where they hold, or none are asked for."""
        if not self.tags:
            return None
        begun = prefilled(prompt.text, self.tags)
        if begun.endswith(f"</{self.tags[-1]}>"):
            return Grade(
                state=GradeState.NOT_GRADABLE,
                value=None,
                detail="the chat template has already written all the tags that this format asks for",
            )
        fault = tags_fault(self.tags, begun, response)
        return None if fault is None else Grade.of(0.0, detail=fault)

    def _schema(self) -> Any:
        return _read_schema(self.json_schema) if isinstance(self.json_schema, str) else self.json_schema

    async def _schema_fault(self, texts: tuple[str, ...]) -> str | None:
        """Why none of the readings fits the schema, in the words of the first; None when one fits."""
        faults = []
        for text in texts:
            payload = {"schema": self._schema(), "text": text}
            place = "trimtab.rewards.json_validation:schema_fault"
            faults.append(await shared_pool().run(place, payload, timeout=self.seconds))
            if faults[-1] is None:
                return None
        return faults[0]

    async def _matches(self, prompt: Prompt, response: str) -> bool:
        """The response alone, or together with the tags that the template has opened, or closed empty."""
        opened = _BEGUN.search(prompt.text[-TAIL:])
        payload = {
            "expression": self.regex,
            "response": response.strip(),
            "opened": opened and opened[0].strip(),
            "whole": opened and (opened[0] + response).strip(),
        }
        place = "trimtab.rewards.expression:matches"
        return bool(await shared_pool().run(place, payload, timeout=self.seconds))


def prefilled(prompt: str, tags: tuple[str, ...]) -> str:
    """The tags of this format with which the prompt ends, blanks between them included.

    They must be a beginning of the asked form: ``<think>`` or ``<think></think>``, never a closing tag
    that some example in the prompt left at the end.
    """
    names = "|".join(map(re.escape, tags))
    found = re.search(rf"(?:\s*</?(?:{names})>)+\s*\Z", prompt[-TAIL:])
    tail = found[0] if found else ""
    said = re.findall(r"</?[\w-]+>", tail)
    asked = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    return tail.strip() if said == asked[: len(said)] else ""


def prefilled_end(prompt: Prompt, response: str, ends: tuple[str, ...]) -> str:
    """The one of ``ends`` with which the prompt ends and the answer begins; else empty.

    It is no beginning of the answer once the response has thought: then it was one of the thinking.
    """
    tail = prompt.text.rstrip()
    return "" if "</think>" in response else next((end for end in ends if tail.endswith(end)), "")


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
    start = text.rfind(BOX)
    if start < 0:
        return ""
    start += len(BOX)
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return text[start : brace.start()].strip()
    return ""


def json_texts(prompt: Prompt, body: str) -> tuple[str, ...]:
    """The readings of an answer as JSON: as it is, and together with what the template has begun.

    That is a ```` ```json ```` fence, or the first bracket; never anything that is complete by itself.
    """
    begun = re.search(r"(?:```(?:json)?[ \t]*\n?)?\s*[{\[]?\s*\Z", prompt.text[-64:])
    start = begun[0].strip() if begun else ""
    joined = f"{start}\n{body.strip()}" if start.endswith(("`", "json")) else start + body.strip()
    return tuple(map(_unfenced, (body, joined) if start else (body,)))


def json_fault(texts: tuple[str, ...], keys: tuple[str, ...]) -> str | None:
    """Why no reading is one JSON object with these keys, in the words of the first; None when one is."""
    faults = [_keys_fault(text, keys) for text in texts]
    return None if None in faults else faults[0]


def _keys_fault(text: str, keys: tuple[str, ...]) -> str | None:
    try:
        parsed = parse(text)
    except (ValueError, RecursionError) as fault:
        return f"not valid JSON: {fault}"
    if not isinstance(parsed, dict):
        return "the JSON is not an object"
    missing = [key for key in keys if key not in parsed]
    return f"the JSON has no key {missing[0]!r}" if missing else None


def _unfenced(body: str) -> str:
    fenced = re.fullmatch(r"```(?:json)?[ \t]*\n(.*?)\n?```", body.strip(), re.DOTALL)
    return fenced[1] if fenced else body.strip()


@lru_cache
def _read_schema(path: str) -> Mapping[str, Any]:
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as fault:
        raise SettingError(f"json_schema: {path!r} cannot be read as JSON: {fault}") from None
