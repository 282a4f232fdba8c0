"""Very small random models and a character tokenizer, for tests: built in milliseconds, no download."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import string

import torch
import transformers
from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

from trimtab.models import LoadedModel, as_loaded

CHARACTERS = string.digits + string.ascii_lowercase + " +-*=?!.,:;<>/\n"
PAD, EOS, BOS = "<pad>", "<eos>", "<bos>"


def char_tokenizer(*, bos: bool = False, characters: str = CHARACTERS) -> PreTrainedTokenizerFast:
    """One token a character; <pad> is id 0, <eos> id 1, then the characters; <bos> is last, on demand.

    With ``bos`` the tokenizer puts <bos> before every text, as Llama's does.
    """
    names = [PAD, EOS, *characters, *([BOS] if bos else [])]
    core = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    core.decoder = decoders.Fuse()
    specials = {"pad_token": PAD, "eos_token": EOS, **({"bos_token": BOS} if bos else {})}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, clean_up_tokenization_spaces=False, **specials)
    if bos:
        from tokenizers.processors import TemplateProcessing

        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
            single=f"{BOS} $A", special_tokens=[(BOS, len(names) - 1)]
        )
    return tokenizer


def tiny_config(arch: str, vocab: int, **changes: object) -> transformers.PretrainedConfig:
    """A config of hidden size 32 with 2 layers, of the architecture asked for."""
    ids = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": None}
    if arch == "lfm2":  # recurrent (short convolutions) and attention layers, in turn
        changes = {"layer_types": ["conv", "full_attention"], "block_auto_adjust_ff_dim": False, **changes}
    if arch == "gpt2":
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": vocab}
        return transformers.GPT2Config(**{**sizes, **ids, **changes})
    sizes = {
        "vocab_size": vocab,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 256,
        "tie_word_embeddings": True,
    }
    if arch == "lfm2":
        del sizes["head_dim"]
    configs = {
        "qwen3": transformers.Qwen3Config,
        "llama": transformers.LlamaConfig,
        "mistral": transformers.MistralConfig,
        "qwen2": transformers.Qwen2Config,
        "granite": transformers.GraniteConfig,
        "cohere": transformers.CohereConfig,
        "gemma2": transformers.Gemma2Config,
        "gemma3": transformers.Gemma3TextConfig,
        "lfm2": transformers.Lfm2Config,
    }
    return configs[arch](**{**sizes, **ids, **changes})


def tiny_model(
    arch: str = "qwen3",
    *,
    seed: int = 0,
    extra_rows: int = 0,
    spread: float = 0.15,
    bos: bool = False,
    **changes: object,
) -> LoadedModel:
    """A random model over ``char_tokenizer()``, float32 on the CPU, in eval mode.

    ``extra_rows`` adds embedding rows that the tokenizer does not know; ``spread`` is the standard
    deviation of the weights (0.15 gives answers with some preference, neither flat nor constant);
    ``changes`` go into the config.
    """
    tokenizer = char_tokenizer(bos=bos)
    config = tiny_config(arch, len(tokenizer) + extra_rows, initializer_range=spread, **changes)
    state = torch.random.get_rng_state()
    torch.manual_seed(seed)
    module = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    torch.random.set_rng_state(state)
    return as_loaded(module, tokenizer)
