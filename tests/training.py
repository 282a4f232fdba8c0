"""Small batches for tests of training: ragged, random, from any tiny model."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.models import LoadedModel
from trimtab.objectives.aggregate import token_mean
from trimtab.objectives.objective import Objective
from trimtab.objectives.policy import PolicyGradient
from trimtab.objectives.ratio import token_ratio
from trimtab.objectives.surrogate import Clip
from trimtab.types import Batch

POLICY = Objective(((1.0, PolicyGradient(token_ratio, Clip(0.2, 0.28))),), token_mean)


def ragged_batch(
    vocab_size: int,
    *,
    prompts: Sequence[int] = (3, 1, 6),
    answers: Sequence[Sequence[int]] = ((5, 1, 9), (2, 7), (4, 12)),
    seed: int = 0,
) -> Batch:
    """``answers[p]`` lists the lengths of the answers to prompt p of ``prompts[p]`` tokens. Random ids."""
    random = torch.Generator().manual_seed(seed)

    def ids(length: int) -> Tensor:
        return torch.randint(2, vocab_size, (length,), generator=random)

    lengths = torch.tensor([length for group in answers for length in group])
    sequences, tokens = len(lengths), int(lengths.sum())
    group_S = torch.tensor([p for p, group in enumerate(answers) for _ in group])
    return Batch(
        prompts_P=tuple(ids(length) for length in prompts),
        token_ids_T=ids(tokens),
        seq_T=torch.repeat_interleave(torch.arange(sequences), lengths),
        mask_T=torch.ones(tokens, dtype=torch.bool),
        rollout_logprobs_T=-torch.rand(tokens, generator=random),
        group_S=group_S,
        rewards_S=torch.rand(sequences, generator=random, dtype=torch.float64),
        outcomes_S=torch.rand(sequences, generator=random, dtype=torch.float64),
        truncated_S=torch.zeros(sequences, dtype=torch.bool),
        version_S=torch.zeros(sequences, dtype=torch.int64),
        keys_S=tuple(f"p{group}#0/{i}" for i, group in enumerate(group_S.tolist())),
    )


def with_advantages(batch: Batch, seed: int = 1) -> Batch:
    """The batch with a random advantage for every answer."""
    random = torch.Generator().manual_seed(seed)
    advantages_S = torch.randn(batch.num_sequences, generator=random, dtype=torch.float64)
    return batch.with_columns(advantages_T=advantages_S[batch.seq_T] * batch.mask_T)


def teacher_forced(model: LoadedModel, batch: Batch, temperature: float) -> tuple[Tensor, Tensor]:
    """Log-probability and entropy of each token, one sequence at a time, the plain way."""
    logprobs, entropies = [], []
    with torch.no_grad():
        for s in range(batch.num_sequences):
            prompt = batch.prompts_P[int(batch.group_S[s])]
            answer = batch.token_ids_T[batch.seq_T == s]
            logits = model.module(torch.cat([prompt, answer])[None], use_cache=False).logits[0]
            z = logits[len(prompt) - 1 : -1, : model.vocab_size].double() / temperature
            log_probs = torch.log_softmax(z, -1)
            logprobs.append(log_probs.gather(-1, answer[:, None])[:, 0])
            entropies.append(-(log_probs.exp() * log_probs).sum(-1))
    return torch.cat(logprobs), torch.cat(entropies)
