# SPDX-License-Identifier: Apache-2.0
"""Reads recordings as tables, through libvramscope_read.so (include/vramscope/read.h)."""

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
    import pyarrow

_Path = Union[str, "os.PathLike[str]"]
#: A text of `--at`, seconds from the start as a float, or an integer of time.monotonic_ns().
Instant = Union[str, int, float]

_VERSION = 1
_INT64, _UINT64, _TEXT = 1, 2, 3


class ReadError(RuntimeError):
    """A recording cannot be read, or it cannot answer a question. The message is one line."""


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
    """The functions of libvramscope_read.so. They release the GIL, because answers can take a while."""

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
        self.phases = bind("vramscope_read_phases", answer, pointer)
        self.timeline = bind("vramscope_read_timeline", answer, pointer, ctypes.c_size_t)
        self.allocations = bind("vramscope_read_allocations", pointer, pointer, ctypes.POINTER(_Window))
        self.next = bind("vramscope_read_next", answer, pointer)
        self.end = bind("vramscope_read_end", None, pointer)
        self.answer_stream = bind("vramscope_read_answer_stream", pointer, answer, ctypes.c_char_p, pointer)
        self.table_stream = bind("vramscope_read_table_stream", pointer, pointer, ctypes.c_char_p, pointer)
        number, text = ctypes.c_int, ctypes.c_char_p
        self.dataset = bind("vramscope_read_dataset", pointer, ctypes.c_size_t, pointer)
        self.dataset_head = bind("vramscope_read_dataset_head", number, pointer, text, ctypes.c_int64)
        self.dataset_summary = bind("vramscope_read_dataset_summary", number, pointer, pointer, ctypes.c_int64)
        self.dataset_detail = bind("vramscope_read_dataset_detail", number, pointer, pointer)
        self.dataset_rows = bind("vramscope_read_dataset_rows", ctypes.c_size_t, pointer, text)
        self.dataset_take = bind("vramscope_read_dataset_take", pointer, pointer, text, pointer)
        self.dataset_end = bind("vramscope_read_dataset_end", None, pointer)
        self.end_capsule = library.vramscope_read_end_capsule
        if self.version() != _VERSION:
            raise ReadError(f"{path} has another version; reinstall vramscope")

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
    """Owns an answer of the library and frees it."""

    def __init__(self, answer: Any) -> None:
        library = _library()
        if not answer:
            raise ReadError(library.why())
        self.answer = answer
        weakref.finalize(self, library.free, answer)


class Table(_arrow.Frames):
    """A table with named columns. Sizes are in bytes, times in nanoseconds; None is a missing value.

    ::

        table["bytes"]                  # a column, as a list with one value for each row
        for row in table:               # a row, as a dict
            print(row["bytes"])
        table.pandas()                  # also .arrow(), .polars(), .duckdb()

    It implements the Arrow C data interface, so pyarrow, pandas, Polars and DuckDB accept it directly.
    """

    def __init__(self, held: _Held, table: _Table) -> None:
        self._held = held
        self._rows: int = table.row_count
        found = [table.columns[at].contents for at in range(table.column_count)]
        self._found = {column.name.decode(): column for column in found}
        self.name: str = table.name.decode()
        #: The unit of each column: "bytes", "ns", a table whose row numbers it contains, or "".
        self.units: Dict[str, str] = {name: column.unit.decode() for name, column in self._found.items()}

    @functools.cached_property
    def columns(self) -> Dict[str, List[Any]]:
        """Lists of one length, by the column's name."""
        return {name: _values(column, self._rows) for name, column in self._found.items()}

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Arrow's protocol. Ignores a requested schema. Numbers are not copied: the capsule keeps the answer alive."""
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
    """The table ``allocations``, which can be larger than memory.

    Iterating and streaming read it piece by piece. ``table["bytes"]``, `columns` and ``.arrow()`` read all of it.
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
        """Arrow's protocol: batches of about ten thousand rows, each read on demand."""
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


def _overview(answer: Any) -> str:
    return f"<vramscope {type(answer).__name__}: {', '.join(f'{name} {len(table)} rows' for name, table in answer._asdict().items())}>"


