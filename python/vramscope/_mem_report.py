# SPDX-License-Identifier: Apache-2.0
"""The report of `MemReporter`: plain data that keeps no tensor alive, and its text."""

from __future__ import annotations

import collections
import dataclasses
import html
import json
import math
from typing import Any, Dict, Iterable, List, Optional, Tuple

RULE = 79
_NAME, _SIZE, _MEMORY = 40, 20, 10

# Rows that a comparison matches by name. Others are matched by class, shape, type and line.
_NAMED = ("parameter", "gradient", "buffer", "optimizer state")
# At most this many lines list blocks without a tensor.
_SHOWN_BLOCKS = 10


def readable_size(num_bytes: float) -> str:
    """Formats bytes: `512.00B`, `4.00K`, `10.01M`, with powers of 1024; empty for nan."""
    if math.isnan(num_bytes):
        return ""
    size = float(num_bytes)
    for unit in ("B", "K", "M", "G", "T"):
        if abs(size) < 1024 or unit == "T":
            break
        size /= 1024
    return f"{size:.2f}{unit}"


def signed_size(num_bytes: int) -> str:
    return ("+" if num_bytes > 0 else "") + readable_size(num_bytes)


@dataclasses.dataclass
class Row:
    """A tensor."""

    device: str
    name: str
    kind: str  # parameter, gradient, buffer, optimizer state, tensor, storage, autograd
    type: str  # its class
    dtype: str
    shape: Tuple[Any, ...]
    numel: int
    bytes: int  # device memory of its storage; 0 if another row counts it
    storage_bytes: int  # requested bytes of the storage
    address: int
    owner: str = ""  # the row that counts the storage, if it is another one
    saved_by: str = ""  # nodes of autograd's graphs that keep the storage: "MulBackward0.self"
    line: str = ""  # the user line that allocated it, if recorded
    external: bool = False  # memory that another library or process allocated

    def label(self, verbose: bool) -> str:
        name = self.name
        if verbose and self.owner:
            name += f"(->{self.owner})"
        if self.external:
            name += " [external]"
        return name

    def text(self, verbose: bool) -> str:
        """The displayed name. A tensor that only autograd holds shows the line that made it."""
        shows_line = self.line and (self.kind == "autograd" or (verbose and self.kind not in _NAMED))
        return self.label(verbose) + (f", {self.line}" if shows_line else "")


@dataclasses.dataclass
class Blocks:
    """Live blocks of PyTorch's allocator without a tensor, of one size and one description."""

    count: int
    bytes: int  # of all blocks
    what: str
    line: str


@dataclasses.dataclass
class Part:
    """Bytes of the process outside PyTorch's allocator."""

    name: str
    bytes: int


@dataclasses.dataclass
class DeviceReport:
    device: str
    rows: List[Row] = dataclasses.field(default_factory=list)
    #: Figures of PyTorch's allocator; None for devices without one.
    allocated: Optional[int] = None
    requested: Optional[int] = None
    pending: int = 0
    cached: int = 0
    fragmentation: int = 0
    reserved: Optional[int] = None
    private: int = 0  # live blocks that belong to CUDA graphs and memory pools
    blocks: List[Blocks] = dataclasses.field(default_factory=list)
    #: NVML's figure of this process, and the memory besides `reserved`.
    nvml: Optional[int] = None
    outside: List[Part] = dataclasses.field(default_factory=list)
    remarks: List[str] = dataclasses.field(default_factory=list)

    @property
    def tensor_bytes(self) -> int:
        return sum(row.bytes for row in self.rows if row.kind != "autograd" and not row.external)

    @property
    def autograd_bytes(self) -> int:
        return sum(row.bytes for row in self.rows if row.kind == "autograd" and not row.external)

    @property
    def block_bytes(self) -> int:
        return sum(blocks.bytes for blocks in self.blocks)

    @property
    def total(self) -> int:
        """The total that the report explains: NVML's figure, if there is one."""
        inside = self.tensor_bytes + self.autograd_bytes + self.block_bytes
        return inside + self.pending + self.cached + self.fragmentation + sum(part.bytes for part in self.outside)

    def ledger(self) -> List[Tuple[str, int]]:
        """The device's memory as disjoint lines that sum to `total`."""
        lines = [
            ("Tensors", self.tensor_bytes),
            ("Held by autograd alone", self.autograd_bytes),
            ("Blocks without a tensor", self.block_bytes),
            ("Freed, still in use by a stream", self.pending),
            ("Cached", self.cached),
            ("Fragmentation", self.fragmentation),
        ]
        return [line for line in lines if line[1]]


