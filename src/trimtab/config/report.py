"""What a run is in plain words: as JSON and TOML, against the defaults, and its three numbers."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import inspect
import json
import typing
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from trimtab.algorithms import ALGORITHMS, notes
from trimtab.config.run import Run
from trimtab.config.validation import dotted, fields_of, validated
from trimtab.record.jsonl import plain

WATCHED = ("cluster.patience", "cluster.give_up", "cluster.restarts")


def run_to_dict(run: Run) -> dict[str, Any]:
    """The run as plain tables for strict JSON (an infinity becomes the word ``inf``), as in run.json."""
    return plain(run)


def run_from_dict(tree: Mapping[str, Any]) -> Run:
    """The run that ``run_to_dict`` wrote, exactly.

    Raises SettingError like any recipe.
    """
    return validated(Run, with_infinities(Run, tree))


def with_infinities(hint: Any, value: Any) -> Any:
    """Words for infinities as numbers again, wherever a text has no place."""
    arguments = typing.get_args(hint) or (Any,)
    if isinstance(value, Mapping):
        fields = fields_of(hint)
        return {name: with_infinities(fields.get(name, arguments[-1]), v) for name, v in value.items()}
    if isinstance(value, list):
        return [with_infinities(arguments[0], inner) for inner in value]
    return float(value) if value in ("inf", "-inf") and str not in (hint, *arguments) else value


class Difference(NamedTuple):
    """A setting that differs from its default. ``default`` is None where there is none."""

    path: str
    value: Any
    default: Any

    def __str__(self) -> str:
        after = "" if self.default is None else f"   # default {as_toml(self.default)}"
        return f"{self.path} = {as_toml(self.value)}{after}"


def diff_from_defaults(run: Run) -> tuple[Difference, ...]:
    """Every setting whose value is not its default, and every one that has no default."""
    return tuple(_differences(run, ()))


def _differences(config: Any, prefix: tuple[str, ...]) -> Iterator[Difference]:
    for field in dataclasses.fields(config):
        value, path = getattr(config, field.name), (*prefix, field.name)
        if path == ("algorithm",):
            yield from _algorithm_differences(value)
        elif dataclasses.is_dataclass(value):
            yield from _differences(value, path)
        else:
            default = _default(field)
            if default is dataclasses.MISSING or default != value:
                yield Difference(dotted(path), value, None if default is dataclasses.MISSING else default)


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def _algorithm_differences(table: Mapping[str, Any]) -> Iterator[Difference]:
    """The algorithm's name, then its arguments against those of the preset."""
    preset = ALGORITHMS.get(table["name"])
    parameters = inspect.signature(preset).parameters if preset else {}
    yield Difference("algorithm.name", table["name"], None)
    for name, value in table.items():
        if name == "name":
            continue
        default = parameters[name].default if name in parameters else None
        if plain(default) != plain(value):
            yield Difference(f"algorithm.{name}", value, default)


def three_numbers(run: Run) -> tuple[str, ...]:
    """Prompts a step, samples a prompt, updates a step: each in plain units, with the products."""
    prompts, samples = run.sampling.prompts_per_step, run.sampling.samples_per_prompt
    updates, epochs = run.trainer.updates_per_step, run.trainer.epochs
    small, large = prompts // updates, -(-prompts // updates)
    groups = f"{small}" if small == large else f"{small} or {large}"
    rollouts = f"{small * samples}" if small == large else f"{small * samples} or {large * samples}"
    passes = "once" if epochs == 1 else f"{epochs} times"
    total = updates * epochs
    made = "1 update" if total == 1 else f"{total} updates"
    return (
        f"{prompts} prompts a step (groups that are trained on)",
        f"{samples} samples a prompt: {prompts} x {samples} = {prompts * samples} rollouts a step",
        f"{made} a step: {updates} x {epochs} (updates x epochs), each of {groups} groups = "
        f"{rollouts} rollouts; every rollout is used {passes}",
    )


