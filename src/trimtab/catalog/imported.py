"""Metrics of imported runs that have no counterpart here."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from trimtab.catalog.spec import MetricSpec, Section

IMPORTED = Section(
    "Imported",
    "Only in runs that ``trimtab import`` made of another trainer's files.",
    (
        MetricSpec(
            key="imported/{foreign}",
            unit="as in the other trainer",
            formula="as the other trainer logged it",
            mask="what the other trainer takes it over",
            reduction="the last update's value",
            meaning="A number that another trainer logged under this name and trimtab has no name for.",
        ),
    ),
)

SECTIONS = (IMPORTED,)
