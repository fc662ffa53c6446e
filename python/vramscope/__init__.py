# SPDX-License-Identifier: Apache-2.0
"""vramscope: shows what holds GPU memory, every byte, by name, at any instant.

A program under ``vramscope run`` needs no change. The functions are optional:

* `mark` names an instant, `scope` a part of the program, `tag` a piece of memory. They do nothing while
  nothing is recorded, so they can stay in a program.
* `start`, `stop` and `record` record this process, or a part of its run, without the launcher.
* `read` opens a recording, `show` displays its page in a notebook.

::

    import vramscope

    with vramscope.record("train.vram", cpu=True):
        train()
    print(vramscope.read("train.vram").report(by=["category"]).rows["bytes"])
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from . import _cells
from ._annotate import mark, scope, tag
from ._page import show
from ._reader import ReadError, Trace, read
from ._recording import Recording, is_recording, live_directory, record, start, stop
from ._version import __version__

if TYPE_CHECKING:
    from ._courtesy import Courtesy
    from ._iterations import IterationProfiler as IterationProfiler
    from ._line_profiler import LineProfiler, profile, profile_every, set_target_gpu
    from ._mem_reporter import MemReporter
    from ._yield import yield_gpu

# ``vramscope run`` may have started this notebook and its recording.
_cells.watch()

# IterationProfiler is missing on purpose: its import can begin a recording, which a star import should not do.
__all__ = [
    "Courtesy",
    "LineProfiler",
    "MemReporter",
    "ReadError",
    "Recording",
    "Trace",
    "__version__",
    "is_recording",
    "live_directory",
    "mark",
    "profile",
    "profile_every",
    "read",
    "record",
    "scope",
    "set_target_gpu",
    "show",
    "start",
    "stop",
    "tag",
    "yield_gpu",
]

# Imported on first use: most programs need none of these.
_LATER = {
    "Courtesy": "_courtesy",
    "IterationProfiler": "_iterations",
    "LineProfiler": "_line_profiler",
    "MemReporter": "_mem_reporter",
    "profile": "_line_profiler",
    "profile_every": "_line_profiler",
    "set_target_gpu": "_line_profiler",
    "yield_gpu": "_yield",
}


# Hidden from type checkers: with __getattr__ they would accept every unknown name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)


def __dir__() -> List[str]:
    return sorted({*__all__, "IterationProfiler", "load_ipython_extension"})


def load_ipython_extension(ipython: object) -> None:
    """Adds the magics %mlrun, %%mlrun and %%vram, for ``%load_ext vramscope``."""
    from ._magics import load_ipython_extension as load

    load(ipython)
