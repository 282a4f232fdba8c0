"""A model and its critic, read over a micro-batch: what they say of every token."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from trimtab.errors import SettingError
from trimtab.models import LoadedModel, split_head
from trimtab.ops.fused_logprobs import fused_logprobs
from trimtab.ops.logprobs import logprobs_and_entropy
from trimtab.ops.vocabulary import weight_logprobs
from trimtab.trainer.critic import Critic
from trimtab.trainer.decoder import PackedDecoder
from trimtab.trainer.layout import padded_rows
from trimtab.trainer.packed import packed_tokens
from trimtab.trainer.routing import chosen_experts, experts_of, routers
from trimtab.trainer.sharing import ROW, Cost, SharedRows, can_share, shared_rows
from trimtab.types import Batch, ModelOutput


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """What one pass is for. Gradients flow only where asked; a value costs nothing where not asked.

    ``logprobs`` and ``values`` ask for these columns; ``policy_grad`` lets gradients into the policy,
    ``entropy_grad`` through its entropy, ``critic_grad`` into the critic.
    """

    logprobs: bool = True
    values: bool = False
    policy_grad: bool = False
    entropy_grad: bool = False
    critic_grad: bool = False


class Reader:
    """Reads batches with one model at one temperature, in eval mode: dropout never acts.

    autocast: compute in bfloat16 whatever dtype the weights have. recompute_layers: keep only the
    input of each layer for the backward pass. share_prompts: answers to one prompt may stand in one row
    (see ``sharing``), where the architecture allows it and it pays. fast: tokens are packed and computed by
    ``decoder`` where that knows the architecture; not for a module that something will be wrapped around.
    kernels: as ``TrainerConfig.kernels``; see ``kernels.require_kernels`` for what they need.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        temperature: float,
        critic: Critic | None = None,
        autocast: bool = False,
        recompute_layers: bool = False,
        share_prompts: bool = False,
        fast: bool = False,
        kernels: str = "none",
    ) -> None:
        self.model = model
        self.temperature = temperature
        self.kernels = kernels
        self.critic = critic
        self.autocast = autocast
        self.backbone, self.head = split_head(model.module)
        self.routers = routers(model.module)
        trunk = critic is not None and critic.trunk is not None
        self.decoder: PackedDecoder | None = None
        if fast and not (trunk or autocast):
            self.decoder = PackedDecoder.of(model, self.backbone, recompute=recompute_layers)
        shares = share_prompts and not trunk and can_share(model, self.backbone)
        self.cost = (
            Cost.of(model, packed=self.decoder is not None) if shares or self.decoder is not None else None
        )
        self.layers = _layers(model.module, critic) if recompute_layers else []

    def plain(self) -> Reader:
        """The same, computed by the model's own modules, whose hooks then see every pass."""
        plain = copy.copy(self)
        plain.decoder, plain.kernels = None, "none"
        return plain

    def __call__(self, batch: Batch, asked: Asked) -> tuple[ModelOutput, Tensor | None]:
        """The batch's tokens as this model sees them, and ``bootstrap_S`` where values are asked for.

        The output lies on the model's device. ``logprobs_T`` and ``entropy_T`` are empty when not asked;
        ``entropy_T`` is None where ``kernels`` knows none.
        """
        if self.decoder is not None:
            return self._packed(self.decoder, batch, asked)
        self.model.module.eval()
        layout = shared_rows(batch) if ROW in batch.columns else padded_rows(batch)
        device = self.model.device
        rows, state_T = layout.input_ids_BL.to(device), layout.state_T.to(device)
        mask = positions = None
        if isinstance(layout, SharedRows):
            mask, positions = layout.mask_BQK.to(device), layout.positions_BL.to(device)
        reads_policy = asked.logprobs or (
            asked.values and self.critic is not None and self.critic.trunk is None
        )
        with (
            torch.autocast(device.type, torch.bfloat16, enabled=self.autocast),
            _recomputed(self.layers),
            chosen_experts(self.routers) as choices,
        ):
            states = torch.empty(0, device=device)
            if reads_policy:
                with torch.set_grad_enabled(asked.policy_grad):
                    states = self.backbone(rows, mask, positions).flatten(0, 1)
            logprobs_T, entropy_T = torch.empty(0, device=device), torch.empty(0, device=device)
            if asked.logprobs:
                with torch.set_grad_enabled(asked.policy_grad):
                    states_T = states.index_select(0, state_T)
                    logprobs_T, entropy_T = self._spoken(states_T, batch.token_ids_T.to(device), asked)
            values_T = bootstrap_S = None
            if asked.values:
                values_T, bootstrap_S = self._values(rows, states, state_T, layout.last_S.to(device), asked)
        out = ModelOutput(
            logprobs_T=logprobs_T,
            entropy_T=entropy_T,
            values_T=values_T,
            experts_T=experts_of(choices[: len(self.routers)], state_T),
        )
        return out, bootstrap_S

    def _spoken(self, states_T: Tensor, targets_T: Tensor, asked: Asked) -> tuple[Tensor, Tensor | None]:
        """Log-probabilities of the targets, and entropies where the kernel knows them."""
        temperature, known = self.temperature, self.model.vocab_size
        if self.kernels == "none":
            return logprobs_and_entropy(
                states_T,
                self.head,
                targets_T,
                temperature=temperature,
                vocab_size=known,
                entropy_grad=asked.entropy_grad,
            )
        output: Any = self.model.module.get_output_embeddings()
        logprobs_T = fused_logprobs(
            states_T, output.weight, targets_T, temperature=temperature, vocab_size=known
        )
        return logprobs_T, None

    def _packed(
        self, decoder: PackedDecoder, batch: Batch, asked: Asked
    ) -> tuple[ModelOutput, Tensor | None]:
        packed = packed_tokens(batch, heads=decoder.heads.query, last=asked.values)
        values_T = bootstrap_S = None
        logprobs_T = entropy_T = torch.empty(0)
        with torch.set_grad_enabled(asked.policy_grad):
            states = decoder(packed)
            if asked.logprobs:
                logprobs_T, entropy_T = weight_logprobs(
                    states.index_select(0, packed.state_T),
                    decoder.weight,
                    batch.token_ids_T,
                    temperature=self.temperature,
                    vocab_size=self.model.vocab_size,
                    entropy_grad=asked.entropy_grad,
                )
        if asked.values:
            values_T, bootstrap_S = self._values(packed.ids_N, states, packed.state_T, packed.last_S, asked)
        return ModelOutput(logprobs_T=logprobs_T, entropy_T=entropy_T, values_T=values_T), bootstrap_S

    def _values(
        self, rows: Tensor, policy_states: Tensor, state_T: Tensor, last_S: Tensor, asked: Asked
    ) -> tuple[Tensor, Tensor]:
        if self.critic is None:
            raise SettingError(
                "values are asked for but this trainer has no critic; build it with critic=True"
            )
        with torch.set_grad_enabled(asked.critic_grad):
            states = self.critic.states(rows, policy_states)
            values = self.critic.values(states.index_select(0, torch.cat([state_T, last_S])))
        return values[: len(state_T)], values[len(state_T) :]


