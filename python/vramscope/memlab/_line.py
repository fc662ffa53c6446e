# SPDX-License-Identifier: Apache-2.0
"""Imports the line profiler's names on first use: the rest of the module does not need them."""

from __future__ import annotations

import importlib
from typing import Any

_MODULE = "vramscope._line_profiler"


def get(name: str) -> Any:
    try:
        module = importlib.import_module(_MODULE)
    except ModuleNotFoundError as error:
        if error.name != _MODULE:
            raise
        raise ImportError(
            f"vramscope: {name} is missing: this installation has no line profiler, "
            "only MemReporter and Courtesy"
        ) from None
    return getattr(module, name)
