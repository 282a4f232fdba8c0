"""The loop in simulated time: rounds of sampling with refills, grading, updates, deliveries, a queue."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from trimtab.planning.costs import Costs, StageCost
from trimtab.planning.decoding import Dealing, Round, sample_round
from trimtab.planning.lengths import Answers, Floats, Ints, Lengths
from trimtab.planning.timeline import Cores, Process, Timeline, Wait, Work
from trimtab.planning.workload import Split, Workload

SLOWEST_KEEP_RATE = 0.25
"""As in the loop's own collection: a refill asks for at most four times what is missing."""

ENGINE, TRAINER = "engine", "trainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Everything that decides a simulation. slots: answers that an engine runs at once."""

    workload: Workload
    lengths: Lengths
    split: Split
    costs: Costs
    slots: int = 256
    cores: Cores = field(default_factory=Cores)
    steps: int = 12
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """Means over the steps after the first few. Seconds are of one step, shares are in [0, 1].

    step: from update to update. sample ... rest: seconds of each stage; in an asynchronous loop they overlap.
    engines_idle, trainers_idle: share of the time in which they do nothing. tail: share of sampling in which
    the last tenth of a round's answers runs. tokens_per_second: of answers, those of dropped groups included.
    draws, rounds: prompts drawn, rounds of sampling. staleness: updates between sampling and training.
    busiest: tokens of the busiest trainer against the mean, >= 1.
    """

    step: float
    sample: float
    grade: float
    annotate: float
    update: float
    sync: float
    rest: float
    engines_idle: float
    trainers_idle: float
    tail: float
    tokens_per_second: float
    draws: float
    rounds: float
    staleness: float
    busiest: float


@dataclass(slots=True, eq=False)
class _Collected:
    """The groups of one step, and what collecting them took."""

    version: int
    kept: list[Ints]
    sample: float = 0.0
    grade: float = 0.0
    tail: float = 0.0
    draws: int = 0
    rounds: int = 0
    tokens: int = 0


@dataclass(slots=True, eq=False)
class _Trained:
    """What one step took, for the means."""

    ended: float
    found: _Collected
    annotate: float
    update: float
    sync: float
    rest: float
    staleness: int
    busiest: float


def simulate(setup: Setup) -> Simulated:
    """Run the loop and take means. The same setup gives the same numbers."""
    return _Loop(setup).run()