def _layers(module: PreTrainedModel, critic: Critic | None) -> list[GradientCheckpointingLayer]:
    parts = [part for whole in (module, critic) if whole is not None for part in whole.modules()]
    layers = [part for part in parts if isinstance(part, GradientCheckpointingLayer)]
    if not layers:
        raise SettingError(
            f"trainer.gradient_checkpointing: {type(module).__name__} has no layers that can be computed "
            "again; lower trainer.tokens_per_micro_batch instead"
        )
    return layers


@contextlib.contextmanager
def _recomputed(layers: list[GradientCheckpointingLayer]) -> Iterator[None]:
    """Have these layers computed again in the backward pass of what runs inside, and only of that.

    Transformers ties this to training mode, which would switch dropout on, and drops the key cache,
    which a sampler on the same module needs. So the layers are marked here for the moment of a call.
    """
    for layer in layers:
        layer.gradient_checkpointing = layer.training = True
        setattr(layer, "_gradient_checkpointing_func", functools.partial(_run_again_later, layer))  # noqa: B010
    try:
        yield
    finally:
        for layer in layers:
            layer.gradient_checkpointing = layer.training = False


def _run_again_later(layer: GradientCheckpointingLayer, run: Any, *args: Any) -> Any:
    layer.training = False
    try:
        return checkpoint(run, *args, use_reentrant=False, preserve_rng_state=False)
    finally:
        layer.training = True
