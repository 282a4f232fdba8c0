"""One engine that samples in its turns: groups of answers with their log-probabilities, weights unchanged."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from benchmarks.speed import process
from benchmarks.speed.scenes import Scene, questions
from benchmarks.speed.turns import answer, wait_for_turn

from trimtab.models import LoadedModel, load_model
from trimtab.rollout.engine import Sampling
from trimtab.rollout.local import LocalEngine
from trimtab.types import Draw, Prompt

Turn = Callable[[int], list[int]]
"""From the number of a turn, which decides the seeds, to the lengths of all answers."""


def main() -> None:
    """Sample until no turn comes any more."""
    scene, options = Scene(**json.loads(sys.argv[1])), json.loads(sys.argv[2])
    torch.set_num_threads(int(options["threads"]))
    model = load_model(scene.model, device="cpu", dtype=options["dtype"])
    prompts = [
        Prompt(
            id=str(i),
            token_ids=np.array(model.tokenizer(row.prompt)["input_ids"], dtype=np.int64),
            text=row.prompt,
            task=scene.questions,
            answer=row.answer,
        )
        for i, row in enumerate(questions(scene, scene.prompts))
    ]
    turn = {"trimtab": _trimtab, "plain": _plain, "generate": _generate, "vllm": _vllm}[options["engine"]](
        scene, model, prompts, options["dtype"]
    )
    number = 0
    while True:
        wait_for_turn()
        number += 1
        began = time.perf_counter()
        lengths = turn(number)
        answer(
            {
                "seconds": time.perf_counter() - began,
                "tokens": sum(lengths),
                "lengths": lengths,
                "prompt_lengths": [len(prompt.token_ids) for prompt in prompts],
                "peak_bytes": process.peak_bytes(),
            }
        )


def _trimtab(scene: Scene, model: LoadedModel, prompts: list[Prompt], dtype: str) -> Turn:
    return _engine(LocalEngine(model), scene, prompts)


def _plain(scene: Scene, model: LoadedModel, prompts: list[Prompt], dtype: str) -> Turn:
    return _engine(LocalEngine(model, fast="never"), scene, prompts)


def _engine(engine: LocalEngine, scene: Scene, prompts: list[Prompt]) -> Turn:
    sampling = Sampling(max_new_tokens=scene.limit)

    def turn(number: int) -> list[int]:
        async def lengths() -> dict[str, list[int]]:
            draws = [Draw(prompt, number) for prompt in prompts]
            groups = [g async for g in engine.generate(draws, scene.samples, sampling, seed=number)]
            return {g.draw.prompt.id: [rollout.length for rollout in g.rollouts] for g in groups}

        found = asyncio.run(lengths())
        return [n for prompt in prompts for n in found[prompt.id]]

    return turn


def _generate(scene: Scene, model: LoadedModel, prompts: list[Prompt], dtype: str) -> Turn:
    """As a training loop calls it: padded on the left, all answers at once. It gives no log-probabilities."""
    from transformers import GenerationConfig

    pad = model.tokenizer.pad_token_id
    width = max(len(prompt.token_ids) for prompt in prompts)
    ids = torch.full((scene.rollouts, width), pad)
    mask = torch.zeros_like(ids)
    for i in range(scene.rollouts):
        tokens = torch.tensor(prompts[i // scene.samples].token_ids.tolist())
        ids[i, width - len(tokens) :] = tokens
        mask[i, width - len(tokens) :] = 1
    ends = torch.tensor(model.stop_ids)
    settings = GenerationConfig(
        max_new_tokens=scene.limit,
        do_sample=True,
        top_k=0,
        eos_token_id=list(model.stop_ids),
        pad_token_id=pad,
        disable_compile=True,
    )

    def turn(number: int) -> list[int]:
        torch.manual_seed(number)
        with torch.no_grad():
            out: Any = model.module.generate(input_ids=ids, attention_mask=mask, generation_config=settings)
        ended = torch.isin(out[:, width:], ends)
        first = ended.int().argmax(1) + 1
        return torch.where(ended.any(1), first, out.shape[1] - width).tolist()

    return turn


def _vllm(scene: Scene, model: LoadedModel, prompts: list[Prompt], dtype: str) -> Turn:
    from vllm import LLM, SamplingParams

    widest = max(len(prompt.token_ids) for prompt in prompts)
    engine = LLM(
        model=scene.model,
        dtype=dtype,
        enforce_eager=True,
        max_model_len=widest + scene.limit,
        max_num_seqs=scene.rollouts,
        max_num_batched_tokens=max(2048, widest * scene.rollouts),
        kv_cache_memory_bytes=1 << 30,
        block_size=32,
        logprobs_mode="processed_logprobs",
    )
    asked = [{"prompt_token_ids": prompt.token_ids.tolist()} for prompt in prompts]

    def turn(number: int) -> list[int]:
        settings = SamplingParams(
            n=scene.samples, max_tokens=scene.limit, logprobs=0, stop_token_ids=list(model.stop_ids)
        )
        found = engine.generate(asked, settings, use_tqdm=False)
        return [len(one.token_ids) for request in found for one in request.outputs]

    return turn


if __name__ == "__main__":
    main()
