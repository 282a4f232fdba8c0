"""Tensors that lie in several safetensors files, one a rank, each holding some rows of every tensor.

    file 1: rows 0..a   file 2: rows a..b   ...      of a tensor with n rows; a number is in all files

Only the rows asked for are read, so that no rank need hold a whole tensor.
"""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trimtab.errors import RunError


def read_rows(files: Sequence[Path], rows: Callable[[int], tuple[int, int]]) -> dict[str, Tensor]:
    """Of every tensor in ``files`` the rows from and up to ``rows(number of all its rows)``.

    Raises: RunError when a file is missing or damaged, or does not belong to the others.
    """
    file = files[0]
    try:
        with ExitStack() as stack:
            opened: list[Any] = []
            for file in files:
                opened.append(stack.enter_context(safe_open(file, framework="pt")))
            names = list(opened[0].keys())
            for file, other in zip(files, opened, strict=True):
                if set(other.keys()) != set(names):
                    raise RunError(
                        f"{file} has other tensors than {files[0]}; resume from another checkpoint"
                    )
            return {name: _read(name, opened, rows) for name in names}
    except (OSError, SafetensorError) as error:
        raise RunError(f"{file} cannot be read ({error}); resume from another checkpoint") from None


def _read(name: str, opened: Sequence[Any], rows: Callable[[int], tuple[int, int]]) -> Tensor:
    slices = [handle.get_slice(name) for handle in opened]
    shapes = [tuple(piece.get_shape()) for piece in slices]
    if not shapes[0]:
        return opened[0].get_tensor(name)
    start, stop = rows(sum(shape[0] for shape in shapes))
    found: list[Tensor] = []
    first = 0
    for handle, piece, shape in zip(opened, slices, shapes, strict=True):
        low, high = max(start - first, 0), min(stop - first, shape[0])
        if (low, high) == (0, shape[0]):
            found.append(handle.get_tensor(name))
        elif low < high:
            found.append(piece[low:high])
        first += shape[0]
    if not found:
        return opened[0].get_tensor(name)[:0]
    return found[0] if len(found) == 1 else torch.cat(found)
