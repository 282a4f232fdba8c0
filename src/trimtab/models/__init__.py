"""Hugging Face causal language models: loading, the effective end tokens, backbone and head, export.

A model here is any causal LM that transformers can build from a folder or a hub name. Only two things
are read beside the weights: the tokenizer, and the ids that end an answer. Nothing else of the
checkpoint's generation config is ever used (a ``top_k`` in it changes nothing).
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from trimtab.errors import DataError, SettingError, nearest
from trimtab.models.lora import LoraConfig

if TYPE_CHECKING:  # transformers takes two seconds to import, and a recipe needs only ModelConfig
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

Backbone = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]
Head = Callable[[Tensor], Tensor]

EMBEDDED = "embedded/"
NO_CONTEXT_LIMIT = 1 << 30
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The ``[model]`` table of a recipe.

    path: a folder, a hub name, or ``embedded/NAME`` for a model inside the package.
    reference: the model of the KL terms; None means the start weights of ``path``.
    dtype, device: ``auto`` takes CUDA with bfloat16 where there is one, else float32 on the CPU.
    lora: train adapters beside frozen weights (see ``LoraConfig``); None trains all weights.
    """

    path: str
    reference: str | None = None
    lora: LoraConfig | None = None
    dtype: str = "auto"
    device: str = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModel:
    """A causal LM ready to sample from and to train.

    stop_ids: every id that ends an answer (tokenizer, generation config and config together), sorted.
    vocab_size: ids the tokenizer knows; ids from here on are padding rows of the embedding, and are
        masked in sampling and in training alike.
    context: tokens of prompt and answer together that the positions reach.
    """

    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop_ids: tuple[int, ...]
    vocab_size: int
    context: int

    @property
    def device(self) -> torch.device:
        return self.module.device

    @property
    def dtype(self) -> torch.dtype:
        return self.module.dtype


def choose_device(name: str = "auto") -> torch.device:
    """The device of that name; ``auto`` is CUDA where there is one, else the CPU.

    Raises: SettingError for an unknown name, or CUDA asked for where there is none.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise SettingError(
            f"model.device: unknown device {name!r}{nearest(name, ['auto', 'cpu', 'cuda'])}"
        ) from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SettingError(
            f"model.device is {name!r} but torch sees no CUDA device here; use device = 'auto' or 'cpu'"
        )
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """The dtype of that name; ``auto`` is bfloat16 on CUDA devices that have it, else float32.

    Raises: SettingError for an unknown name.
    """
    if name == "auto":
        has_bfloat16 = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if has_bfloat16 else torch.float32
    if name not in DTYPES:
        raise SettingError(f"model.dtype: unknown dtype {name!r}{nearest(name, [*DTYPES, 'auto'])}")
    return DTYPES[name]


def resolve_path(path: str) -> str:
    """``embedded/NAME`` as a folder inside the package; a path or a hub name unchanged.

    Raises: DataError when the package holds no model of that name.
    """
    if not path.startswith(EMBEDDED):
        return path
    root = Path(str(resources.files("trimtab"))) / "recipes" / "embedded"
    folder = root / path.removeprefix(EMBEDDED)
    if not folder.is_dir():
        known = [f.name for f in root.iterdir() if f.is_dir()] if root.is_dir() else []
        raise DataError(f"model {path!r}: the package holds no such model{nearest(folder.name, known)}")
    return str(folder)


def load_model(
    path: str, *, device: str | torch.device = "auto", dtype: str | torch.dtype = "auto"
) -> LoadedModel:
    """Load weights and tokenizer of a causal LM, in eval mode. Code from the checkpoint is never run.

    Raises: DataError when the path holds no causal LM that can be used.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # it would tear the live view
    folder = resolve_path(path)
    where = device if isinstance(device, torch.device) else choose_device(device)
    kind = dtype if isinstance(dtype, torch.dtype) else choose_dtype(dtype, where)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        module = AutoModelForCausalLM.from_pretrained(
            folder, config=config, dtype=kind, trust_remote_code=False
        )
    except Exception as error:  # transformers raises many kinds here; all mean "not usable as it is"
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(
            f"model {path!r} cannot be loaded as a causal language model ({reason}); "
            "give a folder with config.json, weights and tokenizer, or a hub name"
        ) from error
    return as_loaded(cast(Any, module).to(where), cast("PreTrainedTokenizerBase", tokenizer))


