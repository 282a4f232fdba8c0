"""Names of TRL and verl, in both directions."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from trimtab.catalog import as_json, find
from trimtab.catalog.aliases import (
    ALIASES,
    NOT_THE_SAME,
    aliases_of,
    from_trl,
    from_verl,
    to_trl,
    to_verl,
)
from trimtab.errors import SettingError

WORDS = {"grader": "correct", "source": "openai/gsm8k", "k": "8"}
IN = {"trl": from_trl, "verl": from_verl}
OUT = {"trl": to_trl, "verl": to_verl}


def filled(key: str) -> str:
    for place, word in WORDS.items():
        key = key.replace("{" + place + "}", word)
    return key


@pytest.mark.parametrize("framework", ["trl", "verl"])
def test_every_name_leads_to_a_metric_and_back(framework):
    keys = [alias.key for alias in aliases_of(framework).values()]
    assert len(keys) == len(set(keys)), "one of our metrics has one name there"
    for name in aliases_of(framework):
        alias = IN[framework](filled(name))
        assert alias is not None, name
        assert find(alias.key)
        back = OUT[framework](alias.key)
        if "{source}" in name:
            assert back is None, "we cannot know the source's name"
        else:
            assert back is not None
            assert back.key == filled(name)
            assert back.of(alias.of(3.0)) == pytest.approx(3.0)


def test_the_traps():
    kl, sampler = from_verl("actor/ppo_kl"), from_verl("rollout_corr/kl")
    assert kl is not None
    assert sampler is not None
    assert (kl.key, sampler.key) == ("kl/old_k1", "mismatch/k1"), "neither is the KL to the reference"
    reference = from_trl("kl")
    assert reference is not None
    assert reference.key == "kl/reference_k3"
    for name in NOT_THE_SAME:
        assert from_trl(filled(name)) is None
        assert from_verl(filled(name)) is None


def test_scales():
    memory = from_verl("perf/max_memory_allocated_gb")
    assert memory is not None
    assert memory.of(2.0) == 2 * 2**30
    back = to_verl("memory/device_peak_bytes")
    assert back is not None
    assert back.of(2.0**31) == 2.0


def test_unknown_names_are_none_of_ours():
    for name in ("", "rewards//mean", "rewards/correct/std", "val-core/x/acc/mean@", "entropy/x"):
        assert from_trl(name) is None
        assert from_verl(name) is None
    assert to_trl("value/mean") is None
    assert to_verl("grades/part/answer") is None


def test_families_carry_their_words():
    grader = from_trl("rewards/correct/mean")
    assert grader is not None
    assert grader.key == "grades/part/correct"
    votes = from_verl("val-core/openai/gsm8k/acc/maj@8/mean")
    assert votes is not None
    assert votes.key == "evaluation/maj@8"


def test_the_json_of_the_catalogue_carries_them():
    metrics = as_json()["metrics"]
    assert metrics["length/truncated"]["aliases"]["trl"]["key"] == "completions/clipped_ratio"
    assert metrics["length/truncated"]["aliases"]["verl"]["key"] == "response_length/clip_ratio"
    named = [alias for table in ALIASES.values() for alias in table.values()]
    assert sum(len(metric["aliases"]) for metric in metrics.values()) >= len({a.key for a in named})
    with pytest.raises(SettingError):
        find("completions/clipped_ratio")
