"""Repetition, the pool lately, effective mass and bands, against numbers worked out by hand."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.handmade import scored_of
from tests.scenes import batch, four_way, report, scored
from trimtab.catalog import CATALOG, as_json, find, imported
from trimtab.catalog.spec import Band
from trimtab.cli import main
from trimtab.data.memory import LATELY, PromptMemory
from trimtab.metrics import read
from trimtab.probes import group_metrics, pool_metrics, update_metrics
from trimtab.probes.repetition import repeated_shares, repetition_metrics
from trimtab.types import Trace


def shown(metrics):
    found = read(metrics)
    assert found.missing == {}
    return found.values


def test_repetition_by_hand():
    """abcabcabcabc: nine 4-grams, three different. 0 to 11: nine, all different. aaaaaaaa: five, one."""
    answers = [np.array([1, 2, 3] * 4), np.arange(12), np.full(8, 7)]
    assert repeated_shares(answers) == pytest.approx([1 - 3 / 9, 0.0, 1 - 1 / 5])
    values = shown(repetition_metrics([*answers, np.full(7, 7)]))  # seven tokens say nothing
    assert values["answers/repetition"] == pytest.approx((2 / 3 + 0 + 0.8) / 3)
    assert values["answers/looping"] == pytest.approx(2 / 3)
    assert repetition_metrics([np.arange(3)]) == {}
    assert repetition_metrics([]) == {}


def test_the_same_words_in_two_answers_are_no_repetition():
    assert repeated_shares([np.arange(10), np.arange(10)]).tolist() == [0.0, 0.0]


def test_repetition_agrees_with_a_plain_count():
    random = np.random.default_rng(0)
    answers = [random.integers(0, 3, size=n) for n in random.integers(8, 60, size=40)]
    plain = []
    for ids in answers:
        grams = [tuple(ids[i : i + 4].tolist()) for i in range(len(ids) - 3)]
        plain.append(1 - len(set(grams)) / len(grams))
    assert repeated_shares(answers) == pytest.approx(plain)


def test_effective_mass_counts_every_token_alike():
    """Gates 0, 1, 1 with A = 1, 1, -1: two thirds of the advantages arrive, whatever the weights say."""
    for weights in ((0.25, 0.25, 0.5), (1 / 3, 1 / 3, 1 / 3)):
        made, trace = four_way(weights, (1.5, 0.5, 1.5), (0, 1, 1))
        assert shown(update_metrics(made, report(trace)))["gate/effective_mass"] == pytest.approx(2 / 3)
    made = batch((3,), old_logprobs_T=[-1.0] * 3, advantages_T=[4.0, -1.0, 0.0])
    trace = Trace(logprobs_T=torch.zeros(3) - 1, ratio_T=torch.ones(3), gate_T=torch.tensor([0.5, 1.0, 1.0]))
    assert shown(update_metrics(made, report(trace)))["gate/effective_mass"] == pytest.approx(3 / 5)


def test_the_pool_lately():
    """Twenty steps ago counts no more; what was trained on lately is compared with all that was seen."""
    memory = PromptMemory()
    easy, hard, old = (scored_of(v, id=n) for n, v in (("e", [1, 1]), ("h", [0, 1]), ("o", [0, 0])))
    memory.observe(old, 0)
    memory.observe_trained([old])
    memory.observe(easy, LATELY - 1)
    assert memory.coverage(10).trained_lately == 1, "step 0 still counts at step 19"
    memory.observe(hard, LATELY)
    memory.observe_trained([hard])
    seen = memory.coverage(10)
    assert (seen.drawn_lately, seen.trained_lately, seen.trained_pass_rate) == (2, 1, 0.5)
    values = shown(pool_metrics(**{f.name: getattr(seen, f.name) for f in dataclasses.fields(seen)}))
    assert values["pool/drawn_lately"] == 0.2
    assert values["pool/trained_lately"] == 0.1
    assert values["pool/pass_rate"] == 0.5
    assert values["pool/pass_shift"] == 0.0


def test_the_memory_of_a_run_begun_before_this_is_read():
    memory = PromptMemory()
    memory.observe(scored_of([0, 1], id="p"), 7)
    memory.observe_trained([scored_of([0, 1], id="p")])
    state = json.loads(json.dumps(memory.state()))
    again = PromptMemory()
    again.restore(state)
    assert again.coverage(4) == memory.coverage(4)
    state["prompts"] = {key: entry[:4] for key, entry in state["prompts"].items()}
    again.restore(state)
    assert again.coverage(4).trained_lately == 0
    assert again.coverage(4).trained == 1


def test_bands_judge():
    less, more = Band(1e-3, 1e-2, "so"), Band(0.99, 0.9, "so")
    assert [less.judge(x) for x in (1e-3, 5e-3, 1e-2)] == ["healthy", "watch", "unhealthy"]
    assert [more.judge(x) for x in (0.99, 0.95, 0.9)] == ["healthy", "watch", "unhealthy"]
    assert str(more) == "so: healthy >= 0.99, unhealthy <= 0.9"
    for key in ("probability", "logprob", "k3", "ess"):
        assert len(find(f"mismatch/{key}").bands) == 2


def test_explain_speaks_json_and_foreign_names(capsys: pytest.CaptureFixture[str]):
    assert main(["explain", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(as_json()))
    assert main(["explain", "--json", "loss/policy"]) == 0
    assert json.loads(capsys.readouterr().out)["key"] == "loss/{term}"
    assert main(["explain", "actor/ppo_kl"]) == 0
    assert "verl's actor/ppo_kl is kl/old_k1" in capsys.readouterr().out
    assert main(["explain", "actor/pg_clipfrac_lower"]) == 0
    assert "dual clip" in capsys.readouterr().out
    assert main(["explain", "clip/removd"]) == 2
    assert "did you mean 'clip/removed'" in capsys.readouterr().err
    assert main(["explain"]) == 2


def test_the_states_of_grades_add_up_and_a_dead_part_shows():
    """Right, wrong, half right, three ways of no value; one grader's values 1, 0, 0.5 spread by sqrt(1/6)."""
    group = scored("p", [1, 0, 0.5, "ungradable", "timeout", "failed"], [1, 2, 3, 4, 5, 6])
    values = shown(group_metrics([group], max_new_tokens=10))
    states = ("grades/right", "grades/wrong", "grades/partial")
    states += ("grades/not_gradable", "grades/timeout", "grades/grader_failed")
    assert [values[key] for key in states] == pytest.approx([1 / 6] * 6)
    assert values["grades/part_std/answer"] == pytest.approx((1 / 6) ** 0.5)
    quantiles = ("length/p10", "length/p50", "length/p90", "length/p99")
    assert [values[key] for key in quantiles] == [1, 3, 6, 6]
    dead = shown(group_metrics([scored("p", [0, 0, 0], [1, 2, 3])], max_new_tokens=10))
    assert dead["grades/part_std/answer"] == 0.0