# generated: Report
class Report(NamedTuple):
    """Who has the memory at an instant. Tables have the columns of docs/READER.md."""

    #: a device at the instant
    devices: Table
    #: a recorded process on a device
    processes: Table
    #: the device's bytes, largest first
    rows: Table
    #: not in `rows`; they sum to `unbacked_bytes`
    unbacked: Table
    #: bytes by category, largest first; they sum to `ledger_bytes`
    categories: Table
    #: the 100 heaviest layers of each device; `--by module` has all
    modules: Table
    #: lines with most live bytes, without free memory of allocators
    lines: Table
    #: stacks with most live bytes
    top_stacks: Table
    #: lines that allocated most in the recording, freed or not
    top_churn: Table
    #: free bytes in segments, by the line that made the segments
    free_lines: Table
    #: only at a peak with much free memory: why PyTorch made a new segment nevertheless
    cached: Table
    #: how well the ledger explains NVML over the whole recording
    residuals: Table
    #: only if any: memory that appeared (a row `unexplained`) or disappeared without a known cause
    unexplained: Table
    #: only if `--overflow` used host memory: the peak on a large enough GPU
    overflow: Table
    #: memory that processes have open of others at the instant
    open_memory: Table
    #: memory that its maker freed and others kept open, each at its highest in the recording
    kept_memory: Table
    #: only if sampled: at its peak, at its fullest, and last
    host_memory: Table
    #: the 100 with the highest peaks
    nvtx_counters: Table
    #: one way in which the recording is incomplete
    losses: Table
    #: a check of the figures
    invariants: Table

    def __repr__(self) -> str:
        return _overview(self)
# end


# generated: Iterations
class Iterations(NamedTuple):
    """The memory of each iteration. Tables have the columns of docs/READER.md."""

    #: by process, device and number; with `--last` only the last ones
    iterations: Table
    #: each parameter's highest bytes in the process's last whole iteration, in model order
    parameters: Table

    def __repr__(self) -> str:
        return _overview(self)
# end


# generated: EnginePhases
class EnginePhases(NamedTuple):
    """What each phase of an inference engine took and left. Tables have the columns of docs/READER.md."""

    #: by process and device, in the order in which they first began
    phases: Table
    #: the share of a device that a command line gives an engine
    budgets: Table
    #: the same of captured CUDA graphs, on GPUs; `name`: the variable with their batch, or the line
    graphs: Table

    def __repr__(self) -> str:
        return _overview(self)
# end


class Timeline(NamedTuple):
    """The memory of each device over time, and NVML's readings."""

    timeline: Table
    nvml: Table


# ---- recordings ----


def _names(names: Sequence[str]) -> Tuple[Any, int]:
    if isinstance(names, str):
        raise TypeError(f"{names!r} is a string, not a list of names: use [{names!r}]")
    return (ctypes.c_char_p * len(names))(*(name.encode() for name in names)), len(names)


def _instant(at: Instant) -> str:
    if isinstance(at, str):
        return at
    if isinstance(at, float):
        return f"{at:.9f}"
    try:
        return f"@{operator.index(at)}"
    except TypeError:
        raise TypeError(f"at={at!r}: use a string, seconds as a float, or an integer of time.monotonic_ns()") from None


def _within(name: str, number: int, lowest: int, highest: int) -> int:
    # ctypes would silently truncate a number that the C field cannot hold.
    number = operator.index(number)
    if not lowest <= number <= highest:
        raise ValueError(f"{name}={number}: use a number from {lowest} to {highest}")
    return number


