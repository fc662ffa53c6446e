# SPDX-License-Identifier: Apache-2.0
"""``pytorch_memlab.line_profiler.line_records``."""

from __future__ import annotations

from typing import Any

from .._line import get as _get

__all__ = ["RecordsDisplay"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
