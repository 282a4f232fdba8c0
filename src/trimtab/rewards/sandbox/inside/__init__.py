"""What runs inside the sandbox: these files are compiled by the trainer and handed to a bare interpreter.

They import only the standard library and one another, under their full names; nothing else of trimtab can
be read there.
"""
# SPDX-License-Identifier: Apache-2.0
