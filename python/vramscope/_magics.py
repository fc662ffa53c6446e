# SPDX-License-Identifier: Apache-2.0
"""``%load_ext vramscope``: %mlrun, %%mlrun and %%vram for IPython and notebooks."""

from __future__ import annotations

import html
import os
import threading
import time
import types
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from IPython.core.error import UsageError
from IPython.core.magic import (
    Magics,
    cell_magic,
    line_cell_magic,
    magics_class,
    needs_local_scope,
    no_var_expand,
)
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring
from IPython.display import display

from . import _files, _line_tracer
from ._line_columns import DEFAULT_COLUMNS, parse
from ._line_profiler import LineProfiler
from ._mem_report import readable_size, signed_size
from ._tensors import torch_or_error


def load_ipython_extension(ipython: Any) -> None:
    ipython.register_magics(VramscopeMagics)


@magics_class
class VramscopeMagics(Magics):
    @magic_arguments()
    @argument("--function", "-f", metavar="FUNC", action="append", default=[], help="""Profile this function, which
    the cell may define. Can be repeated. Without it, the lines of the cell are profiled.""")
    @argument("--column", "-c", metavar="COLUMN", action="append", default=[], help="""Add a column: a field of
    torch.cuda.memory_stats(), hits, net, gross or growth. Can be repeated.""")
    @argument("-D", "--no_default_columns", action="store_true", help="Leave out the default columns, "
    + ", ".join(DEFAULT_COLUMNS))
    @argument("-r", "--return-profiler", action="store_true", help="Return the LineProfiler and print nothing")
    @argument("-g", "--gpu", metavar="DEVICE", default="0", help="""Profile this device: a GPU's number,
    or cpu (default: 0)""")
    @argument("-q", "--quiet", action="store_true", help="Print nothing")
    @argument("-T", "--dump-profile", metavar="FILE", help="Also write the profile as text to FILE")
    @argument("statement", nargs="...", default=None, help="The statement to run, after all options; not with %%%%mlrun")
    @line_cell_magic
    @needs_local_scope
    @no_var_expand
    def mlrun(self, line: str = "", cell: Optional[str] = None, local_ns: Optional[Dict[str, Any]] = None) -> Any:
        """Run a statement or a cell and show the memory of each line of a function."""
        arguments = parse_argstring(self.mlrun, line)
        columns = ([] if arguments.no_default_columns else list(DEFAULT_COLUMNS)) + arguments.column
        text = cell if cell is not None else _statement(line, arguments.statement)
        if not text.strip():
            raise UsageError("%mlrun needs a statement: %mlrun -f FUNC STATEMENT")
        try:
            parse(columns)
            profiler = LineProfiler(target_gpu=_device(arguments.gpu))
        except ValueError as error:
            raise UsageError(str(error)) from None
        code = self._compiled(text)
        for name in arguments.function:
            self._choose(profiler, name, code, local_ns)
        if not arguments.function:
            profiler.add_code(code, "cell" if cell is not None else "statement", text.splitlines())
        path = _writable(arguments.dump_profile)
        try:
            profiler.enable()
        except (ValueError, RuntimeError) as error:
            raise UsageError(str(error)) from None
        try:
            self._run(code, local_ns)
        except BaseException:
            # After an error too: the line that ran out of memory matters most.
            _dump(profiler, columns, path)
            if not arguments.quiet:
                display(profiler.display(columns=columns))
            raise
        finally:
            profiler.disable()
        _dump(profiler, columns, path)
        if arguments.return_profiler:
            return profiler
        return None if arguments.quiet else profiler.display(columns=columns)

    @magic_arguments()
    @argument("-g", "--gpu", metavar="DEVICE", default=None, help="""Show only this device: a GPU's number,
    or cpu (default: all)""")
    @argument("-r", "--return-usage", action="store_true", help="Return the figures and show nothing")
    @argument("-q", "--quiet", action="store_true", help="Show nothing")
    @cell_magic
    def vram(self, line: str, cell: str) -> Any:
        """Run the cell, then show its allocations, its peak, the memory it left allocated, and its time."""
        arguments = parse_argstring(self.vram, line)
        try:
            devices = [_device(arguments.gpu)] if arguments.gpu is not None else _all_devices()
            usage = _measure(lambda: self.shell.run_cell(cell), devices)
        except (ValueError, RuntimeError) as error:  # errors of the cell itself are shown by run_cell
            raise UsageError(str(error)) from None
        if arguments.return_usage:
            return usage
        if not arguments.quiet:
            display(usage)
        return None

    def _compiled(self, text: str) -> types.CodeType:
        # Tables and tracebacks find the source in IPython under this name.
        text = self.shell.input_transformer_manager.transform_cell(text)
        name = self.shell.compile.cache(text)
        return compile(text, name, "exec")

    def _choose(
        self, profiler: LineProfiler, name: str, code: types.CodeType, local_ns: Optional[Dict[str, Any]]
    ) -> None:
        defined = [found for found, path in _nested(code) if path == name]
        for found in defined:
            profiler.add_code(found, name)
        if defined:
            return
        try:
            function = eval(name, self.shell.user_ns, local_ns)
        except Exception as error:
            raise UsageError(
                f"Could not find function {name!r}. {type(error).__name__}: {error}"
            ) from None
        profiler.add_function(function)

    def _run(self, code: types.CodeType, local_ns: Optional[Dict[str, Any]]) -> None:
        names = self.shell.user_ns
        if local_ns is None or local_ns is names:
            exec(code, names)
        else:
            exec(code, names, local_ns)