class _Loop:
    """Two processes, a collector and a trainer, as the loop has them; one waits for the other where S = 0."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.timeline = Timeline(setup.cores)
        period = setup.split.period
        self.warm = period * -(-(setup.split.staleness + 2) // period)
        self.steps = self.warm + period * -(-setup.steps // period)
        self.queue: deque[_Collected] = deque()
        self.version = self.delivered = self.next = 0
        self.collecting = False
        self.carried: list[tuple[int, Ints]] = []
        self.keep_rate = 1.0
        self.busy: list[tuple[float, Floats]] = []
        self.running_context = 0.0
        self.trained: list[_Trained] = []

    def run(self) -> Simulated:
        self.timeline.run(self._trainer(), [self._collector()])
        done, low, high = self.trained[self.warm :], self.trained[self.warm - 1].ended, self.trained[-1].ended
        seconds, steps = high - low, len(done)

        def mean(values: list[float]) -> float:
            return sum(values) / steps

        step = seconds / steps
        busy = sum(
            float((np.minimum(start + took, high) - max(start, low)).clip(0.0).sum())
            for start, took in self.busy
        )
        engines = max(1, self.setup.split.engines)
        works = mean([t.annotate + t.update for t in done])
        sample = mean([t.found.sample for t in done])
        return Simulated(
            step=step,
            sample=sample,
            grade=mean([t.found.grade for t in done]),
            annotate=mean([t.annotate for t in done]),
            update=mean([t.update for t in done]),
            sync=mean([t.sync for t in done]),
            rest=mean([t.rest for t in done]),
            engines_idle=max(0.0, 1.0 - busy / (engines * seconds)) if seconds else 0.0,
            trainers_idle=max(0.0, 1.0 - works / step) if step else 0.0,
            tail=mean([t.found.tail for t in done]) / sample if sample else 0.0,
            tokens_per_second=mean([float(t.found.tokens) for t in done]) / step if step else 0.0,
            draws=mean([float(t.found.draws) for t in done]),
            rounds=mean([float(t.found.rounds) for t in done]),
            staleness=mean([float(t.staleness) for t in done]),
            busiest=mean([t.busiest for t in done]),
        )

    def _collector(self) -> Process:
        for step in count():
            yield lambda: self.next < self._limit
            self.collecting = True
            found = yield from self._collect(step)
            self.queue.append(found)
            self.collecting, self.next = False, step + 1

    @property
    def _limit(self) -> int:
        """The first step whose collection must wait, as in ``loop.staleness``."""
        return self.delivered + self.setup.split.staleness + 1

    def _collect(self, step: int) -> Generator[Wait, None, _Collected]:
        """Draw, sample and refill as ``loop.collect`` does."""
        work = self.setup.workload
        random = np.random.default_rng((self.setup.seed, step))
        bound = max(self.setup.split.staleness, work.carry_staleness)
        usable = [(version, row) for version, row in self.carried if step - version <= bound]
        found = _Collected(version=self.version, kept=[row for _, row in usable[: work.groups]])
        self.carried = usable[work.groups :]
        rate, fresh_kept = self.keep_rate, 0
        while len(found.kept) < work.groups and found.draws < work.draw_limit:
            missing = work.groups - len(found.kept)
            asked = missing if not work.draw_factor else math.ceil(missing / max(rate, SLOWEST_KEEP_RATE))
            drawn = self.setup.lengths.draw(random, min(asked, work.draw_limit - found.draws), work.answers)
            yield from self._round(found, drawn)
            kept = [row for row, keep in zip(*drawn, strict=True) if keep or not work.draw_factor]
            fresh_kept += len(kept)
            place = work.groups - len(found.kept)
            found.kept += kept[:place]
            self.carried += [(found.version, row) for row in kept[place:]] if work.carry else []
            rate = max(fresh_kept / found.draws, 1e-3)
        if found.draws:
            self.keep_rate = 0.5 * self.keep_rate + 0.5 * rate
        return found

    def _round(self, found: _Collected, drawn: Answers) -> Generator[Wait, None, None]:
        setup = self.setup
        engines = max(1, setup.split.engines)
        groups, answers = drawn.lengths_GN.shape
        split, prompt = setup.split, setup.workload.prompt
        dealing = Dealing.of(split.engine, groups, answers, split.engines, setup.slots)
        took = sample_round(drawn.lengths_GN, prompt, dealing, engines, setup.slots, setup.costs.decode)
        self.running_context = float(took.context_E.max(initial=0.0))
        each = took.seconds_E[took.seconds_E > 0.0] if setup.cores.count else [took.seconds]
        works = [Work(ENGINE, float(seconds)) for seconds in each]
        began = self.timeline.now
        yield works
        sampled = self.timeline.now - began
        stretch = sampled / took.seconds if took.seconds else 1.0
        spent = np.array([work.took for work in works]) if setup.cores.count else took.seconds_E * stretch
        self.busy.append((began, spent))
        late = self._grading(took, groups, stretch)
        yield [Work(TRAINER, setup.costs.round + late)]
        found.draws += groups
        found.rounds += 1
        found.tokens += int(drawn.lengths_GN.sum())
        found.sample += sampled + setup.costs.round
        found.grade += late
        found.tail += took.tail * stretch

    def _grading(self, took: Round, groups: int, stretch: float) -> float:
        """Seconds that grading adds after the last answer. A group is graded as its last answer ends."""
        each, at_once = self.setup.costs.grade, self.setup.costs.graders
        answers = len(took.ends_A)
        if not each or not answers:
            return 0.0
        if not self.setup.split.engines:
            return each * answers / at_once
        ends_A = np.repeat(np.sort(took.ends_A.reshape(groups, -1).max(axis=1)), answers // groups) * stretch
        left_A = np.arange(answers, 0, -1) * each / at_once
        return max(each, float((ends_A + left_A).max()) - took.seconds * stretch)

    def _trainer(self) -> Process:
        setup, split = self.setup, self.setup.split
        for step in range(self.steps):
            yield lambda: bool(self.queue)
            found = self.queue.popleft()
            staleness = step - found.version
            annotate, update, busiest = train_seconds(found.kept, setup.workload, split, setup.costs)
            stages = [Work(TRAINER, annotate), Work(TRAINER, update), Work(TRAINER, 0.0)]
            yield stages[:1]
            yield stages[1:2]
            due = (step + 1) % split.period == 0
            if due:
                stages[2].seconds = setup.costs.sync
                if split.period == 1 and split.in_flight == "update" and split.staleness:
                    self.timeline.delay(ENGINE, setup.costs.sync + self._refresh())
                else:
                    yield lambda: not self.collecting and self.next >= self._limit
            yield stages[2:]
            if due:
                self.version = step + 1
            rest = Work(TRAINER, setup.costs.rest.seconds(sum(int(row.sum()) for row in found.kept)))
            yield [rest]
            self.delivered = self.version
            noted, updated, delivered = (stage.took for stage in stages)
            self.trained.append(
                _Trained(self.timeline.now, found, noted, updated, delivered, rest.took, staleness, busiest)
            )

    def _refresh(self) -> float:
        """Seconds in which an engine computes anew what old weights left in the cache of running answers."""
        return self.running_context * self.setup.costs.decode.prefill


def train_seconds(
    kept: list[Ints], workload: Workload, split: Split, costs: Costs
) -> tuple[float, float, float]:
    """(annotation, updates, busiest trainer's tokens against the mean) of a step on these groups."""
    if not kept:
        return 0.0, 0.0, 1.0
    passes = workload.ahead_passes if split.staleness else workload.passes
    annotate = passes * _pass(kept, workload, split.trainers, costs.annotate)[0]
    chunks = [kept[start :: workload.updates] for start in range(min(workload.updates, len(kept)))]
    done = [_pass(chunk, workload, split.trainers, costs.update) for chunk in chunks]
    seconds = workload.epochs * sum(one for one, _ in done)
    return annotate, seconds, sum(uneven for _, uneven in done) / len(done)


def _pass(kept: list[Ints], workload: Workload, trainers: int, cost: StageCost) -> tuple[float, float]:
    """(seconds, unevenness) of one pass: sequences are dealt by length, there and back again.

    Prompts count once for a group, as they are computed once.
    """
    answers_S = np.sort(np.concatenate(kept).astype(np.float64))[::-1]
    tokens_S = answers_S + workload.prompt / workload.answers
    rows = -(-len(tokens_S) // trainers)
    table = np.zeros(rows * trainers)
    table[: len(tokens_S)] = tokens_S
    table = table.reshape(rows, trainers)
    table[1::2] = table[1::2, ::-1]
    busiest, total = float(table.sum(axis=0).max()), float(tokens_S.sum())
    uneven = busiest * trainers / total
    squares = float(((answers_S + workload.prompt) ** 2).sum()) * uneven / trainers
    return cost.seconds(busiest, squares), uneven
