# SPDX-License-Identifier: Apache-2.0
"""Asks a question in a session of spark-submit, which chooses the master: spark-submit ... submit.py DIR QUESTION."""

from __future__ import annotations

import pathlib
import sys

if __name__ == "__main__":
    # Python puts this file's folder first, whose modules are not for import by their bare names.
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[2])
    from vramscope.fleet.__main__ import main

    sys.exit(main(["fleet", "--engine", "spark", *sys.argv[1:]]))
