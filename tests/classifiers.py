"""Very small random reward models in folders, for tests of what reads them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.tiny import char_tokenizer, tiny_config

TEMPLATE = "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}"


def write_classifier(
    folder: Path, arch: str = "qwen3", *, template: str | None = None, **changes: Any
) -> Path:
    """A random sequence-classification checkpoint over ``char_tokenizer``; ``changes`` go into the config."""
    tokenizer = char_tokenizer()
    tokenizer.chat_template = template
    told = {"num_labels": 1, "initializer_range": 0.15, **changes}
    if arch == "bert":
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = transformers.BertConfig(
            vocab_size=len(tokenizer), max_position_embeddings=64, **sizes, **told
        )
    else:
        config = tiny_config(arch, len(tokenizer), **told)
    state = torch.random.get_rng_state()
    torch.manual_seed(0)
    module = transformers.AutoModelForSequenceClassification.from_config(config, dtype=torch.float32)
    torch.random.set_rng_state(state)
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
