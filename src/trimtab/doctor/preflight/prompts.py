"""Preflight's questions about the prompts as the model will read them. Nothing is sampled for these."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from trimtab.data.prompts import PromptSet
from trimtab.doctor.preflight.check import Check, Level
from trimtab.models import LoadedModel
from trimtab.rewards.grader import Unverifiable
from trimtab.templates import through_template
from trimtab.types import Prompt

MANY_REPEATS = 0.1
"""From this share of repeated questions on, duplicates are a warning."""

MANY_UNVERIFIABLE = 0.5
OPENED = re.compile(r"<([A-Za-z][\w-]*)>\s*$")
SHOWN = 3


def prompt_checks(
    model: LoadedModel, prompts: PromptSet, problems: Sequence[Unverifiable], max_new_tokens: int
) -> list[Check]:
    """All checks of this file. ``problems``: prompts left out because their gold answers fail."""
    first = prompts.train[0]
    return [
        rendered(model, first),
        start_token(model, prompts.train),
        end_token(model, first),
        unknown_tokens(model, prompts.train),
        prompt_lengths(model, prompts.train, max_new_tokens),
        duplicates(prompts),
        gold_answers(problems, len(prompts.train) + len(prompts.held_out)),
    ]


def rendered(model: LoadedModel, prompt: Prompt) -> Check:
    """One prompt with every token's text, and what the template has already begun of the answer."""
    text = str(model.tokenizer.decode(prompt.token_ids.tolist()))
    opened = OPENED.search(text)
    says = f"prompt {prompt.id!r} as the model reads it, {len(prompt.token_ids)} tokens"
    if opened:
        says += (
            f"; it ends in <{opened[1]}>, so an answer does not open that tag itself: a format grader "
            "must not ask for it"
        )
    numbers = {"tokens": prompt.token_ids.tolist(), "opens": opened[1] if opened else None}
    return Check(
        name="rendered-prompt",
        level=Level.NOTE if opened else Level.OK,
        says=says,
        numbers=numbers,
        shown=(repr(text),),
    )


def start_token(model: LoadedModel, prompts: Sequence[Prompt]) -> Check:
    """Whether any prompt begins with the start token twice."""
    start = model.tokenizer.bos_token_id
    if not isinstance(start, int):
        return Check(name="start-token", level=Level.OK, says="the tokenizer has no start token")
    twice = [p.id for p in prompts if p.token_ids[:2].tolist() == [start, start]]
    once = sum(p.token_ids[0] == start for p in prompts)
    if twice:
        return Check(
            name="start-token",
            level=Level.CRITICAL,
            says=f"{len(twice)} of {len(prompts)} prompts begin with two start tokens, such as {twice[0]!r}",
            advice="take the start token out of the prompts or of data.template: one is added where needed",
            numbers={"twice": len(twice), "prompts": len(prompts)},
        )
    says = "no prompt begins with the start token twice" if once else "prompts have no start token"
    return Check(name="start-token", level=Level.OK, says=says, numbers={"with_start": once})


def end_token(model: LoadedModel, prompt: Prompt) -> Check:
    """Whether answers can end, and whether the chat template's own end of a turn is among the stop ids."""
    names = [model.tokenizer.convert_ids_to_tokens(i) for i in model.stop_ids]
    pad, end = model.tokenizer.pad_token_id, model.tokenizer.eos_token_id
    if not model.stop_ids:
        return Check(
            name="end-token",
            level=Level.CRITICAL,
            says="the model has no end token: every answer will be cut off",
            advice="set eos_token in the tokenizer or generation config, or name texts in sampling.stop",
        )
    missing = None if prompt.messages is None else _turn_end(model)
    if missing is not None and missing not in model.stop_ids:
        name = model.tokenizer.convert_ids_to_tokens(missing)
        return Check(
            name="end-token",
            level=Level.WARNING,
            says=f"the chat template ends an answer with {name!r}, not one of the end tokens {names}",
            advice=f"add {missing} to eos_token_id in generation_config.json",
            numbers={"turn_end": missing, "stop_ids": list(model.stop_ids)},
        )
    shared = pad is not None and pad == end
    says = f"answers end with {', '.join(map(repr, names))}"
    if shared:
        says += "; the padding token is the end token, which is harmless here: masks go by length"
    return Check(
        name="end-token",
        level=Level.NOTE if shared else Level.OK,
        says=says,
        numbers={"stop_ids": list(model.stop_ids), "pad_is_end": shared},
    )


