"""From what a person says (recipe, run, numbers) to a question that can be simulated."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

import numpy as np

from trimtab.config import Run, overridden, resolve, run_from_dict, tables_of
from trimtab.errors import SettingError
from trimtab.planning.costs import CostSource, SheetCosts, assumptions_with
from trimtab.planning.figures import Figure, Origin
from trimtab.planning.fitting import fit_costs
from trimtab.planning.given import read_costs
from trimtab.planning.hardware import Device, device_named
from trimtab.planning.lengths import Lengths, LogNormal, Recorded
from trimtab.planning.probe import LOOPBACK, probe
from trimtab.planning.recording import Recording, read_recording
from trimtab.planning.shape import ModelShape, number_of, read_shape, shape_of_numbers
from trimtab.planning.splits import LOCAL_SLOTS, Question
from trimtab.planning.words import question_figures
from trimtab.planning.workload import workload_of

USUAL_SHARE = 0.4
"""Of max_new_tokens: the mean answer, and its spread, where nobody says how long answers are."""

USUAL_PROMPT = 200.0
GPU_BYTES, CPU_BYTES = 2.0, 4.0
UNKNOWN_FLOPS, UNKNOWN_BANDWIDTH = 1e11, 2e10
PLAIN = {"model": {"path": "embedded/sums"}, "data": {"task": "sums"}, "algorithm": {"name": "dr_grpo"}}
"""What a run needs beside numbers when there is no recipe; none of it is used but the algorithm's needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The words of ``trimtab plan``; None where nothing was said."""

    recipes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    gpus: int | None = None
    hardware: str | None = None
    runs: tuple[Path, ...] = ()
    parameters: str | None = None
    active: str | None = None
    lengths: str | None = None
    prompt: float | None = None
    keep_rate: float | None = None
    stalenesses: tuple[int, ...] | None = None
    in_flight: Literal["drain", "update"] | None = None
    engine: Literal["local", "vllm"] | None = None
    assume: tuple[str, ...] = ()
    costs: Path | None = None
    seed: int = 0


def question_of(asked: Asked) -> Question:
    """Resolve everything. Raises SettingError or DataError for what is missing or contradictory."""
    recordings = [read_recording(path) for path in asked.runs]
    run = _run(asked, recordings)
    shape = _shape(asked, run)
    assumed = assumptions_with(list(asked.assume))
    device = _device(asked, recordings)
    cpu = bool(device.cores)
    engine = asked.engine or (run.cluster.engine if run.cluster.engines else "local" if cpu else "vllm")
    lengths = _lengths(asked, run, recordings)
    workload = workload_of(run, _prompt(asked, recordings), float32=cpu, engine=engine)
    weight_bytes = CPU_BYTES if cpu else GPU_BYTES
    source: CostSource
    if asked.costs is not None:
        source = read_costs(asked.costs)
    elif recordings and asked.hardware is None and asked.parameters is None:
        fitted = fit_costs(recordings, shape, device, assumed, weight_bytes=weight_bytes)
        source, device = fitted, fitted.device
    else:
        source = SheetCosts(
            shape=shape, device=device, workload=workload, assumed=assumed, weight_bytes=weight_bytes
        )
    return Question(
        shape=shape,
        device=device,
        workload=workload,
        lengths=lengths,
        source=source,
        gpus=asked.gpus if asked.gpus is not None else device.cores + 1 if cpu else 8,
        assumed=assumed,
        weight_bytes=weight_bytes,
        stalenesses=asked.stalenesses or ((0, run.cluster.staleness) if run.cluster.staleness else (0, 1)),
        in_flight=asked.in_flight or run.cluster.in_flight,
        engine=engine,
        max_sequences=run.cluster.vllm.max_sequences if engine == "vllm" else LOCAL_SLOTS,
        seed=asked.seed,
        prompt_from=_prompt_from(asked, recordings),
        timed=_timed(recordings, asked, run),
    )


def figures_of(question: Question) -> list[Figure]:
    """All inputs of a question with their origins, each once."""
    return [*question_figures(question), *question.source.figures()]


def _run(asked: Asked, recordings: list[Recording]) -> Run:
    """The recipe's run, else the first recording's, else a plain one; settings laid over it."""
    if asked.recipes:
        return resolve(asked.recipes, asked.settings)
    if recordings:
        return overridden(recordings[0].run, asked.settings)
    tables = tables_of(asked.settings)
    return run_from_dict({**tables, **{name: {**own, **tables.get(name, {})} for name, own in PLAIN.items()}})


def _shape(asked: Asked, run: Run) -> ModelShape:
    if asked.parameters is None:
        if asked.active is not None:
            raise SettingError("--active says how many of --params a token uses; give both")
        return read_shape(run.model.path)
    return shape_of_numbers(
        number_of(asked.parameters), None if asked.active is None else number_of(asked.active)
    )


