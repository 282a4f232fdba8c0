"""Ratios at identical weights: what rounding alone does to them, and to GSPO's narrow clip range.

    python -m benchmarks.precision --model models/smollm2-135m-instruct --text README.md

The text is cut into answers. Their log-probabilities are taken twice with the same weights: as a trainer
takes them in an update, and in another way; the ratio would be 1 were it not for rounding. "other cut" is the
same path with other micro-batches, "transformers" the plain path, with a row for each answer, as an engine
reads them.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from trimtab.models import LoadedModel, load_model
from trimtab.trainer.annotate import read_columns
from trimtab.trainer.forward import Asked, Reader
from trimtab.types import Batch

BELOW, ABOVE = 3e-4, 4e-4
"""GSPO's clip range: ratios of sequences below 1 - BELOW or above 1 + ABOVE have no gradient on one side."""


def main() -> None:
    """Both dtypes, one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="models/smollm2-135m-instruct")
    parser.add_argument("--text", type=Path, default=Path("README.md"))
    parser.add_argument("--groups", type=int, default=3)
    parser.add_argument("--answers", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=24, help="tokens of a prompt")
    parser.add_argument("--length", type=int, default=128, help="tokens of an answer")
    args = parser.parse_args()
    print("| dtype | other pass | token, median and largest | sequence, the same | outside |")
    print("|---|---|---|---|---|")
    for dtype in ("float32", "bfloat16"):
        model = load_model(args.model, device="cpu", dtype=dtype)
        batch = batch_of(model, args.text.read_text(), args)
        print("\n".join(rows(model, batch, dtype)), flush=True)


def rows(model: LoadedModel, batch: Batch, dtype: str) -> Iterator[str]:
    """A line for each other way, of |ratio - 1| a token and a sequence (mean log ratio, exponentiated)."""
    fast, plain = Reader(model, temperature=1.0, fast=True), Reader(model, temperature=1.0)
    new_T = taken(fast, batch, 2048)
    for name, old_T in (("other cut", taken(fast, batch, 400)), ("transformers", taken(plain, batch, 2048))):
        log_T = new_T.double() - old_T.double()
        zeros = torch.zeros(batch.num_sequences, dtype=torch.float64)
        mean_S = zeros.index_add(0, batch.seq_T, log_T) / batch.lengths_S
        outside = int(((mean_S.expm1() > ABOVE) | (mean_S.expm1() < -BELOW)).sum())
        told = " | ".join(spread(log) for log in (log_T, mean_S))
        yield f"| {dtype} | {name} | {told} | {outside} of {batch.num_sequences} |"


def taken(reader: Reader, batch: Batch, max_tokens: int) -> Tensor:
    """Log-probabilities of the batch's tokens, in micro-batches of so many."""
    return read_columns(reader, batch, Asked(), max_tokens, logprobs="found")["found"]


def spread(log: Tensor) -> str:
    """Median and largest distance of the ratio from 1."""
    apart = log.expm1().abs()
    return f"{float(apart.median()):.1e}, {float(apart.max()):.1e}"


def batch_of(model: LoadedModel, text: str, args: argparse.Namespace) -> Batch:
    """Each group takes its prompt and then its answers from the text, one behind the other."""
    tokenizer: object = model.tokenizer
    found = torch.tensor(tokenizer(text)["input_ids"])  # type: ignore[operator]  # tokenizers can be called
    wide, size = args.prompt + args.answers * args.length, args.groups * args.answers
    if len(found) < args.groups * wide:
        raise SystemExit(f"the text has {len(found)} tokens, {args.groups * wide} are needed")
    groups = found[: args.groups * wide].view(args.groups, wide)
    lengths_S = torch.full((size,), args.length)
    zeros_S = torch.zeros(size, dtype=torch.float64)
    return Batch(
        prompts_P=tuple(groups[:, : args.prompt]),
        token_ids_T=groups[:, args.prompt :].flatten(),
        seq_T=torch.repeat_interleave(torch.arange(size), lengths_S),
        mask_T=torch.ones(size * args.length, dtype=torch.bool),
        rollout_logprobs_T=torch.zeros(size * args.length),
        group_S=torch.arange(size) // args.answers,
        rewards_S=zeros_S,
        outcomes_S=zeros_S,
        truncated_S=torch.zeros(size, dtype=torch.bool),
        version_S=torch.zeros(size, dtype=torch.int64),
        keys_S=tuple(f"p{s // args.answers}#0/{s % args.answers}" for s in range(size)),
    )


if __name__ == "__main__":
    main()
