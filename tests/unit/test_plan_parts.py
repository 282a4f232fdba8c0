"""Shapes, memory, data sheets, fitting: against sums done by hand and real models."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from tests.loop.test_routing import tiny_experts
from trimtab.config import run_from_dict
from trimtab.errors import DataError, SettingError
from trimtab.models import resolve_path
from trimtab.models.lora import LoraConfig, add_adapters
from trimtab.planning.costs import Assumptions, SheetCosts, assumptions_with, sync_seconds
from trimtab.planning.figures import Origin
from trimtab.planning.fitting import fit
from trimtab.planning.hardware import SHEETS, Device, device_named
from trimtab.planning.lengths import LogNormal, Recorded
from trimtab.planning.memory import engine_memory, engine_slots, running_context, trainer_memory
from trimtab.planning.shape import ModelShape, number_of, read_shape, shape_of_config, shape_of_numbers
from trimtab.planning.workload import Split, Workload, workload_of

GIB = 1 << 30
SMALL = ModelShape(
    name="small",
    layers=2,
    hidden=8,
    heads=2,
    kv_heads=1,
    head_size=4,
    inner=16,
    vocabulary=10,
    parameters=1000,
    active=900,
)
H100 = SHEETS["h100"]


def test_an_embedded_model_has_as_many_weights_as_its_file():
    shape = read_shape("embedded/sums")
    with safe_open(Path(resolve_path("embedded/sums")) / "model.safetensors", "np") as file:
        counted = sum(int(np.prod(file.get_slice(name).get_shape())) for name in file.keys())  # noqa: SIM118
    assert shape.parameters == counted
    assert shape.active == counted
    assert shape.cached_numbers == 2 * 3 * 4 * 32


def test_known_models_have_their_known_sizes():
    qwen = {
        "num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
        "intermediate_size": 18944, "vocab_size": 152064, "tie_word_embeddings": False,
    }  # fmt: skip
    assert shape_of_config(qwen, "7B").parameters == pytest.approx(7.616e9, rel=1e-3)
    moe = {
        "num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4,
        "head_dim": 128, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_experts": 128,
        "num_experts_per_tok": 8, "vocab_size": 151936, "tie_word_embeddings": False,
    }  # fmt: skip
    shape = shape_of_config(moe, "30B-A3B")
    assert shape.parameters == pytest.approx(30.5e9, rel=0.01)
    assert shape.active == pytest.approx(3.0e9, rel=0.05)
    assert shape.routed == 1 / 16
    assert shape.inner == 8 * 768


def test_a_shape_of_numbers_has_the_given_size():
    for size in (5e8, 7e9, 7e10):
        shape = shape_of_numbers(size)
        inside = 12 * shape.layers * shape.hidden**2
        assert shape.parameters == size
        assert inside == pytest.approx(size, rel=0.25)
        assert shape.origin is Origin.ASSUMED
    moe = shape_of_numbers(3e10, 3e9)
    assert moe.active == 3e9
    assert 0.9 < moe.expert_share < 1.0
    assert [number_of(text) for text in ("7e9", "7B", "600M", "1.5b")] == [7e9, 7e9, 6e8, 1.5e9]


@pytest.mark.parametrize(("text", "said"), [("seven", "7e9, 7B"), ("B", "7e9, 7B")])
def test_what_is_no_number_of_parameters_is_said(text: str, said: str):
    with pytest.raises(SettingError, match=said):
        number_of(text)
    with pytest.raises(SettingError, match="--active at most as many"):
        shape_of_numbers(1e9, 2e9)


def test_models_that_cannot_be_read_are_told(tmp_path: Path):
    with pytest.raises(DataError, match=r"no folder with a readable config\.json"):
        read_shape(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"num_hidden_layers": 2}))
    with pytest.raises(DataError, match="hidden_size"):
        read_shape(str(tmp_path))
    with pytest.raises(DataError, match="latent"):
        shape_of_config({"kv_lora_rank": 512}, "x")


def test_trainer_memory_by_hand():
    work = Workload(micro_batch=100, reference=True)
    alone = trainer_memory(SMALL, work, 1, 4.0, cpu=True).items
    inside = 4 * 8 + (2 * 2 + 2 * 1) * 4 + 3 * 16
    assert alone == {
        "optimizer": 12_000.0, "gradients": 4_000.0, "activations": 4.0 * 100 * inside * 2,
        "logits": 2 * 4.0 * 10 * 100, "reference": 4_000.0,
    }  # fmt: skip
    two = trainer_memory(SMALL, work, 2, 2.0, cpu=False).items
    assert two["weights"] == 1_000.0
    assert two["optimizer"] == 6_000.0
    assert two["gathered layers"] == 2.0 * (2 * (1000 - 80) / 2 + 80)
    checkpointed = trainer_memory(
        SMALL, Workload(micro_batch=100, checkpointing=True), 1, 2.0, cpu=False
    ).items
    assert checkpointed["activations"] == 2.0 * 100 * (8 * 2 + inside)
    critic = trainer_memory(SMALL, Workload(micro_batch=100, critic=True), 1, 2.0, cpu=False).items
    assert critic["optimizer"] == 24_000.0


def test_a_trainer_of_adapters_by_hand():
    """Rank 3: layers of 8 inputs and outputs (q, o), 8 and 4 (k, v), 8 and 16 (gate, up, down)."""
    count = 3 * 2 * (2 * (8 + 8) + 2 * (8 + 4) + 3 * (8 + 16))
    assert SMALL.adapters(3, "all-linear") == count
    assert SMALL.adapters(3, ("self_attn.q_proj",)) == 3 * 2 * (8 + 8)
    work = Workload(micro_batch=100, lora_rank=3)
    for trainers, width in ((1, 4.0), (2, 2.0)):
        items = trainer_memory(SMALL, work, trainers, width, cpu=False).items
        copies = count if width == 2.0 else 0
        assert items["weights"] == width * (1000 + copies) / trainers
        assert items["optimizer"] == 12 * count / trainers
        assert items["gradients"] == 4 * count / trainers
        assert "reference" not in items
    both = trainer_memory(SMALL, Workload(critic=True, lora_rank=3), 1, 4.0, cpu=True).items
    assert both["optimizer"] == 12 * (1000 + count), "a critic of its own is trained whole"


def test_routed_experts_take_no_adapters():
    shape = shape_of_config((model := tiny_experts()).module.config.to_dict(), "tiny experts")
    add_adapters(model.module, LoraConfig(rank=3), seed=0)
    held = [p.numel() for name, p in model.module.named_parameters() if name.endswith(("lora_A", "lora_B"))]
    assert shape.adapters(3, "all-linear") == sum(held) == 3 * 2 * (2 * (32 + 32) + 2 * (32 + 16))
    shared = replace(shape, inner=shape.inner + 8)
    assert shared.adapters(3, ("up_proj",)) == 3 * 2 * (32 + 8), "a shared expert is made of layers"
    assert shape_of_numbers(3e10, 3e9).adapters(1, ("up_proj",)) == 0


def test_engine_memory_by_hand():
    device = Device(name="d", flops=1.0, memory=4000.0, bandwidth=1.0, link=1.0, network=1.0)
    assert SMALL.cached_numbers == 16
    assert engine_slots(SMALL, device, Assumptions(engine_memory=1.0), 1, 25.0, 2.0) == 2
    assert engine_slots(SMALL, device, Assumptions(engine_memory=0.5), 1, 25.0, 2.0) == 0
    assert engine_memory(SMALL, 2, 2, 25.0, 2.0).items == {"weights": 1000.0, "cache": 800.0}


def test_long_answers_are_met_more_often():
    equal = LogNormal(average=100, sd=0, limit=1000)
    assert running_context(Workload(prompt=10.0), equal) == 60.0
    uneven = Recorded(groups=[np.array([1]), np.array([100])], kept=np.ones(2, dtype=bool), how="")
    assert running_context(Workload(prompt=0.0), uneven) == pytest.approx(10001 / (2 * 101))


def test_a_tick_of_a_big_model_is_bound_by_memory_and_a_full_engine_by_compute():
    shape = shape_of_numbers(7e9)
    assumed = Assumptions(sample_bandwidth=1.0, sample_compute=1.0, tick=0.0)
    costs = SheetCosts(shape=shape, device=H100, workload=Workload(), assumed=assumed).decode(1)
    assert costs.tick(1, 0) == pytest.approx(7e9 * 2 / 3.35e12)
    assert costs.tick(1024, 0) == pytest.approx(1024 * 14e9 / 989e12)
    assert costs.tick(1, 10**6) > 10 * costs.tick(1, 0)


def test_an_update_takes_six_operations_a_weight_and_token():
    shape = shape_of_numbers(7e9)
    source = SheetCosts(
        shape=shape, device=H100, workload=Workload(), assumed=Assumptions(update_compute=0.5)
    )
    one = source.costs(Split(engines=1)).update
    assert one.per_token == pytest.approx(6 * 7e9 / (989e12 / 2))
    assert one.per_micro_batch == 0.0
    assert source.costs(Split(engines=1, trainers=16)).update.per_micro_batch == pytest.approx(
        3 * 14e9 * 15 / 16 / (50e9 * 0.7)
    )


def test_weights_travel_once_within_a_node_and_slower_beyond():
    shape, assumed = shape_of_numbers(7e9), Assumptions(sync_overhead=0.0, link_share=1.0)
    inside = sync_seconds(shape, H100, assumed, Split(engines=4, trainers=1), 2.0)
    assert inside == pytest.approx(14e9 / 450e9)
    beyond = sync_seconds(shape, H100, assumed, Split(engines=12, trainers=4), 2.0)
    assert beyond == pytest.approx(14e9 * 0.75 / 450e9 + 14e9 / 50e9)
    assert sync_seconds(shape, H100, assumed, Split(engines=0), 2.0) == 0.0


def test_a_device_of_ones_own(tmp_path: Path):
    file = tmp_path / "mine.toml"
    file.write_text(
        "flops = 1e14\nmemory = 2.4e10\nbandwidth = 1e12\nlink = 3e10\nnetwork = 1e9\nper_node = 2\n"
    )
    device = device_named(str(file))
    assert (device.name, device.per_node, device.origin) == ("mine", 2, Origin.ASSUMED)
    for text, said in (
        ("flops = 1", "lacks memory"),
        ("speed = 1", "unknown field 'speed'"),
        ("flops = 'fast'", "must be a number"),
        ("flops = ", "not valid TOML"),
        ("flops = 0\nmemory = 1\nbandwidth = 1\nlink = 1\nnetwork = 1", "flops must be > 0"),
    ):
        file.write_text(text)
        with pytest.raises(SettingError, match=said):
            device_named(str(file))
    with pytest.raises(SettingError, match="did you mean 'h100'"):
        device_named("h10")


def test_assumptions_are_set_by_name():
    assert assumptions_with(["tick=0.01", "graders=2"]).tick == 0.01
    for tokens, said in (
        (["tack=1"], "nothing is called 'tack'"),
        (["tick=fast"], "NAME=NUMBER"),
        (["tick"], "NAME=NUMBER"),
        (["update_compute=1.5"], r"must be in \(0, 1\]"),
        (["graders=0"], "graders must be >= 1"),
    ):
        with pytest.raises(SettingError, match=said):
            assumptions_with(tokens)


def test_a_fit_of_two_sizes_finds_both_costs_through_noise():
    random = np.random.default_rng(0)
    x = np.repeat([50.0, 55.0], 20)
    y = np.repeat([2_000.0, 12_000.0], 20)
    seconds = (0.002 * x + 1e-4 * y) * random.normal(1.0, 0.03, 40)
    seconds[3] *= 5
    found = fit(x, y, seconds, 0.5)
    assert found.first == pytest.approx(0.002, rel=0.1)
    assert found.second == pytest.approx(1e-4, rel=0.05)
    assert not found.one_size
    assert found.error < 0.05


def test_a_fit_of_one_size_says_so_and_is_right_at_that_size():
    found = fit([50.0] * 10, [1000.0] * 10, [2.0] * 10, 0.5)
    assert found.one_size
    assert found.first * 50 == pytest.approx(1.0)
    assert found.first * 50 + found.second * 1000 == pytest.approx(2.0)
    assert fit([1.0], [1.0], [0.0], 0.5).points == 0


def test_a_cost_is_never_negative():
    found = fit([1.0, 1.0], [1.0, 10.0], [5.0, 1.0], 0.5)
    assert found.first >= 0.0
    assert found.second >= 0.0


def test_lengths_keep_mean_limit_and_likeness():
    lengths = LogNormal(average=200, sd=100, limit=10_000, keep_rate=0.25, alike=0.8)
    drawn = lengths.draw(np.random.default_rng(1), 4000, 8)
    assert drawn.lengths_GN.mean() == pytest.approx(200, rel=0.03)
    assert drawn.lengths_GN.std() == pytest.approx(100, rel=0.1)
    assert drawn.kept_G.mean() == pytest.approx(0.25, abs=0.03)
    logs = np.log(drawn.lengths_GN)
    assert np.corrcoef(logs[:, 0], logs[:, 1])[0, 1] == pytest.approx(0.8, abs=0.03)
    cut = LogNormal(average=200, sd=100, limit=150)
    assert cut.draw(np.random.default_rng(1), 100, 8).lengths_GN.max() == 150
    with pytest.raises(SettingError, match="mean >= 1"):
        LogNormal(average=0, sd=1, limit=1)


def test_recorded_groups_are_drawn_whole():
    groups = [np.array([1, 2]), np.array([30, 40])]
    lengths = Recorded(groups=groups, kept=np.array([True, False]), how="", limit=35)
    drawn = lengths.draw(np.random.default_rng(0), 200, 2)
    for row, kept in zip(drawn.lengths_GN.tolist(), drawn.kept_G, strict=True):
        assert row == ([1, 2] if kept else [30, 35])
    assert lengths.draw(np.random.default_rng(0), 3, 5).lengths_GN.shape == (3, 5)
    assert lengths.keep_rate == 0.5


def test_passes_before_the_updates_follow_the_loops_rules():
    base = {"model": {"path": "embedded/sums"}, "data": {"task": "sums"}}

    def passes(name: str, updates: int, *, float32: bool = True, engine: str = "local") -> tuple[int, int]:
        tables = {**base, "algorithm": {"name": name}, "trainer": {"updates_per_step": updates}}
        work = workload_of(run_from_dict(tables), 10.0, float32=float32, engine=engine)
        return work.passes, work.ahead_passes

    assert passes("dr_grpo", 4) == (0, 1)  # ahead, the engine's weights are others than the trainer's
    assert passes("dr_grpo", 4, float32=False) == (1, 1)
    assert passes("grpo", 4) == (1, 2)  # and the reference model
    assert passes("dr_grpo", 1, float32=False)[0] == 0  # the only update's own pass serves

    def held(**model: object) -> tuple[bool, int, object]:
        tables = {**base, "model": {"path": "nowhere", **model}, "algorithm": {"name": "grpo"}}
        work = workload_of(run_from_dict(tables), 10.0, float32=True, engine="local")
        return work.reference, work.lora_rank, work.lora_targets

    assert held() == (True, 0, "all-linear")
    assert held(lora={"rank": 2, "targets": ["q_proj"]}) == (False, 2, ("q_proj",))
    assert held(lora={"rank": 2}, reference="other") == (True, 2, "all-linear")
