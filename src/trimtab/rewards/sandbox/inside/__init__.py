"""What runs inside the sandbox: these files are compiled by the trainer and handed to a bare interpreter.

They import only the standard library and one another, under their full names; nothing else of trimtab can
be read there. Each call starts an interpreter, so they import little: ``typing`` and ``signal`` alone would
take longer than all the rest, which is why ``TYPE_CHECKING`` is a constant of their own.
"""
# SPDX-License-Identifier: Apache-2.0