class Report:
    """The result of `MemReporter.snapshot()` and `report()`: plain data, with sizes in bytes.

    ``devices`` maps names like ``"cuda:0"`` to their content. ``print(report)`` shows the text, `to_json` gives
    exact bytes, `diff` compares with a later report.
    """

    def __init__(self, devices: Dict[str, DeviceReport], verbose: bool = False) -> None:
        self.devices = devices
        self._verbose = verbose
        self._only: Optional[str] = None

    def shown(self, verbose: bool, device: Optional[str]) -> "Report":
        """The same report with other options for its text."""
        view = Report(self.devices, verbose)
        view._only = device
        return view

    @property
    def rows(self) -> List[Row]:
        return [row for device in self._selected() for row in device.rows]

    def _selected(self) -> Iterable[DeviceReport]:
        return [device for name, device in self.devices.items() if self._only in (None, name)]

    def __repr__(self) -> str:
        on = ", ".join(f"{readable_size(device.tensor_bytes)} on {device.device}" for device in self._selected())
        return f"<vramscope memory report: {len(self.rows)} tensors, {on or 'nothing'}>"

    def __str__(self) -> str:
        return self.text()

    def text(self, verbose: Optional[bool] = None) -> str:
        verbose = self._verbose if verbose is None else verbose
        selected = list(self._selected())
        labels = [row.text(verbose) for device in selected for row in device.rows]
        sizes = [str(row.shape) for device in selected for row in device.rows]
        name_width, size_width = _widths(labels, sizes)
        width = max(RULE, name_width + size_width + _MEMORY)

        def first(name: str, width: int) -> str:
            """The first column; a longer text gets a line of its own."""
            return f"{name:<{width}}" if len(name) < width else f"{name}\n{'':<{width}}"

        def line(name: str, size: str, memory: str) -> str:
            return f"{first(name, name_width)}{size:>{size_width}}{memory:>{_MEMORY}}"

        def figure(name: str, value: int) -> str:
            return f"{first(name, name_width + size_width)}{readable_size(value):>{_MEMORY}}"

        out = [line("Element type", "Size", "Used MEM")]
        for device in selected:
            out += ["-" * width, f"Storage on {device.device}"]
            before = ""
            for row in device.rows:
                if row.kind == "autograd" != before:
                    out.append("Held by autograd alone")
                before = row.kind
                out.append(line(row.text(verbose), str(row.shape), readable_size(row.bytes)))
            out.append("-" * width)
            used = device.tensor_bytes + device.autograd_bytes
            numel = sum(row.numel for row in device.rows)
            out.append(f"Total Tensors: {numel} \tUsed Memory: {readable_size(used)}")
            if device.allocated is not None:
                out += self._memory(device, figure, verbose)
            out += [f"({remark})" for remark in device.remarks]
            out.append("-" * width)
        if not selected:
            where = "" if self._only is None else f" on {self._only}"
            out += ["-" * width, f"No tensors{where}", "-" * width]
        return "\n".join(out)

    @staticmethod
    def _memory(device: DeviceReport, figure: Any, verbose: bool) -> List[str]:
        out = [f"The allocated memory on {device.device}: {readable_size(device.allocated or 0)}"]
        rounding = (device.allocated or 0) - (device.requested or 0)
        if rounding:
            requested = readable_size(device.requested or 0)
            out[0] += f" ({requested} requested, {readable_size(rounding)} rounding)"
        out += [figure(name, value) for name, value in device.ledger()]
        shown = device.blocks if verbose else device.blocks[:_SHOWN_BLOCKS]
        if shown:
            out.append("Blocks without a tensor:")
            for blocks in shown:
                each = readable_size(blocks.bytes // blocks.count)
                words = [f"{blocks.count} of {each}", *filter(None, (blocks.what, blocks.line))]
                out.append(figure("  " + ", ".join(words), blocks.bytes))
            rest = device.blocks[len(shown) :]
            if rest:
                count = sum(blocks.count for blocks in rest)
                out.append(figure(f"  {count} more (verbose=True shows them)", sum(b.bytes for b in rest)))
        if device.private:
            out.append(figure("Of all these, in CUDA graphs and memory pools", device.private))
        if device.reserved is not None:
            out.append(figure("Reserved by PyTorch", device.reserved))
        for part in device.outside:
            out.append(figure(part.name, part.bytes))
        if device.nvml is not None:
            out.append(figure("Used by this process (nvidia-smi)", device.nvml))
        return out

    def _repr_html_(self) -> str:
        cell = html.escape
        out = []
        for device in self._selected():
            out.append(f'<h3>Storage on {cell(device.device)}</h3><table style="text-align:right">')
            out.append("<tr><th style='text-align:left'>Element type</th><th>Size</th><th>Used MEM</th></tr>")
            totals = device.ledger()
            if device.reserved is not None:
                totals.append(("Reserved by PyTorch", device.reserved))
            totals += [(part.name, part.bytes) for part in device.outside]
            if device.nvml is not None:
                totals.append(("Used by this process (nvidia-smi)", device.nvml))
            before = ""
            for row in device.rows:
                if row.kind == "autograd" != before:
                    out.append('<tr><th style="text-align:left" colspan="3">Held by autograd alone</th></tr>')
                before = row.kind
                out.append(
                    f'<tr><td style="text-align:left">{cell(row.text(self._verbose))}</td>'
                    f"<td>{cell(str(row.shape))}</td><td>{readable_size(row.bytes)}</td></tr>"
                )
            for name, value in totals:
                out.append(
                    f'<tr><th style="text-align:left" colspan="2">{cell(name)}</th>'
                    f'<th style="text-align:right">{readable_size(value)}</th></tr>'
                )
            out.append("</table>")
            out += [f"<p>{cell(remark)}</p>" for remark in device.remarks]
        return "".join(out) or "<p>No tensors</p>"

    def to_dict(self) -> Dict[str, Any]:
        """The report as a dictionary with exact bytes; missing figures are None."""
        devices = []
        for device in self._selected():
            entry = dataclasses.asdict(device)
            entry["tensor_bytes"] = device.tensor_bytes
            entry["autograd_bytes"] = device.autograd_bytes
            entry["block_bytes"] = device.block_bytes
            entry["total"] = device.total
            devices.append(entry)
        return {"schema": "vramscope.tensors/1", "devices": devices}

    def to_json(self, indent: Optional[int] = None) -> str:
        """The same as JSON text; missing figures are null."""
        return json.dumps(self.to_dict(), indent=indent)

    def diff(self, later: "Report") -> "Diff":
        """Compares with a later report: what was added, removed, grew or shrank."""
        if not isinstance(later, Report):
            raise TypeError(f"vramscope: diff takes a later report, not {type(later).__name__}")
        return Diff(self, later)


def _widths(labels: List[str], sizes: List[str]) -> Tuple[int, int]:
    """Widths of the first two columns: those of pytorch_memlab if they suffice; otherwise names get the rest."""
    longest, size = (max([0, *(len(text) + 1 for text in texts)]) for texts in (labels, sizes))
    if longest <= _NAME and size <= _SIZE:
        return _NAME, _SIZE
    name = max(_NAME, min(longest, RULE - _MEMORY - size))
    return name, max(size, _NAME + _SIZE - name)


@dataclasses.dataclass
class Change:
    device: str
    what: str  # came, went, grew, shrank, changed (only its shape or type)
    name: str
    shape: str
    dtype: str
    line: str
    count: int  # change in the number of tensors
    bytes: int  # change in bytes


class Diff:
    """The difference of two reports: ``changes``, largest first, and ``totals`` of each device (before, after).

    Sizes are in bytes. Parameters, gradients, buffers and optimizer state are matched by name. Other tensors are
    matched by class, shape, type and, if the process is recorded, the line that allocated them. A tensor that was
    replaced by an equal one is not a change.
    """

    def __init__(self, before: Report, after: Report) -> None:
        self.changes: List[Change] = []
        self.totals: Dict[str, Dict[str, Tuple[int, int]]] = {}
        names = list(before.devices) + [name for name in after.devices if name not in before.devices]
        for name in names:
            left = before.devices.get(name, DeviceReport(name))
            right = after.devices.get(name, DeviceReport(name))
            self._rows(left, right)
            self._blocks(left, right)
            self.totals[name] = {
                "Used Memory": (left.tensor_bytes + left.autograd_bytes, right.tensor_bytes + right.autograd_bytes),
                "Blocks without a tensor": (left.block_bytes, right.block_bytes),
                "Cached and fragmentation": (left.cached + left.fragmentation, right.cached + right.fragmentation),
                "Reserved by PyTorch": (left.reserved or 0, right.reserved or 0),
                "Used by this process (nvidia-smi)": (left.nvml or 0, right.nvml or 0),
            }
        self.changes.sort(key=lambda change: -abs(change.bytes))

    def _rows(self, left: DeviceReport, right: DeviceReport) -> None:
        named = [{row.name: row for row in side.rows if row.kind in _NAMED} for side in (left, right)]
        for name in {**named[0], **named[1]}:
            old, new = (side.get(name) for side in named)
            if old is None or new is None:
                row = new or old
                assert row is not None
                self._add(row, "came" if old is None else "went", name, 1 if old is None else -1, row.bytes)
            elif (old.bytes, old.shape, old.dtype) != (new.bytes, new.shape, new.dtype):
                shape = f"{old.shape} -> {new.shape}" if old.shape != new.shape else str(new.shape)
                dtype = f"{old.dtype} -> {new.dtype}" if old.dtype != new.dtype else new.dtype
                more = new.bytes - old.bytes
                self.changes.append(Change(right.device, _grew(more), name, shape, dtype, new.line, 0, more))
        kinds: "collections.OrderedDict[Tuple[Any, ...], List[List[Row]]]" = collections.OrderedDict()
        for index, side in enumerate((left, right)):
            for row in side.rows:
                if row.kind not in _NAMED:
                    kinds.setdefault(_look(row), [[], []])[index].append(row)
        for old_rows, new_rows in kinds.values():
            count = len(new_rows) - len(old_rows)
            size = sum(row.bytes for row in new_rows) - sum(row.bytes for row in old_rows)
            if count or size:
                row = (new_rows or old_rows)[-1]
                what = "came" if count > 0 else "went" if count < 0 else _grew(size)
                self._add(row, what, row.name if row.kind == "autograd" else row.type, count, abs(size), size)

    def _add(self, row: Row, what: str, name: str, count: int, size: int, exact: Optional[int] = None) -> None:
        change = (size if count > 0 else -size) if exact is None else exact
        self.changes.append(
            Change(row.device, what, name, str(row.shape), row.dtype, row.line, count, change)
        )

    def _blocks(self, left: DeviceReport, right: DeviceReport) -> None:
        sides: List[Dict[Tuple[str, str, int], Blocks]] = [
            {(b.what, b.line, b.bytes // b.count): b for b in side.blocks} for side in (left, right)
        ]
        for key in {**sides[0], **sides[1]}:
            old, new = (side.get(key) or Blocks(0, 0, "", "") for side in sides)
            if old.count != new.count:
                count = new.count - old.count
                what = "came" if count > 0 else "went"
                name = "block without a tensor" + (f", {key[0]}" if key[0] else "")
                self.changes.append(
                    Change(right.device, what, name, readable_size(key[2]), "", key[1], count, new.bytes - old.bytes)
                )

    def __bool__(self) -> bool:
        return bool(self.changes)

    def __repr__(self) -> str:
        return f"<vramscope difference of reports: {len(self.changes)} changes>"

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        out = []
        for device, totals in self.totals.items():
            changes = [change for change in self.changes if change.device == device]
            out += ["-" * RULE, f"Changes on {device}"]
            for change in changes:
                count = f"{change.count:+d} " if change.count else ""
                words = [f"{count}{change.name} {change.shape}", change.dtype, change.line]
                text = f"{change.what}  {', '.join(filter(None, words))}"
                space = "\n" + " " * 68 if len(text) > 68 else ""
                out.append(f"{text:<68}{space} {signed_size(change.bytes):>10}")
            if not changes:
                out.append("none")
            for name, (old, new) in totals.items():
                if old or new:
                    text = f"{name}: {readable_size(old)} -> {readable_size(new)}"
                    out.append(f"{text:<68} {signed_size(new - old):>10}")
        return "\n".join([*out, "-" * RULE])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"

    def to_dict(self) -> Dict[str, Any]:
        return {
            "schema": "vramscope.tensors-diff/1",
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "totals": {
                device: {name: {"before": old, "after": new} for name, (old, new) in totals.items()}
                for device, totals in self.totals.items()
            },
        }

    def to_json(self, indent: Optional[int] = None) -> str:
        """The same as JSON text; missing figures are null."""
        return json.dumps(self.to_dict(), indent=indent)


def _grew(more: int) -> str:
    return "grew" if more > 0 else "shrank" if more < 0 else "changed"


def _look(row: Row) -> Tuple[Any, ...]:
    holder = row.name if row.kind == "autograd" else ""
    return (row.kind, row.type, holder, row.dtype, row.shape, row.line)
