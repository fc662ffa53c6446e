# SPDX-License-Identifier: Apache-2.0
"""vramscope: tells where GPU memory goes, every byte, by name, at any instant.

Under ``vramscope run`` nothing here is needed. The functions serve programs that want to name an
instant (`mark`), a part of themselves (`scope`) or their memory (`tag`), to record only a part of
themselves (`start`, `stop`), or to record without the launcher (`start`, `record`), at any time and
in notebooks too. Where nothing is recorded all others do nothing, so they can stay in a program for
good. `read` opens a recording.
"""

from __future__ import annotations

from ._annotate import mark, scope, tag
from ._reader import ReadError, Trace, read
from ._recording import Recording, is_recording, live_directory, record, start, stop
from ._version import __version__

__all__ = [
    "ReadError",
    "Recording",
    "Trace",
    "__version__",
    "is_recording",
    "live_directory",
    "mark",
    "read",
    "record",
    "scope",
    "start",
    "stop",
    "tag",
]


def __getattr__(name: str) -> object:
    # Not with the others: where torch is not imported yet, importing it begins a recording if there is none.
    if name == "IterationProfiler":
        from ._iterations import IterationProfiler

        return IterationProfiler
    if name == "MemReporter":
        from ._mem_reporter import MemReporter

        return MemReporter
    if name == "Courtesy":
        from ._courtesy import Courtesy

        return Courtesy
    if name in ("LineProfiler", "profile", "profile_every", "set_target_gpu"):
        from . import _line_profiler

        return getattr(_line_profiler, name)
    if name == "yield_gpu":
        from ._yield import yield_gpu

        return yield_gpu
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def load_ipython_extension(ipython: object) -> None:
    """``%load_ext vramscope``: the magics %mlrun, %%mlrun and %%vram."""
    from ._magics import load_ipython_extension as load

    load(ipython)
