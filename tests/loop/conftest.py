"""The random tiny model that whole runs of the loop start from, once for each file of tests."""
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_runs import model_folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the model."""
    return model_folder(tmp_path_factory.mktemp("model"))
