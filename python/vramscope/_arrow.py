# SPDX-License-Identifier: Apache-2.0
"""Tables for other libraries, by the Arrow C data interface, and files of them."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import TYPE_CHECKING, Any, Callable, Protocol, Sequence, Tuple, Union

from . import _files

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    import pyarrow

_NAME = b"arrow_array_stream"


class Stream(ctypes.Structure):
    """struct ArrowArrayStream."""

    _fields_ = [
        ("get_schema", ctypes.c_void_p),
        ("get_next", ctypes.c_void_p),
        ("get_last_error", ctypes.c_void_p),
        ("release", ctypes.c_void_p),
        ("private_data", ctypes.c_void_p),
    ]


def capsule(fill: Callable[[int], object], end_capsule: Any) -> object:
    """A capsule of the stream that `fill` makes at an address; it frees what nobody took."""
    malloc = ctypes.CDLL(None).malloc
    malloc.restype, malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    address = malloc(ctypes.sizeof(Stream))
    if not address:
        raise MemoryError
    ctypes.memset(address, 0, ctypes.sizeof(Stream))
    made: object = new(address, _NAME, ctypes.cast(end_capsule, ctypes.c_void_p))
    fill(address)
    return made


class Frames:
    """What has ``__arrow_c_stream__`` as the frames of other libraries; each needs only that library, or pyarrow."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise NotImplementedError

    def arrow(self) -> "pyarrow.Table":
        """As a pyarrow.Table: numbers are not copied, texts are dictionaries."""
        import pyarrow

        return pyarrow.table(self)

    def pandas(self) -> "pandas.DataFrame":
        """As a pandas.DataFrame. Integers stay integers: a column in which some have no value is Int64 or UInt64."""
        import pandas
        import pyarrow

        nullable = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.uint64(): pandas.UInt64Dtype()}
        table = self.arrow()
        return pandas.DataFrame(
            {
                name: column.to_pandas(types_mapper=nullable.get if column.null_count else None)
                for name, column in zip(table.column_names, table.columns)
            }
        )

    def polars(self) -> "polars.DataFrame":
        """As a polars.DataFrame."""
        import polars

        return polars.DataFrame(self)

    def duckdb(self) -> "duckdb.DuckDBPyRelation":
        """As a relation of DuckDB's default connection."""
        import duckdb

        return duckdb.from_arrow(self.arrow())


class _Trace(Protocol):
    def table(self, name: str) -> Any: ...


def numbered(trace: _Trace, name: str) -> "pyarrow.Table":
    """A table behind the numbers of its rows, which other tables name them by; `allocations` nobody names."""
    import pyarrow

    table = trace.table(name).arrow()
    if name == "allocations":
        return table
    return table.add_column(0, "id", pyarrow.array(range(table.num_rows), pyarrow.int64()))


def connection(trace: _Trace, names: Sequence[str]) -> "duckdb.DuckDBPyConnection":
    """A DuckDB in memory with a view of each table."""
    import duckdb

    made = duckdb.connect()
    for name in names:
        made.register(name, numbered(trace, name))
    return made


def _ranks(trace: _Trace) -> Tuple[Sequence[str], Sequence[int]]:
    """The host's name and the rank of each site."""
    hosts, processes = trace.table("hosts")["name"], trace.table("processes")
    devices, accounts = trace.table("devices")["host"], trace.table("accounts")
    of_account = [
        (
            hosts[processes["host"][process] if process else devices[device]],
            processes["rank"][process] if process else -1,
        )
        for process, device in zip(accounts["process"], accounts["device"])
    ]
    of_site = [of_account[account] for account in trace.table("sites")["account"]]
    return [host for host, _ in of_site], [rank for _, rank in of_site]


def to_parquet(trace: _Trace, names: Sequence[str], directory: Union[str, "os.PathLike[str]"]) -> None:
    """`allocations` a batch at a time, the others whole."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.parquet

    # It must be new, so that nothing of another recording is among it.
    _files.make_directory(pathlib.Path(directory))
    hosts, ranks = _ranks(trace)
    host_of, rank_of = pyarrow.array(hosts, pyarrow.string()), pyarrow.array(ranks, pyarrow.int64())
    rows = pyarrow.RecordBatchReader.from_stream(trace.table("allocations"))
    keys = [pyarrow.field("host", pyarrow.string()), pyarrow.field("rank", pyarrow.int64())]
    schema = pyarrow.schema([*rows.schema, *keys])

    def with_keys() -> Any:
        for batch in rows:
            site = batch.column("site")
            columns = [*batch.columns, host_of.take(site), rank_of.take(site)]
            yield pyarrow.record_batch(columns, schema=schema)

    pyarrow.dataset.write_dataset(
        with_keys(),
        os.path.join(directory, "allocations"),
        schema=schema,
        format="parquet",
        partitioning=pyarrow.dataset.partitioning(pyarrow.schema(keys), flavor="hive"),
    )
    for name in names:
        if name != "allocations":
            pyarrow.parquet.write_table(numbered(trace, name), os.path.join(directory, name + ".parquet"))
