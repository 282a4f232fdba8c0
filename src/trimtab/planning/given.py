"""Stage costs from a file, for machines that were measured elsewhere."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields
from pathlib import Path

from trimtab.errors import SettingError, nearest
from trimtab.planning.costs import Costs, StageCost
from trimtab.planning.decoding import DecodeCost
from trimtab.planning.figures import Figure, Origin
from trimtab.planning.workload import Split


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenCosts:
    """Seconds, as a file states them; see ``Costs``. Nothing is scaled but tokens over trainers.

    tick, row: of an engine's tick, and of each row of it. prompt_token: of prefill. update, update_token: of
    an update and its tokens. pass_token: of a forward pass before updates. delivery, grade, rest, round: as
    they are. graders: answers graded at once. measured_on: who measured this, where; empty: nobody did.
    """

    tick: float
    row: float
    update_token: float
    prompt_token: float = 0.0
    update: float = 0.0
    pass_token: float = 0.0
    delivery: float = 0.0
    grade: float = 0.0
    graders: int = 1
    rest: float = 0.0
    round: float = 0.0
    measured_on: str = ""

    @property
    def measured(self) -> bool:
        """Whether the file says who measured it."""
        return bool(self.measured_on)

    def costs(self, split: Split) -> Costs:
        """See ``CostSource``."""
        return Costs(
            decode=DecodeCost(fixed=self.tick, per_row=self.row, prefill=self.prompt_token),
            update=StageCost(fixed=self.update, per_token=self.update_token),
            annotate=StageCost(per_token=self.pass_token),
            sync=self.delivery if split.engines else 0.0,
            grade=self.grade,
            graders=self.graders,
            rest=StageCost(fixed=self.rest),
            round=self.round,
        )

    def figures(self) -> list[Figure]:
        """Each number, measured where the file says by whom."""
        origin = Origin.MEASURED if self.measured else Origin.ASSUMED
        how = self.measured_on or "a file that does not say who measured it"
        names = [field.name for field in fields(self) if field.name != "measured_on"]
        return [
            Figure(name, getattr(self, name), "" if name == "graders" else "s", origin, how) for name in names
        ]


def read_costs(path: Path) -> GivenCosts:
    """The costs in a TOML file. Raises SettingError for what is missing, unknown or no number >= 0."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        raise SettingError(f"--costs: there is no readable file {path}") from None
    except tomllib.TOMLDecodeError as problem:
        raise SettingError(f"{path} is not valid TOML: {problem}") from None
    known = [field.name for field in fields(GivenCosts)]
    for key, value in table.items():
        if key not in known:
            raise SettingError(f"{path}: unknown cost {key!r}{nearest(key, known)}")
        if key == "measured_on":
            if not isinstance(value, str):
                raise SettingError(f"{path}: measured_on must be text, got {value!r}")
        elif not isinstance(value, int | float) or value is True or not 0.0 <= value < float("inf"):
            raise SettingError(f"{path}: {key} must be a number of seconds >= 0, got {value!r}")
    missing = [key for key in ("tick", "row", "update_token") if key not in table]
    if missing:
        raise SettingError(f"{path} lacks {', '.join(missing)}; see docs/plan.md for the costs of a file")
    if table.get("graders", 1) < 1:
        raise SettingError(f"{path}: graders must be >= 1, got {table['graders']}")
    return GivenCosts(**table)
