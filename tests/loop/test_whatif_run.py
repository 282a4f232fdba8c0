"""What-if on real recorded runs: the run's own algorithm gives back what it wrote; the command works."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.tiny_runs import tiny_run, train_silently
from trimtab import cli
from trimtab.config import run_from_dict
from trimtab.doctor.whatif import reweigh
from trimtab.doctor.whatif_groups import GroupCounts, shares_by_size
from trimtab.doctor.whatif_recorded import as_recorded, tally
from trimtab.record.reader import RunReader

BIG_STEPS = {"updates_per_step": 2, "epochs": 2, "learning_rate": 3e-2}
COLUMNS = ("ratio_T", "gate_T", "weight_T", "advantages_T", "gradient_share_T")


def made(model: Path, folder: Path, algorithm, **record) -> RunReader:
    train_silently(tiny_run(model, algorithm, run={"steps": 2}, trainer=BIG_STEPS, record=record), folder)
    return RunReader(folder)


@pytest.fixture(scope="module")
def grpo(model: Path, tmp_path_factory: pytest.TempPathFactory) -> RunReader:
    return made(model, tmp_path_factory.mktemp("grpo") / "run", "grpo")


@pytest.fixture(scope="module")
def others(model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, RunReader]:
    """Runs of other kinds; DAPO keeps the tokens of two groups a step only."""
    root = tmp_path_factory.mktemp("others")
    return {
        "gspo": made(model, root / "gspo", "gspo"),
        "sapo": made(model, root / "sapo", "sapo"),
        "dapo": made(model, root / "dapo", {"name": "dapo", "overlong_buffer": 4}, tokens=2),
        "ppo": made(model, root / "ppo", "ppo"),
    }


def check(reader: RunReader, *, told: bool) -> int:
    """Compare every recorded step; the number of rollouts compared. told: whether the run's algorithm is."""
    own = run_from_dict(reader.run["run"]).build_algorithm()
    compared = 0
    for step in reader.rollout_steps():
        rows = reader.rollouts(step)
        wrote, found = as_recorded(rows, "run"), reweigh(rows, own, own=own if told else None)
        assert wrote.rollouts.keys() == found.rollouts.keys()
        for key, part in wrote.rollouts.items():
            trained = part.trained_T
            np.testing.assert_array_equal(trained, found.rollouts[key].trained_T)
            for column in COLUMNS:
                ours, theirs = getattr(found.rollouts[key], column), getattr(part, column)
                np.testing.assert_allclose(
                    ours[trained], theirs[trained], rtol=2e-6, atol=2e-7, err_msg=column
                )
        compared += len(wrote.rollouts)
        apart = tally(found, wrote).elsewhere
        assert apart is None or apart < 1e-6
    return compared


@pytest.mark.parametrize("told", [True, False])
def test_the_runs_own_algorithm_gives_back_its_gates_weights_and_advantages(grpo, others, told: bool):
    readers = {"grpo": grpo, **others}
    compared = {name: check(reader, told=told) for name, reader in readers.items()}
    assert compared["dapo"] < compared["grpo"]
    assert min(compared.values()) >= 8


def test_some_gate_was_shut_or_these_runs_would_prove_nothing(grpo, others):
    cut = {
        name: sum(tally(as_recorded(r.rollouts(s), name)).cut for s in r.rollout_steps())
        for name, r in {"grpo": grpo, **others}.items()
    }
    assert all(cut[name] > 0 for name in ("grpo", "gspo", "dapo", "ppo")), cut
    assert tally(as_recorded(others["sapo"].rollouts(1), "sapo")).damped > 0


def test_group_sizes_are_counted_over_kept_and_dropped_groups(others):
    reader, counts = others["dapo"], GroupCounts()
    for step in reader.rollout_steps():
        counts.add(reader.rollouts(step))
    groups = {row.group for step in reader.rollout_steps() for row in reader.rollouts(step)}
    assert len(counts.graded) == len(groups)
    sampled = next(share for share in shares_by_size(counts) if share.size == 4)
    mixed = [0 < right < graded for right, graded in zip(counts.right, counts.graded, strict=True)]
    assert sampled.method == "counted"
    assert sampled.value == pytest.approx(np.mean(mixed))


# ------------------------------------------------------------------------------------------ the command


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = cli.main(["whatif", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_side_by_side(grpo, capsys):
    folder = str(grpo.folder.path)
    code, out, _ = run(capsys, folder, "1", "--as", "sapo", "--as", "sharp=sapo", "sharp.tau_pos=20.0")
    assert code == 0
    assert "as it was (grpo)" in out
    assert "soft gate 20 / 1.05" in out
    assert "not recomputed: advantages that need a critic" in out
    assert "trained tokens" in out


def test_every_token_of_one_answer(grpo, capsys):
    row = next(row for row in grpo.rollouts(1) if row.tokens is not None and row.trained_tokens)
    code, out, _ = run(capsys, str(grpo.folder.path), "1", "--as", "gspo", "--rollout", row.key)
    assert code == 0
    assert len([line for line in out.splitlines() if line[:1].isdigit()]) == row.length


def test_json_holds_everything_and_nothing_else(grpo, capsys):
    _, out, _ = run(capsys, str(grpo.folder.path), "1", "--as", "sapo", "--json")
    tree = json.loads(out)
    assert [column["algorithm"] for column in tree["algorithms"]] == ["grpo", "sapo"]
    one = next(iter(tree["algorithms"][1]["rollouts"].values()))
    assert {"gate_T", "weight_T", "gradient_share_T", "ratio_T"} <= one.keys()
    _, out, _ = run(capsys, str(grpo.folder.path), "--groups", "--json")
    assert [share["size"] for share in next(iter(json.loads(out).values()))] == [2, 4, 8, 16, 32]


def test_group_sizes_as_a_table(others, capsys):
    code, out, _ = run(capsys, str(others["dapo"].folder.path), "--groups")
    assert code == 0
    assert "as sampled" in out
    assert "beta-binomial" in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["9"], "no rollouts of step 9"),
        ([], "needs a STEP"),
        (["1", "--as", "ppo"], "come from a critic"),
        (["1", "--as", "sapoo"], "did you mean 'sapo'"),
        (["1", "--as", "sapo", "gspo.clip_low=1.0"], "no --as names"),
        (["1", "--as", "sapo", "--rollout", "nobody"], "no rollout 'nobody'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(grpo, capsys, words, why):
    code, _, err = run(capsys, str(grpo.folder.path), *words)
    assert code == cli.USER_ERROR
    assert why in err
