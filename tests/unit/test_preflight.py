"""Preflight: each question on cases with a known answer, then the command on real recipes."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from tests.handmade import prompt_of, scored_of
from tests.tiny import tiny_model
from trimtab.cli import main
from trimtab.data.prompts import PromptSet
from trimtab.data.report import LoadReport
from trimtab.data.selection import Selection
from trimtab.doctor.preflight.answers import (
    answers_of,
    grading,
    overlong,
    parsing,
    repetition,
    suggested_limit,
    truncation,
)
from trimtab.doctor.preflight.check import Check, Level, Preflight
from trimtab.doctor.preflight.groups import draws_per_group, group_checks
from trimtab.doctor.preflight.prompts import (
    duplicates,
    end_token,
    gold_answers,
    rendered,
    start_token,
    unknown_tokens,
)
from trimtab.rewards.answer import AnswerMatch
from trimtab.rewards.grader import Unverifiable
from trimtab.rewards.rubric import Rubric
from trimtab.rewards.shaping import SoftOverlong
from trimtab.templates import render
from trimtab.types import ScoredGroup

RUBRIC = Rubric([(AnswerMatch(marker="#"), 1.0)])


def with_texts(texts: list[str]) -> ScoredGroup:
    group = scored_of([0.0] * len(texts))
    rollouts = tuple(dataclasses.replace(r, text=t) for r, t in zip(group.group.rollouts, texts, strict=True))
    return dataclasses.replace(group, group=dataclasses.replace(group.group, rollouts=rollouts))


def prompts_of(*texts: str, merged: int = 0, leaked: int = 0) -> PromptSet:
    train = tuple(prompt_of(f"p{i}", text=text) for i, text in enumerate(texts))
    report = LoadReport(
        schema=None, rows=(len(texts) + merged, 0), merged=(merged, 0), dropped=0, leaked=leaked, warnings=()
    )
    return PromptSet(train=train, held_out=(), report=report)


def test_two_start_tokens_are_critical_and_one_is_not():
    model = tiny_model(bos=True)
    bos = model.tokenizer.bos_token_id
    once = dataclasses.replace(prompt_of(), token_ids=render(model.tokenizer, "3+4=").token_ids)
    twice = dataclasses.replace(once, id="twice", token_ids=np.array([bos, *once.token_ids]))
    assert start_token(model, [once]).level is Level.OK
    found = start_token(model, [once, twice])
    assert found.level is Level.CRITICAL
    assert "'twice'" in found.says


def test_a_prefilled_tag_is_told():
    model = tiny_model()
    text = "3+4=<think>\n"
    prompt = dataclasses.replace(prompt_of(text=text), token_ids=render(model.tokenizer, text).token_ids)
    found = rendered(model, prompt)
    assert found.level is Level.NOTE
    assert "<think>" in found.says


def test_a_model_without_an_end_token_is_critical():
    model = dataclasses.replace(tiny_model(), stop_ids=())
    assert end_token(model, prompt_of()).level is Level.CRITICAL


def test_the_templates_own_end_must_be_an_end_token():
    model = tiny_model(bos=True)
    model.tokenizer.chat_template = (
        "{% for m in messages %}{{ m['content'] }}<bos>{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    prompt = dataclasses.replace(prompt_of(), messages=({"role": "user", "content": "a"},))
    found = end_token(model, prompt)
    assert found.level is Level.WARNING
    assert "<bos>" in found.says
    bos = model.tokenizer.bos_token_id
    assert end_token(dataclasses.replace(model, stop_ids=(1, bos)), prompt).level is not Level.WARNING


def test_unknown_tokens_are_counted():
    model = tiny_model()
    model.tokenizer.unk_token = "="
    hit = dataclasses.replace(prompt_of(), token_ids=render(model.tokenizer, "3+4=").token_ids)
    clean = dataclasses.replace(prompt_of(), token_ids=render(model.tokenizer, "3+4").token_ids)
    assert unknown_tokens(model, [clean, clean, hit]).level is Level.WARNING
    assert unknown_tokens(model, [hit]).level is Level.CRITICAL
    assert unknown_tokens(model, [clean]).level is Level.OK


def test_duplicates_merged_near_and_leaked():
    assert duplicates(prompts_of("a", "b")).level is Level.OK
    assert duplicates(prompts_of(*map(str, range(30)), leaked=1)).level is Level.NOTE
    near = duplicates(prompts_of("What is 2?", "what  is 2?", "b", "c"))
    assert near.numbers["near"] == 1
    assert near.level is Level.WARNING
    assert duplicates(prompts_of("a", "b", merged=3)).level is Level.WARNING


def test_gold_answers_that_fail_are_shown():
    bad = [Unverifiable("p1", "x", "answer: no number")]
    assert gold_answers([], 4).level is Level.OK
    assert gold_answers(bad, 9).level is Level.WARNING
    found = gold_answers(bad, 1)
    assert found.level is Level.CRITICAL
    assert "p1" in found.shown[0]


def test_truncation_suggests_a_limit_within_the_context():
    cut = answers_of([scored_of([0.0] * 10, lengths=[8] * 10, truncated=range(10))])
    found = truncation(cut, limit=8, room=20)
    assert (found.level, found.numbers["suggested"]) == (Level.CRITICAL, 20)
    assert "sampling.max_new_tokens = 20" in found.advice
    assert "model that answers shorter" in truncation(cut, limit=8, room=8).advice
    few = answers_of([scored_of([0.0] * 10, lengths=[8] * 10, truncated=[0])])
    assert truncation(few, limit=8, room=100).level is Level.NOTE
    assert suggested_limit(np.full(100, 51), 0.0, 500, 1000) == 57


def test_overlong_counts_right_answers_only():
    group = scored_of([1.0, 1.0, 0.0, 0.0], lengths=[5, 9, 10, 10])
    found = overlong(answers_of([group]), SoftOverlong(buffer=4), 10)
    assert found.numbers == {"share": 0.5, "right": 2}
    assert found.level is Level.WARNING
    none_right = answers_of([scored_of([0.0, 0.0])])
    assert overlong(none_right, SoftOverlong(buffer=4), 10).level is Level.SKIPPED


def test_parsing_counts_ended_answers_in_which_something_was_read():
    assert parsing(answers_of([with_texts(["#7", "#8", "#9", "#1"])]), RUBRIC).level is Level.OK
    half = parsing(answers_of([with_texts(["#7", "seven\nor so", "#9", "it is\nnine"])]), RUBRIC)
    assert half.level is Level.WARNING
    assert half.numbers["share"] == 0.5
    assert "seven" in half.shown[0]
    assert parsing(answers_of([with_texts(["no\nidea"] * 4)]), RUBRIC).level is Level.CRITICAL


def test_parsing_is_skipped_where_no_answer_ended():
    cut = scored_of([0.0, 0.0], truncated=[0, 1])
    assert parsing(answers_of([cut]), RUBRIC).level is Level.SKIPPED


def test_ungraded_answers_warn_and_too_many_are_critical():
    some = grading(answers_of([scored_of([None, 1.0, 0.0, 1.0])]), RUBRIC)
    assert (some.level, some.numbers["ungraded"]) == (Level.WARNING, 1)
    assert grading(answers_of([scored_of([None, None, 0.0])]), RUBRIC).level is Level.CRITICAL


def test_repetition_within_a_group():
    assert repetition([with_texts(["a", "a", "a", "b"])]).numbers["share"] == 0.5
    assert repetition([with_texts(["a"] * 4)]).level is Level.WARNING


def test_hopeless_and_mastered_prompts_are_critical():
    for value in (0.0, 1.0):
        checks = group_checks([scored_of([value] * 8)] * 20, None, 8, 100, 10)
        assert [check.level for check in checks] == [Level.CRITICAL, Level.CRITICAL]


def test_useful_groups_and_the_cost_of_dynamic_sampling():
    groups = [scored_of([1.0] * 4 + [0.0] * 4)] + [scored_of([0.0] * 8)] * 9
    _, useful = group_checks(groups, Selection(max_draws_factor=2.0), 8, 100, 10)
    assert useful.numbers["8"]["share"] == pytest.approx(0.1)
    assert "10.0 groups for each kept one" in useful.says
    assert useful.level is Level.WARNING
    assert draws_per_group(groups, Selection(max_draws_factor=2.0), 8) == 2.0
    assert draws_per_group(groups, None, 8) == 1.0


def test_nothing_graded_is_not_called_healthy():
    (found,) = group_checks([scored_of([None, None])], None, 8, 100, 10)
    assert found.level is Level.SKIPPED


def test_the_verdict_is_the_worst_check():
    def checks(*levels: Level) -> Preflight:
        return Preflight(checks=tuple(Check(name="x", level=level, says="y") for level in levels))

    assert checks(Level.OK, Level.NOTE).verdict == "ready"
    assert checks(Level.OK, Level.WARNING).verdict.startswith("ready, with 1 warning")
    assert checks(Level.CRITICAL, Level.CRITICAL).verdict.startswith("not ready: 2 things")
    assert "1 check could not look" in checks(Level.OK, Level.SKIPPED).verdict


def test_the_default_recipe_is_ready(capsys: pytest.CaptureFixture[str]):
    code = main(["preflight", "quickstart", "--answers", "64", "--json"])
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert "loading embedded/sums; then 64 answers" in said.err
    by_name = {check["name"]: check for check in found["checks"]}
    assert code == 0
    assert found["verdict"].startswith("ready")
    assert by_name["drawn"]["numbers"] == {"answers": 64, "prompts": 8}
    assert by_name["time"]["numbers"]["parts"]["update"] > 0.0
    assert by_name["memory"]["numbers"]["update_included"] is True
    assert 0.2 < by_name["pass-rate"]["numbers"]["mean"] < 0.7


def test_exit_codes_and_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    short = tmp_path / "short.toml"
    short.write_text(
        '[model]\npath = "embedded/sums"\n[data]\ntask = "sums"\n[[reward.graders]]\nname = "answer"\n'
        'options = { marker = "#" }\n[algorithm]\nname = "grpo"\n[sampling]\nmax_new_tokens = 6\n'
    )
    assert main(["preflight", str(short), "--answers", "32"]) == 1
    said = capsys.readouterr().out
    assert "not ready" in said
    assert "sampling.max_new_tokens = 24" in said
    assert main(["preflight", str(short), "--answers", "32", "--fail-on", "never"]) == 0
    assert main(["preflight", str(short), "--answers", "0"]) == 2


def test_the_drawn_answers_are_cut_at_whole_batches(capsys: pytest.CaptureFixture[str]):
    assert main(["preflight", "quickstart", "--answers", "128", "--seconds", "0.001", "--json"]) == 0
    checks = json.loads(capsys.readouterr().out)["checks"]
    drawn = next(check for check in checks if check["name"] == "drawn")
    assert drawn["numbers"] == {"answers": 32, "prompts": 4}
    assert drawn["level"] == "note"
