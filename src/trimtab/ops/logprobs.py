"""From hidden states to the log-probability and entropy of each token, without keeping the logits.

For a token y whose predecessor has hidden state h, with z = head(h) / temperature over the ids the
tokenizer knows:

    log pi(y) = z_y - log sum_v exp z_v          H = -sum_v pi(v) log pi(v)

Logits of N tokens over V ids are the largest thing an update could hold (1.6 GB for 8,192 tokens and
49,152 ids in float32), so they are made in chunks, used, dropped, and made again in the backward pass:
one more product with the output layer, and nothing else twice. Where all tokens fit into one chunk,
nothing is computed twice.

The shift by one (the state at position t - 1 predicts token t) is made here and nowhere else.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils import checkpoint as checkpointing

Head = Callable[[Tensor], Tensor]

CHUNK_BYTES = {"cpu": 48 << 20, "cuda": 512 << 20}
"""Float32 logits of one chunk. On a CPU 128 to 256 tokens of a 49,152-id vocabulary measured fastest."""

CHECKPOINT = {"use_reentrant": False, "preserve_rng_state": False}
"""Not reentrant: gradients reach the head's weights the usual way, also where the states have none."""

SMALLEST_CHUNK = 32
"""Tokens: below this the product with the output layer is bound by reading its weights."""


def predecessors(offset_T: Tensor, first_T: Tensor, prompt_end_T: Tensor) -> Tensor:
    """Position of the state that predicts each token: the one before it in its own sequence.

    ``offset_T`` counts from 0 within the answer, ``first_T`` is the position of the answer's first
    token, ``prompt_end_T`` that of the prompt's last one (``first_T - 1``, unless prompts are shared).
    """
    return torch.where(offset_T == 0, prompt_end_T, first_T + offset_T - 1)


def chunk_size(tokens: int, vocabulary: int, device: torch.device) -> int:
    """Tokens a chunk: as many as ``CHUNK_BYTES`` allows, in chunks of equal size; at least 1."""
    limit = CHUNK_BYTES.get(device.type, CHUNK_BYTES["cuda"]) // (4 * vocabulary)
    chunks = -(-tokens // max(limit, SMALLEST_CHUNK))
    return -(-tokens // max(chunks, 1)) or 1


def logprobs_and_entropy(
    hidden_N: Tensor,
    head: Head,
    targets_N: Tensor,
    *,
    temperature: float,
    vocab_size: int,
    chunk_tokens: int | None = None,
    entropy_grad: bool = False,
) -> tuple[Tensor, Tensor]:
    """Log-probability of each target and entropy of its distribution, in nats: two [N] tensors.

    hidden_N: [N, H], the states that predict the targets. head: states -> logits [n, V].
    targets_N: [N] int64, each < vocab_size. Ids >= vocab_size have probability 0.
    temperature: > 0, the sampler's; both results speak of the distribution at that temperature.
    chunk_tokens: tokens whose logits may exist at once; None chooses by memory.
    entropy_grad: whether the entropy carries a gradient.

    Results are float32 (float64 for a float64 model), whatever dtype the model computes in. With
    gradients and several chunks, ``head`` runs twice for each chunk.
    """
    tokens = len(targets_N)
    chunk = chunk_tokens or chunk_size(tokens, vocab_size, hidden_N.device)
    settings = (temperature, vocab_size, entropy_grad)
    if tokens <= chunk:
        return _statistics(hidden_N, head, targets_N, settings, None)
    parts: list[tuple[Tensor, Tensor]] = []
    for start in range(0, tokens, chunk):
        inputs = (hidden_N[start : start + chunk], head, targets_N[start : start + chunk], settings)
        if torch.is_grad_enabled():
            kept: list[Tensor] = []
            parts.append(_untyped(checkpointing).checkpoint(_statistics, *inputs, kept, **CHECKPOINT))
        else:
            parts.append(_statistics(*inputs, None))
    return torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])


def _statistics(
    hidden_N: Tensor,
    head: Head,
    targets_N: Tensor,
    settings: tuple[float, int, bool],
    kept: list[Tensor] | None,
) -> tuple[Tensor, Tensor]:
    return _untyped(_LogprobAndEntropy).apply(head(hidden_N), targets_N, settings, kept)


def _untyped(part: object) -> Any:
    """Parts of torch whose annotations are incomplete."""
    return cast("Any", part)


def _scaled(logits: Tensor, temperature: float, vocab_size: int) -> Tensor:
    """z: the known ids' logits at the temperature, float32 or wider. May be a view: do not write into it."""
    known = logits[:, :vocab_size].to(torch.promote_types(logits.dtype, torch.float32))
    return known if temperature == 1.0 else known / temperature


class _LogprobAndEntropy(torch.autograd.Function):
    """One chunk. Keeps the logits themselves for the backward pass and no second tensor of their size.

    ``kept`` is empty when a chunk is first computed and holds its three [n] results when checkpointing
    repeats the forward pass: then only the logits are needed again, and the reductions are skipped.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets_N: Tensor,
        settings: tuple[float, int, bool],
        kept: list[Tensor] | None,
    ) -> tuple[Tensor, Tensor]:
        temperature, vocab_size, entropy_grad = settings
        if kept:
            logprobs_N, entropy_N, total_N = (column_N.detach() for column_N in kept)
        else:
            z = _scaled(logits, temperature, vocab_size)
            top_N = z.amax(-1)
            shifted = z - top_N[:, None]
            picked_N = shifted.gather(-1, targets_N[:, None])[:, 0]
            powers = shifted.exp()
            sum_N = powers.sum(-1)
            log_sum_N = sum_N.log()
            logprobs_N = picked_N - log_sum_N
            entropy_N = log_sum_N - _untyped(torch.linalg).vecdot(powers, shifted) / sum_N
            total_N = top_N + log_sum_N
            if kept is not None:
                kept.extend(column_N.detach() for column_N in (logprobs_N, entropy_N, total_N))
        ctx.save_for_backward(logits, targets_N, total_N, entropy_N)
        ctx.settings = settings
        if not entropy_grad:
            ctx.mark_non_differentiable(entropy_N)
        return logprobs_N, entropy_N

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]  # the decorator hides the names
        ctx: Any, *grad_outputs: Tensor
    ) -> tuple[Tensor | None, ...]:
        """d log pi(y) / d z_v = 1[v = y] - pi(v);  d H / d z_v = -pi(v) (log pi(v) + H)."""
        grad_logprobs_N, grad_entropy_N = grad_outputs
        logits, targets_N, total_N, entropy_N = ctx.saved_tensors
        temperature, vocab_size, entropy_grad = ctx.settings
        log_probs = _scaled(logits, temperature, vocab_size) - total_N[:, None]
        if entropy_grad:
            probs = log_probs.exp()
            slope = log_probs.add_(entropy_N[:, None]).mul_(grad_entropy_N[:, None])
            grad = slope.add_(grad_logprobs_N[:, None]).mul_(probs).neg_()
        else:
            grad = log_probs.exp_().mul_(-grad_logprobs_N[:, None])
        grad.scatter_add_(1, targets_N[:, None], grad_logprobs_N[:, None])
        if temperature != 1.0:
            grad.div_(temperature)
        unknown = logits.shape[1] - vocab_size
        if unknown > 0:
            grad = torch.nn.functional.pad(grad, (0, unknown))
        return grad.to(logits.dtype), None, None, None
