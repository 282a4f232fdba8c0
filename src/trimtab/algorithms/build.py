"""From the ``[algorithm]`` table of a recipe to an ``Algorithm``.

    name = "grpo"                       a preset, with its own arguments beside it
    clip_high = 0.28
    aggregate = "token-mean"            any piece can be replaced by name,
    surrogate = {name = "dual-clip", low = 0.2, high = 0.28, cap = 3.0}
    advantage = {scale = "none"}        or changed in some of its fields (a table without a name)
    selection = {}                      turned on with its defaults, or off with "none"
    terms.kl = {coef = 0.01}

    name = "custom"                     from nothing; advantage, ratio, surrogate, aggregate must be spelled

The pieces are the same for both:

    advantage        group | leave-one-out | gae
    ratio            token | sequence | sequence-token
    surrogate        clip | dual-clip | soft-gate | clipped-weight | sign-decoupled-clip | unclipped
    aggregate        token-mean | seq-mean-token-mean | seq-mean-token-sum | prompt-mean | token-sum |
                     seq-mean-token-sum-norm {horizon}
    terms            kl {coef, estimator, importance_weighted}, value {coef, clip}, entropy {coef}
    reward           {right, wrong}
    selection        {low, high, ...}
    shaping          soft-overlong {buffer, maximum} | hard-overlong {penalty, maximum}
    overlong_filter  true | false
    kl_in_reward     {coef, estimator}
    entropy_target   {target, change, maximum}
    correction       {level, form, low, high}
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from trimtab.advantages.gae import GAE
from trimtab.advantages.group import GroupRelative, LeaveOneOut
from trimtab.algorithms.algorithm import Algorithm
from trimtab.algorithms.checking import NONE, called, changed, table_of, typed
from trimtab.algorithms.dapo import overlong_buffer_of
from trimtab.algorithms.parts import Parts
from trimtab.algorithms.presets import ALGORITHMS
from trimtab.algorithms.refusals import refuse
from trimtab.data.selection import Selection
from trimtab.errors import SettingError, nearest
from trimtab.objectives.aggregate import AGGREGATES, Aggregate, SeqMeanTokenSumNorm, aggregate_named
from trimtab.objectives.correction import Correction
from trimtab.objectives.ratio import RATIOS
from trimtab.objectives.regularizers import EntropyBonus, EntropyTarget, ReferenceKL
from trimtab.objectives.surrogate import SURROGATES
from trimtab.objectives.value import ClippedValueLoss
from trimtab.rewards.kl import KLInReward
from trimtab.rewards.shaping import HardOverlong, RewardScale, SoftOverlong

CUSTOM = "custom"

KINDS: dict[str, dict[str, Callable[..., Any]]] = {
    "advantage": {"group": GroupRelative, "leave-one-out": LeaveOneOut, "gae": GAE},
    "surrogate": dict(SURROGATES),
    "reward": {"scale": RewardScale},
    "selection": {"pass-rate": Selection},
    "shaping": {"soft-overlong": SoftOverlong, "hard-overlong": HardOverlong},
    "kl_in_reward": {"reference-kl": KLInReward},
    "entropy_target": {"entropy-target": EntropyTarget},
    "correction": {"rollout": Correction},
}
"""Pieces made by a constructor, by slot and name. A slot with one entry does not need the name."""

TERMS: dict[str, type[ReferenceKL] | type[ClippedValueLoss] | type[EntropyBonus]] = {
    "kl": ReferenceKL,
    "value": ClippedValueLoss,
    "entropy": EntropyBonus,
}
OPTIONAL = frozenset({"selection", "shaping", "kl_in_reward", "entropy_target", "correction"})
SLOTS = (*KINDS, "ratio", "aggregate", "terms", "overlong_filter")


def build_algorithm(
    table: Mapping[str, Any],
    *,
    max_new_tokens: int,
    samples_per_prompt: int,
    allow: Sequence[str] = (),
    correction: Correction | None = None,
) -> Algorithm:
    """The algorithm that an ``[algorithm]`` table describes.

    max_new_tokens: fills what the table leaves to the run (overlong maximum and buffer, horizon).
    samples_per_prompt: the group's size, for the refusals. allow: refusals to lift, by name.
    correction: the one of this run where the table does not speak of any.

    Raises SettingError: unknown key or name (with the nearest one), wrong type, missing piece, a setting
    without effect, or a refusal (see ``refusals.py``).
    """
    algorithm = composed(table, max_new_tokens=max_new_tokens)
    name, own, pieces = _split(table)
    _no_effect(algorithm, name, own, pieces, max_new_tokens)
    refuse(algorithm, samples_per_prompt=samples_per_prompt, allow=allow)
    return algorithm if "correction" in pieces else replace(algorithm, correction=correction)


def composed(table: Mapping[str, Any], *, max_new_tokens: int) -> Algorithm:
    """``build_algorithm`` without its refusals: what an algorithm is, for those who only look at a run."""
    name, own, pieces = _split(table)
    return _built(name, own, pieces, max_new_tokens)


def _split(table: Mapping[str, Any]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """(name, the preset's own arguments, the pieces spelled out beside it)."""
    given = table_of(table, "algorithm")
    name = given.pop("name", None)
    if not isinstance(name, str):
        raise SettingError(f"algorithm.name is missing{nearest('', [*ALGORITHMS, CUSTOM])}")
    if name != CUSTOM and name not in ALGORITHMS:
        raise SettingError(f"unknown algorithm {name!r}{nearest(name, [*ALGORITHMS, CUSTOM])}")
    pieces = {key: given.pop(key) for key in SLOTS if key in given}
    return name, given, pieces


def _built(name: str, own: Mapping[str, Any], pieces: Mapping[str, Any], max_new_tokens: int) -> Algorithm:
    parts = Parts() if name == CUSTOM else Parts.of(_preset(name, own, max_new_tokens))
    if name == CUSTOM and own:
        unknown = next(iter(own))
        raise SettingError(f"unknown key algorithm.{unknown}{nearest(unknown, SLOTS)}")
    for slot, value in pieces.items():
        parts = _with(parts, slot, value, max_new_tokens)
    return parts.whole(name)


def _preset(name: str, own: Mapping[str, Any], max_new_tokens: int) -> Algorithm:
    preset = ALGORITHMS[name]
    own_names = [key for key in inspect.signature(preset).parameters if key != "max_new_tokens"]
    for key in own:
        if key not in own_names:
            raise SettingError(f"{name} has no key algorithm.{key}{nearest(key, [*own_names, *SLOTS])}")
    filled = (
        {}
        if len(own_names) == len(inspect.signature(preset).parameters)
        else {"max_new_tokens": max_new_tokens}
    )
    return called(preset, own, "algorithm", **filled)


def _no_effect(
    algorithm: Algorithm, name: str, own: Mapping[str, Any], pieces: Mapping[str, Any], max_new_tokens: int
) -> None:
    """A preset's argument that a piece beside it overrides would be ignored in silence: refuse it."""
    for key in own if pieces else ():
        others = {other: value for other, value in own.items() if other != key}
        acts_alone = _preset(name, own, max_new_tokens) != _preset(name, others, max_new_tokens)
        if acts_alone and _built(name, others, pieces, max_new_tokens) == algorithm:
            replacing = " or ".join(f"algorithm.{piece}" for piece in pieces)
            raise SettingError(
                f"algorithm.{key} has no effect, because {replacing} replaces what it sets; leave it out"
            )


def _with(parts: Parts, slot: str, value: Any, max_new_tokens: int) -> Parts:
    """The parts with one slot replaced, changed, turned on or turned off."""
    where = f"algorithm.{slot}"
    if slot == "overlong_filter":
        return replace(parts, overlong_filter=typed(value, bool, where))
    if slot == "ratio":
        if not isinstance(value, str) or value not in RATIOS:
            raise SettingError(f"unknown {where} {value!r}{nearest(str(value), RATIOS)}")
        return replace(parts, ratio=RATIOS[value])
    if slot == "aggregate":
        return replace(parts, aggregate=_aggregate(value, parts.aggregate, max_new_tokens))
    if slot == "terms":
        for name, term in table_of(value, where).items():
            parts = _with_term(parts, name, term)
        return parts
    piece = _piece(slot, value, getattr(parts, slot), max_new_tokens)
    return replace(parts, **{slot: piece})


def _piece(slot: str, value: Any, current: Any, max_new_tokens: int) -> Any:
    where, kinds = f"algorithm.{slot}", KINDS[slot]
    if value == NONE and slot in OPTIONAL:
        return None
    table = {"name": value} if isinstance(value, str) else table_of(value, where)
    name = table.pop("name", None)
    if slot == "selection":
        _raw_grades_only(table)
    if name is None and current is not None:
        return changed(current, table, where)
    if name is None and len(kinds) == 1:
        name = next(iter(kinds))
    if name not in kinds:
        known = [*kinds, NONE] if slot in OPTIONAL else list(kinds)
        raise SettingError(f"{where} needs a known name, got {name!r}{nearest(str(name), known)}")
    if slot == "shaping":
        table = _lengths(table, name, max_new_tokens)
    return called(kinds[name], table, where)


def _lengths(table: Mapping[str, Any], name: str, max_new_tokens: int) -> dict[str, Any]:
    """Lengths that the table leaves to the run: up to the longest answer, over the last fifth of it."""
    longest = table.get("maximum", max_new_tokens)
    filled: dict[str, Any] = {"maximum": max_new_tokens}
    if name == "soft-overlong" and isinstance(longest, int):
        filled["buffer"] = overlong_buffer_of(longest)
    return {**filled, **table}


def _raw_grades_only(table: Mapping[str, Any]) -> None:
    allowed = {field.name for field in fields(Selection)}
    for key in table:
        if key not in allowed and key in ("metric", "on", "by", "reward"):
            raise SettingError(
                f"algorithm.selection has no {key!r}: groups are kept or dropped on raw grades only, because "
                "a length penalty makes a group of wrong answers look as if it could teach; leave it out"
            )


def _aggregate(value: Any, current: Aggregate | None, max_new_tokens: int) -> Aggregate:
    where = "algorithm.aggregate"
    table = {"name": value} if isinstance(value, str) else table_of(value, where)
    name, horizon = table.pop("name", None), table.pop("horizon", None)
    if table:
        unknown = next(iter(table))
        raise SettingError(f"unknown key {where}.{unknown}{nearest(unknown, ['name', 'horizon'])}")
    if horizon is not None:
        horizon = typed(horizon, int, f"{where}.horizon")
    if name is None and isinstance(current, SeqMeanTokenSumNorm):
        name = "seq-mean-token-sum-norm"
    if not isinstance(name, str):
        raise SettingError(f"{where} needs a name{nearest('', AGGREGATES)}")
    if AGGREGATES.get(name) is SeqMeanTokenSumNorm and horizon is None:
        horizon = max_new_tokens
    return aggregate_named(name, horizon)


def _with_term(parts: Parts, name: str, value: Any) -> Parts:
    where = f"algorithm.terms.{name}"
    if name not in TERMS:
        raise SettingError(f"unknown term {where}{nearest(name, TERMS)}")
    if value == NONE:
        return replace(parts, **{name: None})
    table = table_of(value, where)
    current: tuple[float, Any] | None = getattr(parts, name)
    if "coef" in table:
        coefficient: float = typed(table.pop("coef"), float, f"{where}.coef")
    elif current is not None:
        coefficient = current[0]
    else:
        raise SettingError(f"{where} needs coef, the weight of the term in the loss")
    if not 0.0 <= coefficient < float("inf"):
        raise SettingError(f"{where}.coef must be >= 0, got {coefficient}")
    term = called(TERMS[name], table, where) if current is None else changed(current[1], table, where)
    return replace(parts, **{name: (coefficient, term)})
