# SPDX-License-Identifier: Apache-2.0
"""``pytorch_memlab.line_profiler.profile``."""

from __future__ import annotations

from typing import Any

from .._line import get as _get

__all__ = ["global_line_profiler", "clear_global_line_profiler", "profile", "profile_every", "set_target_gpu"]


def __getattr__(name: str) -> Any:
    if name == "global_line_profiler":
        return _get("_global_profiler")()
    if name in __all__:
        return _get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