def _device(asked: Asked, recordings: list[Recording]) -> Device:
    """The hardware that was named, or that of the recording; by default H100s."""
    if asked.hardware == "here":
        return probe()
    if asked.hardware is not None:
        return device_named(asked.hardware)
    if not recordings or asked.parameters is not None:
        return device_named("h100")
    told = recordings[0].hardware
    accelerators = told.get("accelerators")
    if accelerators:
        known = [name for name in ("a100", "h100", "h200", "b200") if name.upper() in accelerators[0].upper()]
        if not known:
            raise SettingError(
                f"the run used {accelerators[0]!r}, whose limits are unknown; describe it by --hardware"
            )
        return device_named(known[0])
    cores = int(told.get("cores") or 1)
    return Device(
        name=str(told.get("processor") or "the run's computer"),
        flops=UNKNOWN_FLOPS,
        memory=float(told.get("memory_bytes") or 1 << 34),
        bandwidth=UNKNOWN_BANDWIDTH,
        link=LOOPBACK,
        network=LOOPBACK,
        per_node=1 << 20,
        cores=cores,
        threads=min(cores, int(told.get("threads") or 1)),
        source="nothing recorded shows it",
    )


def _lengths(asked: Asked, run: Run, recordings: list[Recording]) -> Lengths:
    limit = run.sampling.max_new_tokens
    if asked.lengths is None and recordings:
        first = recordings[0].lengths
        kept = first.kept if asked.keep_rate is None else _rated(len(first.groups), asked.keep_rate)
        groups = (
            [group for r in recordings for group in r.lengths.groups] if len(recordings) > 1 else first.groups
        )
        if len(recordings) > 1 and asked.keep_rate is None:
            kept = np.concatenate([r.lengths.kept for r in recordings])
        elif asked.keep_rate is not None:
            kept = _rated(len(groups), asked.keep_rate)
        return Recorded(
            groups=groups, kept=kept, limit=limit, how=", ".join(r.lengths.how for r in recordings)
        )
    rate = 1.0 if asked.keep_rate is None else asked.keep_rate
    if asked.lengths is None:
        mean = max(1.0, USUAL_SHARE * limit)
        how = f"{USUAL_SHARE:.0%} of max_new_tokens, and as wide; --lengths or --from says better"
        return LogNormal(average=mean, sd=mean, limit=limit, keep_rate=rate, how=how)
    numbers = [_number(text) for text in asked.lengths.split(",")]
    if len(numbers) not in (2, 3):
        raise SettingError(f"--lengths is written MEAN,SD or MEAN,SD,LIMIT, got {asked.lengths!r}")
    cut = int(numbers[2]) if len(numbers) == 3 else limit
    if len(numbers) == 2 and numbers[0] > limit:
        raise SettingError(
            f"--lengths has a mean of {numbers[0]:g} tokens but max_new_tokens is {limit}; give the limit as "
            "the third number, or sampling.max_new_tokens"
        )
    return LogNormal(average=numbers[0], sd=numbers[1], limit=cut, keep_rate=rate)


def _rated(count: int, rate: float) -> np.ndarray:
    """Which of so many groups are kept, at that rate and spread evenly."""
    if not 0.0 < rate <= 1.0:
        raise SettingError(f"the keep rate must be in (0, 1], got {rate:g}")
    places = np.arange(count)
    return np.floor((places + 1) * rate) > np.floor(places * rate)


def _prompt(asked: Asked, recordings: list[Recording]) -> float:
    if asked.prompt is not None:
        if asked.prompt < 1.0:
            raise SettingError(f"--prompt must be at least 1 token, got {asked.prompt:g}")
        return asked.prompt
    return recordings[0].prompt if recordings else USUAL_PROMPT


def _prompt_from(asked: Asked, recordings: list[Recording]) -> tuple[Origin, str]:
    if asked.prompt is not None:
        return Origin.ASSUMED, "as given"
    if not recordings:
        return Origin.ASSUMED, "a usual one; --prompt says better"
    if recordings[0].prompt_counted:
        return Origin.MEASURED, f"mean of {recordings[0].name}"
    return Origin.ASSUMED, "from the characters of the recorded prompts"


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SettingError(f"--lengths takes numbers, got {text!r}") from None


def _timed(recordings: list[Recording], asked: Asked, run: Run) -> dict[tuple[int, int, int], float]:
    """Median seconds of a step of each recorded layout, where the recorded steps are the planned ones."""
    if asked.parameters or asked.hardware or asked.lengths or asked.keep_rate or asked.costs:
        return {}
    return {
        (r.run.cluster.engines, max(1, r.run.cluster.trainers), r.run.cluster.staleness): median(r.wall)
        for r in recordings
        if r.wall and (r.run.sampling, r.run.trainer, r.run.model) == (run.sampling, run.trainer, run.model)
    }