def _device(text: str) -> Any:
    return int(text) if text.isdigit() else text


def _writable(name: Optional[str]) -> Optional[str]:
    """The file of -T, checked before anything runs."""
    if name is None:
        return None
    path = os.path.expanduser(name[1:-1] if name[0] == name[-1] and name[0] in "\"'" else name)
    try:
        _files.open_text(path, append=True).close()
    except OSError as error:
        raise UsageError(f"vramscope: {path} cannot be written: {error.strerror}") from None
    return path


def _dump(profiler: LineProfiler, columns: Sequence[str], path: Optional[str]) -> None:
    if path is not None:
        with _files.open_text(path) as file:
            profiler.print_stats(columns=columns, stream=file)


def _statement(line: str, words: Optional[Sequence[str]]) -> str:
    """The rest of the line as it was typed. IPython's parsed words have lost the spaces."""
    rest = len("".join("".join(words or []).split()))
    begin = len(line)
    while rest > 0:
        begin -= 1
        rest -= not line[begin].isspace()
    return line[begin:]


def _nested(code: types.CodeType, prefix: str = "") -> Iterator[Tuple[types.CodeType, str]]:
    """The functions that a code object defines, with their qualified names: `f`, `Class.method`."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and not constant.co_name.startswith("<"):
            path = prefix + constant.co_name
            yield constant, path
            yield from _nested(constant, f"{path}.")


# ---- %%vram -------------------------------------------------------------------------------------------------------

_PERIOD = 0.002  # shortest time in seconds between two points
_MOST_POINTS = 2000
_WIDTH, _HEIGHT = 560, 90


def _all_devices() -> List[Any]:
    count = torch_or_error("%%vram").cuda.device_count()
    return [*range(count), "cpu"]


class _Points(threading.Thread):
    """Samples the memory of devices."""

    def __init__(self, devices: Sequence[int]) -> None:
        super().__init__(name="vramscope %%vram", daemon=True)
        self._devices = devices
        self._ended = threading.Event()
        self._begin = time.perf_counter()
        self._period = _PERIOD
        self.times: List[float] = []
        self.values: List[List[int]] = [[] for _ in devices]

    def look(self) -> None:
        watched = _line_tracer.get().probe.watched
        self.times.append(time.perf_counter() - self._begin)
        for values, device in zip(self.values, self._devices):
            values.append(watched(device)[0])

    def run(self) -> None:
        while not self._ended.wait(self._period):
            self.look()
            if len(self.times) > _MOST_POINTS:
                # A long cell: keep every second point and halve the rate.
                self.times[:] = self.times[::2]
                for values in self.values:
                    values[:] = values[::2]
                self._period *= 2

    def end(self) -> None:
        self._ended.set()
        self.join()
        self.look()


class DeviceUsage:
    """The memory of a cell on one device, in bytes."""

    def __init__(self, device: str, whole: Dict[str, int], line: Dict[str, int], points: List[int]) -> None:
        self.device = device
        self.before = line["allocated"] - line["net"]
        self.after = line["allocated"]
        self.peak = max(whole["peak_allocated"], self.before)
        self.allocated = line["gross"]
        self.blocks = line["blocks_given"]
        self.left_behind = line["net"]
        self.points = points

    def __repr__(self) -> str:
        blocks = "block" if self.blocks == 1 else "blocks"
        return (
            f"{self.device}: allocated {readable_size(self.allocated)} in {self.blocks} {blocks}, peak "
            f"{readable_size(self.peak)} ({signed_size(self.peak - self.before)}), left behind "
            f"{signed_size(self.left_behind)}"
        )


class CellUsage:
    """The result of `%%vram`: `devices`, and the `times` of their points in seconds."""

    def __init__(self, devices: List[DeviceUsage], times: List[float]) -> None:
        self.devices = devices
        self.times = times

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.devices)) or "No memory was allocated"

    def _repr_html_(self) -> str:
        parts = [f"<p>{html.escape(repr(device))}</p>{self._picture(device)}" for device in self.devices]
        return "".join(parts) or "<p>No memory was allocated</p>"

    def _picture(self, device: DeviceUsage) -> str:
        end = self.times[-1] or 1.0
        low = min(0, *device.points)
        span = max(device.peak, *device.points) - low or 1

        def y(value: int) -> float:
            return _HEIGHT - 2 - (_HEIGHT - 16) * (value - low) / span

        steps = []
        previous = device.points[0]
        for moment, value in zip(self.times, device.points):
            x = _WIDTH * moment / end
            steps.append(f"{x:.1f},{y(previous):.1f} {x:.1f},{y(value):.1f}")
            previous = value
        line = " ".join(steps)
        peak = y(device.peak)
        return (
            f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" style="max-width:100%">'
            f'<title>{html.escape(device.device)}: bytes allocated over {end:.3f} s</title>'
            f'<polygon points="0,{y(low):.1f} {line} {_WIDTH},{y(low):.1f}" fill="#4878d0" fill-opacity="0.35"/>'
            f'<polyline points="{line}" fill="none" stroke="#4878d0" stroke-width="1.5"/>'
            f'<line x1="0" x2="{_WIDTH}" y1="{peak:.1f}" y2="{peak:.1f}" stroke="#d65f5f" stroke-dasharray="4 3"/>'
            f'<text x="2" y="{peak - 3:.1f}" font-size="10" fill="#d65f5f">peak {readable_size(device.peak)}</text>'
            f'<text x="{_WIDTH - 2}" y="{_HEIGHT - 4}" font-size="10" text-anchor="end" fill="#797979">'
            f"{end:.3f} s</text>"
            "</svg>"
        )


def _measure(run: Any, devices: Sequence[Any]) -> CellUsage:
    def cell() -> None:
        run()

    with LineProfiler(cell, target_gpu=list(devices)) as profiler:
        numbers = profiler._targets  # the CPU if PyTorch sees no GPU
        points = _Points(numbers)
        points.look()
        points.start()
        try:
            cell()
        finally:
            points.end()
    (function,) = profiler._functions.values()
    results = _line_tracer.get().read(function.number, len(devices))
    found = []
    for number, result, values in zip(numbers, results, points.values):
        name = "cpu" if number == _line_tracer.CPU else f"cuda:{number}"
        line = result.lines.get(1)
        if line is not None and (line["bytes_given"] or line["bytes_back"]):
            found.append(DeviceUsage(name, result.whole, line, values))
    return CellUsage(found, points.times)
