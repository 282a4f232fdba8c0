"""Colours keep their contrast in both themes, and the pages' own code keeps to what the policy allows."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trimtab.dashboard

HERE = Path(trimtab.dashboard.__file__).parent
STYLE = (HERE / "static" / "style.css").read_text(encoding="utf-8")
SCRIPTS = sorted((HERE / "static").glob("*.js"))
TEXT_ON_GROUND = ("ink", "quiet", "accent", "link", "good", "bad", "warn", *(f"series-{i}" for i in range(8)))
UNDER_TEXT = ("above", "below", "one")


def _block(start: str) -> dict[str, str]:
    found = STYLE[STYLE.index(start) :]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", found[: found.index("}")]))


THEMES = {"light": _block(":root {"), "dark": _block(':root[data-theme="dark"] {')}


def luminance(colour: str) -> float:
    """Relative luminance as the accessibility guidelines define it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", TEXT_ON_GROUND)
def test_text_has_a_contrast_of_4_5(theme: str, name: str):
    colours = THEMES[theme]
    assert contrast(colours[name], colours["ground"]) >= 4.5
    assert contrast(colours[name], colours["raised"]) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("name", UNDER_TEXT)
def test_tokens_stay_readable_on_every_colour_of_a_scale(theme: str, name: str):
    colours = THEMES[theme]
    ends = [[int(colours[one][i : i + 2], 16) for i in (1, 3, 5)] for one in ("ground", name)]
    for share in range(11):
        mixed = [round(low + share / 10 * (high - low)) for low, high in zip(*ends, strict=True)]
        assert contrast(colours["ink"], "#" + "".join(f"{value:02x}" for value in mixed)) >= 4.5


@pytest.mark.parametrize("theme", THEMES)
def test_edges_of_controls_and_the_focus_can_be_seen(theme: str):
    colours = THEMES[theme]
    assert contrast(colours["edge"], colours["ground"]) >= 3.0
    assert contrast(colours["focus"], colours["ground"]) >= 3.0


def test_dark_by_system_and_dark_by_choice_are_the_same():
    assert _block(':root:not([data-theme="light"]) {') == THEMES["dark"]
    assert THEMES["dark"].keys() == THEMES["light"].keys()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_short_and_make_no_markup_from_text(path: Path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text
    )
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert text.startswith("// ")


def test_templates_hold_no_inline_style_or_handler():
    for path in sorted((HERE / "templates").iterdir()):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\son\w+=|\sstyle=|javascript:", text)


def test_every_series_colour_has_its_class():
    for index in range(8):
        assert f".series-{index} {{ color: var(--series-{index}); }}" in STYLE


def test_the_vendored_chart_library_comes_with_its_licence():
    vendor = HERE / "static" / "vendor"
    assert {path.name for path in vendor.iterdir()} == {"uPlot.esm.js", "uPlot.min.css", "LICENSE"}
    assert "MIT" in (vendor / "LICENSE").read_text(encoding="utf-8")
