# SPDX-License-Identifier: Apache-2.0
"""Connects the interpreter's events to the probe, which counts for the line profiler.

All profilers of the process share one tracer. The events of profiled functions call C functions of the probe. From
Python 3.12 on other code runs at full speed; with older versions a trace function sees its calls.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import types
import warnings
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from . import _probe
from ._line_sampling import SampledProbe

CPU = 16  # probe: kWatchedCpu
NO_PEAK = -(1 << 63)  # kNoPeak

# Fields of FunctionFigures and LineFigures, src/probe/hooks/lines/lines.h.
_FUNCTION_FIELDS = ("calls", "peak_allocated", "peak_line", "grown_unknown")
_LINE_FIELDS = (
    "hits",
    "peak_allocated",
    "peak_reserved",
    "allocated",
    "reserved",
    "bytes_given",
    "bytes_back",
    "blocks_given",
    "blocks_back",
    "net",
    "gross",
    "grown",
    "grown_in_call",
)

Figures = Dict[str, int]


class FunctionFigures(NamedTuple):
    """A function on one device: its total, and the figures of each executed line."""

    whole: Figures
    lines: Dict[int, Figures]


class _Monitoring:
    """Python 3.12 and later: events of the chosen code objects alone."""

    # First try the ids that are not reserved for debuggers, coverage, profilers and optimizers.
    _TOOLS = (4, 3, 5, 2, 1, 0)

    def __init__(self, probe: Any) -> None:
        self._probe = probe
        self._tool = -1
        self._callbacks: Dict[int, Callable[..., Any]] = {}

    def start(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        events = monitoring.events
        for tool in self._TOOLS:
            if monitoring.get_tool(tool) is None:
                break
        else:
            raise RuntimeError("vramscope: other tools use all tool IDs of sys.monitoring; stop one of them")
        monitoring.use_tool_id(tool, "vramscope line profiler")
        self._tool = tool
        self._callbacks = {
            events.LINE: self._probe.on_line,
            events.PY_START: self._probe.on_start,
            events.PY_RESUME: self._probe.on_resume,
            events.PY_THROW: self._probe.on_resume,
            events.PY_RETURN: self._probe.on_leave,
            events.PY_YIELD: self._probe.on_leave,
            events.PY_UNWIND: self._probe.on_leave,
        }
        for event, function in self._callbacks.items():
            monitoring.register_callback(tool, event, function)
        # These two events cannot be enabled for single code objects.
        monitoring.set_events(tool, events.PY_UNWIND | events.PY_THROW)

    def stop(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        monitoring.set_events(self._tool, 0)
        for event in self._callbacks:
            monitoring.register_callback(self._tool, event, None)
        monitoring.free_tool_id(self._tool)
        self._tool = -1

    def add(self, code: types.CodeType) -> None:
        events = sys.monitoring.events  # type: ignore[attr-defined]
        wanted = events.LINE | events.PY_START | events.PY_RESUME | events.PY_RETURN | events.PY_YIELD
        sys.monitoring.set_local_events(self._tool, code, wanted)  # type: ignore[attr-defined]

    def remove(self, code: types.CodeType) -> None:
        sys.monitoring.set_local_events(self._tool, code, 0)  # type: ignore[attr-defined]


class _Tracing:
    """Before 3.12: a trace function in C, in all threads. It calls a previously set trace function."""

    def __init__(self, probe: Any) -> None:
        self._probe = probe

    def start(self) -> None:
        self._before = sys.gettrace()
        self._threads_before = getattr(threading, "_trace_hook", None)
        # The trace functions of other threads are unknown. If this thread has none, assume that they have none.
        self._everywhere = self._before is None and self._threads_before is None

        def trace_new_thread(frame: types.FrameType, event: str, argument: Any) -> None:
            self._probe.trace(self._threads_before, 0)

        self._hook = trace_new_thread
        threading.settrace(trace_new_thread)
        self._probe.trace(self._before, int(self._everywhere))

    def stop(self) -> None:
        if getattr(threading, "_trace_hook", None) is self._hook:
            threading.settrace(self._threads_before)  # type: ignore[arg-type, unused-ignore]
        # Another tool may have set its own function meanwhile.
        now = sys.gettrace()
        if now is self._before or now is getattr(self._probe, "tracer", self._before):
            self._probe.stop_trace(int(self._everywhere))
            sys.settrace(self._before)

    def add(self, code: types.CodeType) -> None:
        pass

    def remove(self, code: types.CodeType) -> None:
        pass


class Tracer:
    """The state that profilers share: watched devices, and code objects with events."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.probe = _functions()
        self._events = _Monitoring(self.probe) if sys.version_info >= (3, 12) else _Tracing(self.probe)
        self._codes: Dict[int, int] = {}  # key: id of the code; value: number of profilers that want its events
        self._profilers = 0

    def begin(self) -> None:
        """Counts an active profiler."""
        if self._profilers == 0:
            self._events.start()
        self._profilers += 1

    def end(self) -> None:
        self._profilers -= 1
        if self._profilers == 0:
            self._events.stop()
            self.probe.unwatch()

    def watch(self, device: int, allocated: int, reserved: int) -> bool:
        """Watches a device from now on, beginning with its current bytes. False if it is watched already."""
        return bool(self.probe.watch(device, allocated, reserved))

    def enable(self, number: int, code: types.CodeType) -> None:
        self.probe.enable(number, 1)
        self._codes[id(code)] = self._codes.get(id(code), 0) + 1
        if self._codes[id(code)] == 1:
            self._events.add(code)

    def disable(self, number: int, code: types.CodeType) -> None:
        self.probe.enable(number, 0)
        self._codes[id(code)] -= 1
        if self._codes[id(code)] == 0:
            del self._codes[id(code)]
            self._events.remove(code)

    def read(self, number: int, targets: int) -> List[FunctionFigures]:
        """The counts of a function on each of its devices."""
        values = memoryview(self.probe.read(number)).cast("q").tolist()
        size = len(values) // targets
        found = []
        for at in range(0, len(values), size):
            whole = dict(zip(_FUNCTION_FIELDS, values[at : at + len(_FUNCTION_FIELDS)]))
            lines = {}
            step = len(_LINE_FIELDS)
            first = at + len(_FUNCTION_FIELDS)
            for line, begin in enumerate(range(first, at + size, step)):
                # A call that resumes and leaves in the same line counts no hit, but its figures count.
                if values[begin] or values[begin + 1] != NO_PEAK:
                    lines[line] = dict(zip(_LINE_FIELDS, values[begin : begin + step]))
            found.append(FunctionFigures(whole, lines))
        return found


