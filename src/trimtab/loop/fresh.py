"""A tiny language model from nothing: random weights and a tokenizer that reads one character at a time."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from trimtab.errors import SettingError
from trimtab.models import LoadedModel, as_loaded

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

SPECIAL = PAD, END, UNKNOWN = ("<pad>", "<end>", "<unknown>")
CHARACTERS = "\n" + "".join(sorted(set(string.printable) - set(string.whitespace) | {" "}))
"""The line break and the 95 printable ASCII characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyModel:
    """The shape of a fresh model (Llama architecture, tied embeddings).

    layers, width, heads, kv_heads, inner: blocks, hidden size, query heads, key and value heads, size
    of the gated feed-forward layer. context: tokens that the positions reach.
    """

    layers: int = 3
    width: int = 128
    heads: int = 4
    kv_heads: int = 4
    inner: int = 256
    context: int = 256

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads", "kv_heads", "inner", "context"):
            if getattr(self, name) < 1:
                raise SettingError(f"fresh.{name} must be >= 1, got {getattr(self, name)}")
        if self.width % (2 * self.heads) or self.heads % self.kv_heads:
            raise SettingError(
                f"{self.heads} heads with {self.kv_heads} key heads cannot share a width of {self.width}; "
                "width must be a multiple of 2 * heads, and heads of kv_heads"
            )


def fresh_model(shape: TinyModel, seed: int) -> LoadedModel:
    """Random float32 weights drawn from ``seed``, on the CPU; torch's own generator is left alone."""
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = character_tokenizer(shape.context)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        max_position_embeddings=shape.context,
        tie_word_embeddings=True,
        initializer_range=0.05,
        bos_token_id=None,
        eos_token_id=SPECIAL.index(END),
        pad_token_id=SPECIAL.index(PAD),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        module = LlamaForCausalLM(config)
    return as_loaded(module, tokenizer)


def character_tokenizer(context: int) -> PreTrainedTokenizerFast:
    """One id a character of ``CHARACTERS``; others become ``<unknown>``. It adds no start or end token."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {text: number for number, text in enumerate((*SPECIAL, *CHARACTERS))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    core.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        eos_token=END,
        unk_token=UNKNOWN,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
    )
