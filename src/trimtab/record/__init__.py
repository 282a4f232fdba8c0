"""The run directory: what a run writes, and how everything else reads it. See docs/record.md.

writer.RunRecord     written by the loop        reader.RunReader     read by dashboard and doctor
rollouts, rows       a Parquet file a step      groups               exact store of carried groups
"""
# SPDX-License-Identifier: Apache-2.0

from trimtab.record.config import RecordConfig

__all__ = ["RecordConfig"]
