"""The fault benchmark: its plan, its injections and its scoring."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from benchmarks.doctor import prompts, trainers
from benchmarks.doctor.asking import Said
from benchmarks.doctor.engines import EndMasked, Late, Retokenizing, by_characters, by_place
from benchmarks.doctor.faults import FAULTS, SCORED_ONLY
from benchmarks.doctor.peers.alarms import Alarm
from benchmarks.doctor.peers.mapping import CHECKS, WORDS, checks_for
from benchmarks.doctor.plan import all_scenes, chosen
from benchmarks.doctor.report import by_fault, totals
from benchmarks.doctor.score import Count, Judged, judge_ours, judge_theirs, score, wilson
from benchmarks.doctor.toys import with_merges

from tests.tiny import tiny_model
from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.config import run_from_dict
from trimtab.models import load_model
from trimtab.rollout.engine import Sampling
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Draw, Finish, Prompt, Rollout, VersionSpan

# ------------------------------------------------------------------------------------------- the plan


def test_every_run_has_a_valid_recipe_and_a_name_of_its_own():
    scenes = all_scenes()
    runs = [run_from_dict(scene.settings()) for scene in scenes]
    assert len({scene.name for scene in scenes}) == len(scenes)
    assert [run.run.name for run in runs] == [scene.name for scene in scenes]


def test_the_plan_is_as_large_as_promised_and_no_run_is_both_tuned_and_scored():
    scored, tuning = chosen([], "scored"), chosen([], "tuning")
    assert len(FAULTS) >= 24
    assert all(any(scene.cause == fault.cause for scene in scored) for fault in FAULTS)
    assert sum(scene.cause is None for scene in scored) >= 24
    assert not {scene.name for scene in scored} & {scene.name for scene in tuning}
    assert SCORED_ONLY
    assert not SCORED_ONLY & {scene.cause for scene in tuning}


def test_runs_are_chosen_by_the_beginning_of_their_name():
    assert {scene.cause for scene in chosen(["stale-sampler"])} == {"stale-sampler"}
    assert [scene.name for scene in chosen(["healthy--grpo--2"])] == ["healthy--grpo--2"]
    assert chosen(["no-such-run"]) == []


def test_every_fault_is_mapped_for_the_other_packages():
    causes = {fault.cause for fault in FAULTS}
    assert CHECKS.keys() == WORDS.keys() == causes
    assert "plateau" in checks_for("double-bos", "rldoctor")
    assert checks_for("double-bos", "rlprobe") == frozenset()


# ------------------------------------------------------------------------------------------- scoring


@pytest.mark.parametrize(
    ("hits", "tries", "low", "high"),
    [(5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (0, 10, 0.0, 0.2775), (0, 0, 0.0, 1.0)],
)
def test_intervals_are_those_of_wilson(hits, tries, low, high):
    assert wilson(Count(hits, tries)) == pytest.approx((low, high), abs=1e-4)


def test_ours_is_right_first_only_where_the_first_finding_blames_the_fault_first():
    here = Said("signal", "critical", ("data-too-hard", "parser-broken"))
    other = Said("length", "warning", ("parser-broken",))
    accepted = frozenset({"parser-broken"})
    assert judge_ours("r", "parser-broken", accepted, [here, other]).found
    assert not judge_ours("r", "parser-broken", accepted, [here, other]).first
    assert judge_ours("r", "parser-broken", accepted, [other, here]).first
    note = dataclasses.replace(other, severity="note")
    assert not judge_ours("r", "parser-broken", accepted, [note]).found
    assert not judge_ours("r", "parser-broken", accepted, []).found


def test_a_peer_has_found_a_fault_by_a_mapped_check_and_named_it_by_its_words():
    alarm = Alarm("clip_saturation", "warning", "40% are clipped; check for a stale-rollout problem")
    seen = judge_theirs("rldoctor", "r", "stale-sampler", [alarm])
    assert (seen.found, seen.first) == (True, True)
    quiet = judge_theirs("rldoctor", "r", "stale-sampler", [dataclasses.replace(alarm, severity="note")])
    assert (quiet.found, quiet.first) == (False, False)
    unmapped = judge_theirs("rldoctor", "r", "gold-wrong", [alarm])
    assert (unmapped.found, unmapped.alarmed) == (False, True)


def test_a_card_counts_runs_and_false_alarms():
    judged = [
        Judged("a", "gold-wrong", (("r", "warning"),), found=True, first=True, named="gold-wrong"),
        Judged("b", "gold-wrong", (("r", "critical"),), found=True, named="data-too-hard"),
        Judged("c", None, ()),
        Judged("d", None, (("r", "critical"),), named="gold-wrong"),
    ]
    card = score("trimtab", judged, ["gold-wrong"])
    assert (card.found, card.first) == (Count(2, 2), Count(1, 2))
    assert (card.precision, card.critical_false, card.false) == (Count(2, 3), Count(1, 2), Count(1, 2))
    assert card.rows[0].precision == Count(1, 2)
    assert "2/2 = 1.00 [0.34, 1.00]" in totals([card])
    assert "| gold-wrong | 2/2, 1/2, 1/2 |" in by_fault([card])


# ----------------------------------------------------------------------------------------- injections


def rollout(ids, logprobs, text):
    return Rollout(
        prompt_id="p", draw=0, index=0, token_ids=np.array(ids),
        logprobs=np.array(logprobs, dtype=np.float32),
        mask=np.ones(len(ids), dtype=np.bool_), finish=Finish.STOP, versions=(VersionSpan(3, 0, len(ids)),),
        seed=1, text=text,
    )  # fmt: skip


@pytest.fixture(scope="module")
def merged():
    return with_merges(load_model("embedded/sums"))


def test_the_merged_tokenizer_says_a_text_in_more_than_one_way(merged):
    tokenizer = merged.tokenizer
    assert tokenizer("3=-1")["input_ids"][0] == tokenizer.bos_token_id
    ids = tokenizer("3=-1", add_special_tokens=False)["input_ids"]
    assert len(ids) == 3
    assert tokenizer.decode(ids) == "3=-1"


def test_retokenizing_changes_tokens_and_keeps_text_and_total_log_probability(merged):
    spelled = [merged.tokenizer.get_vocab()[c] for c in "3=-1"]
    given = rollout([*spelled, *merged.stop_ids], [-1.0, -2.0, -4.0, -8.0, -0.5], "3=-1")
    by_text = Retokenizing(merged, by_characters).changed(given)
    assert len(by_text.token_ids) == 4
    assert by_text.token_ids[-1] in merged.stop_ids
    assert by_text.logprobs.tolist() == pytest.approx([-1.0, -6.0, -8.0, -0.5])
    assert Retokenizing(merged, by_place).changed(given).logprobs.tolist() == [-1.0, -2.0, -4.0, -8.0]
    assert by_text.versions == (VersionSpan(3, 0, 4),)


def test_a_masked_end_token_is_not_trained():
    engine = EndMasked(tiny_model())
    assert engine.changed(rollout([5, 6, 1], [-1.0] * 3, "ab")).mask.tolist() == [True, True, False]


@pytest.mark.parametrize(("lag", "expected"), [(2, [1, 1, 1, 2, 3]), (None, [1, 1, 1, 1, 1])])
def test_a_late_engine_samples_from_old_weights_and_may_hide_it(lag, expected):
    model = tiny_model()
    honest, claims = Late(model, lag=lag, claims=False), Late(model, lag=lag, claims=True)
    name = next(iter(dict(model.module.named_parameters())))
    seen = []
    for version in range(1, 6):
        weights = {
            n: torch.full_like(p, version) for n, p in model.module.named_parameters(remove_duplicate=False)
        }
        for engine in (honest, claims):
            asyncio.run(engine.load_weights(iter(weights.items()), version))
        assert claims.version == version
        seen.append(int(dict(claims.model.module.named_parameters())[name].flatten()[0]))
        assert honest.version == seen[-1]
    assert seen == expected


def test_groups_of_a_faulty_engine_are_the_real_ones_apart_from_the_fault():
    model = tiny_model()
    prompt = Prompt(id="p", token_ids=np.array([5, 6]), text="34", task="t")

    async def sample(purpose):
        groups = EndMasked(model).generate(
            [Draw(prompt, 0)], 8, Sampling(max_new_tokens=40), seed=1, purpose=purpose
        )
        return await anext(groups)

    trained, evaluated = asyncio.run(sample("train")), asyncio.run(sample("evaluation"))
    ended = [r for r in trained.rollouts if r.finish is Finish.STOP]
    assert ended
    assert not any(r.mask[-1] for r in ended)
    assert all(r.mask.all() for r in evaluated.rollouts)


def trainer_of(kind, **config):
    model = tiny_model()
    return kind(
        LocalTrainer(model, temperature=1.0, config=TrainerConfig(learning_rate=1e-2, **config))
    ), model


def prepared(trainer, model):
    batch = with_advantages(ragged_batch(model.vocab_size))
    return asyncio.run(trainer.annotate(batch, frozenset({"old_logprobs_T"})))


def test_recomputed_old_log_probabilities_make_every_ratio_one():
    trainer, model = trainer_of(trainers.OldFromNow, old_logprobs="recompute")
    plain, same_model = trainer_of(trainers.Around, old_logprobs="recompute")
    for kind, of, moves in ((trainer, model, False), (plain, same_model, True)):
        batch = prepared(kind, of)
        asyncio.run(kind.update(POLICY.weighted(batch), POLICY))
        ratios = asyncio.run(kind.update(POLICY.weighted(batch), POLICY)).trace.ratio_T
        assert (float((ratios - 1).abs().max()) > 1e-3) is moves


def test_means_of_micro_batches_weigh_tokens_unequally_and_still_add_up_to_one():
    trainer, model = trainer_of(trainers.MeanOfMeans, tokens_per_micro_batch=16)
    batch = POLICY.weighted(prepared(trainer, model))
    assert len(set(batch.weights_T.tolist())) == 1
    asyncio.run(trainer.update(batch, POLICY))
    assert len(set(batch.weights_T.tolist())) > 1
    assert float(batch.weights_T.sum()) == pytest.approx(1.0)


def test_changed_prompts_are_changed_as_said():
    model = SimpleNamespace(tokenizer=SimpleNamespace(bos_token_id=9))
    asked = [
        Prompt(id=f"p{i}", token_ids=np.array([1, 2]), text=f"{i}", task="t", answer=str(-i))
        for i in range(400)
    ]
    wrong = [b.answer != a.answer for a, b in zip(asked, prompts.gold_off(0.5)(asked, model), strict=True)]
    assert 0.4 < np.mean(wrong) < 0.6
    assert prompts.gold_unsigned(asked, model)[7].answer == "7"
    assert len({p.text for p in prompts.copies(4, own_ids=True)(asked, model)}) == 4
    assert len({p.id for p in prompts.copies(4, own_ids=True)(asked, model)}) == 400
    assert len({p.id for p in prompts.copies(4, own_ids=False)(asked, model)}) == 4
    assert prompts.second_start(asked, model)[0].token_ids.tolist() == [9, 1, 2]
