"""Words of a command line, and text that reaches a terminal."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import io

import pytest

from trimtab.cli.words import safe, say, split_settings
from trimtab.errors import SettingError


@pytest.mark.parametrize(
    ("tokens", "words", "settings"),
    [
        (["train", "quickstart"], ["train", "quickstart"], []),
        (["train", "q", "a.b=c"], ["train", "q"], ["a.b=c"]),
        (["train", "--a.b", "c", "q"], ["train", "q"], ["a.b=c"]),
        (["--a.b=c", "train"], ["train"], ["a.b=c"]),
        (["--a.b", "-1"], [], ["a.b=-1"]),
        (["a.b.0.c=1"], [], ["a.b.0.c=1"]),
        (["a.b=c=d e"], [], ["a.b=c=d e"]),
        (["a.b="], [], ["a.b="]),
        (["data.map.my-column=x"], [], ["data.map.my-column=x"]),
        (["mine.toml", "./dir.x/a=b.toml"], ["mine.toml", "./dir.x/a=b.toml"], []),
        (["--out=runs.d/x", "--resume", "r.1/x"], ["--out=runs.d/x", "--resume", "r.1/x"], []),
        (["ab=c"], ["ab=c"], []),
    ],
)
def test_settings_are_told_from_other_words(tokens: list[str], words: list[str], settings: list[str]):
    assert split_settings(tokens) == (words, settings)


def test_a_setting_without_a_value_is_told():
    with pytest.raises(SettingError, match=r"--a\.b needs a value"):
        split_settings(["train", "--a.b"])


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ü → 漢字", "plain ü → 漢字"),
        ("\x1b[2J", "\\x1b[2J"),
        ("a\nb\t\r", "a\\nb\\t\\r"),
        ("\u202eevil\u200b", "\\u202eevil\\u200b"),
        ("\udc80", "\\udc80"),
    ],
)
def test_safe_text_cannot_steer_a_terminal(text: str, shown: str):
    assert safe(text) == shown


def test_say_keeps_lines_and_nothing_else():
    out = io.StringIO()
    say("one\n  two\x07\n", out)
    assert out.getvalue() == "one\n  two\\x07\n"
