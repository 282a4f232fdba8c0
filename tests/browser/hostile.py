"""Texts that attack a page that shows them, by what they try."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.browser.runs import rollout, written_run

PWNED = "window.pwned=(window.pwned||0)+1"

TEXTS = {
    "markup": f'<b class=pwn>bold</b><img class=pwn src=x onerror="{PWNED}">',
    "script": f"<script class=pwn>{PWNED}</script>",
    "end of a script": f"</script><script class=pwn>{PWNED}</script>",
    "end of a comment, style, title": f"--></style></title><svg class=pwn onload={PWNED}>",
    "handler in an attribute": f"\" class=pwn onmouseover=\"{PWNED}\" x='' autofocus onfocus='{PWNED}",
    "javascript: link": f"javascript:{PWNED} <a class=pwn href=javascript:{PWNED}>x</a>",
    "data: link": f"<a class=pwn href='data:text/html,<script>{PWNED}</script>'>x</a>",
    "frame": f'<iframe class=pwn srcdoc="<script>parent.{PWNED}</script>"></iframe>',
    "form, base and refresh": "<base href=//evil.invalid><form class=pwn action=//evil.invalid>"
    "<meta http-equiv=refresh content='0;//evil.invalid'>",
    "style": "<style class=pwn>*{background:url(//evil.invalid/x)}</style>"
    "<link class=pwn rel=stylesheet href=//evil.invalid>",
    "remote picture": '<img class=pwn src="https://evil.invalid/p.png">![p](https://evil.invalid/p.png)',
    "clobbered names": "<a class=pwn id=values name=content></a><form class=pwn id=top name=body>",
    "templates": "{{7*7}} {{constructor.constructor('x')()}} ${7*7} {% print(7*7) %} <%= 7*7 %> #{7*7}",
    "entities": f"&lt;script&gt;{PWNED}&lt;/script&gt; &#60;img src=x onerror={PWNED}&#62; &amp;amp;",
    "ANSI codes": "\x1b[31mred\x1b[0m \x1b]8;;http://evil.invalid\x07link\x1b]8;;\x07 \x9b5m \x1b[2J\x1b[H",
    "bidirectional controls": "user\u202e\u2066 gnp.exe\u2069 \u200f\u061c\u202a\u202b\u202d\u2067\u2068",
    "zero width and tags": "pass\u200bword\u200c\u2060\ufeff\u180e\U000e0041\U000e007f\u00ad\u034f\u3164",
    "flood of combining marks": "z" + "\u0301\u0489" * 1000 + "!",
    "NUL and other controls": "before\x00after\x01\x08\x0b\x0c\x0e\x7f\x80",
    "line separators": 'one\u2028two\u2029three\x85four\rfive";\u2028//',
    "noncharacters and private use": "\ufffe\uffff\U0010ffff\ue000\ufff9\ufffa\ufffb\ufffd",
    "100,000 characters in one line": "x" * 100_000,
    "100,000 lines": "\n" * 100_000,
    "prototype names": "__proto__ constructor toString hasOwnProperty",
    "names that are numbers": "-0 1e999 NaN Infinity 0x10",
    "path": "../../../../etc/passwd %2e%2e%2f ..\\..\\ \u2215etc",
    "address": "?run=other&step=1#/run/other/config%00%0d%0a",
    "carriage returns in a header": "x\r\nSet-Cookie: a=b\r\n\r\n<script>",
    "right-to-left script": "שלום عليكم 123 <b class=pwn>",
}
"""Each is used as prompt, answer, group, reason, flag, detail, task, grader, event, setting and metric."""

SURROGATE = "lone \ud800 and \udfff surrogates"
"""Only JSON can hold it, as an escape; Parquet and paths cannot."""

FOLDER = f"a,b <img class=pwn src=x onerror={PWNED}> &\"'`{{{{7*7}}}}%2f%00#?\u202egnp"
"""A run's own folder: everything but a slash and NUL may stand in a name."""


def hostile_run(root: Path) -> Path:
    """A run all of whose texts are ``TEXTS``."""
    texts = {**TEXTS, "lone surrogates": SURROGATE}
    settings: dict[str, Any] = {
        "run": {"name": TEXTS["script"], "steps": 2, "seed": SURROGATE},
        "algorithm": {"name": "dapo", TEXTS["markup"]: TEXTS["markup"]},
        "sampling": {"max_new_tokens": 100, "samples_per_prompt": 2},
        "hostile": {f"{name} {text[:80]}": text for name, text in texts.items()},
        "__proto__": {"polluted": True},
        "constructor": {"prototype": {"polluted": True}},
    }
    metrics = {text[:200]: 0.5 for text in texts.values()} | {
        "reward/outcome": 0.5,
        "__proto__": 1.0,
        "constructor": 2.0,
    }
    folder = written_run(
        root / FOLDER,
        metrics=[metrics, metrics, metrics],
        events=[hostile_event(text) for text in texts.values()],
        rollouts={
            0: [row for place, text in enumerate(TEXTS.values()) for row in hostile_group(place, text)]
        },
        settings=settings,
        facts={
            "opening": list(texts.values()),
            "imported": {"from": TEXTS["markup"], TEXTS["script"]: SURROGATE},
        },
    )
    with (folder / "events.jsonl").open("ab") as file:
        file.write(b'{"time":NaN,"step":null,"event":"warned","message":"no time"}\n')
        file.write(
            b'{"time":1.0,"step":null,"event":"warned","message":"beyond","x":1e999,"y":-Infinity,"z":NaN}\n'
        )
        file.write(b'{"time":1.0,"step":"<b class=pwn>","event":["a"],"message":7}\n')
        file.write(b'{"time":1.0,"step":0,"event":"evaluated","label":{"a":1},"pass@1":"<b class=pwn>"}\n')
        file.write(b"\xff\xfe no UTF-8 \x00\n" + b"[" * 50_000 + b"\n")
    return folder


def hostile_event(text: str) -> dict[str, Any]:
    return {"event": text[:200], "message": text, text[:200]: [text[:200], {text[:200]: text[:200]}]}


def hostile_group(place: int, text: str) -> list[dict[str, Any]]:
    group = f"{place} {text[:120]}#0"
    rest: Mapping[str, Any] = {
        "prompt": text,
        "prompt_id": f"{place} {text[:120]}",
        "answer": '{"__proto__": "<b class=pwn>"}',
        "reason": text[:200],
        "flag": text[:200],
        "detail": text,
        "task": text[:200],
        "parts": [(text[:200], 1.0)],
    }
    kept = place % 2 == 0
    return [
        rollout(text, group=group, index=0, kept=kept, **rest),
        rollout(text[:50], group=group, index=1, kept=kept, advantage=-1.0, **rest),
    ]
