"""``trainer.kernels``: what is refused, what a fused kernel is asked, and what is absent then.

The library itself needs a GPU. On a CPU its one function stands in for it: the textbook cross-entropy.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import importlib.machinery
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from tests import rank_process
from tests.rank_process import Place
from tests.ranks import spawned
from tests.recipes import recipe_in
from tests.tiny import tiny_model
from tests.trainers import kept_gradients
from tests.training import POLICY, ragged_batch, with_advantages
from trimtab.config import resolve
from trimtab.errors import SettingError
from trimtab.models import LoadedModel
from trimtab.objectives.objective import Objective
from trimtab.objectives.regularizers import EntropyBonus
from trimtab.ops.fused_logprobs import PACKAGE, fused_logprobs
from trimtab.ops.logprobs import logprobs_and_entropy
from trimtab.probes.update import update_metrics
from trimtab.record.tokens import SOURCES, UpdateEntry
from trimtab.trainer import TrainerConfig
from trimtab.trainer.forward import Asked, Reader
from trimtab.trainer.kernels import has_plain_head, require_kernels
from trimtab.trainer.local import LocalTrainer
from trimtab.types import Batch, StepReport, Trace

NAME = "cut-cross-entropy"
TOKENS, HIDDEN, ROWS, KNOWN = 40, 16, 19, 17


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The arguments of every call of what stands in for the library."""
    return stand_in(monkeypatch)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The library's function by the textbook."""
    calls: list[dict[str, Any]] = []

    def linear_cross_entropy(e: Tensor, c: Tensor, targets: Tensor, **told: Any) -> Tensor:
        calls.append({"e": e, "c": c, **told})
        return torch.nn.functional.cross_entropy((e @ c.to(e.dtype).T).float(), targets, reduction="none")

    module = ModuleType(PACKAGE)
    module.__spec__ = importlib.machinery.ModuleSpec(PACKAGE, None)
    cast("Any", module).linear_cross_entropy = linear_cross_entropy
    monkeypatch.setitem(sys.modules, PACKAGE, module)
    return calls


