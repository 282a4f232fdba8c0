"""Training: who owns weights and optimizer. The seam is ``trainer.py``, one process is ``local.py``."""
# SPDX-License-Identifier: Apache-2.0

from trimtab.trainer.config import TrainerConfig

__all__ = ["TrainerConfig"]
