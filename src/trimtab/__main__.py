"""``python -m trimtab`` is ``trimtab``."""
# SPDX-License-Identifier: Apache-2.0

import sys

from trimtab.cli import main

sys.exit(main())