def as_loaded(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> LoadedModel:
    """A module and its tokenizer, with the facts that both sides of training need.

    Raises: DataError when the tokenizer knows more ids than the model embeds.
    """
    vocab_size = max(tokenizer.get_vocab().values()) + 1
    rows = embedding_rows(module)
    if vocab_size > rows:
        raise DataError(
            f"model {module.config.name_or_path!r}: its tokenizer knows {vocab_size} ids but the model "
            f"embeds only {rows}; resize the embeddings or take the tokenizer that belongs to the model"
        )
    if getattr(module.config.get_text_config(), "attn_logit_softcapping", None) is not None:
        module.set_attn_implementation("eager")  # the fused paths ignore the cap without a word
    return LoadedModel(
        module=module.eval(),
        tokenizer=tokenizer,
        stop_ids=stop_ids_of(module, tokenizer, vocab_size),
        vocab_size=vocab_size,
        context=context_of(module, tokenizer),
    )


def embedding_rows(module: PreTrainedModel) -> int:
    """Rows of the input embedding; those beyond the tokenizer's ids are padding."""
    return int(cast(Tensor, module.get_input_embeddings().weight).shape[0])


def stop_ids_of(
    module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, vocab_size: int
) -> tuple[int, ...]:
    """End ids of tokenizer, generation config and config together; ids no tokenizer knows are left out."""

    def listed(value: Any) -> Iterable[int]:
        return value if isinstance(value, (list, tuple)) else () if value is None else (int(value),)

    sources = (tokenizer, getattr(module, "generation_config", None), module.config)
    ids = {int(i) for source in sources for i in listed(getattr(source, "eos_token_id", None))}
    return tuple(sorted(i for i in ids if 0 <= i < vocab_size))


def context_of(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """Tokens that the positions reach: the config's, else the tokenizer's, else no limit (2^30)."""
    for source in (module.config.get_text_config(), tokenizer):
        for name in ("max_position_embeddings", "n_positions", "model_max_length"):
            value = getattr(source, name, None)
            if value is not None and 0 < value < NO_CONTEXT_LIMIT:
                return int(value)
    return NO_CONTEXT_LIMIT


def split_head(module: PreTrainedModel) -> tuple[Backbone, Head]:
    """The model cut before its output layer: ``head(backbone(ids, mask, positions))`` are the logits.

    Hidden states are [B, L, H] after the last norm; the head maps [..., H] to [..., V] and contains what
    the architecture does to logits (Granite's and Cohere's scale, Gemma's soft cap). The cut is
    compared with the whole model on a few tokens, so an architecture that does more is refused here.

    Raises: DataError when the cut model gives other logits than the whole one.
    """
    inner = module.base_model
    output = module.get_output_embeddings()
    if inner is module or output is None:
        raise DataError(
            f"{type(module).__name__} has no separate backbone and output layer; it cannot be trained"
        )
    adjust = logit_adjustment(module)

    def backbone(input_ids: Tensor, attention_mask: Tensor | None, position_ids: Tensor | None) -> Tensor:
        told = {} if position_ids is None else {"position_ids": position_ids}
        return inner(
            input_ids=input_ids, attention_mask=attention_mask, use_cache=False, **told
        ).last_hidden_state

    def head(hidden: Tensor) -> Tensor:
        return adjust(output(hidden))

    check_cut(module, backbone, head)
    return backbone, head


def logit_adjustment(module: PreTrainedModel) -> Head:
    """What the architecture does to the output layer's logits, read from its config."""
    config = module.config.get_text_config()
    scale = 1.0
    if divisor := getattr(config, "logits_scaling", None):
        scale /= divisor
    for name in ("logit_scale", "lm_head_multiplier"):
        scale *= getattr(config, name, None) or 1.0
    cap = getattr(config, "final_logit_softcapping", None)

    def adjust(logits: Tensor) -> Tensor:
        if scale != 1.0:
            logits = logits * scale
        return logits if cap is None else torch.tanh(logits / cap) * cap

    return adjust


@torch.no_grad()
def check_cut(module: PreTrainedModel, backbone: Backbone, head: Head) -> None:
    """Raise DataError unless head(backbone(ids)) equals the whole model's logits on four tokens."""
    ids = torch.arange(4, device=module.device)[None] % embedding_rows(module)
    ones = torch.ones_like(ids)
    was_training = module.training
    module.eval()
    whole = module(input_ids=ids, attention_mask=ones, use_cache=False).logits.float()
    cut = head(backbone(ids, ones, None)).float()
    module.train(was_training)
    tolerance = 1e-4 if module.dtype is torch.float32 else 2e-2
    if whole.shape != cut.shape or not torch.allclose(whole, cut, rtol=tolerance, atol=tolerance):
        raise DataError(
            f"{type(module).__name__} changes its logits after the output layer in a way that trimtab does "
            "not know; it cannot be trained without risking wrong log-probabilities"
        )


def export_model(module: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: str | Path) -> None:
    """Write weights, config and tokenizer to ``folder``, loadable by transformers.

    A model read from GGUF holds plain weights but still calls itself quantized, and transformers
    refuses to save it; such a model is written through a fresh module without that mark.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    if getattr(module.config, "quantization_config", None) is not None:
        config: Any = copy.deepcopy(module.config)
        del config.quantization_config
        fresh = AutoModelForCausalLM.from_config(config, dtype=module.dtype)
        fresh.load_state_dict(module.state_dict())
        fresh.generation_config = module.generation_config
        module = cast("PreTrainedModel", fresh)
    module.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
