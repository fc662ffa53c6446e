# SPDX-License-Identifier: Apache-2.0
"""The console script `vramscope`: executes the packaged program."""

from __future__ import annotations

import os
import sys

from . import _paths


def main() -> int:
    """Replaces this Python process by the program; returns only on failure."""
    # Commands that are part of this package run in the Python that has it. Recorded programs do not inherit the variable.
    if sys.argv[1:2] in (["fleet"], ["export"]):
        os.environ["VRAMSCOPE_PYTHON"] = sys.executable
    try:
        program = os.fspath(_paths.program())
        os.execv(program, ["vramscope", *sys.argv[1:]])
    except (OSError, RuntimeError) as error:
        print(error, file=sys.stderr)
    return 2
