# SPDX-License-Identifier: Apache-2.0
"""vramscope: tells where GPU memory goes, every byte, by name, at any instant.

Under ``vramscope run`` nothing here is needed. The functions serve programs that want to name an
instant (`mark`), a part of themselves (`scope`) or their memory (`tag`), to record only a part of
themselves (`start`, `stop`), or to record without the launcher (`start`, `record`), at any time and
in notebooks too. Where nothing is recorded all others do nothing, so they can stay in a program for
good. `read` opens a recording, and `show` puts its page into a notebook.
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

# In a notebook that ``vramscope run`` started, the recording is under way already.
_cells.watch()

# Without IterationProfiler: where torch is not imported yet, importing that begins a recording if there is none,
# which a star import should not.
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

# Where the names are that come when they are asked for: most programs need none of them.
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


# Hidden from type checkers, which would take every unknown name for one of these.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        return getattr(importlib.import_module(f".{_LATER[name]}", __name__), name)


def __dir__() -> List[str]:
    return sorted({*__all__, "IterationProfiler", "load_ipython_extension"})


def load_ipython_extension(ipython: object) -> None:
    """``%load_ext vramscope``: the magics %mlrun, %%mlrun and %%vram."""
    from ._magics import load_ipython_extension as load

    load(ipython)
