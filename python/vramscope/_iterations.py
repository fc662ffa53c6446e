# SPDX-License-Identifier: Apache-2.0
"""Prints a table of memory for each training iteration, during the run."""

from __future__ import annotations

import csv as csv_module
import dataclasses
import datetime
import os
import pathlib
import sys
from typing import Any, Dict, List, Optional, Tuple, Union

from . import _before, _files, _probe, _recording, _session
from ._annotate import mark
from ._reader import ReadError, Trace

# The folder of the CSV files, in the current directory.
OUTPUT_DIR = "./memory_csv_data/"

# Row name, CSV name, and path of the figure in the JSON. These rows are new; pytorch-memory-profiler lacks them.
_EXTRA_ROWS = (
    ("Peak allocated", "peak_allocated"),
    ("Current allocated", "current_allocated"),
    ("Optimizer state", "optimizer_state"),
    ("Workspace", "workspace"),
    ("Driver-owned", "driver_owned"),
    ("Before recording", "before_recording"),
)

# A row of the table: label, bytes or text, whether it belongs to a list. None: an empty line.
_Row = Optional[Tuple[str, Union[int, str], bool]]


@dataclasses.dataclass
class Figures:
    """Bytes of one iteration on one device."""

    peak_cached: int
    current_cached: int
    feature_maps: int
    intermediate_gradients: int
    extra: Dict[str, int]  # keys: the CSV names of _EXTRA_ROWS
    # Of the memory from before the recording only parts are known: freed since, or named.
    before_is_partial: bool
    weights: Dict[str, int]  # keys: names of the model's parameters, in model order
    gradients: Dict[str, int]


