# SPDX-License-Identifier: Apache-2.0
"""pytorch_memlab's interface: ``from vramscope.memlab import MemReporter, Courtesy, profile``.

Names, arguments and submodules are those of pytorch_memlab. With `install_alias` a program keeps its imports of
``pytorch_memlab``.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from .. import load_ipython_extension as load_ipython_extension  # for %load_ext
from .._courtesy import Courtesy
from .._mem_reporter import MemReporter
from ._line import get as _get

__all__ = [
    "Courtesy",
    "LineProfiler",
    "MemReporter",
    "clear_global_line_profiler",
    "install_alias",
    "profile",
    "profile_every",
    "set_target_gpu",
]

_OLD_NAME = "pytorch_memlab"
_SUBMODULES = (
    "courtesy",
    "line_profiler",
    "line_profiler.extension",
    "line_profiler.line_profiler",
    "line_profiler.line_records",
    "line_profiler.profile",
    "mem_reporter",
    "utils",
)
# Imported from the line profiler on first use.
_LINE_PROFILER = (
    "LineProfiler",
    "clear_global_line_profiler",
    "profile",
    "profile_every",
    "set_target_gpu",
)


def __getattr__(name: str) -> Any:
    if name in _LINE_PROFILER:
        return _get(name)
    if name in _SUBMODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def install_alias() -> None:
    """From now on ``import pytorch_memlab`` imports this module in this process."""
    own = sys.modules[__name__]
    there = sys.modules.get(_OLD_NAME)
    if there is own:
        return
    if there is not None:
        raise RuntimeError(
            "vramscope: pytorch_memlab is already imported; call install_alias() before its first import"
        )
    sys.modules[_OLD_NAME] = own
    for name in _SUBMODULES:
        sys.modules[f"{_OLD_NAME}.{name}"] = importlib.import_module(f"{__name__}.{name}")
