"""Stop texts, looked for as tokens arrive, without decoding every answer at every token."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from trimtab.types import IntArray

UNDECODED = "\N{REPLACEMENT CHARACTER}"


class StopTexts:
    """Finds the texts that end an answer.

    Only a token that contains a stop text's last character can complete it, so only such tokens
    (one look-up a row) and tokens that are part of a character lead to any decoding.
    """

    def __init__(
        self,
        texts: tuple[str, ...],
        tokenizer: PreTrainedTokenizerBase,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        self.texts, self.tokenizer = texts, tokenizer
        self.longest = max((len(text.encode()) for text in texts), default=0)
        self.candidates_V = torch.zeros(vocab_size, dtype=torch.bool, device=device)
        if texts:
            ends = {text[-1] for text in texts} | {UNDECODED}
            pieces = tokenizer.batch_decode([[i] for i in range(vocab_size)], skip_special_tokens=True)
            self.candidates_V |= torch.tensor([not ends.isdisjoint(piece) for piece in pieces], device=device)

    def possible(self, ids_R: Tensor) -> Tensor:
        """Rows whose new token may complete a stop text."""
        return self.candidates_V[ids_R]

    def met(self, token_ids: IntArray) -> bool:
        """Whether the text of these tokens contains a stop text that its last token completed.

        A token decodes to at least one byte, so looking back as many tokens as the longest stop text
        has bytes (and a few, for a character that is cut) finds it.
        """
        if not self.texts:
            return False
        tail = self.tokenizer.decode(token_ids[-self.longest - 4 :], skip_special_tokens=True)
        return any(text in tail for text in self.texts)

    def cut(self, text: str) -> str:
        """The text up to the end of the first stop text in it."""
        ends = [text.find(stop) + len(stop) for stop in self.texts if stop in text]
        return text[: min(ends)] if ends else text
