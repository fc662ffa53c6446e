# SPDX-License-Identifier: Apache-2.0
"""Recordings as tables: libvramscope_read.so (include/vramscope/read.h) for Python."""

from __future__ import annotations

import ctypes
import functools
import operator
import os
import weakref
from types import TracebackType
from typing import (
    TYPE_CHECKING,
    Any,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    Type,
    Union,
)

from . import _arrow, _paths
from ._plot import Picture, draw

if TYPE_CHECKING:
    import duckdb

_Path = Union[str, "os.PathLike[str]"]
#: What `--at` takes, seconds from the start as a float, or an instant of time.monotonic_ns() as an integer.
Instant = Union[str, int, float]

_VERSION = 1
_INT64, _UINT64, _TEXT = 1, 2, 3


class ReadError(RuntimeError):
    """A recording that cannot be read, or a question that it has no answer to, in one line."""


# ---- the structs of read.h ----


class _Text(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t)]


class _Column(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("unit", ctypes.c_char_p),
        ("type", ctypes.c_uint32),
        ("text_count", ctypes.c_uint32),
        ("values", ctypes.c_void_p),
        ("null", ctypes.c_void_p),
        ("texts", ctypes.POINTER(_Text)),
    ]


class _Table(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("row_count", ctypes.c_size_t),
        ("column_count", ctypes.c_size_t),
        ("columns", ctypes.POINTER(ctypes.POINTER(_Column))),
    ]


class _Answer(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("table_count", ctypes.c_size_t),
        ("tables", ctypes.POINTER(ctypes.POINTER(_Table))),
    ]


class _OpenOptions(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("limit_ms", ctypes.c_uint32),
        ("no_native_names", ctypes.c_uint32),
        ("program", ctypes.c_char_p),
    ]


_Names = ctypes.POINTER(ctypes.c_char_p)


class _Query(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("at", ctypes.c_char_p),
        ("by", _Names),
        ("by_count", ctypes.c_size_t),
        ("where", _Names),
        ("where_count", ctypes.c_size_t),
        ("own", _Names),
        ("own_count", ctypes.c_size_t),
        ("top", ctypes.c_uint64),
    ]


class _Window(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("from_ns", ctypes.c_int64),
        ("to_ns", ctypes.c_int64),
        ("by", _Names),
        ("by_count", ctypes.c_size_t),
        ("own", _Names),
        ("own_count", ctypes.c_size_t),
    ]


class _Library:
    """The functions of libvramscope_read.so. They give the GIL away: a question may take a while."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)

        def bind(name: str, result: object, *arguments: object) -> Any:
            function = getattr(library, name)
            function.restype = result
            function.argtypes = list(arguments)
            return function

        pointer, answer = ctypes.c_void_p, ctypes.POINTER(_Answer)
        self.version = bind("vramscope_read_version", ctypes.c_uint32)
        self.error = bind("vramscope_read_error", ctypes.c_char_p)
        self.free = bind("vramscope_read_free", None, answer)
        self.open = bind("vramscope_read_open", pointer, ctypes.c_char_p, ctypes.POINTER(_OpenOptions))
        self.close = bind("vramscope_read_close", None, pointer)
        self.table = bind("vramscope_read_table", answer, pointer, ctypes.c_char_p)
        self.report = bind("vramscope_read_report", answer, pointer, ctypes.POINTER(_Query))
        self.iterations = bind("vramscope_read_iterations", answer, pointer)
        self.timeline = bind("vramscope_read_timeline", answer, pointer, ctypes.c_size_t)
        self.allocations = bind("vramscope_read_allocations", pointer, pointer, ctypes.POINTER(_Window))
        self.next = bind("vramscope_read_next", answer, pointer)
        self.end = bind("vramscope_read_end", None, pointer)
        self.answer_stream = bind("vramscope_read_answer_stream", pointer, answer, ctypes.c_char_p, pointer)
        self.table_stream = bind("vramscope_read_table_stream", pointer, pointer, ctypes.c_char_p, pointer)
        self.end_capsule = library.vramscope_read_end_capsule
        if self.version() != _VERSION:
            raise ReadError(f"{path} is of another version; reinstall vramscope")

    def why(self) -> str:
        text: bytes = self.error()
        return text.decode("utf-8", "replace")


_loaded: Optional[_Library] = None


def _library() -> _Library:
    global _loaded
    if _loaded is None:
        _loaded = _Library(os.fspath(_paths.reader()))
    return _loaded


# ---- answers ----


class _Held:
    """An answer, freed when nothing of Python needs it any more."""

    def __init__(self, answer: Any) -> None:
        library = _library()
        if not answer:
            raise ReadError(library.why())
        self.answer = answer
        weakref.finalize(self, library.free, answer)


class Table(_arrow.Frames):
    """Rows and named columns. ``table["bytes"]`` is a list; iterating gives a dict for each row; None is no value.

    It has the Arrow C data interface, so that pyarrow, pandas, Polars and DuckDB take it as it is; ``.arrow()``,
    ``.pandas()``, ``.polars()`` and ``.duckdb()`` make their tables of it.
    """

    def __init__(self, held: _Held, table: _Table) -> None:
        self._held = held
        self._rows: int = table.row_count
        found = [table.columns[at].contents for at in range(table.column_count)]
        self._found = {column.name.decode(): column for column in found}
        self.name: str = table.name.decode()
        #: "bytes", "ns", the table whose row numbers a column has, or "".
        self.units: Dict[str, str] = {name: column.unit.decode() for name, column in self._found.items()}

    @functools.cached_property
    def columns(self) -> Dict[str, List[Any]]:
        """Lists of one length, by the column's name."""
        return {name: _values(column, self._rows) for name, column in self._found.items()}

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule, in the one schema that there is. Numbers are the answer's own memory, which the capsule keeps."""
        library = _library()

        def fill(address: int) -> None:
            if not library.answer_stream(self._held.answer, self.name.encode(), address):
                raise ReadError(library.why())

        return _arrow.capsule(fill, library.end_capsule)

    def __len__(self) -> int:
        return self._rows

    def __getitem__(self, column: str) -> List[Any]:
        return self.columns[column]

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        names = tuple(self.columns)
        for values in zip(*self.columns.values()):
            yield dict(zip(names, values))

    def __repr__(self) -> str:
        return f"<vramscope table {self.name}: {len(self)} rows of {', '.join(self.units)}>"