def opening_lines(run: Run) -> tuple[str, ...]:
    """The three numbers, what is to be known of this algorithm under them, surplus groups that would only be
    dropped, and settings nothing reads.
    """
    about = notes(
        run.build_algorithm(),
        max_new_tokens=run.sampling.max_new_tokens,
        updates_per_step=run.trainer.updates_per_step,
        epochs=run.trainer.epochs,
    )
    return (*three_numbers(run), *about, *never_used(run), *unused(run))


def never_used(run: Run) -> tuple[str, ...]:
    """A sentence where every surplus group will be too old by the time that a step could train on it.

    A group waits for one step at least, and under a drain it is sampled by weights that are one version old
    at least already; it may be as old as the larger of the two bounds.
    """
    selection, cluster = run.build_algorithm().selection, run.cluster
    if selection is None or not selection.carry:
        return ()
    youngest = 2 if cluster.staleness > 0 and cluster.in_flight == "drain" else 1
    if max(cluster.staleness, selection.max_staleness) >= youngest:
        return ()
    age = "1 version" if youngest == 1 else f"{youngest} versions"
    return (
        f"Surplus groups are sampled for nothing: they are {age} old when their turn comes, and "
        f"algorithm.selection.max_staleness = {selection.max_staleness} drops them; set it to {youngest} to "
        "train on them, or algorithm.selection.carry = false not to keep them waiting.",
    )


def unused(run: Run) -> tuple[str, ...]:
    """A sentence for each setting that was changed and that nothing in this run reads."""
    needs, name = run.build_algorithm().needs, run.algorithm["name"]
    own_trunk = "values_T" in needs and run.trainer.critic == "model"
    nothing_drawn = run.data.files and (run.data.held_out == 0 or isinstance(run.data.held_out, tuple))
    idle = {
        "model.reference": "" if "ref_logprobs_T" in needs else f"{name} compares with no reference",
        "trainer.critic": "" if "values_T" in needs else f"{name} has no critic",
        "trainer.critic_detached": "a critic of its own never touches the policy" if own_trunk else "",
        "data.seed": "no held-out part is drawn from these files" if nothing_drawn else "",
        "data.schema": "" if run.data.files else "a built-in task has no columns",
        "data.map": "" if run.data.files else "a built-in task has no columns",
        "evaluation.": "data.held_out is 0" if run.data.held_out == 0 else "",
        "cluster.vllm.": "" if run.cluster.engine == "vllm" else "cluster.engine is local",
        **dict.fromkeys(WATCHED, "" if run.cluster.engines or run.cluster.trainers else "there is no worker"),
    }
    return tuple(
        f"{changed.path} is not used: {reason}"
        for changed in diff_from_defaults(run)
        for prefix, reason in idle.items()
        if reason and changed.path.startswith(prefix)
    )


def resolved_lines(run: Run) -> tuple[str, ...]:
    """The whole run as TOML that can be saved as a recipe, one line a setting; unset ones left out."""
    lines: list[str] = []
    for section, table in _pairs(run):
        lines.append(f"[{section}]")
        lines.extend(f"{_key(name)} = {as_toml(value)}" for name, value in _pairs(table) if value is not None)
        lines.append("")
    return tuple(lines[:-1])


def as_toml(value: Any) -> str:
    """A setting's value as TOML, on one line; dataclasses as tables."""
    if isinstance(value, Mapping) or dataclasses.is_dataclass(value):
        pairs = [f"{_key(name)} = {as_toml(inner)}" for name, inner in _pairs(value) if inner is not None]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(as_toml(inner) for inner in value)}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(plain(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _pairs(table: Any) -> list[tuple[str, Any]]:
    """(name, value) of a mapping or of a dataclass."""
    if isinstance(table, Mapping):
        return list(table.items())
    return [(field.name, getattr(table, field.name)) for field in dataclasses.fields(table)]


def _key(name: str) -> str:
    is_bare = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if is_bare else json.dumps(name, ensure_ascii=False)
