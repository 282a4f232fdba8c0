"""The speed benchmark's own arithmetic: work, shares, ratios, the search, the page, and shuffled curves."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.speed import compare, document, learning, linear, process, search, work
from benchmarks.speed.configurations import NUMERICS, PLAIN_PATH, Configuration, micro_batches
from benchmarks.speed.ours import run_of
from benchmarks.speed.scenes import SCENES, Scene, questions, scene_of
from benchmarks.speed.useful import alternating, ends_in

from tests.tiny import tiny_model
from trimtab.config import run_from_dict
from trimtab.models import export_model

PAGE = Path(__file__).parents[2] / "docs" / "speed.md"
SCENE = Scene(name="tiny", model="nowhere", prompts=4, samples=4, limit=8, questions="sums")


@pytest.fixture(scope="module")
def shape(tmp_path_factory: pytest.TempPathFactory) -> tuple[work.Shape, Any]:
    model = tiny_model("llama")
    folder = tmp_path_factory.mktemp("model")
    export_model(model.module, model.tokenizer, folder)
    return work.Shape.of(folder), model.module


def test_weights_are_those_of_the_model(shape):
    counted, module = shape
    matrices = [p.numel() for name, p in module.model.layers.named_parameters() if p.dim() == 2]
    assert counted.layer_weights == sum(matrices)
    assert counted.head_weights == module.get_output_embeddings().weight.numel()


def test_operations_of_a_forward_pass_are_those_torch_counts(shape):
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    counted, module = shape
    module.set_attn_implementation("eager")
    tokens = 7
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.full((1, tokens), 3), use_cache=False)
    rotary = counter.get_flop_counts().get("LlamaForCausalLM.model.rotary_emb", {})
    expected = counter.get_total_flops() - sum(rotary.values())
    assert counted.forward(tokens, tokens, tokens * tokens) == expected


def test_an_update_counts_prompts_once_a_group(shape):
    counted, _ = shape
    once = work.update_operations(counted, [10], [3, 3])
    twice = work.update_operations(counted, [10, 10], [3, 3])
    assert twice - once == 3 * counted.forward(10, 0, 55)


def test_sampling_takes_the_slower_of_reading_and_computing(shape):
    counted, _ = shape
    weights = counted.layer_weights + counted.head_weights
    slow_memory = work.sampling_seconds(counted, [4], [5, 2], work.Speed(1e30, 1.0), 4)
    assert slow_memory == pytest.approx(4 * 4 * weights)  # four steps after the prompt's own token
    slow_sums = work.sampling_seconds(counted, [4], [3, 2], work.Speed(1.0, 1e30), 4)
    steps = counted.forward(4, 1, 10) + counted.forward(2, 2, 2 * 5) + counted.forward(1, 1, 6)
    assert slow_sums == pytest.approx(steps)


def a_step(seconds: float, tokens: int = 100, **stages: float) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "tokens": tokens,
        "stages": stages,
        "peak_bytes": 1 << 30,
        "lengths": [50, 50],
        "prompt_lengths": [5],
    }


def result(scene: Scene) -> dict[str, Any]:
    sides = {
        compare.FAST: [
            a_step(1.0, sample=0.4, update=0.4, annotate=0.1),
            a_step(2.0, sample=0.8, update=1.0),
        ],
        compare.PLAIN: [a_step(3.0, sample=1.0, update=2.0), a_step(3.0, sample=1.0, update=2.0)],
        compare.PEER: [a_step(4.0, sample=1.0, update=3.0), a_step(5.0, sample=1.0, update=4.0)],
    }
    return {
        "scene": json.loads(scene.to_json()),
        "size": scene.size,
        "pairs": [{"numerics": "float32", "peer": "float32, static cache", "sides": sides}],
    }


def test_ratios_are_taken_round_by_round():
    assert compare.ratios(result(SCENE)["pairs"][0]["sides"]) == [2.5, 4.0]


def test_the_update_has_what_prepares_it_and_the_rest_what_is_left():
    step = a_step(1.0, sample=0.4, update=0.4, annotate=0.1)
    assert compare.stage(step, "update") == pytest.approx(0.5)
    assert compare.stage(step, "rest") == pytest.approx(0.1)


def test_step_table_names_the_peers_configuration_and_the_ratio():
    text = "\n".join(compare.step_table(result(SCENE)))
    assert "TRL: float32, static cache" in text
    assert "**3.25** (2.50 to 4.00)" in text
    assert "**3.00 times** as fast a step" in text
    assert {line.count("|") for line in text.splitlines() if line.startswith("|")} == {9}


def test_profile_shows_plain_and_fast_side_by_side():
    rows = list(compare.profile_table(result(SCENE)))
    assert "| sample | 1.00 | 0.60 |" in rows
    assert rows[-1] == "| whole step | 3.00 | 1.50 |"


def test_skipping_is_told_only_where_groups_may_be_uniform():
    told = result(SCENE)
    for step in told["pairs"][0]["sides"][compare.FAST]:
        step["uniform_groups"] = 0.25
    assert list(compare.silence(told)) == []
    told["scene"]["forced"] = False
    assert any("25% of the groups" in line for line in compare.silence(told))


def seconds_of(configuration: Configuration) -> dict[str, Any]:
    """bfloat16 is fastest, with micro-batches of 4; a static cache and eager attention each help."""
    name = configuration.name
    if "continuous batching" in name:
        return {"fault": "out of memory"}
    seconds = {"float32": 3.0, "autocast": 2.5, "bfloat16": 2.0}[configuration.numerics]
    seconds += abs(configuration.options["per_device_train_batch_size"] - 4) / 10
    seconds -= 0.3 * ("static cache" in name) + 0.2 * ("eager" in name) - 0.5 * ("one thread" in name)
    return {"seconds": seconds, "stages": {"sample": 1.0}, "peak_bytes": 1 << 30}


def test_search_combines_what_helps_and_finds_the_fastest(tmp_path: Path):
    best = search.search(SCENE, search.Tried(tmp_path / "tried.json", seconds_of))
    assert best.name == "bfloat16, micro-batches of 4, static cache, eager attention"
    assert best.options["cache_implementation"] == "static"
    assert best.options["dtype"] == "bfloat16"


def test_search_goes_on_where_it_was_interrupted(tmp_path: Path):
    asked: list[str] = []

    def run(configuration: Configuration) -> dict[str, Any]:
        if len(asked) == 9:
            raise KeyboardInterrupt
        asked.append(configuration.name)
        return seconds_of(configuration)

    path = tmp_path / "tried.json"
    with pytest.raises(KeyboardInterrupt):
        search.search(SCENE, search.Tried(path, run))
    first, asked[:] = list(asked), ["-"] * 10
    best = search.search(SCENE, search.Tried(path, run))
    assert not set(first) & set(asked)
    assert best.name.startswith("bfloat16")
    assert search.Tried(path, run).best("float32").numerics == "float32"


def test_search_table_marks_winners_and_tells_faults(tmp_path: Path):
    tried = search.Tried(tmp_path / "tried.json", seconds_of)
    search.search(SCENE, tried)
    rows = list(search.table(tried.found))
    assert sum("**" in row for row in rows) == len(NUMERICS)
    assert "**bfloat16, micro-batches of 4, static cache, eager attention**" in rows[2]
    assert any("| out of memory |" in row for row in rows)


def test_every_peer_micro_batch_divides_the_step():
    for numerics in NUMERICS:
        sizes = [c.options["per_device_train_batch_size"] for c in micro_batches(SCENE, numerics)]
        assert sizes == [16, 8, 4, 2]


@pytest.mark.parametrize("name", SCENES)
def test_every_scene_is_a_run(name: str, tmp_path: Path):
    scene = scene_of(name, tmp_path, tmp_path, prompts=2)
    run = run_from_dict(run_of(scene, tmp_path / "rows.jsonl", {"trainer.autocast": True}, slow=False))
    assert (run.sampling.prompts_per_step, run.sampling.max_new_tokens) == (2, scene.limit)
    assert run.trainer.autocast
    rows = questions(scene, 30)
    assert len({row.prompt for row in rows}) == 30


def test_the_plain_path_is_a_run(tmp_path: Path):
    plain = run_from_dict(run_of(SCENE, tmp_path / "rows.jsonl", PLAIN_PATH, slow=False))
    assert {plain.trainer.share_prompts, plain.trainer.fast, plain.sampling.fast} == {"never"}
    assert plain.trainer.old_logprobs == "recompute"


def test_rewards_make_every_group_useful_and_right_answers_right():
    assert {alternating(i) for i in range(2)} == {0.0, 1.0}
    assert ends_in("7-9=-2\n#-2", "-2") == 1.0
    assert ends_in("7-9=-2\n#2", "-2") == ends_in("-2", "-2") == ends_in("#-2 or so", "-2") == 0.0


def test_a_table_is_put_between_its_marks_only():
    page = f"before\n{document.begin('tiny steps')}\nold\n{document.END}\nafter\n"
    new = document.filled(page, "tiny steps", ["| a |", r"| \1 |"])
    assert new == f"before\n{document.begin('tiny steps')}\n| a |\n| \\1 |\n{document.END}\nafter\n"
    with pytest.raises(ValueError, match="0 places"):
        document.filled(page, "smollm2 steps", [])


def test_the_page_has_one_place_for_every_table():
    steps = [f"{scene} {part}" for scene in ("tiny", "smollm2") for part in ("steps", "shares")]
    rest = [
        f"{scene} {part}" for scene in ("tiny", "smollm2", "sums") for part in ("profile", "limits", "search")
    ]
    names = [*steps, "sums steps", *rest, "memory", "sampling", "overlap", "linear", "learning", "compile"]
    page = PAGE.read_text(encoding="utf-8")
    assert sorted(re.findall(r"<!-- table (.*?): ", page)) == sorted(names)
    for name in names:
        document.filled(page, name, [])


def test_curves_of_one_kind_agree_and_others_do_not():
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 4, 30))
    assert learning.chance([(first, second)]) > 0.05
    assert learning.chance([(first, second + 2.0)]) == learning.smallest_chance(4) < 0.05
    assert learning.smallest_chance(3) > 0.05


def test_learning_table_says_so_where_the_paths_differ():
    def runs(shift: float) -> list[dict[str, Any]]:
        random = np.random.default_rng(int(shift))
        return [
            {
                "curves": {name: list(shift + random.normal(size=20)) for name in learning.CURVES},
                "final": 0.5 + shift / 10 + random.normal() / 100,
            }
            for _ in range(4)
        ]

    told = {"seeds": 4, "steps": 20, "runs": {"fast": runs(0), "plain": runs(3)}}
    assert "DO NOT agree" in "\n".join(learning.table(told))
    told["runs"]["plain"] = [dict(run) for run in reversed(told["runs"]["fast"])]
    assert "paths agree" in "\n".join(learning.table(told))


def test_slope_tells_linear_from_quadratic():
    points = [{"tokens": n, "seconds": 3e-4 * n, "peak_bytes": n * n} for n in (1000, 8000, 64_000)]
    assert linear.slope(points) == pytest.approx(1.0)
    assert linear.slope(points, "peak_bytes") == pytest.approx(2.0)
    picture = linear.plot(points)
    assert picture.count("<circle") == 3
    assert picture.startswith("<svg")
    assert picture.endswith("</svg>\n")


def test_a_peak_is_that_since_it_was_forgotten():
    large = bytearray(64 << 20)
    large[::4096] = b"x" * len(large[::4096])
    del large
    before = process.forget_peak()
    assert process.peak_bytes() < before + (16 << 20)
    again = bytearray(32 << 20)
    again[::4096] = b"x" * len(again[::4096])
    assert process.peak_bytes() > before + (24 << 20)
    assert process.processor_seconds() > 0
