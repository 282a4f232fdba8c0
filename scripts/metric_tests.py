"""Every metric of the catalogue and the test files that name it.

python scripts/metric_tests.py
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from pathlib import Path

from trimtab.catalog import SECTIONS

TESTS = Path(__file__).resolve().parents[1] / "tests"


def main() -> None:
    """Print a table, section by section."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("test_*.py"))}
    print("| metric | named in |\n|---|---|")
    for section in SECTIONS:
        for spec in section.specs:
            named = [
                name
                for name, text in texts.items()
                if name != "test_catalog.py" and re.search(f'"{spec.pattern.pattern}"', text)
            ]
            print(f"| `{spec.key}` | {', '.join(named) or 'NONE'} |")


if __name__ == "__main__":
    main()
