# SPDX-License-Identifier: Apache-2.0
"""LineProfiler: the memory of each line of a function. The names are those of pytorch_memlab."""

from __future__ import annotations

import atexit
import functools
import inspect
import sys
import types
import warnings
import weakref
from typing import (
    Any,
    Dict,
    Iterable,
    List,
    NamedTuple,
    Optional,
    Protocol,
    Sequence,
    Set,
    TextIO,
    Tuple,
    TypeVar,
    Union,
    overload,
)

from . import _line_tracer
from ._line_columns import DEFAULT_COLUMNS, Column, parse
from ._line_table import FunctionTable, Line, RecordsDisplay
from ._tensors import torch_or_error

__all__ = [
    "DEFAULT_COLUMNS",
    "LineProfiler",
    "RecordsDisplay",
    "clear_global_line_profiler",
    "profile",
    "profile_every",
    "set_target_gpu",
]

Target = Union[int, str, Any]  # 0, "cuda:0", "cpu", a torch.device
_Columns = Union[str, Iterable[str]]

_MOST_GPUS = _line_tracer.CPU


_Profiled = TypeVar("_Profiled")


class _Decorator(Protocol):
    """A decorator that returns the function, method or class that it gets."""

    def __call__(self, func: _Profiled) -> _Profiled: ...


class _Function(NamedTuple):
    number: int  # the device number of the probe
    code: types.CodeType
    name: str
    first_line: int
    source: List[str]


def _device_name(device: int) -> str:
    return "cpu" if device == _line_tracer.CPU else f"cuda:{device}"


def _number_of(target: Target) -> int:
    """The probe's number of a device. Does not check that the device exists."""
    if isinstance(target, bool):
        raise TypeError(f"vramscope: {target!r} is not a device: use a GPU's number, 'cuda:0' or 'cpu'")
    if isinstance(target, int):
        index: int = target
    else:
        kind, _, number = str(target).partition(":")
        if kind == "cpu":
            return _line_tracer.CPU
        if kind != "cuda" or (number and not number.isdigit()):
            raise ValueError(f"vramscope: {target!r} is not a device: use a GPU's number, 'cuda:0' or 'cpu'")
        index = int(number) if number else 0
    if not 0 <= index < _MOST_GPUS:
        raise ValueError(f"vramscope: GPU {index} does not exist")
    return index


def _codes(function: Any) -> List[Tuple[types.CodeType, str]]:
    """The code objects of a callable, with their names; empty if it is not written in Python."""
    if isinstance(function, types.CodeType):
        return [(function, getattr(function, "co_qualname", function.co_name))]
    if isinstance(function, type):
        members = [member for member in vars(function).values() if _is_method(member)]
        return [found for member in members for found in _codes(member)]
    if isinstance(function, property):
        accessors = (function.fget, function.fset, function.fdel)
        return [found for part in accessors if part is not None for found in _codes(part)]
    while True:
        if isinstance(function, (functools.partial, functools.partialmethod, functools.cached_property)):
            function = function.func
        elif isinstance(function, (staticmethod, classmethod, types.MethodType)):
            function = function.__func__
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            break
    if not hasattr(function, "__code__"):
        # Modules run forward, other objects __call__.
        for name in ("forward", "__call__"):
            method = getattr(type(function), name, None)
            if isinstance(method, types.FunctionType):
                return _codes(method)
        return []
    return [(function.__code__, function.__qualname__)]


def _is_method(member: Any) -> bool:
    functions = (types.FunctionType, staticmethod, classmethod, functools.partialmethod)
    attributes = (property, functools.cached_property)
    wraps = isinstance(getattr(member, "__wrapped__", None), types.FunctionType)
    return wraps or isinstance(member, (*functions, *attributes))


def _line_count(code: types.CodeType) -> int:
    last = code.co_firstlineno
    if hasattr(code, "co_lines"):
        last = max([last, *(line for _, _, line in code.co_lines() if line is not None)])
    else:
        import dis

        last = max([last, *(line for _, line in dis.findlinestarts(code) if line is not None)])
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            last = max(last, constant.co_firstlineno + _line_count(constant) - 1)
    return last - code.co_firstlineno + 1


