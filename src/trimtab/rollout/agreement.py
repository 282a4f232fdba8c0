"""Whether packed weights may stand for a module: tokens drawn with them, computed again by the module."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from trimtab.models import LoadedModel
from trimtab.rollout.checks import CheckResult, check_ratio
from trimtab.rollout.decoding import Decoder
from trimtab.rollout.engine import Fast, Sampling
from trimtab.rollout.packed import PackedModel, can_pack
from trimtab.rollout.rows import Ended, Entry

SMALLEST = 1 << 20
"""Parameters from which "auto" packs. Smaller models gain little, and keep their tokens to the last bit."""

PROMPTS, ANSWERS, TOKENS = (3, 5), 2, 4
"""Lengths of the prompts of a trial, answers to each, and tokens of an answer."""


def worth_packing(model: LoadedModel, fast: Fast) -> bool:
    """Whether packed weights are wanted for this model, and can be tried."""
    if fast == "never" or not can_pack(model.module) or model.context < max(PROMPTS) + TOKENS:
        return False
    return fast == "always" or sum(p.numel() for p in model.module.parameters()) >= SMALLEST


def check_packed(model: LoadedModel, packed: PackedModel) -> CheckResult:
    """Do packed weights speak of the module's policy? Answers drawn with them, against plain passes.

    Prompts of different lengths and answers that share them, so that masks, positions and seats are used.
    """
    rng = np.random.default_rng(0)
    prompts = [rng.integers(0, model.vocab_size, length) for length in PROMPTS]
    endless = dataclasses.replace(model, stop_ids=())
    decoder = Decoder(
        endless,
        Sampling(max_new_tokens=TOKENS),
        max_rows=len(prompts) * ANSWERS,
        longest_prompt=max(PROMPTS),
        version=0,
        packed=packed,
    )
    seeds = tuple(range(1, ANSWERS + 1))
    for owner, prompt in enumerate(prompts):  # one after the other, so that rows stand at different tokens
        decoder.admit([Entry(owner, str(owner), prompt, 0, seeds)])
        decoder.step()
    while decoder.live:
        decoder.step()
    ended = decoder.drain()
    plain = [plain_logprobs(model, prompts[answer.owner], answer) for answer in ended]
    drawn = np.concatenate([answer.logprobs for answer in ended])
    return check_ratio(drawn, np.concatenate(plain), dtype=model.dtype)


@torch.no_grad()
def plain_logprobs(model: LoadedModel, prompt: np.ndarray, answer: Ended) -> np.ndarray:
    """Log-probabilities of an answer's tokens by one pass of the module, without a cache."""
    ids = torch.as_tensor(np.concatenate([prompt, answer.token_ids]))[None]
    logits = model.module(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False).logits
    logits = logits[0, len(prompt) - 1 : -1, : model.vocab_size].float()
    chosen = torch.as_tensor(answer.token_ids)[:, None]
    return torch.log_softmax(logits, -1).gather(1, chosen)[:, 0].numpy()
