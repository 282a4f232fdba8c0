"""A model without its weights: what a process must know of a model that lives in another one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, cast

import torch

from trimtab.distributed.transfer import Described
from trimtab.errors import DataError, RunError
from trimtab.models import LoadedModel, as_loaded, resolve_path

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def load_skeleton(path: str, dtype: torch.dtype = torch.float32) -> LoadedModel:
    """The model of that folder or hub name with its parameters on the meta device: shapes, no values.

    Tokenizer, end ids, vocabulary, context and names of parameters are those of ``load_model``.
    Raises: DataError when the path holds no causal language model.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    folder = resolve_path(path)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        with torch.device("meta"):
            module: Any = AutoModelForCausalLM.from_config(config, dtype=dtype, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds here; all mean "not usable as it is"
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(
            f"model {path!r} cannot be read as a causal language model ({reason}); "
            "give a folder with config.json, weights and tokenizer, or a hub name"
        ) from error
    with contextlib.suppress(OSError):  # many have none; end ids then come from the tokenizer and the config
        module.generation_config = GenerationConfig.from_pretrained(folder)
    return as_loaded(module, cast("PreTrainedTokenizerBase", tokenizer))


def check_complete(model: LoadedModel, offered: list[Described], version: int) -> None:
    """Refuse weights that are not those of ``model``: every parameter once, nothing else, each shape right.

    Raises: RunError naming the parameter.
    """
    own = dict(model.module.named_parameters(remove_duplicate=False))
    delivered: set[int] = set()
    for one in offered:
        target = own.get(one.name)
        if target is None or tuple(target.shape) != one.shape:
            shape = "no such parameter" if target is None else tuple(target.shape)
            raise RunError(
                f"weights of version {version}: {one.name!r} came with shape {one.shape} but the engine has "
                f"{shape}; trainer and engine must hold the same model"
            )
        delivered.add(id(target))
    missing = [name for name, target in own.items() if id(target) not in delivered]
    if missing:
        raise RunError(
            f"weights of version {version} lack {len(missing)} parameters, {missing[0]!r} among them; "
            "the engine would sample from a mixture of two policies"
        )