def _storage_of(tensor: Any) -> Tuple[int, int]:
    """The address and the bytes of a tensor."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.nbytes()


class IterationProfiler:
    """Prints the memory of each training iteration by category::

        profiler = IterationProfiler(model, print_period=5, csv=True)
        for epoch in range(epochs):
            for batch in loader:
                ...
                profiler.record_stats()
            profiler.epoch_end()

    A table shows the iteration that just ended: the peaks since the previous call, and the memory at its end. The
    figures come from the recording of this process; the model gets no hooks. Parameters that share memory are one
    row.

    The profiler reads the recording of ``vramscope run``, `vramscope.start` or `vramscope.record`. Without one, it
    records this process into a temporary directory until the process ends. Unnamed memory from before that is the
    row `Before recording`; earlier CPU tensors are known only once they are freed. With ``csv=True`` each table also
    adds a row of exact bytes to ``./memory_csv_data/TIME.csv``.

    Each table reads the whole recording in another process: 80 ms of processor time at 100,000 events. Choose a large
    `print_period` for a long training. An iteration without a table costs a mark, about a microsecond.
    """

    def __init__(self, model: Any, print_period: int = 1, csv: bool = False) -> None:
        if print_period < 1:
            raise ValueError("vramscope: print_period must be 1 or more")
        _recording.join_or_begin()
        # The recording may have begun before torch was imported.
        _probe.load().look_at_python()
        self.model = model
        self.print_period = print_period
        self.csv = csv
        self.iteration = 0
        self.epoch = 1
        # Shared memory gets the last name, at the position of the first.
        self._names: Dict[int, str] = {}
        self._parameters: Dict[str, Any] = {}
        for name, parameter in model.named_parameters():
            self._names[_storage_of(parameter)[0]] = name
        named = dict(model.named_parameters())
        self._parameters = {name: named[name] for name in self._names.values()}
        self._warned = False
        if csv:
            _files.make_directories(OUTPUT_DIR)
            stamp = datetime.datetime.now().strftime("%Y%m%d%H%M%S")
            self.fname = f"{OUTPUT_DIR}{stamp}.csv"
            with _files.open_text(self.fname, newline="") as file:
                csv_module.writer(file, lineterminator="\n").writerow(self._csv_header())
            print(f"Logging data in {self.fname}")

    def record_stats(self) -> None:
        """Ends an iteration. Prints its table every `print_period` iterations."""
        self.iteration += 1
        due = self.iteration % self.print_period == 0
        live = self._live() if due else None
        mark("iteration")
        if live is None:
            return
        figures = self._figures(live)
        if figures is None:
            return
        print(self._table(figures))
        if self.csv:
            try:
                with _files.open_text(self.fname, append=True, newline="") as file:
                    csv_module.writer(file, lineterminator="\n").writerow(self._csv_row(figures))
            except OSError as error:
                self._warn(f"{self.fname}: {error}")

    def epoch_end(self) -> None:
        """Ends an epoch; iterations are numbered from 1 again."""
        print(f"Epoch {self.epoch} finished")
        self.iteration = 0
        self.epoch += 1

    # ---- figures of the recording ----

    def _live(self) -> Optional[pathlib.Path]:
        # The previous recording may have ended.
        try:
            return _recording.join_or_begin()
        except (OSError, RuntimeError) as error:
            self._warn(str(error))
            return None

    def _figures(self, live: pathlib.Path) -> Optional[Figures]:
        # Only GPU workspaces of libraries are recognised by native function names.
        native_names = any(parameter.is_cuda for parameter in self._parameters.values())
        try:
            with Trace(live, native_names=native_names) as trace:
                answer = trace.iterations()
        except (ReadError, OSError) as error:
            self._warn(str(error))
            return None
        last = {row["index"]: row for row in answer.iterations if row["pid"] == os.getpid()}
        if not last:
            self._warn(f"{live}: this process has no complete iteration yet")
            return None
        return self._read(last, [row for row in answer.parameters if row["pid"] == os.getpid()])

    def _warn(self, message: str) -> None:
        # A failing profiler must not stop the training.
        if not self._warned:
            _session.warn(f"no table: {message}", stacklevel=4)
        self._warned = True

    def _read(self, last: Dict[int, Dict[str, Any]], parameters: List[Dict[str, Any]]) -> Figures:
        known = {(row["name"], row["index"]): row for row in parameters}
        device = self._device(last, parameters)
        iteration = last[device]
        weights = {}
        gradients = {}
        for name, parameter in self._parameters.items():
            row = known.get((name, device), {})
            gradient = parameter.grad
            weights[name] = row.get("parameter") or _storage_of(parameter)[1]
            gradients[name] = row.get("gradient") or (0 if gradient is None else _storage_of(gradient)[1])
        return Figures(
            # Without a caching allocator, allocated and reserved are the same.
            peak_cached=iteration["peak_reserved"] or iteration["peak_allocated"],
            current_cached=iteration["end_reserved"] or iteration["end_allocated"],
            feature_maps=iteration["activation_peak"],
            intermediate_gradients=iteration["backward_temporary_peak"],
            extra={
                "peak_allocated": iteration["peak_allocated"],
                "current_allocated": iteration["end_allocated"],
                "optimizer_state": iteration["optimizer_state_peak"],
                "workspace": iteration["workspace_peak"],
                "driver_owned": iteration["driver_peak"],
                "before_recording": iteration["before_recording_peak"],
            },
            before_is_partial=device < 0 and _before.cpu_is_partial,
            weights=weights,
            gradients=gradients,
        )

    @staticmethod
    def _device(last: Dict[int, Dict[str, Any]], parameters: List[Dict[str, Any]]) -> int:
        """The device with most of the parameters; if none are known, the GPU with most memory in use."""
        held: Dict[int, int] = {}
        for row in parameters:
            if row["index"] in last:
                held[row["index"]] = held.get(row["index"], 0) + row["parameter"]
        if held:
            return max(held, key=lambda device: held[device])
        used = {device: row["peak_allocated"] for device, row in last.items()}
        return int(max(used, key=lambda device: (device >= 0 and used[device] > 0, used[device])))

    # ---- output ----

    def _rows(self, figures: Figures) -> List[_Row]:
        rows: List[_Row] = [
            ("Peak cached", figures.peak_cached, False),
            ("Current cached", figures.current_cached, False),
            ("Total feature map usage", figures.feature_maps, False),
            None,
            ("Total layer weight usage", sum(figures.weights.values()), False),
        ]
        rows += [(name, size, True) for name, size in figures.weights.items()]
        rows += [None, ("Total layer weight gradient usage", sum(figures.gradients.values()), False)]
        rows += [(f"{name} grad", size, True) for name, size in figures.gradients.items()]
        rows += [("Intermediate gradients", figures.intermediate_gradients, False), None]
        rows += [(label, self._extra(figures, name), False) for label, name in _EXTRA_ROWS]
        return rows

    @staticmethod
    def _extra(figures: Figures, name: str) -> Union[int, str]:
        size = figures.extra[name]
        if name != "before_recording" or not figures.before_is_partial:
            return size
        return f"at least{_readable(size)}" if size else "unknown"

    def _table(self, figures: Figures) -> str:
        stars = "*" * 43
        lines = ["", stars, f"Memory Usage for Iteration {self.iteration} of Epoch {self.epoch}", stars]
        for row in self._rows(figures):
            lines.append("" if row is None else self._line(*row))
        return "\n".join(lines)

    @staticmethod
    def _line(label: str, size: Union[int, str], listed: bool) -> str:
        left = f"  {label:.<43s}" if listed else f"{label:.<45s}"
        text = size if isinstance(size, str) else _readable(size)
        return f"{left}{text:.>14s}"

    def _csv_header(self) -> List[str]:
        names = list(self._parameters)
        return [
            "epoch",
            "iteration",
            "peak_cached",
            "current_cached",
            "total_feature_map_usage",
            "total_weight_usage",
            *names,
            "total_layer_weight_gradient_usage",
            *(f"{name}_grad" for name in names),
            "intermediate_gradients",
            *(self._extra_column(name) for _, name in _EXTRA_ROWS),
        ]

    def _csv_row(self, figures: Figures) -> List[Union[int, str]]:
        return [
            self.epoch,
            self.iteration,
            *(self._csv_figure(size) for size in self._old_figures(figures)),
            *("" if self._extra(figures, name) == "unknown" else figures.extra[name] for _, name in _EXTRA_ROWS),
        ]

    @staticmethod
    def _old_figures(figures: Figures) -> List[int]:
        return [
            figures.peak_cached,
            figures.current_cached,
            figures.feature_maps,
            sum(figures.weights.values()),
            *figures.weights.values(),
            sum(figures.gradients.values()),
            *figures.gradients.values(),
            figures.intermediate_gradients,
        ]

    @staticmethod
    def _csv_figure(size: int) -> int:
        return size

    @staticmethod
    def _extra_column(name: str) -> str:
        return name


def _readable(size: int) -> str:
    """Formats bytes: `512 B`, `4.0 KiB`, `857.4 MiB`."""
    if size < 1024:
        return f" {size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024:
            break
    return f" {value:.1f} {unit}"


# Begin recording at import: the class takes a model, so later would miss its tensors and the CUDA context.
if "torch" not in sys.modules:
    _recording.join_or_begin()
