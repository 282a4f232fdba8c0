"""Two reward functions as they are often written first; the audit is shown on them."""
# SPDX-License-Identifier: Apache-2.0

import re
from typing import Any


def contains(completion: list[dict[str, str]], answer: Any) -> float:
    """The gold answer stands somewhere in the response."""
    return float(str(answer) in completion[-1]["content"])


def last_number(completions: list[str], answer: list[Any], **columns: Any) -> list[float]:
    """The last number of the response is the gold answer, as text."""
    found = [re.findall(r"-?[\d.,/]+", completion) for completion in completions]
    return [
        float(bool(numbers) and numbers[-1] == str(gold)) for numbers, gold in zip(found, answer, strict=True)
    ]
