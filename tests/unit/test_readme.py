"""The README's example prints what the README says, and equals the real objectives."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_hand_example_prints_what_stands_below_it() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(import numpy.*?)```", text, re.DOTALL)
    shown = re.search(r"```text\n(GRPO.*?)```", text, re.DOTALL)
    assert code
    assert shown
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code[1], "README.md", "exec"), {})  # the README's own code, from this repository
    assert out.getvalue() == shown[1]


def test_every_file_that_the_readme_links_is_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    missing = [link for link in links if not (ROOT / link).exists()]
    assert links
    assert not missing
