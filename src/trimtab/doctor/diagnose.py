"""All rules over one case, in the order in which a reader should see them."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.doctor.case import Case
from trimtab.doctor.rules import RULES, Rule
from trimtab.record.findings import Finding, Outcome, Severity

ORDER = {Severity.CRITICAL: 0, Severity.WARNING: 1, Severity.NOTE: 2}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Every rule's finding, what was found first: by severity, then confidence, then the rules' order."""

    findings: tuple[Finding, ...]

    @property
    def found(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.outcome is Outcome.FOUND)

    @property
    def clear(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.outcome is Outcome.CLEAR)

    @property
    def skipped(self) -> tuple[Finding, ...]:
        return tuple(one for one in self.findings if one.outcome is Outcome.SKIPPED)

    @property
    def worst(self) -> Severity | None:
        """The gravest severity found; None where nothing was."""
        return next((one.severity for one in self.found), None)

    def at_least(self, severity: Severity) -> bool:
        """Whether anything this grave, or graver, was found."""
        return any(ORDER[one.severity] <= ORDER[severity] for one in self.found if one.severity is not None)


def diagnose(case: Case, rules: Sequence[Rule] = RULES) -> Diagnosis:
    """Ask every rule. Their order decides between findings of equal weight."""
    return Diagnosis(tuple(sorted((rule(case) for rule in rules), key=_weight)))


def _weight(finding: Finding) -> tuple[int, int, float]:
    outcomes = (Outcome.FOUND, Outcome.CLEAR, Outcome.SKIPPED)
    severity = 3 if finding.severity is None else ORDER[finding.severity]
    return outcomes.index(finding.outcome), severity, -(finding.confidence or 0.0)


def verdict(diagnosis: Diagnosis) -> str:
    """The run in one or two plain sentences."""
    grave = [one for one in diagnosis.found if one.severity is not Severity.NOTE]
    looked, blind = len(diagnosis.findings) - len(diagnosis.skipped), len(diagnosis.skipped)
    could_not = f"; {blind} could not look" if blind else ""
    if looked == 0:
        return "Nothing can be said: the record has none of the metrics that the rules need."
    if not grave:
        return f"Nothing wrong was found: {looked} rules looked{could_not}."
    first = grave[0]
    opening = "This run is sick" if first.severity is Severity.CRITICAL else "This run needs attention"
    text = f"{opening}: {first.title}."
    if first.causes:
        text += f" Likely {first.causes[0].name}: {first.causes[0].what}. Try: {first.causes[0].change}."
    more = len(grave) - 1
    return text + (f" {more} more finding{'s' if more > 1 else ''} below." if more else "")