class Trace:
    """A recording, opened for reading by `read`. Threads may use it at the same time.

    Questions that the recording cannot answer raise `ReadError`. ``with`` closes the recording at the end of a block.
    """

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
        """Closes the recording. Its answers stay valid."""
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
        """A table of docs/TABLES.md; also ``session``, ``words``, and ``tables``, the list of all tables.

        Iterate over its rows, or index it with a column's name. Sizes are in bytes, times in nanoseconds.
        Raises `ReadError` if no table has this name.

        ::

            for row in trace.table("devices"):
                print(row["name"], row["total_bytes"])
        """
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
        """The memory at an instant: the answer of ``vramscope report`` with the same options.

        `at` is ``"peak"``, ``"allocated-peak"``, ``"own-peak"``, ``"end"``, ``"mark:NAME"``, ``"iter:N"``, seconds from
        the start as a float, or an integer of time.monotonic_ns(). `by` lists dimensions, `where` keeps rows with these
        values, `own` names packages to treat as user code, `top` limits the rows (0: all). Sizes are in bytes, times in
        nanoseconds. Raises `ReadError` if the instant or a dimension is unknown.

        ::

            trace.report(at="peak", by=["category", "module"], where={"rank": "0"}).rows
        """
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
        """The rows of `report`: live memory at an instant by dimensions, largest first within a device."""
        return self.report(at, by, where, own, top).rows

    def peak(
        self,
        by: Sequence[str] = (),
        where: Optional[Mapping[str, str]] = None,
        own: Sequence[str] = (),
        top: int = 0,
    ) -> Table:
        """The live memory at the peak of each device."""
        return self.live("peak", by, where, own, top)

    def iterations(self) -> Iterations:
        """The answer of ``vramscope iterations``, in bytes and nanoseconds.

        Raises `ReadError` if the recording has no iterations.

        ::

            for row in trace.iterations().iterations:
                print(row["number"], row["peak_bytes"])
        """
        found = _tables(_library().iterations(self._opened()))
        return Iterations(found["iterations"], found["parameters"])

    def phases(self) -> EnginePhases:
        """The answer of ``vramscope report --phases``, in bytes and nanoseconds.

        Raises `ReadError` if no phase of an inference engine is known.
        """
        found = _tables(_library().phases(self._opened()))
        return EnginePhases(found["phases"], found["budgets"], found["graphs"])

    def timeline(self, buckets: int = 600) -> Timeline:
        """The memory over time, in bytes.

        The run is divided into `buckets` of equal length (1 to 1,000,000). Each has the highest instant within it.
        """
        found = _tables(_library().timeline(self._opened(), _within("buckets", buckets, 1, 1_000_000)))
        return Timeline(found["timeline"], found["nvml"])

    def _table_names(self) -> List[str]:
        # The tables of the file, then those that every recording has.
        return [*dict.fromkeys(self.table("tables")["table"]), "session", "tables", "words"]

    def duckdb(self) -> "duckdb.DuckDBPyConnection":
        """An in-memory DuckDB in which every table is a view: ``trace.duckdb().sql("select ... from sites")``.

        Tables that others refer to begin with a column ``id``, the row number. Needs duckdb and pyarrow.
        """
        return _arrow.connection(self, self._table_names())

    def to_parquet(self, directory: _Path) -> None:
        """Writes every table as Parquet into a new directory. Needs pyarrow.

        The files are ``NAME.parquet`` and ``allocations/host=HOST/rank=RANK/*.parquet``; rank -1 means no rank.
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
        """Draws a figure of this recording, and of those in `beside`, like ``vramscope plot`` with the same options.

        A notebook shows the figure. ``.save("figure.pdf")`` writes SVG, PNG or PDF. `omit_below` is a share, such as
        0.02. A RuntimeError explains why a figure cannot be drawn.

        ::

            trace.plot("compare", beside=["after.vram"], by="module").save("peaks.pdf")
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
        """Yields tables of about ten thousand allocations that are live at some instant of `between`.

        `between` is the first and the last instant in nanoseconds, both included; None means the whole run. The order is
        undefined. Each dimension in `by` adds a text column; `own` is that of `report`. Sizes are in bytes.

        ::

            for part in trace.allocations(by=["category"]):
                print(sum(part["bytes"]))
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


class _Taken:
    """A table that `DatasetRows.take` moved out."""

    def __init__(self, made: object) -> None:
        self._made = made

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._made


class DatasetRows:
    """Rows of many recordings with the columns of docs/DATASET.md, until they are taken. One thread uses it."""

    def __init__(self, group_rows: int, beside: Optional["DatasetRows"] = None) -> None:
        library = _library()
        self._handle: Any = library.dataset(group_rows, None if beside is None else beside._handle)
        if not self._handle:
            raise ReadError(library.why())
        self._close = weakref.finalize(self, library.dataset_end, self._handle)

    def add_head(self, path: _Path, number: int) -> None:
        """Adds a row to `recordings`: `number`, the run and the lowest rank."""
        if _library().dataset_head(self._handle, os.fsencode(path), number) < 0:
            raise ReadError(_library().why())

    def add_summary(self, trace: Trace, number: int) -> None:
        """Adds the rows of the summary. `number` is their column `recording`."""
        if _library().dataset_summary(self._handle, trace._opened(), number) < 0:
            raise ReadError(_library().why())

    def add_detail(self, trace: Trace) -> bool:
        """Adds allocations, deltas, samples and stacks. False: `allocations` is full; take it, and call this again."""
        added: int = _library().dataset_detail(self._handle, trace._opened())
        if added < 0:
            raise ReadError(_library().why())
        return added == 1

    def rows(self, table: str) -> int:
        """How many rows a table has now."""
        count: int = _library().dataset_rows(self._handle, table.encode())
        return count

    def take(self, table: str) -> "pyarrow.Table":
        """Moves the rows of a table out. Text is dictionary-encoded; doubles are the int64 of their bits."""
        import pyarrow

        library = _library()

        def fill(address: int) -> None:
            if not library.dataset_take(self._handle, table.encode(), address):
                raise ReadError(library.why())

        return pyarrow.table(_Taken(_arrow.capsule(fill, library.end_capsule)))


def read(path: _Path) -> Trace:
    """Opens a finished recording ``NAME.vram``, or the live directory of a running one as it is now.

    ::

        with vramscope.read("train.vram") as trace:
            for row in trace.report(at="peak", by=["category"]).rows:
                print(row["index"], row["category"], row["bytes"])

    Raises `ReadError` if the recording cannot be read. The answers come from the same code as ``vramscope report``
    and the HTML page; docs/READER.md lists them.
    """
    return Trace(path)