class Allocations(Table):
    """The table ``allocations``, which may be larger than memory: what streams reads it as it goes, also iterating.

    `columns`, and ``table["bytes"]``, read all of it; so do ``.arrow()`` and the others.
    """

    def __init__(self, trace: "Trace") -> None:
        self._trace = trace
        self._rows = trace.table("session")["allocations"][0]
        self.name = "allocations"
        self.units = {row["column"]: row["unit"] for row in trace.table("tables") if row["table"] == self.name}

    @functools.cached_property
    def columns(self) -> Dict[str, List[Any]]:
        """Lists of one length, by the column's name."""
        return {name: self[name] for name in self.units}

    def __getitem__(self, column: str) -> List[Any]:
        if column not in self.units:
            raise KeyError(column)
        return [value for batch in self._trace.allocations() for value in batch[column]]

    def __iter__(self) -> Iterator[Dict[str, Any]]:
        for batch in self._trace.allocations():
            for values in zip(*(batch[name] for name in self.units)):
                yield dict(zip(self.units, values))

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """A capsule of batches of some ten thousand rows, each read when it is asked for."""
        library, handle = _library(), self._trace._opened()

        def fill(address: int) -> None:
            if not library.table_stream(handle, self.name.encode(), address):
                raise ReadError(library.why())

        return _arrow.capsule(fill, library.end_capsule)


def _values(column: _Column, rows: int) -> List[Any]:
    if rows == 0:
        return []
    found: List[Any]
    if column.type == _TEXT:
        texts = [
            ctypes.string_at(column.texts[i].data, column.texts[i].bytes).decode("utf-8")
            for i in range(column.text_count)
        ]
        found = [texts[code] for code in (ctypes.c_uint32 * rows).from_address(column.values)]
    else:
        number = ctypes.c_int64 if column.type == _INT64 else ctypes.c_uint64
        found = (number * rows).from_address(column.values)[:]
    if column.null:
        nulls = ctypes.string_at(column.null, rows)
        found = [None if null else value for null, value in zip(nulls, found)]
    return found


def _tables(answer: Any) -> Dict[str, Table]:
    held = _Held(answer)
    tables = (answer.contents.tables[i].contents for i in range(answer.contents.table_count))
    return {table.name.decode(): Table(held, table) for table in tables}


