"""The doctor's findings of a run, made from the record as it stands."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from typing import Any

from trimtab.dashboard.store import OpenRun
from trimtab.doctor.case import case_of
from trimtab.doctor.diagnose import Diagnosis, diagnose, verdict


def findings(run: OpenRun) -> dict[str, Any]:
    """``verdict``, ``worst``, and all findings, the gravest first; made once for each recorded step."""
    step = run.reader.history.last_step
    held = run.kept.get("findings")
    if held is None or held["step"] != step:
        held = run.kept["findings"] = {"step": step, **_told(diagnose(case_of(run.reader)))}
    return held


def _told(made: Diagnosis) -> dict[str, Any]:
    return {
        "worst": made.worst,
        "verdict": verdict(made),
        "found": len(made.found),
        "skipped": len(made.skipped),
        "looked": len(made.findings) - len(made.skipped),
        "findings": [dataclasses.asdict(finding) for finding in made.findings],
    }