def _source(code: types.CodeType) -> List[str]:
    try:
        lines = inspect.getsourcelines(code)[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        lines = []
    lines = [line.rstrip("\r\n") for line in lines]
    return lines + [""] * (_line_count(code) - len(lines))


class _Samples:
    """Fields of memory_stats() that the probe does not count. They are read after the first executions of each line."""

    def __init__(self) -> None:
        self.devices: List[int] = []
        self.most: Dict[Tuple[int, int, int], Dict[str, int]] = {}  # key: function, line, index of the device

    def take(self, function: int, line: int) -> None:
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_initialized():
            return
        for index, device in enumerate(self.devices):
            if device == _line_tracer.CPU:
                continue
            known = self.most.setdefault((function, line, index), {})
            for name, value in torch.cuda.memory_stats(device).items():
                known[name] = max(known.get(name, 0), value)


class LineProfiler:
    """Profiles the device memory of functions, line by line.

    ::

        with LineProfiler(train_step, Model.forward) as profiler:
            train_step()
        profiler.print_stats()

    The figures of a line, in bytes, cover everything from its first instruction to the next line, including
    called functions, in all threads. `target_gpu` is a device (0, "cuda:1", "cpu") or a list of devices; without a
    GPU, CPU tensors are profiled. A ValueError names a device that does not exist.

    The profiler resets no counters of PyTorch, empties no cache and does not initialise CUDA.
    """

    def __init__(self, *functions: Any, target_gpu: Union[Target, Sequence[Target]] = 0) -> None:
        targets: Any = target_gpu if isinstance(target_gpu, (list, tuple)) else (target_gpu,)
        self._targets = [_number_of(target) for target in targets]
        if not self._targets:
            raise ValueError("vramscope: LineProfiler needs at least one device in target_gpu")
        # Keyed by id: equal code objects compare equal, for example those of a cell that runs twice.
        self._functions: Dict[int, _Function] = {}
        self._samples = _Samples()
        self._state = _State()
        self._remarks: List[str] = []
        self._given: Dict[int, Tuple[int, int]] = {}
        # The probe forgets the functions when the profiler is deleted.
        self._finalizer = weakref.finalize(self, _forget, self._state, self._functions)
        self._finalizer.atexit = False
        for function in functions:
            self.add_function(function)

    # ---- functions ------------------------------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        return self._state.enabled

    @property
    def target_gpu(self) -> Union[int, str, List[Union[int, str]]]:
        names: List[Union[int, str]] = ["cpu" if d == _line_tracer.CPU else d for d in self._targets]
        return names[0] if len(names) == 1 else names

    @target_gpu.setter
    def target_gpu(self, target: Target) -> None:
        """Profiles that device from now on, also inside a running function."""
        targets = [_number_of(target), *self._targets[1:]]
        if not self.enabled:
            self._targets = targets
            return
        with _line_tracer.get().lock:
            self._targets = self._available(targets)
            self._aim()

    def add_function(self, function: Any) -> None:
        """Also profiles a function, method, class (all of its methods), module or code object."""
        found = _codes(function)
        if not found:
            warnings.warn(
                f"vramscope: {function!r} has no Python code (it is not written in Python), so it has no lines",
                RuntimeWarning,
                stacklevel=2,
            )
        for code, name in found:
            self.add_code(code, name)

    def add_code(self, code: types.CodeType, name: str, source: Optional[Sequence[str]] = None) -> None:
        """Profiles a code object under a name. `source` are its lines if they are in no file."""
        if id(code) in self._functions:
            return
        lines = list(source) if source is not None else _source(code)
        tracer = _line_tracer.get()
        with tracer.lock:
            number = tracer.probe.add(code, code.co_firstlineno, len(lines), len(self._targets))
            if number < 0:
                raise RuntimeError("vramscope: too many functions are profiled; clear() a profiler")
            function = _Function(number, code, name, code.co_firstlineno, lines)
            self._functions[id(code)] = function
            tracer.probe.sample(number, self._samples.take)
            if self.enabled:
                self._aim()
                tracer.enable(number, code)

    def enable(self) -> None:
        tracer = _line_tracer.get()
        with tracer.lock:
            if self.enabled:
                return
            self._targets = self._available(self._targets)
            tracer.begin()
            self._state.enabled = True
            self._aim()
            for function in self._functions.values():
                tracer.enable(function.number, function.code)

    def disable(self) -> None:
        if not self.enabled:
            return
        tracer = _line_tracer.get()
        with tracer.lock:
            self._check_figures()
            _stop(self._state, self._functions)

    def clear(self) -> None:
        """Forgets all figures and functions."""
        with _line_tracer.get().lock:
            _remove(self._state, self._functions)
            self._samples.most.clear()

    def __enter__(self) -> "LineProfiler":
        self.enable()
        return self

    def __exit__(self, *error: object) -> None:
        self.disable()

    # ---- devices --------------------------------------------------------------------------------------------------

    def _available(self, targets: List[int]) -> List[int]:
        """These devices, or the CPU if PyTorch sees no GPU. Raises ValueError if PyTorch sees only other GPUs."""
        torch = torch_or_error("LineProfiler")
        if all(device == _line_tracer.CPU for device in targets):
            return targets
        count = torch.cuda.device_count()
        if count == 0:
            if not self.enabled:
                warnings.warn(
                    "vramscope: PyTorch finds no GPU: CPU tensors are profiled", RuntimeWarning, stacklevel=4
                )
            return [_line_tracer.CPU] * len(targets)
        for device in targets:
            if device != _line_tracer.CPU and device >= count:
                raise ValueError(
                    f"vramscope: GPU {device} does not exist: this process sees {count}, numbered from 0"
                )
        return targets

    def _aim(self) -> None:
        """Makes the probe count the functions' memory on these devices."""
        tracer = _line_tracer.get()
        for index, device in enumerate(self._targets):
            stats = _stats(device)
            tracer.watch(
                device, stats.get("allocated_bytes.all.current", 0), stats.get("reserved_bytes.all.current", 0)
            )
            if device not in self._given:
                self._given[device] = (stats.get("allocation.all.allocated", 0), tracer.probe.watched(device)[4])
            for function in self._functions.values():
                tracer.probe.target(function.number, index, device)
        self._samples.devices = list(self._targets)

    def _check_figures(self) -> None:
        """Warns if PyTorch allocated blocks that the probe did not see: all figures are then wrong."""
        tracer = _line_tracer.get()
        for device, (by_torch, by_probe) in self._given.items():
            now = _stats(device).get("allocation.all.allocated", 0)
            if now > by_torch and tracer.probe.watched(device)[4] == by_probe:
                remark = (
                    f"vramscope: {_device_name(device)} has an allocator that does not say what it gives out "
                    "(PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync is one): only sampled columns have figures"
                )
                if remark not in self._remarks:
                    self._remarks.append(remark)
                    warnings.warn(remark, RuntimeWarning, stacklevel=4)
        self._given.clear()

    # ---- results --------------------------------------------------------------------------------------------------

    def display(self, func: Any = None, columns: _Columns = DEFAULT_COLUMNS) -> RecordsDisplay:
        """Returns the figures as a table. A notebook shows it; `str()` formats it as text.

        `func` is a function, a qualified name or a list of these; None means all. `columns` are fields of
        torch.cuda.memory_stats() ("allocated_bytes.all.peak"), and "hits", "net", "gross" and "growth". A
        ValueError names an unknown column.
        """
        wanted = parse(columns)
        names = self._chosen(func)
        tables = []
        with _line_tracer.get().lock:
            for function in self._functions.values():
                if names is None or function.name in names or id(function.code) in names:
                    tables += self._tables(function, wanted)
        return RecordsDisplay(tables, wanted, len(self._targets) > 1)

    def print_stats(
        self, func: Any = None, columns: _Columns = DEFAULT_COLUMNS, stream: Optional[TextIO] = None
    ) -> None:
        """Writes the table of `display` as text to `stream`, by default to standard output."""
        (sys.stdout if stream is None else stream).write(str(self.display(func, columns)))

    def _chosen(self, func: Any) -> Optional[Set[Any]]:
        if func is None:
            return None
        items = func if isinstance(func, (list, tuple, set)) else [func]
        chosen: Set[Any] = set()
        for item in items:
            chosen.update([item] if isinstance(item, str) else [id(code) for code, _ in _codes(item)])
        return chosen

    def _tables(self, function: _Function, columns: Sequence[Column]) -> List[FunctionTable]:
        tables = []
        results = _line_tracer.get().read(function.number, len(self._targets))
        for index, (device, found) in enumerate(zip(self._targets, results)):
            if not found.lines:
                continue
            lines = []
            for offset, text in enumerate(function.source):
                figures = found.lines.get(offset)
                number = function.first_line + offset
                sampled = self._samples.most.get((function.number, number, index), {})
                values = [
                    None if figures is None else figures[column.field] if column.field else sampled.get(column.name)
                    for column in columns
                ]
                lines.append(Line(number, text, values))
            remarks = list(self._remarks)
            if found.whole["grown_unknown"] and any(column.name == "growth" for column in columns):
                remarks.append("growth: some calls had more blocks than are kept, they are not in it")
            peak = max((line["peak_allocated"] for line in found.lines.values()), default=0)
            peak_line = next(n for n, line in found.lines.items() if line["peak_allocated"] == peak)
            tables.append(
                FunctionTable(
                    function.name, _device_name(device), lines, peak, function.first_line + peak_line, remarks
                )
            )
        return tables


class _State:
    """The part that lives until the probe has forgotten the functions of a deleted profiler."""

    enabled = False


def _stop(state: _State, functions: Dict[int, _Function]) -> None:
    if not state.enabled:
        return
    state.enabled = False
    tracer = _line_tracer.get()
    for function in functions.values():
        tracer.disable(function.number, function.code)
    tracer.end()


def _remove(state: _State, functions: Dict[int, _Function]) -> None:
    tracer = _line_tracer.get()
    for function in functions.values():
        if state.enabled:
            tracer.disable(function.number, function.code)
        tracer.probe.remove(function.number)
    functions.clear()


def _forget(state: _State, functions: Dict[int, _Function]) -> None:
    if not functions and not state.enabled:
        return
    with _line_tracer.get().lock:
        _stop(state, functions)
        _remove(state, functions)


def _stats(device: int) -> Dict[str, int]:
    torch = sys.modules.get("torch")
    if device == _line_tracer.CPU or torch is None or not torch.cuda.is_initialized():
        return {}
    stats: Dict[str, int] = torch.cuda.memory_stats(device)
    return stats


# ---- the global profiler ------------------------------------------------------------------------------------------

_global: Optional[LineProfiler] = None


def _global_profiler() -> LineProfiler:
    global _global
    if _global is None:
        _global = LineProfiler()
    return _global


def clear_global_line_profiler() -> None:
    """Forgets the functions and figures of `profile` and `profile_every`."""
    if _global is not None:
        _global.disable()
        _global.clear()


def set_target_gpu(gpu_id: Target) -> None:
    """Makes `profile` and `profile_every` profile that device from now on, also inside a running function."""
    _global_profiler().target_gpu = gpu_id


def _add_to_global(function: Any) -> LineProfiler:
    profiler = _global_profiler()
    profiler.add_function(function)
    profiler.enable()
    return profiler


@overload
def profile(func: None = None, columns: _Columns = DEFAULT_COLUMNS) -> _Decorator: ...


@overload
def profile(func: _Profiled, columns: _Columns = DEFAULT_COLUMNS) -> _Profiled: ...


def profile(func: Any = None, columns: _Columns = DEFAULT_COLUMNS) -> Any:
    """Profiles a function, method or class. Prints its table when the interpreter ends, also after Ctrl-C.

    ::

        @profile
        def step(): ...

        @profile(columns=["growth", "allocated_bytes.all.peak"])
        def step(): ...
    """
    if func is None:
        return functools.partial(profile, columns=columns)
    parse(columns)
    profiler = _add_to_global(func)
    atexit.register(_print_at_exit, profiler, func, columns)
    return func


def _print(profiler: LineProfiler, func: Any, columns: _Columns) -> None:
    """Prints one of several tables, followed by an empty line. An empty table gets the function's name."""
    table = profiler.display(func, columns)
    name = "" if table.tables else f"## {getattr(func, '__qualname__', func)}\n\n"
    sys.stdout.write(f"{name}{table}\n")


def _print_at_exit(profiler: LineProfiler, func: Any, columns: _Columns) -> None:
    try:
        _print(profiler, func, columns)
        sys.stdout.flush()
    except (OSError, ValueError):
        pass  # the reader closed the pipe


def profile_every(
    output_interval: int = 1, enable: bool = True, columns: _Columns = DEFAULT_COLUMNS
) -> _Decorator:
    """Profiles a function and prints its table after every `output_interval` calls, unless `enable` is False."""
    if not isinstance(output_interval, int) or output_interval < 1:
        raise ValueError("vramscope: profile_every() needs a number of calls, 1 or more, as in @profile_every(10)")
    parse(columns)

    def decorate(func: Any) -> Any:
        if not enable:
            return func
        if isinstance(func, type):
            raise TypeError("vramscope: profile_every() counts the calls of a function; use @profile for a class")
        if isinstance(func, (staticmethod, classmethod)):
            return type(func)(decorate(func.__func__))
        profiler = _add_to_global(func)
        calls = 0

        def called() -> None:
            nonlocal calls
            calls += 1
            if calls % output_interval == 0:
                _print(profiler, func, columns)

        if inspect.iscoroutinefunction(func):

            @functools.wraps(func)
            async def run_async(*args: Any, **kwargs: Any) -> Any:
                result = await func(*args, **kwargs)
                called()
                return result

            return run_async
        if inspect.isgeneratorfunction(func):

            @functools.wraps(func)
            def run_generator(*args: Any, **kwargs: Any) -> Any:
                result = yield from func(*args, **kwargs)
                called()
                return result

            return run_generator

        @functools.wraps(func)
        def run(*args: Any, **kwargs: Any) -> Any:
            result = func(*args, **kwargs)
            called()
            return result

        return run

    return decorate