# generated: Report
class Report(NamedTuple):
    """Who has the memory at an instant. Tables have the columns of docs/READER.md."""

    #: a device at the instant
    devices: Table
    #: a recorded process on a device
    processes: Table
    #: the device's bytes, largest first
    rows: Table
    #: bytes without device memory, not in `rows`; they sum to `unbacked_bytes`
    unbacked: Table
    #: bytes by category, largest first; they sum to `ledger_bytes`
    categories: Table
    #: the heaviest layers, at most 100 a device; `--by module` has all
    modules: Table
    #: lines with most live bytes, without free memory of allocators
    lines: Table
    #: stacks with most live bytes
    top_stacks: Table
    #: lines that allocated most in the whole recording, freed or not
    top_churn: Table
    #: free bytes in segments (cached, fragmentation), by the line that made the segments
    free_lines: Table
    #: only at a peak with much free memory, without `--where`: free memory in PyTorch's segments, and why the
    #: newest segment was still made
    cached: Table
    #: how well the ledger explains NVML over the whole recording
    residuals: Table
    #: only if there is any, by time: memory that appeared (also a row `unexplained`) or disappeared (part of the
    #: residual) without a known cause
    unexplained: Table
    #: only if `--overflow` used host memory: what a large enough GPU would have held, whatever the instant
    overflow: Table
    #: one way in which the recording is incomplete
    losses: Table
    #: a check of the figures
    invariants: Table
# end


# generated: Iterations
class Iterations(NamedTuple):
    """The memory of each iteration. Tables have the columns of docs/READER.md."""

    #: by process, device and number; with `--last` only the last ones
    iterations: Table
    #: each parameter's highest bytes in the process's last whole iteration, in model order
    parameters: Table
# end


class Timeline(NamedTuple):
    """Each device's bands over time, and NVML's figures beside them."""

    timeline: Table
    nvml: Table


# ---- recordings ----


def _names(names: Sequence[str]) -> Tuple[Any, int]:
    if isinstance(names, str):
        raise TypeError(f"a list of names is wanted, and {names!r} is one text: write [{names!r}]")
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names)), len(names)


def _instant(at: Instant) -> str:
    if isinstance(at, str):
        return at
    if isinstance(at, float):
        return f"{at:.9f}"
    try:
        return f"@{operator.index(at)}"
    except TypeError:
        raise TypeError(f"at={at!r}: a text, seconds as a float or time.monotonic_ns() is wanted") from None


def _within(name: str, number: int, lowest: int, highest: int) -> int:
    # ctypes cuts off what a field of C has no room for.
    number = operator.index(number)
    if not lowest <= number <= highest:
        raise ValueError(f"{name}={number}: it can be from {lowest} to {highest}")
    return number


