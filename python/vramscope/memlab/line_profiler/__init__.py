# SPDX-License-Identifier: Apache-2.0
"""``pytorch_memlab.line_profiler``: a package with both a function and a module named `profile`."""

from __future__ import annotations

import sys
import types
from typing import Any

from .._line import get as _get

__all__ = ["LineProfiler", "clear_global_line_profiler", "profile", "profile_every", "set_target_gpu"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _get(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(types.ModuleType):
    """Keeps the function as the attribute `profile`: importing the module `profile` must not replace it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "profile" or not isinstance(value, types.ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
