"""A sequence-classification checkpoint: from a prompt and a response to one score.

    score = logit                                   one label, or several of which each stands for itself
    score = logit_label - logsumexp(other logits)   several that exclude one another: the label's log-odds

Rows are padded on the right with an attention mask. A head that reads the last token finds it by comparing
ids with the config's padding id, so exactly that id pads; where the config has none, an id that no row of the
batch contains. A row has the same score alone and in any batch, up to rounding.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from trimtab.errors import DataError, SettingError, nearest
from trimtab.models import choose_device, choose_dtype, context_of, embedding_rows, resolve_path
from trimtab.rewards.shown import Form, Message, spoken
from trimtab.templates import start_id

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class Row(NamedTuple):
    """A prompt and its response as ids; ``types`` tells the two apart for models that ask for it."""

    ids: list[int]
    types: list[int] | None


@dataclass(frozen=True, slots=True, eq=False)
class Classifier:
    """A checkpoint ready to score.

    label: index of the good label. exclusive: the labels share a softmax. pad: the config's padding id.
    form: ``chat`` puts the response as the assistant's message through the checkpoint's chat template (a
        prompt that is text becomes the user's message); ``text`` reads prompt and response as one text;
        ``pair`` gives them as the two sentences of an encoder; ``auto`` is ``chat`` for messages, else text.
    """

    module: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    label: int
    exclusive: bool
    pad: int | None
    form: Form
    context: int

    def row(self, prompt: str | Sequence[Message], response: str) -> Row:
        """What the model reads. Raises DataError where the form does not fit the checkpoint."""
        form = self.form
        if form == "auto":
            form = "text" if isinstance(prompt, str) else "chat"
        if form == "pair":
            question = prompt if isinstance(prompt, str) else spoken(prompt)
            found = self.tokenizer(question, response, verbose=False)
            return Row(list(found["input_ids"]), cast("list[int] | None", found.get("token_type_ids")))
        if form == "text":
            question = prompt if isinstance(prompt, str) else spoken(prompt)
            found = self.tokenizer(question + response, verbose=False)
            return Row(list(found["input_ids"]), None)
        asked = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else map(dict, prompt)
        text = self._templated([*asked, {"role": "assistant", "content": response}])
        ids = list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
        start = start_id(self.tokenizer)
        return Row(ids if start is None or ids[:1] == [start] else [start, *ids], None)

    def scores(self, rows: Sequence[Row]) -> Tensor:
        """[B] float32, with a gradient where torch records one."""
        width = max(len(row.ids) for row in rows)
        pad = self._pad_id(rows)
        ids = [row.ids + [pad] * (width - len(row.ids)) for row in rows]
        mask = [[1] * len(row.ids) + [0] * (width - len(row.ids)) for row in rows]
        where = self.module.device
        told: dict[str, Any] = {"attention_mask": torch.tensor(mask, device=where)}
        if all(row.types is not None for row in rows):
            types = [(row.types or []) + [0] * (width - len(row.ids)) for row in rows]
            told["token_type_ids"] = torch.tensor(types, device=where)
        logits = self.module(input_ids=torch.tensor(ids, device=where), **told).logits.float()
        own = logits[:, self.label]
        if not self.exclusive or logits.shape[1] == 1:
            return own
        others = torch.arange(logits.shape[1], device=where) != self.label
        return own - logits[:, others].logsumexp(dim=1)

    def _templated(self, messages: list[dict[str, str]]) -> str:
        if not getattr(self.tokenizer, "chat_template", None):
            raise DataError(
                f"reward model {self.module.config.name_or_path!r} has no chat template for prompts that are "
                'messages; set form = "text" or "pair", whichever it was trained with'
            )
        try:
            return str(self.tokenizer.apply_chat_template(messages, tokenize=False))
        except Exception as error:  # templates raise what their authors chose
            reason = " ".join(str(error).split())[:200]
            raise DataError(f"the reward model's chat template refuses the messages ({reason})") from error

    def _pad_id(self, rows: Sequence[Row]) -> int:
        config = self.module.config.get_text_config()
        if self.pad is not None:
            return self.pad
        used = {i for row in rows for i in row.ids}
        free = next((i for i in range(embedding_rows(self.module)) if i not in used), None)
        if free is None:
            raise DataError("the rows of this batch use every id of the vocabulary; lower the batch")
        config.pad_token_id = free
        return free


def load_classifier(
    path: str,
    *,
    form: Form = "auto",
    label: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    fresh_head: bool = False,
) -> Classifier:
    """Load a checkpoint in eval mode; code from it is never run.

    label: which label is the good one; needed where there are several. fresh_head: give a language model a
        new head of one label, to be trained.

    Raises DataError when it cannot be loaded or has no head; SettingError for an unknown label or device.
    """
    from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging

    folder = resolve_path(path)
    where = _named(path, lambda: choose_device(device))
    kind = _named(path, lambda: choose_dtype(dtype, where))
    heads = {"num_labels": 1} if fresh_head else {}
    told = logging.get_verbosity()
    logging.set_verbosity_error()  # a fresh head is told of as if it were a fault
    logging.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, **heads)
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        module, report = AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, dtype=kind, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # transformers raises many kinds here; all mean "not usable as it is"
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise DataError(
            f"reward model {path!r} cannot be loaded as a sequence-classification checkpoint ({reason}); "
            "give a folder with config.json, weights and tokenizer, or a hub name"
        ) from error
    finally:
        logging.set_verbosity(told)
    _check_weights(path, module, sorted(report["missing_keys"]), fresh_head)
    pad = getattr(config.get_text_config(), "pad_token_id", None)
    if pad is not None and not 0 <= pad < embedding_rows(module):  # -1 is written where none is meant
        pad = None
    if pad is None and fresh_head:  # a checkpoint that is to be saved names its own
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        module.config.get_text_config().pad_token_id = pad
    index, exclusive = _label_of(path, config, label)
    return Classifier(
        module=cast(Any, module).to(where).eval(),
        tokenizer=tokenizer,
        label=index,
        exclusive=exclusive,
        pad=pad,
        form=form,
        context=context_of(module, tokenizer),
    )


def _check_weights(path: str, module: Any, missing: list[str], fresh_head: bool) -> None:
    """Raise DataError when weights are missing that are not those of a head to be trained."""
    body = [name for name in missing if name.startswith(f"{module.base_model_prefix}.")]
    if body or (missing and not fresh_head):
        what = f"no weights for {(body or missing)[0]}"
        raise DataError(
            f"reward model {path!r} is incomplete or has no trained head ({what}); give a checkpoint that "
            "was trained to score, for example by trimtab reward-model"
        )


def _label_of(path: str, config: Any, label: str | None) -> tuple[int, bool]:
    """(index of the label, whether the labels exclude one another)."""
    names = {str(name): int(index) for index, name in (config.id2label or {}).items()}
    if label is None:
        if config.num_labels != 1:
            raise SettingError(
                f"reward model {path!r} has {config.num_labels} labels; name the good one with the option "
                f"label, one of {', '.join(map(repr, names))}"
            )
        return 0, False
    if label not in names:
        raise SettingError(f"reward model {path!r} has no label {label!r}{nearest(label, names)}")
    return names[label], config.problem_type != "multi_label_classification"


def _named(path: str, choose: Any) -> Any:
    try:
        return choose()
    except SettingError as fault:
        raise SettingError(f"reward model {path!r}: {str(fault).removeprefix('model.')}") from None