def _functions() -> Any:
    """The functions of the probe, or their replacement if it cannot be loaded."""
    why = _why_not()
    if not why:
        try:
            _probe.load()
            make = ctypes.PyDLL(None).vramscope_line_profiler
        except (RuntimeError, OSError) as error:
            why = str(error).removeprefix("vramscope: ")
        except AttributeError:
            why = "the probe in this process is of another version of vramscope"
        else:
            make.restype = ctypes.py_object
            make.argtypes = []
            return types.SimpleNamespace(**make())
    warnings.warn(
        "vramscope: the line profiler reads PyTorch's counters at the end of each line, without CPU tensors and "
        f"without peaks within lines: {why}",
        RuntimeWarning,
        stacklevel=5,
    )
    return SampledProbe()


def _why_not() -> str:
    """Why the probe cannot count here; empty if it can."""
    if sys.implementation.name != "cpython":
        return f"this Python is {sys.implementation.name}"
    is_gil_enabled: Callable[[], bool] = getattr(sys, "_is_gil_enabled", lambda: True)
    if not is_gil_enabled():
        return "this Python runs without the GIL"
    return ""


_tracer: Optional[Tracer] = None


def get() -> Tracer:
    """The tracer of this process. Loads the probe if necessary."""
    global _tracer
    if _tracer is None:
        _tracer = Tracer()
    return _tracer