def _turn_end(model: LoadedModel) -> int | None:
    """The special token that the chat template puts directly after an answer; None where it puts none."""
    marker = "trimtab"
    messages = ({"role": "user", "content": "a"}, {"role": "assistant", "content": marker})
    after = through_template(model.tokenizer, messages).rpartition(marker)[2]
    ids = model.tokenizer(after, add_special_tokens=False)["input_ids"]
    special = set(model.tokenizer.all_special_ids)
    return ids[0] if ids and ids[0] in special else None


def unknown_tokens(model: LoadedModel, prompts: Sequence[Prompt]) -> Check:
    """Prompts with characters that the tokenizer cannot spell."""
    unknown = model.tokenizer.unk_token_id
    if not isinstance(unknown, int) or unknown in model.stop_ids:
        return Check(name="unknown-tokens", level=Level.OK, says="the tokenizer can spell every text")
    hit = [p for p in prompts if bool((p.token_ids == unknown).any())]
    if not hit:
        return Check(name="unknown-tokens", level=Level.OK, says="no prompt has a token unknown to the model")
    return Check(
        name="unknown-tokens",
        level=Level.CRITICAL if len(hit) * 2 > len(prompts) else Level.WARNING,
        says=f"{len(hit)} of {len(prompts)} prompts hold text that the tokenizer cannot spell",
        advice="take a model whose tokenizer knows these characters, or clean the prompts",
        numbers={"prompts": len(hit), "of": len(prompts)},
        shown=tuple(repr(p.text[:120]) for p in hit[:SHOWN]),
    )


def prompt_lengths(model: LoadedModel, prompts: Sequence[Prompt], max_new_tokens: int) -> Check:
    """Quantiles of the prompts' tokens against the context."""
    lengths = np.array([len(p.token_ids) for p in prompts])
    middle, high, most = (int(q) for q in np.quantile(lengths, (0.5, 0.99, 1.0)))
    return Check(
        name="prompt-lengths",
        level=Level.OK,
        says=(
            f"prompt tokens: median {middle}, 99% up to {high}, longest {most}; with {max_new_tokens} new "
            f"tokens {most + max_new_tokens} of the context's {model.context}"
        ),
        numbers={"median": middle, "p99": high, "longest": most, "context": model.context},
    )


def duplicates(prompts: PromptSet) -> Check:
    """Rows that repeat an earlier one, and questions that differ in case and spaces only."""
    plain = Counter(" ".join(p.text.casefold().split()) for p in prompts.train)
    near = sum(count - 1 for count in plain.values())
    merged, rows = prompts.report.merged[0], prompts.report.rows[0]
    share = (merged + near) / max(1, rows)
    says = f"{merged} of {rows} rows repeated an earlier one and were merged"
    says += f", {near} prompts differ from another in case and spaces only" if near else ""
    leaked = prompts.report.leaked
    says += f"; {leaked} held-out questions were taken out of training" if leaked else ""
    heavy = share >= MANY_REPEATS
    return Check(
        name="duplicate-prompts",
        level=Level.WARNING if heavy else Level.NOTE if near or leaked else Level.OK,
        says=says if share or leaked else f"all {len(prompts.train)} training prompts differ",
        advice="remove repeated rows: they count several times in every gradient" if heavy else "",
        numbers={"merged": merged, "near": near, "leaked": leaked, "rows": rows},
    )


def gold_answers(problems: Sequence[Unverifiable], usable: int) -> Check:
    """Gold answers that do not grade as right."""
    total = usable + len(problems)
    if not problems:
        return Check(name="gold-answers", level=Level.OK, says=f"all {total} gold answers can be verified")
    share = len(problems) / total
    return Check(
        name="gold-answers",
        level=Level.CRITICAL if share >= MANY_UNVERIFIABLE else Level.WARNING,
        says=f"{len(problems)} of {total} gold answers do not grade as right; their prompts are left out",
        advice="mend these rows, or choose the grader that fits them",
        numbers={"failed": len(problems), "of": total},
        shown=tuple(f"{bad.prompt_id}: {bad.reason} (gold {bad.answer!r})" for bad in problems[:SHOWN]),
    )
