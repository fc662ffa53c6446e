# SPDX-License-Identifier: Apache-2.0
"""Exports tables to other libraries through the Arrow C data interface, and to files."""

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
    """A capsule with the stream that `fill` creates at an address. It releases a stream that no consumer took."""
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
    """Converts an object with ``__arrow_c_stream__`` for another library, which must be installed (or pyarrow)."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        raise NotImplementedError

    def arrow(self) -> "pyarrow.Table":
        """As a pyarrow.Table. Numbers are not copied; text columns are dictionary-encoded."""
        import pyarrow

        return pyarrow.table(self)

    def pandas(self) -> "pandas.DataFrame":
        """As a pandas.DataFrame. Integer columns with missing values are Int64 or UInt64, not float."""
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
        """As a relation on DuckDB's default connection."""
        import duckdb

        return duckdb.from_arrow(self.arrow())


class _Trace(Protocol):
    def table(self, name: str) -> Any: ...


def numbered(trace: _Trace, name: str) -> "pyarrow.Table":
    """Puts a column of row numbers before a table; other tables refer to rows by it. `allocations` needs none."""
    import pyarrow

    table = trace.table(name).arrow()
    if name == "allocations":
        return table
    return table.add_column(0, "id", pyarrow.array(range(table.num_rows), pyarrow.int64()))


def connection(trace: _Trace, names: Sequence[str]) -> "duckdb.DuckDBPyConnection":
    """An in-memory DuckDB with a view for each table."""
    import duckdb

    made = duckdb.connect()
    for name in names:
        made.register(name, numbered(trace, name))
    return made


def _ranks(trace: _Trace) -> Tuple[Sequence[str], Sequence[int]]:
    """The host name and the rank of each row of `sites`."""
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
    """Writes `allocations` in batches, the other tables whole."""
    import pyarrow
    import pyarrow.compute
    import pyarrow.dataset
    import pyarrow.parquet

    # The directory must be new: it must not contain files of another recording.
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
