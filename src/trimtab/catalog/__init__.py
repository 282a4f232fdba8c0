"""Every metric once: key, unit, formula, mask, reduction, meaning, what to read it with, healthy band.

``CATALOG`` maps each key (or key pattern with a {placeholder}) to its ``MetricSpec``;
``DISTRIBUTIONS`` names the keys that distributions.jsonl holds a histogram of, and its bins.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trimtab.catalog import aliases, answers, asynchronous, flow, imported, outcomes, region, tokens, update
from trimtab.catalog.spec import MetricSpec, Section
from trimtab.errors import SettingError, nearest

__all__ = [
    "CATALOG",
    "DISTRIBUTIONS",
    "SECTIONS",
    "MetricSpec",
    "Section",
    "as_json",
    "as_markdown",
    "explain",
    "find",
]

SECTIONS: tuple[Section, ...] = (
    *answers.SECTIONS,
    *outcomes.SECTIONS,
    *flow.SECTIONS,
    *tokens.SECTIONS,
    *region.SECTIONS,
    *update.SECTIONS,
    *asynchronous.SECTIONS,
    *imported.SECTIONS,
)

CATALOG: dict[str, MetricSpec] = {spec.key: spec for section in SECTIONS for spec in section.specs}

DISTRIBUTIONS: dict[str, str] = {
    "ratio/token": "281 bins about 1: |log r| < 1e-6, then 140 a side, log-spaced up to 10",
    "ratio/sequence": "281 bins about 1: |log s| < 1e-6, then 140 a side, log-spaced up to 10",
    "gate/positive": "101 linear bins centred on 0, 0.01 ... 1",
    "gate/negative": "101 linear bins centred on 0, 0.01 ... 1",
    "advantage/token": "100 linear bins in [-5, 5]",
    "policy/entropy": "64 log-spaced bins in [1e-4, 16] nats; smaller ones are counted below",
    "length/right": "at most 256 linear bins of whole tokens, up to max_new_tokens",
    "length/wrong": "at most 256 linear bins of whole tokens, up to max_new_tokens",
    "length/partial": "at most 256 linear bins of whole tokens, up to max_new_tokens",
    "length/ungraded": "at most 256 linear bins of whole tokens, up to max_new_tokens",
}
"""Keys with a histogram a step; the metric of the same key is its exact mean."""

_FAMILIES = sorted((spec for spec in CATALOG.values() if spec.is_family), key=lambda spec: -len(spec.key))


def find(key: str) -> MetricSpec:
    """The entry of a metric's key; ``loss/policy`` finds ``loss/{term}``.

    Raises SettingError with the nearest known key.
    """
    if key in CATALOG:
        return CATALOG[key]
    for spec in _FAMILIES:
        if spec.pattern.fullmatch(key):
            return spec
    raise SettingError(f"there is no metric {key!r}{nearest(key, CATALOG)}")


def explain(key: str) -> str:
    """A metric in plain lines, for a terminal."""
    spec = find(key)
    rows = [
        ("unit", spec.unit),
        ("formula", spec.formula),
        ("over", spec.mask),
        ("joined by", spec.reduction),
        ("healthy", spec.healthy),
        *(("band", str(band)) for band in spec.bands),
        ("read with", ", ".join(spec.read_with)),
        ("bins", DISTRIBUTIONS.get(spec.key, "")),
        ("source", spec.source),
        *((_label(framework), _called(alias)) for framework, alias in _others(spec)),
    ]
    lines = [spec.key, f"  {spec.meaning}"]
    return "\n".join(lines + [f"  {name:<10} {text}" for name, text in rows if text])


def as_json() -> dict[str, Any]:
    """The catalogue as plain values, for tooltips: ``metrics`` by key, in the order of the page, each with
    its section, bins where it has a histogram, and its names in TRL and verl.
    """
    metrics = {
        spec.key: {
            **{name: value for name, value in asdict(spec).items() if value not in ("", ())},
            "section": section.title,
            "bands": [{**band._asdict(), "text": str(band)} for band in spec.bands],
            "aliases": {framework: asdict(alias) for framework, alias in _others(spec)},
            **({"bins": DISTRIBUTIONS[spec.key]} if spec.key in DISTRIBUTIONS else {}),
        }
        for section in SECTIONS
        for spec in section.specs
    }
    return {"sections": {s.title: s.about for s in SECTIONS}, "metrics": metrics}


def _others(spec: MetricSpec) -> list[tuple[aliases.Framework, aliases.Alias]]:
    found: list[tuple[aliases.Framework, aliases.Alias]] = []
    for framework in aliases.ALIASES:
        alias = aliases.named_in(framework, spec.key)
        if alias is not None:
            found.append((framework, alias))
    return found


def _label(framework: str) -> str:
    return {"trl": "in TRL", "verl": "in verl"}[framework]


def _called(alias: aliases.Alias) -> str:
    scale = "" if alias.scale == 1.0 else f" (this value * {alias.scale:g})"
    return f"{alias.key}{scale}{': ' if alias.note else ''}{alias.note}"


def as_markdown() -> str:
    """The whole catalogue as the page docs/metrics.md."""
    lines = [
        "# Metrics",
        "",
        "<!-- Made by trimtab.catalog.as_markdown(); do not edit by hand. -->",
        "",
        (
            f"{len(CATALOG)} entries; a {{placeholder}} stands for a "
            f"word. A metric that does not apply is absent,"
        ),
        (
            "never 0. One that met a NaN or an infinity is absent too, "
            "and named with the reason under `missing`."
        ),
        "Metrics of a step with several updates join all of them: sums and counts, never a mean of means.",
    ]
    for section in SECTIONS:
        lines += ["", f"## {section.title}", "", section.about]
        for spec in section.specs:
            lines += ["", *_entry(spec)]
    return "\n".join(lines) + "\n"


def _entry(spec: MetricSpec) -> list[str]:
    lines = [f"### `{spec.key}`", "", spec.meaning, "", f"- `{spec.formula}` ({spec.unit})"]
    lines.append(f"- over {spec.mask}; joined by {spec.reduction}")
    if spec.key in DISTRIBUTIONS:
        lines.append(f"- histogram: {DISTRIBUTIONS[spec.key]}")
    lines += [f"- band, {band}" for band in spec.bands]
    if spec.healthy:
        lines.append(f"- healthy: {spec.healthy}")
    if spec.read_with:
        lines.append("- read with " + ", ".join(f"`{key}`" for key in spec.read_with))
    if spec.source:
        lines.append(f"- source: {spec.source}")
    lines += [f"- {_label(framework)} {_called(alias)}" for framework, alias in _others(spec)]
    return lines