def test_the_tails_of_ratio_and_gate():
    """A hundred tokens of ratio 1 and one of 3 in an answer of their own; one gate of 0.1 among twenty."""
    ratios = [1.0] * 100 + [3.0]
    made = batch((100, 1), old_logprobs_T=[-1.0] * 101, advantages_T=[-1.0] * 101)
    trace = Trace(
        logprobs_T=torch.log(torch.tensor(ratios, dtype=torch.float64)) - 1.0,
        ratio_T=torch.tensor(ratios),
        gate_T=torch.tensor([0.1] * 10 + [1.0] * 91),
    )
    values = shown(update_metrics(made, report(trace)))
    assert values["ratio/token_p1"] == pytest.approx(1.0, abs=1e-6)
    assert values["ratio/token_p99"] == pytest.approx(1.0, abs=1e-6)
    assert values["ratio/token_max"] == pytest.approx(3.0)
    assert values["ratio/sequence_std"] == pytest.approx(1.0)  # of 1 and 3
    assert values["ratio/sequence_p1"] == pytest.approx(1.0, abs=1e-6)
    assert values["ratio/sequence_p99"] == pytest.approx(3.0, rel=0.07)
    assert values["gate/negative_p5"] == pytest.approx(0.1, abs=0.005)


def test_every_metric_is_named_in_a_test():
    """A metric that no test of numbers names is not tested: as a literal, families with any word."""
    tests = [path for path in Path(__file__).parents[1].rglob("test_*.py") if path.name != "test_catalog.py"]
    texts = "\n".join(path.read_text(encoding="utf-8") for path in tests)
    foreign = {spec.key for section in imported.SECTIONS for spec in section.specs}
    unnamed = [
        spec.key
        for spec in CATALOG.values()
        if spec.key not in foreign and not re.search(rf'"{spec.pattern.pattern}"', texts)
    ]
    assert unnamed == []