class Trace:
    """A recording, opened for reading; made by `read`. It can be asked by several threads at once."""

    def __init__(self, path: _Path, limit_seconds: float = 0.0, native_names: bool = True) -> None:
        self._path = os.path.abspath(os.fspath(path))
        library = _library()
        options = _OpenOptions(ctypes.sizeof(_OpenOptions))
        options.limit_ms = int(limit_seconds * 1000)
        options.no_native_names = not native_names
        options.program = os.fsencode(_paths.program())
        self._handle = library.open(os.fsencode(path), ctypes.byref(options))
        if not self._handle:
            raise ReadError(library.why())
        self._close = weakref.finalize(self, library.close, self._handle)

    def __repr__(self) -> str:
        return f"<vramscope.Trace {self._path}{'' if self._handle else ', closed'}>"

    def close(self) -> None:
        """Frees it. Its answers stay."""
        self._close()
        self._handle = None

    def __enter__(self) -> "Trace":
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def _opened(self) -> int:
        if self._handle is None:
            raise ValueError("this recording is closed")
        return int(self._handle)

    def table(self, name: str) -> Table:
        """A table of docs/TABLES.md, row for row; also ``session``, ``words`` and ``tables``, which lists them all."""
        if name == "allocations":
            return Allocations(self)
        return _tables(_library().table(self._opened(), name.encode()))[name]

    def report(
        self,
        at: Instant = "peak",
        by: Sequence[str] = (),
        where: Optional[Mapping[str, str]] = None,
        own: Sequence[str] = (),
        top: int = 0,
    ) -> Report:
        """Who had the memory at an instant: what ``vramscope report`` says with the same options."""
        query = _Query(ctypes.sizeof(_Query))
        query.at = _instant(at).encode()
        query.by, query.by_count = _names(by)
        query.where, query.where_count = _names([f"{name}={value}" for name, value in (where or {}).items()])
        query.own, query.own_count = _names(own)
        query.top = _within("top", top, 0, (1 << 64) - 1)
        found = _tables(_library().report(self._opened(), ctypes.byref(query)))
        return Report(**{name: found[name] for name in Report._fields})

    def live(
        self,
        at: Instant = "peak",
        by: Sequence[str] = (),
        where: Optional[Mapping[str, str]] = None,
        own: Sequence[str] = (),
        top: int = 0,
    ) -> Table:
        """The rows of `report`: what was live at an instant, by dimensions, largest first."""
        return self.report(at, by, where, own, top).rows

    def peak(
        self,
        by: Sequence[str] = (),
        where: Optional[Mapping[str, str]] = None,
        own: Sequence[str] = (),
        top: int = 0,
    ) -> Table:
        """What was live at each device's highest instant."""
        return self.live("peak", by, where, own, top)

    def iterations(self) -> Iterations:
        """What ``vramscope iterations`` says; an error where there are none."""
        found = _tables(_library().iterations(self._opened()))
        return Iterations(found["iterations"], found["parameters"])

    def timeline(self, buckets: int = 600) -> Timeline:
        """The highest instant of each of so many stretches of time, 1 to 1,000,000."""
        found = _tables(_library().timeline(self._opened(), _within("buckets", buckets, 1, 1_000_000)))
        return Timeline(found["timeline"], found["nvml"])

    def _table_names(self) -> List[str]:
        # Of the file, and those that come with it.
        return [*dict.fromkeys(self.table("tables")["table"]), "session", "tables", "words"]

    def duckdb(self) -> "duckdb.DuckDBPyConnection":
        """A DuckDB in memory in which every table is a view: ``trace.duckdb().sql("select ... from sites")``.

        Those that others name rows of begin with the column ``id``, the row's number. Needs duckdb and pyarrow.
        """
        return _arrow.connection(self, self._table_names())

    def to_parquet(self, directory: _Path) -> None:
        """Every table as Parquet below a directory that is not there yet; needs pyarrow.

        ``NAME.parquet`` each, and ``allocations/host=HOST/rank=RANK/*.parquet``, with rank -1 for none.
        """
        _arrow.to_parquet(self, self._table_names(), directory)

    def plot(
        self,
        kind: str = "timeline",
        beside: Sequence[_Path] = (),
        by: Optional[str] = None,
        at: Optional[Instant] = None,
        title: str = "",
        unit: str = "",
        omit_below: float = 0.0,
        overlay: bool = False,
        subtract_baseline: bool = False,
        keywords: Sequence[_Path] = (),
        device: Union[str, int] = "",
    ) -> Picture:
        """A figure of it, and of the recordings `beside` it, as ``vramscope plot`` draws it.

        The last value of a notebook's cell is shown; ``.save("figure.pdf")`` writes it as SVG, PNG or PDF.
        """
        self._opened()
        when = None if at is None else _instant(at)
        return draw(
            [self._path, *beside], kind, by, when, title, unit, omit_below, overlay, subtract_baseline, keywords,
            str(device),
        )

    def allocations(
        self,
        between: Optional[Tuple[int, int]] = None,
        by: Sequence[str] = (),
        own: Sequence[str] = (),
    ) -> Iterator[Table]:
        """Allocations that live at some instant of a time, both ends included, some ten thousand at once.

        They come in no order. `by` names dimensions that they have a column of text for.
        """
        window = _Window(ctypes.sizeof(_Window))
        earliest, latest = -(1 << 63), (1 << 63) - 1
        window.from_ns, window.to_ns = (
            _within("between", time_ns, earliest, latest) for time_ns in between or (earliest, latest)
        )
        window.by, window.by_count = _names(by)
        window.own, window.own_count = _names(own)
        library = _library()
        cursor = library.allocations(self._opened(), ctypes.byref(window))
        if not cursor:
            raise ReadError(library.why())
        try:
            while True:
                self._opened()
                answer = library.next(cursor)
                if not answer and not library.why():
                    return
                yield _tables(answer)["allocations"]
        finally:
            library.end(cursor)


def read(path: _Path) -> Trace:
    """Opens a recording: a finished ``NAME.vram``, or the live directory of one that is under way, as it is now.

    ::

        with vramscope.read("train.vram") as trace:
            for row in trace.report(at="peak", by=["category"]).rows:
                print(row["index"], row["category"], row["bytes"])

    Every question is answered from the tables of docs/TABLES.md, by the code that ``vramscope report`` and the
    HTML page use, in this process; docs/READER.md lists what there is to ask.
    """
    return Trace(path)
