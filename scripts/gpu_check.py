"""Check numerics, memory and speed on one GPU, in a few minutes and without a network.

    python scripts/gpu_check.py                    a random model of the size and shape of Qwen2.5-0.5B
    python scripts/gpu_check.py --tiny             a model of a few thousand weights; runs on a CPU as well
    python scripts/gpu_check.py --json check.json  and the numbers as JSON

Checks that bfloat16 agrees with float32 as far as bfloat16 can, that log-probabilities made in chunks or by a
fused kernel are the plain ones, that sampler and trainer agree, that answers in one row give the gradient of
answers in rows of their own, and that every attention gives the same. Then tokens a second and memory of
sampling and update.
What is not installed is left out and named. Exit code 1 where a number is wrong, 2 where there is no GPU.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from gpu_numerics import (
    FUSED,
    OPTIONAL,
    POLICY,
    Check,
    Sizes,
    converted,
    draws_of,
    installed,
    numerics,
    random_batch,
    sampled,
)

from trimtab.models import LoadedModel, as_loaded
from trimtab.trainer.config import TrainerConfig
from trimtab.trainer.local import LocalTrainer

LARGE = {
    "vocab_size": 151_936,
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
TINY = {
    "vocab_size": 211,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
}
SIZES = {
    "large": Sizes(4, 8, 256, 512, (64, 256), 16_384),
    "tiny": Sizes(2, 3, 9, 14, (8,), 64),
}


def main() -> int:
    """Run everything, print it, and say whether a number is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tiny", action="store_true", help="a tiny model, on the CPU where there is no GPU")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if not torch.cuda.is_available() and not args.tiny:
        print("no CUDA device here; --tiny runs on a CPU", file=sys.stderr)
        return 2
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    sizes = SIZES["tiny" if args.tiny else "large"]
    model = random_model(TINY if args.tiny else LARGE, device)
    checks = list(numerics(model, sizes))
    speeds = list(speed_rows(model, sizes))
    print("\n".join(shown(model, checks, speeds)))
    if args.json:
        told = {"checks": [asdict(check) | {"good": check.good} for check in checks], "speeds": speeds}
        args.json.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return 0 if all(check.good for check in checks) else 1


def random_model(shape: dict[str, int], device: torch.device) -> LoadedModel:
    """A Qwen2 model with random float32 weights, and a tokenizer that knows all its ids."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(**shape, tie_word_embeddings=True, bos_token_id=None, eos_token_id=1, pad_token_id=0)
    with device:
        module = Qwen2ForCausalLM(config).float()
    words = {f"w{i}": i for i in range(shape["vocab_size"])}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w2")), eos_token="w1", pad_token="w0"
    )
    tokenizer.model_max_length = shape["max_position_embeddings"]
    return as_loaded(module, tokenizer)


def speed_rows(model: LoadedModel, sizes: Sizes) -> Iterator[dict[str, Any]]:
    """Tokens a second and peak memory of sampling and of updates."""
    half = converted(model, torch.bfloat16)
    batch = random_batch(model, sizes)
    for name, one in (("float32", model), ("bfloat16", half)):
        for width in sizes.widths:
            draws = draws_of(batch) * (width // (sizes.samples * sizes.groups) or 1)
            draws = [draw._replace(number=i) for i, draw in enumerate(draws)]
            yield _timed(
                f"sampling, {name}, {len(draws) * sizes.samples} answers",
                one,
                lambda one=one, draws=draws: sum(
                    rollout.length
                    for group in sampled(one, draws, sizes.samples, min(sizes.answer, 256))
                    for rollout in group.rollouts
                ),
            )
    ways: dict[str, tuple[LoadedModel, dict[str, Any]]] = {
        "float32": (model, {}),
        "autocast": (model, {"autocast": True}),
        "bfloat16": (half, {}),
        "bfloat16, no shared prompts": (half, {"share_prompts": "never"}),
        "bfloat16, gradient checkpointing": (half, {"gradient_checkpointing": True}),
    }
    if installed(FUSED, model):
        ways[f"bfloat16, {FUSED}"] = (half, {"kernels": FUSED})
        ways[f"autocast, {FUSED}"] = (model, {"kernels": FUSED, "autocast": True})
    for name, (one, settings) in ways.items():
        config = TrainerConfig(tokens_per_micro_batch=sizes.micro_batch, learning_rate=1e-7, **settings)
        trainer = LocalTrainer(one, temperature=1.0, config=config)

        def update(trainer: LocalTrainer = trainer) -> int:
            asyncio.run(trainer.update(batch, POLICY))
            return batch.num_tokens

        yield _timed(f"update, {name}", one, update)


def _timed(name: str, model: LoadedModel, run: Any) -> dict[str, Any]:
    """The second call's tokens a second, and the most memory that the device held meanwhile."""
    cuda = model.device.type == "cuda"
    run()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    tokens = run()
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    peak = torch.cuda.max_memory_allocated() if cuda else None
    return {"name": name, "tokens": tokens, "seconds": seconds, "peak_bytes": peak}


def shown(model: LoadedModel, checks: Sequence[Check], speeds: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Both tables as Markdown."""
    cuda = model.device.type == "cuda"
    machine = torch.cuda.get_device_name() if cuda else "CPU"
    weights = sum(p.numel() for p in model.module.parameters())
    missing = [package for name, package in OPTIONAL.items() if not installed(name, model)]
    yield f"{machine}, torch {torch.__version__}, {weights:,} weights"
    yield f"not measured here: {', '.join(missing)}" if missing else "every optional library is installed"
    yield ""
    yield "| check | value | limit | |"
    yield "|---|---|---|---|"
    for check in checks:
        word = "ok" if check.good else "**WRONG**"
        yield f"| {check.name} | {check.value:.2e} | {check.limit:.0e} | {word} |"
    yield ""
    yield "| | tokens | seconds | tokens a second | peak memory |"
    yield "|---|---|---|---|---|"
    for row in speeds:
        peak = f"{row['peak_bytes'] / (1 << 30):.2f} GiB" if row["peak_bytes"] is not None else ""
        pace = row["tokens"] / row["seconds"]
        yield f"| {row['name']} | {row['tokens']} | {row['seconds']:.3f} | {pace:.0f} | {peak} |"


if __name__ == "__main__":
    sys.exit(main())
