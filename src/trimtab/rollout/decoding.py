"""A batch of answers growing token by token: rows enter, grow together, and leave as they end.

The ids, log-probabilities and the padding mask lie in the same rows and columns as the cache of keys
and values (see ``cache``), one column ahead of it: the token in column ``stop`` is drawn but not fed
yet. Work on single rows happens only when a row enters or ends.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Sequence

import torch
from torch import Tensor
from transformers.cache_utils import Cache

from trimtab.errors import DataError, RunError
from trimtab.models import LoadedModel
from trimtab.rollout.cache import CachedStore, Frame, Store, store_for
from trimtab.rollout.engine import Sampling
from trimtab.rollout.packed import PackedModel
from trimtab.rollout.randomness import Chosen, choose, streams, uniforms
from trimtab.rollout.rows import Ended, Entry, Row
from trimtab.rollout.shared import Shared
from trimtab.rollout.stopping import StopTexts
from trimtab.types import Finish

PREFILL_TOKENS = 16_384
FIRST_COLUMNS = 256


class Decoder:
    """At most ``max_rows`` answers at once. ``admit`` rows, ``step`` them, ``drain`` the ended ones."""

    def __init__(
        self,
        model: LoadedModel,
        sampling: Sampling,
        *,
        max_rows: int,
        longest_prompt: int,
        version: int,
        packed: PackedModel | None = None,
    ) -> None:
        self.model, self.sampling, self.version, self.packed = model, sampling, version, packed
        self.longest_prompt = longest_prompt
        self.device = model.device
        self.stop_ids = torch.tensor(model.stop_ids, dtype=torch.int64, device=self.device)
        self.stop_texts = StopTexts(sampling.stop, model.tokenizer, model.vocab_size, self.device)
        accepted = inspect.signature(model.module.forward).parameters
        if "past_key_values" not in accepted:
            raise DataError(
                f"{type(model.module).__name__} has no cache of the usual kind; it cannot be sampled"
            )
        self.takes_positions = "position_ids" in accepted
        self.last_only = {"logits_to_keep": 1} if "logits_to_keep" in accepted else {}
        capacity = longest_prompt + min(sampling.max_new_tokens, FIRST_COLUMNS)
        at = longest_prompt
        self.frame = Frame(rows=0, first=at, stop=at, max_rows=max_rows, capacity=capacity)
        self.plain = store_for(model.module.config, self.frame)
        self.shared = Shared(self.frame, model.module.config)
        self.store: Store = self.plain if packed is None else self.shared
        self.ids, self.logprobs, self.seen = self._planes(max_rows, capacity)
        self.streams, self.prompts, self.lengths = self._zeros(3, max_rows).unbind(0)
        self.ended = self._zeros(max_rows, dtype=torch.bool)
        self.rows: list[Row] = []
        self.out: list[Ended] = []
        self.ticks, self.closed = 0, 0

    def _zeros(self, *shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
        return torch.zeros(*shape, dtype=dtype, device=self.device)

    def _index(self, rows: Sequence[int]) -> Tensor:
        return torch.tensor(rows, dtype=torch.int64, device=self.device)

    def _planes(self, rows: int, capacity: int) -> tuple[Tensor, Tensor, Tensor]:
        """ids, log-probabilities and padding mask, one column wider than the cache."""
        shape = (rows, capacity + 1)
        return (
            self._zeros(*shape),
            self._zeros(*shape, dtype=torch.float32),
            self._zeros(*shape, dtype=torch.bool),
        )

    @property
    def live(self) -> int:
        """Rows that still grow."""
        return len(self.rows) - self.closed

    @property
    def free(self) -> int:
        """Rows that could enter now, once the ended ones have left."""
        return self.frame.max_rows - self.live if self.store.enters_anytime or not self.live else 0

    def drain(self) -> list[Ended]:
        """The answers that ended since the last call, in order of their rows' owners."""
        ended, self.out = sorted(self.out, key=lambda e: (e.owner, e.index)), []
        return ended

    @torch.no_grad()
    def admit(self, entries: Sequence[Entry]) -> None:
        """Prefill each prompt once, share its keys and values with its rows, draw their first tokens."""
        self.retire()
        longest, chunk = 0, []
        for entry in entries:
            longest = max(longest, len(entry.token_ids))
            if chunk and self.store.enters_anytime and longest * (len(chunk) + 1) > PREFILL_TOKENS:
                self._admit(chunk)
                longest, chunk = len(entry.token_ids), []
            chunk.append(entry)
        if chunk:
            self._admit(chunk)

    def _admit(self, entries: Sequence[Entry]) -> None:
        width = max(len(entry.token_ids) for entry in entries)
        ids, seen = self._zeros(len(entries), width), self._zeros(len(entries), width, dtype=torch.bool)
        for i, entry in enumerate(entries):
            ids[i, width - len(entry.token_ids) :] = torch.as_tensor(entry.token_ids)
            seen[i, width - len(entry.token_ids) :] = True
        fresh, logits_PV = self._prefill(ids, seen)
        counts = torch.tensor([len(entry.seeds) for entry in entries], device=self.device)
        source_N = torch.repeat_interleave(torch.arange(len(entries), device=self.device), counts)
        start, stop = len(self.rows), self.frame.stop
        new = slice(start, start + len(source_N))
        self.store.place(fresh, source_N, start, [len(entry.token_ids) for entry in entries])
        self.seen[new, :stop] = False
        self.ids[new, stop - width : stop] = ids[source_N]
        self.seen[new, stop - width : stop] = seen[source_N]
        seeds = [seed for entry in entries for seed in entry.seeds]
        self.streams[new] = streams(torch.tensor(seeds, device=self.device))
        self.prompts[new] = seen.sum(1)[source_N]
        self.lengths[new] = 0
        self.ended[new] = False
        self.rows += [
            Row(e.owner, e.prompt_id, len(e.token_ids), e.index + i, seed, self.ticks, [(self.version, 0)])
            for e in entries
            for i, seed in enumerate(e.seeds)
        ]
        self.frame.rows = len(self.rows)
        self.frame.first = min(self.frame.first, stop - width) if start else stop - width
        self._settle(self._draw(logits_PV[source_N], new), new)

    @torch.no_grad()
    def step(self) -> None:
        """One more token for every row."""
        f = self.frame
        if f.stop == f.capacity:
            self._make_room()
        rows = slice(0, len(self.rows))
        positions = (self.prompts[rows] + self.lengths[rows] - 1)[:, None]
        positions.clamp_(max=self.model.context - 1)  # only ended rows that have not left go that far
        fed, seen = self.ids[rows, f.stop : f.stop + 1], self.seen[rows, f.first : f.stop + 1]
        if self.packed is not None:
            logits_RV = self.packed.step(fed[:, 0], positions[:, 0], self.shared.step())
        else:
            logits_RV = self._forward(fed, seen, positions, self.plain.cache)
        f.stop += 1
        self.ticks += 1
        self._settle(self._draw(logits_RV, rows), rows)

    def _prefill(self, ids: Tensor, seen: Tensor) -> tuple[CachedStore, Tensor]:
        """The states of right-aligned rows, and the logits after their last token."""
        fresh = self.store.fresh(*ids.shape)
        logits = self._forward(ids, seen, (seen.cumsum(1) - 1).clamp_(min=0), fresh.cache)
        fresh.frame.stop = ids.shape[1]
        return fresh, logits

    def _forward(self, ids: Tensor, seen: Tensor, positions: Tensor, cache: Cache) -> Tensor:
        """Logits [R, V] of the last column, over the ids the tokenizer knows."""
        if self.model.module.training:
            self.model.module.eval()
        told = {"position_ids": positions, **self.last_only} if self.takes_positions else self.last_only
        out = self.model.module(
            input_ids=ids, attention_mask=seen, past_key_values=cache, use_cache=True, **told
        )
        return out.logits[:, -1, : self.model.vocab_size]

    def _draw(self, logits_RV: Tensor, rows: slice) -> Chosen:
        return choose(logits_RV, uniforms(self.streams[rows], self.lengths[rows]), self.sampling.temperature)

    def _settle(self, chosen: Chosen, rows: slice) -> None:
        """Write the drawn tokens into the column after the cache, and look after rows that end."""
        column = self.frame.stop
        self.ids[rows, column] = chosen.ids_R
        self.logprobs[rows, column] = chosen.logprobs_R
        self.seen[rows, column] = True
        lengths = self.lengths[rows].add_(1)
        ended = torch.isin(chosen.ids_R, self.stop_ids)
        ended |= lengths >= self.sampling.max_new_tokens
        ended |= ~chosen.logprobs_R.isfinite()
        ended |= self.stop_texts.possible(chosen.ids_R)
        ended &= ~self.ended[rows]
        if ended.any():
            self._end([rows.start + i for i in ended.nonzero()[:, 0].tolist()])

    def _end(self, rows: list[int]) -> None:
        """Take out the answers of these rows, those that only might have met a stop text apart."""
        end = self.frame.stop + 1
        lengths = [self.ticks - self.rows[r].born + 1 for r in rows]
        index = self._index(rows)
        columns = slice(end - max(lengths), end)
        ids = self.ids[index, columns].cpu().numpy()
        logprobs = self.logprobs[index, columns].cpu().numpy()
        closed = []
        for r, length, ids_C, logprobs_C in zip(rows, lengths, ids, logprobs, strict=True):
            row = self.rows[r]
            token_ids, row_logprobs = ids_C[-length:].copy(), logprobs_C[-length:].copy()
            if not -float("inf") < row_logprobs[-1] <= 1e-3:
                raise RunError(
                    f"the model's logits are not finite at token {length} of an answer to prompt "
                    f"{row.prompt_id!r}; its weights are damaged: go back to the last checkpoint "
                    "and lower the learning rate"
                )
            if int(token_ids[-1]) in self.model.stop_ids or self.stop_texts.met(token_ids):
                finish = Finish.STOP
            elif length == self.sampling.max_new_tokens:
                finish = Finish.LENGTH
            else:
                continue
            row.ended = True
            closed.append(r)
            self.out.append(
                Ended(row.owner, row.index, row.seed, token_ids, row_logprobs, finish, row.spans(length))
            )
        self.ended[self._index(closed)] = True
        self.closed += len(closed)

    def retire(self) -> None:
        """Let the ended rows leave: live rows from the end take their places."""
        live = [i for i, row in enumerate(self.rows) if not row.ended]
        if len(live) == len(self.rows):
            return
        count = len(live)
        holes = [i for i in range(count) if self.rows[i].ended]
        movers = [i for i in live if i >= count]
        to, source = self._index(holes), self._index(movers)
        order = torch.arange(count, device=self.device)
        order[to] = source
        self.store.fill_holes(to, source, order)
        if holes:
            for plane in (
                self.ids,
                self.logprobs,
                self.seen,
                self.streams,
                self.prompts,
                self.lengths,
                self.ended,
            ):
                plane[to] = plane[source]
            for hole, mover in zip(holes, movers, strict=True):
                self.rows[hole] = self.rows[mover]
        del self.rows[count:]
        self.closed = 0
        self.frame.rows = count
        self._tighten()

    def _tighten(self) -> None:
        """Begin the window where the longest live row begins."""
        if not self.store.enters_anytime:
            return
        taken = max((row.prompt + self.ticks - row.born for row in self.rows), default=0)
        self.frame.first = self.frame.stop - taken

    def _make_room(self) -> None:
        """Move the window to the left end of the columns, and widen them unless that frees a quarter."""
        self.retire()
        f = self.frame
        old = slice(f.first, f.stop + 1)
        stop = max(f.stop - f.first, self.longest_prompt)
        capacity = (
            f.capacity if f.capacity - stop >= f.capacity // 4 else stop + max(stop // 2, FIRST_COLUMNS)
        )
        new = slice(stop - (f.stop - f.first), stop + 1)
        f.first, f.stop, f.capacity = new.start, stop, capacity
        self.store.shift(slice(old.start, old.stop - 1), slice(new.start, stop))
        planes = self._planes(f.max_rows, capacity)
        for plane, before in zip(planes, (self.ids, self.logprobs, self.seen), strict=True):
            plane[:, new] = before[:, old]
        self.ids, self.logprobs, self.seen = planes

    @torch.no_grad()
    def follow(self, version: int) -> None:
        """Go on under other weights: what the old ones left in the cache is computed anew."""
        if version == self.version:
            return
        self.version = version
        if self.packed is not None:
            self.packed.refresh()
        self.retire()
        f = self.frame
        window = slice(f.first, f.stop)
        size = max(1, PREFILL_TOKENS // max(1, f.stop - f.first)) if self.store.enters_anytime else f.max_rows
        for start in range(0, len(self.rows), size):
            part = slice(start, min(start + size, len(self.rows)))
            fresh, _ = self._prefill(self.ids[part, window], self.seen[part, window])
            self.store.renew(fresh, start)
        for row in self.rows:
            row.changes.append((version, self.ticks - row.born + 1))
