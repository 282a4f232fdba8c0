"""The catalogue is complete, true to what is emitted, and the documentation is made from it."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scenes import evaluation, everything
from trimtab import catalog
from trimtab.catalog import CATALOG, DISTRIBUTIONS, SECTIONS, find
from trimtab.errors import SettingError
from trimtab.metrics import Histogram, histograms, read
from trimtab.probes import groups, region, update
from trimtab.record.summary import evaluation_values

DOCS = Path(__file__).parents[2] / "docs"


def test_every_emitted_key_is_in_the_catalogue_and_every_entry_is_emitted():
    found = read(everything())
    assert found.missing == {}
    entries = {find(key).key for key in (*found.values, *evaluation_values(evaluation()))}
    assert set(CATALOG) - entries == set(), "in the catalogue, emitted by nothing"


def test_every_distribution_is_emitted_and_no_other():
    assert set(histograms(everything())) <= set(DISTRIBUTIONS)
    assert set(DISTRIBUTIONS) <= set(CATALOG)
    shapes = {key for key, metric in everything().items() if isinstance(metric, Histogram)}
    assert shapes == set(DISTRIBUTIONS)


def test_the_words_about_bins_are_true():
    ratio = region.RATIO_BINS
    assert (ratio.size, ratio.low, ratio.high, ratio.steps) == (281, 1e-6, 10.0, 140)
    assert "281 bins" in DISTRIBUTIONS["ratio/token"]
    gate, advantage, entropy = region.GATE_BINS, update.ADVANTAGE_BINS, update.ENTROPY_BINS
    assert DISTRIBUTIONS["gate/positive"] == "101 linear bins centred on 0, 0.01 ... 1"
    assert (gate.size, gate.low, gate.high) == (101, -0.005, 1.005)
    assert (
        DISTRIBUTIONS["advantage/token"]
        == f"{advantage.steps} linear bins in [{advantage.low:g}, {advantage.high:g}]"
    )
    assert DISTRIBUTIONS["policy/entropy"].startswith(f"{entropy.steps} log-spaced bins in [1e-4, 16] nats")
    assert (entropy.low, entropy.high) == (1e-4, 16.0)
    assert f"at most {groups.MOST_LENGTH_BINS} linear bins" in DISTRIBUTIONS["length/right"]
    half = (ratio.high / ratio.low) ** (0.5 / ratio.steps) - 1
    assert half < 0.06, "the catalogue promises log-ratio quantiles within 6%"


@pytest.mark.parametrize("spec", CATALOG.values(), ids=lambda spec: spec.key)
def test_every_entry_is_whole(spec):
    for text in (spec.unit, spec.formula, spec.mask, spec.reduction, spec.meaning):
        assert text.strip() == text != ""
    assert spec.meaning.endswith((".", "?")), "the meaning is a sentence"
    assert spec.key not in spec.read_with
    for key in spec.read_with:
        assert key in CATALOG


def test_no_key_stands_twice():
    keys = [spec.key for section in SECTIONS for spec in section.specs]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("key", "entry"),
    [
        ("ratio/token", "ratio/token"),
        ("loss/policy", "loss/{term}"),
        ("loss/total", "loss/total"),
        ("seconds/step", "seconds/step"),
        ("seconds/sample", "seconds/{stage}"),
        ("seconds/update/forward", "seconds/update/{part}"),
        ("evaluation/pass@16", "evaluation/pass@{k}"),
        ("evaluation/pass@16_low", "evaluation/pass@{k}_low"),
        ("flow/dropped/all-wrong", "flow/dropped/{reason}"),
        ("pass/length_4096", "pass/length_{tokens}"),
        ("grades/part/answer", "grades/part/{grader}"),
    ],
)
def test_keys_find_their_entry(key, entry):
    assert find(key).key == entry


@pytest.mark.parametrize(
    "key", ["ratio/tokens", "loss", "evaluation/pass@", "pass/length_", "seconds/a/b/c", ""]
)
def test_unknown_keys_are_refused(key):
    with pytest.raises(SettingError, match="there is no metric"):
        find(key)


def test_the_nearest_key_is_named():
    with pytest.raises(SettingError, match="did you mean 'ratio/token'"):
        find("ratio/tokne")


def test_explain_says_everything():
    text = catalog.explain("gate/mass")
    for part in ("gate/mass", "sum |w A gate| / sum |w A|", "healthy", "read with", "clip/removed"):
        assert part in text
    assert "bins" in catalog.explain("ratio/token")


def test_the_page_of_metrics_is_current():
    page = (DOCS / "metrics.md").read_text(encoding="utf-8")
    assert page == catalog.as_markdown(), "write docs/metrics.md anew from trimtab.catalog.as_markdown()"
