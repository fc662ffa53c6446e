# SPDX-License-Identifier: Apache-2.0
"""Replaces the probe's part of the line profiler where the probe cannot be loaded: it reads PyTorch's counters at the
end of each line. It misses memory that is allocated and freed within one line, and it resets no counters."""

from __future__ import annotations

import array
import sys
import threading
import types
from typing import Any, Dict, List, Optional, Tuple

_FUNCTION_FIELDS, _LINE_FIELDS = 4, 13
_NO_PEAK = -(1 << 63)
_CPU = 16
# Fields of memory_stats() that the figures of a line come from.
_READ = (
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "allocated_bytes.all.allocated",
    "allocated_bytes.all.freed",
    "allocation.all.allocated",
    "allocation.all.freed",
)
_Reading = Tuple[int, ...]


def _read(device: int) -> _Reading:
    torch = sys.modules.get("torch")
    if device == _CPU or torch is None or not torch.cuda.is_initialized():
        return (0,) * len(_READ)
    stats = torch.cuda.memory_stats(device)
    return tuple(stats.get(name, 0) for name in _READ)


class _Function:
    def __init__(self, code: types.CodeType, first_line: int, line_count: int, targets: int) -> None:
        self.code, self.first_line, self.line_count = code, first_line, line_count
        self.targets = [0] * targets
        self.is_enabled = False
        self.sampler: Any = None
        self.clear()

    def clear(self) -> None:
        line = [0, *[_NO_PEAK] * 4, *[0] * (_LINE_FIELDS - 5)]
        self.figures = [
            ([0, _NO_PEAK, 0, 0], [list(line) for _ in range(self.line_count)]) for _ in self.targets
        ]


class _Call:
    def __init__(self, code: types.CodeType, line: int, is_resumed: bool) -> None:
        self.code, self.line, self.is_resumed = code, line, is_resumed
        self.is_new = not is_resumed  # no line has begun since the call
        self.readings: Dict[int, _Reading] = {}


class SampledProbe:
    """Has the same functions as the probe for `_line_tracer`."""

    def __init__(self) -> None:
        self._functions: Dict[int, _Function] = {}
        self._devices: List[int] = []
        self._next = 0
        self._calls = threading.local()

    # ---- events ----

    def _stack(self) -> List[_Call]:
        if not hasattr(self._calls, "stack"):
            self._calls.stack = []
        stack: List[_Call] = self._calls.stack
        return stack

    def _enter(self, code: types.CodeType, line: int, is_resumed: bool) -> None:
        if any(function.code is code for function in self._functions.values()):
            call = _Call(code, line, is_resumed)
            call.readings = {device: _read(device) for device in self._devices}
            self._stack().append(call)

    def _close(self, call: _Call) -> None:
        now = {device: _read(device) for device in self._devices}
        for number, function in list(self._functions.items()):
            index = call.line - function.first_line
            if function.code is not call.code or not function.is_enabled or not 0 <= index < function.line_count:
                continue
            for device, (_, lines) in zip(function.targets, function.figures):
                self._add(lines[index], call.readings.get(device, now[device]), now[device], not call.is_resumed)
            if function.sampler is not None and function.figures[0][1][index][0] <= 3:
                function.sampler(number, call.line)
        call.is_resumed = False
        call.readings = now

    @staticmethod
    def _add(line: List[int], before: _Reading, now: _Reading, counts: bool) -> None:
        line[0] += counts
        most: Tuple[int, ...] = (max(before[0], now[0]), max(before[1], now[1]), now[0], now[1])
        most += tuple(b - a for a, b in zip(before[2:], now[2:]))
        line[1:9] = map(max, line[1:9], most)
        line[9] += now[0] - before[0]
        line[10] += now[2] - before[2]

    def on_line(self, code: types.CodeType, line: int) -> None:
        stack = self._stack()
        while stack and stack[-1].code is not code and any(call.code is code for call in stack):
            stack.pop()
        if not stack or stack[-1].code is not code:
            self._enter(code, line, False)
            if stack:
                stack[-1].is_new = False
            return
        call = stack[-1]
        goes_on, call.is_new = call.is_new and call.line == line, False
        if not goes_on:
            self._close(call)
            call.line = line

    def on_start(self, code: types.CodeType, offset: int) -> None:
        self._enter(code, code.co_firstlineno, False)

    def on_resume(self, code: types.CodeType, offset: int, *rest: Any) -> None:
        line = next((n for a, b, n in code.co_lines() if n is not None and a <= offset < b), code.co_firstlineno)
        self._enter(code, line, True)

    def on_leave(self, code: types.CodeType, *rest: Any) -> None:
        stack = self._stack()
        if not any(call.code is code for call in stack):
            return
        while stack[-1].code is not code:
            stack.pop()
        self._close(stack[-1])
        stack.pop()
        for function in self._functions.values():
            if function.code is code and function.is_enabled:
                for whole, lines in function.figures:
                    # The remaining blocks are unknown.
                    whole[0], whole[3] = whole[0] + 1, whole[3] + 1
                    whole[1] = max(whole[1], *(line[1] for line in lines))

    # ---- before Python 3.12 ----

    def trace(self, before: Any, everywhere: int) -> None:
        def local(frame: types.FrameType, event: str, argument: Any) -> Any:
            if event == "line":
                self.on_line(frame.f_code, frame.f_lineno)
            elif event == "return":
                self.on_leave(frame.f_code)
            return local

        def trace(frame: types.FrameType, event: str, argument: Any) -> Any:
            if not any(function.code is frame.f_code for function in self._functions.values()):
                return None
            self._enter(frame.f_code, frame.f_lineno, frame.f_lineno != frame.f_code.co_firstlineno)
            return local

        self.tracer = trace
        sys.settrace(trace)

    def stop_trace(self, everywhere: int) -> None:
        sys.settrace(None)

    # ---- results ----

    def add(self, code: types.CodeType, first_line: int, line_count: int, targets: int) -> int:
        self._next += 1
        self._functions[self._next] = _Function(code, first_line, line_count, targets)
        return self._next

    def remove(self, number: int) -> None:
        self._functions.pop(number, None)

    def enable(self, number: int, flag: int) -> None:
        self._functions[number].is_enabled = bool(flag)

    def target(self, number: int, index: int, device: int) -> None:
        self._functions[number].targets[index] = device

    def sample(self, number: int, sampler: Any) -> None:
        self._functions[number].sampler = sampler

    def read(self, number: int) -> Optional[bytes]:
        values = array.array("q")
        for whole, lines in self._functions[number].figures:
            values.extend(whole)
            for line in lines:
                values.extend(line)
        return values.tobytes()

    def watch(self, device: int, allocated: int, reserved: int) -> bool:
        is_new = device not in self._devices
        if is_new:
            self._devices.append(device)
        return is_new

    def unwatch(self) -> None:
        self._devices.clear()
        self._calls = threading.local()

    def watched(self, device: int) -> List[int]:
        return list(_read(device))
