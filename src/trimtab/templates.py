"""Prompts as token ids: the chat template, and exactly one start token where the model wants one."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import DataError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Message = Mapping[str, str]


class Rendered(NamedTuple):
    """A prompt as the model sees it: ``text`` with the template's markers, ``token_ids`` [L] int64."""

    text: str
    token_ids: NDArray[np.int64]


def render(tokenizer: PreTrainedTokenizerBase, content: str | Sequence[Message]) -> Rendered:
    """Messages through the chat template with its generation prompt; a plain text as it is.

    The start token is decided by the first id, not by a switch: it is put in front where the tokenizer
    would do so by itself and the text does not already begin with it. Nothing is ever added at the end.

    Raises: DataError when messages are given and the tokenizer has no chat template, or the template
    refuses them, or nothing is left to continue.
    """
    text = content if isinstance(content, str) else through_template(tokenizer, content)
    # not verbose: too long a prompt is reported with its row, not by a warning of the tokenizer
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    start = start_id(tokenizer)
    if start is not None and ids[:1] != [start]:
        ids = [start, *ids]
    if not ids:
        raise DataError("a prompt renders to no token at all; give it a text")
    return Rendered(text, np.asarray(ids, dtype=np.int64))


def through_template(tokenizer: PreTrainedTokenizerBase, messages: Sequence[Message]) -> str:
    """The text that the chat template makes of messages, ready for the assistant's answer."""
    if not getattr(tokenizer, "chat_template", None):
        raise DataError(
            "the prompt is a list of messages but the tokenizer has no chat template; give the prompt as "
            "text, or take a model with a template (usually its 'instruct' version)"
        )
    try:
        text = tokenizer.apply_chat_template(
            [dict(message) for message in messages], tokenize=False, add_generation_prompt=True
        )
    except Exception as error:  # templates raise what their authors chose
        raise DataError(
            f"the chat template refuses the messages ({' '.join(str(error).split())[:200]}); "
            "check the roles and their order"
        ) from error
    return str(text)


def start_id(tokenizer: PreTrainedTokenizerBase) -> int | None:
    """The start token that the tokenizer puts before a text by itself; None when it puts none."""
    bos = tokenizer.bos_token_id
    first = tokenizer("a")["input_ids"][:1]
    return bos if isinstance(bos, int) and first == [bos] else None