def inputs(device: str = "cpu", dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """States in bfloat16, a weight of such numbers, targets, and what each log-probability counts."""
    random = torch.Generator().manual_seed(3)
    states = torch.randn(TOKENS, HIDDEN, generator=random).to(device, torch.bfloat16)
    weight = torch.randn(ROWS, HIDDEN, generator=random).to(device, torch.bfloat16)
    targets = torch.randint(0, KNOWN, (TOKENS,), generator=random).to(device)
    return states, weight.to(dtype), targets, torch.randn(TOKENS, generator=random).to(device)


def compared(device: str, temperature: float, dtype: torch.dtype) -> tuple[float, float, float, Tensor]:
    """Distance to the chunked path in float32: of values (largest), of both gradients (relative)."""
    states, weight, targets, counts = inputs(device, dtype)
    mine = [states.clone().requires_grad_(), weight.clone().requires_grad_()]
    exact = [leaf.float().requires_grad_() for leaf in (states, weight)]
    found = fused_logprobs(mine[0], mine[1], targets, temperature=temperature, vocab_size=KNOWN)
    expected, _ = logprobs_and_entropy(
        exact[0], lambda h: h @ exact[1].T, targets, temperature=temperature, vocab_size=KNOWN, chunk_tokens=7
    )
    assert found.dtype == torch.float32
    grads = torch.autograd.grad((found * counts).sum(), mine)
    right = torch.autograd.grad((expected * counts).sum(), exact)
    states_off, weight_off = (
        float((g.float() - r).norm() / r.norm()) for g, r in zip(grads, right, strict=True)
    )
    return float((found - expected).detach().abs().max()), states_off, weight_off, grads[1]


@pytest.mark.gpu
@pytest.mark.kernels
@pytest.mark.parametrize("temperature", [1.0, 0.5])
@pytest.mark.parametrize(("dtype", "slack"), [(torch.float32, 1e-3), (torch.bfloat16, 0.1)])
def test_the_kernels_log_probabilities_and_gradients_are_those_of_the_chunked_path(
    temperature: float, dtype: torch.dtype, slack: float
):
    value, of_states, of_weight, grad_weight = compared("cuda", temperature, dtype)
    assert value < slack
    assert of_states < 0.02, "bfloat16 has three digits"
    assert of_weight < 0.02
    assert not grad_weight[KNOWN:].any()


def test_the_kernel_is_asked_for_every_gradient_and_never_for_unknown_ids(library: list[dict[str, Any]]):
    states, weight, targets, _ = inputs()
    fused_logprobs(states, weight, targets, temperature=0.5, vocab_size=KNOWN)
    (call,) = library
    assert (call["reduction"], call["filter_eps"]) == ("none", None)
    assert len(call["c"]) == KNOWN
    assert torch.equal(call["e"], 2 * states)
    assert len(fused_logprobs(states[:0], weight, targets[:0], temperature=1.0, vocab_size=KNOWN)) == 0
    assert len(library) == 1


def test_a_reader_takes_the_kernels_log_probabilities_and_has_no_entropy(library: list[dict[str, Any]]):
    model = tiny_model(extra_rows=3)
    batch = with_advantages(ragged_batch(model.vocab_size))
    asked = Asked(policy_grad=True)
    plain, fused = (
        Reader(model, temperature=1.0, autocast=True, kernels=kernels) for kernels in ("none", NAME)
    )
    expected, _ = plain(batch, asked)
    found, _ = fused(batch, asked)
    assert library
    assert found.entropy_T is None
    assert (found.logprobs_T - expected.logprobs_T).abs().max() < 0.05
    grads = []
    for out in (found, expected):
        model.module.zero_grad()
        out.logprobs_T.sum().backward()
        grads.append(torch.cat([cast("Tensor", p.grad).flatten() for p in model.module.parameters()]))
    assert (grads[0] - grads[1]).norm() < 0.05 * grads[1].norm()
    assert fused.plain()(batch, asked)[0].entropy_T is not None


def gradients_of(place: Place, given: bytes, batch: Batch) -> dict[str, Tensor]:
    """In a rank: the gradients of an update by the stand-in."""
    with pytest.MonkeyPatch.context() as patch:
        calls = stand_in(patch)
        patch.setattr("trimtab.trainer.parts.require_kernels", lambda *_, **__: None)
        settings = {"temperature": 1.0, "config": TrainerConfig(autocast=True, kernels=NAME)}
        rank_process.build(place, -1, [-1], given, settings)
        _, found = rank_process.kept_gradients(place, -1, batch, POLICY)
        assert calls
    return found


def test_ranks_give_the_kernel_their_gathered_weight(
    library: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trimtab.trainer.parts.require_kernels", lambda *_, **__: None)
    model = tiny_model()
    given = rank_process.packed(model, None)
    batch = with_advantages(ragged_batch(model.vocab_size))
    batch = batch.with_columns(old_logprobs_T=batch.rollout_logprobs_T)
    found = spawned(2).run(gradients_of, given, batch)[0]
    config = TrainerConfig(autocast=True, kernels=NAME)
    right = kept_gradients(LocalTrainer(model, temperature=1.0, config=config), batch, POLICY)
    assert library
    assert found.keys() == right.keys()
    for name, gradient in right.items():
        assert (found[name] - gradient).norm() < 0.03 * gradient.norm(), f"{name}: bfloat16 has three digits"


def test_what_needs_entropies_is_absent_and_never_zero(library: list[dict[str, Any]]):
    model = tiny_model()
    batch = POLICY.weighted(with_advantages(ragged_batch(model.vocab_size)))
    reader = Reader(model, temperature=1.0, autocast=True, kernels=NAME)
    out, _ = reader(batch, Asked(policy_grad=True))
    batch = batch.with_columns(old_logprobs_T=out.logprobs_T.detach())
    _, trace = POLICY(out, batch)
    assert trace.entropy_T is None
    assert SOURCES["entropies"](UpdateEntry(0, batch, trace)) is None
    metrics = update_metrics(batch, reported(trace))
    assert "policy/entropy" not in metrics
    with_entropy = update_metrics(
        batch, reported(dataclasses.replace(trace, entropy_T=out.logprobs_T.detach()))
    )
    assert set(with_entropy) - set(metrics) == {"policy/entropy"}
    with pytest.raises(SettingError, match=r'entropy bonus needs entropies; set trainer.kernels = "none"'):
        Objective(((1.0, EntropyBonus()),), POLICY.aggregate)(out, batch)


def reported(trace: Trace) -> StepReport:
    return StepReport(
        applied=True,
        skip_reason=None,
        loss=0.0,
        losses={},
        grad_norm=1.0,
        critic_grad_norm=None,
        learning_rate=1e-6,
        critic_warmup=False,
        trace=trace,
        seconds={},
    )


def test_a_trainer_on_a_cpu_is_refused():
    with pytest.raises(SettingError, match=f'trainer.kernels = "{NAME}" needs a CUDA device.*or set'):
        LocalTrainer(tiny_model(), temperature=1.0, config=TrainerConfig(kernels=NAME))


def test_an_unknown_kernel_is_refused():
    with pytest.raises(SettingError, match="did you mean 'cut-cross-entropy'"):
        TrainerConfig(kernels=cast("Any", "cut-cross-entrpy"))


def elsewhere(model: LoadedModel, dtype: torch.dtype = torch.bfloat16) -> LoadedModel:
    """The model as one that lies on a GPU would introduce itself."""
    told = SimpleNamespace(device=torch.device("cuda"), dtype=dtype, module=model.module)
    return cast("LoadedModel", told)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingError, match=r"pip install 'trimtab\[kernels\]'"):
        require_kernels(elsewhere(tiny_model()), NAME, autocast=False)


def test_float32_without_autocast_and_output_layers_that_do_more_are_refused(library: list[dict[str, Any]]):
    model = tiny_model()
    require_kernels(elsewhere(model), NAME, autocast=False)
    require_kernels(elsewhere(model, torch.float32), NAME, autocast=True)
    with pytest.raises(SettingError, match=r'the model is float32; set model.dtype = "bfloat16"'):
        require_kernels(elsewhere(model, torch.float32), NAME, autocast=False)
    assert has_plain_head(tiny_model("granite", logits_scaling=1.0).module)
    for other in (tiny_model("granite", logits_scaling=4.0), tiny_model("cohere"), tiny_model("gemma2")):
        assert not has_plain_head(other.module)
    with pytest.raises(SettingError, match="Gemma2ForCausalLM does more"):
        require_kernels(elsewhere(tiny_model("gemma2")), NAME, autocast=False)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ([], "record.tokens = 8 keeps the entropy at every token; set record.tokens = 0"),
        (["record.tokens=0", "algorithm.terms.entropy.coef=0.01"], "the algorithm has an entropy term"),
        (
            ["record.tokens=0", "algorithm.entropy_target={name='entropy-target'}"],
            "the algorithm has an entropy term",
        ),
    ],
)
def test_a_run_that_needs_entropies_is_refused(tmp_path: Path, settings: list[str], sentence: str):
    recipe = recipe_in(tmp_path)
    with pytest.raises(SettingError, match=sentence):
        resolve(recipe, [f"trainer.kernels={NAME}", *settings])
    assert resolve(recipe, [f"trainer.kernels={NAME}", "record.tokens=0"]).trainer.kernels == NAME
