# SPDX-License-Identifier: Apache-2.0
"""Whole recordings as a dataset: ``vramscope export --to parquet FILE|FOLDER... -o DIR``.

libvramscope_read computes the rows of many recordings, as Arrow batches of up to a million rows. Threads of this process
pass them to pyarrow's writer, each thread to files of its own.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from .. import _files, _reader
from . import dataset, schema, summaries
from .errors import FleetError, need

if TYPE_CHECKING:
    import pyarrow

# Rows of all threads that are not written yet. A row takes 160 bytes.
_OPEN_ROWS = 2 << 20
_MOST_THREADS = 8
# Neighbours stay in one file: a thread has no fewer recordings.
_FEWEST_FOR_THREAD = 8
# Texts of stacks are long.
_STACK_ROWS = 1 << 15


def recordings_in(paths: Sequence[str]) -> List[pathlib.Path]:
    """The recordings that these paths name, and those in folders."""
    found = []
    for text in paths:
        path = pathlib.Path(text)
        if path.is_dir() and not path.name.endswith(".vram.d"):
            inside = sorted(path.glob("*.vram"))
            # NAME.vram.d is a recording of its own only if nobody finished it.
            inside += sorted(live for live in path.glob("*.vram.d") if not live.with_suffix("").exists())
            if not inside:
                raise FleetError(f"{path}: there is no recording (*.vram) in this folder")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise FleetError(f"{path}: no such file")
    return found


def _slices(items: Sequence[Any]) -> List[Sequence[Any]]:
    """A slice for each thread."""
    count = max(1, min(os.cpu_count() or 1, _MOST_THREADS, len(items) // _FEWEST_FOR_THREAD))
    return [items[len(items) * i // count : len(items) * (i + 1) // count] for i in range(count)]


class _Head(NamedTuple):
    """A recording of a run."""

    rank: int  # the lowest; -1: none
    path: pathlib.Path
    number: int


def _runs_of(paths: Sequence[pathlib.Path]) -> Tuple[Dict[str, List[_Head]], List[str]]:
    """The recordings of each run in the order of their ranks, and a line for each that was left out."""
    rows, problems = _reader.DatasetRows(1), []
    for number, path in enumerate(paths):
        try:
            rows.add_head(path, number)
        except _reader.ReadError as error:
            problems.append(f"left out: {error}")
    runs: Dict[str, List[_Head]] = {}
    if rows.rows("recordings"):
        found = rows.take("recordings").to_pydict()
        for number, run, rank in zip(found["recording"], found["run"], found["rank"]):
            runs.setdefault(dataset.name_of_run(run or "run"), []).append(_Head(rank, paths[number], number))
    return {run: sorted(heads) for run, heads in runs.items()}, problems


def _summaries(parts: Sequence[Dict[str, "pyarrow.Table"]], numbers: Iterable[int]) -> dataset.Tables:
    """The rows of the summaries of these recordings, as `summaries.tables_of` makes them."""
    import pyarrow
    import pyarrow.compute as compute

    wanted = pyarrow.array(sorted(numbers), pyarrow.int64())
    made = {}
    for table in schema.SUMMARY:
        # A table without rows has no columns.
        own = [part[table] for part in parts if table in part]
        rows = pyarrow.concat_tables(own).unify_dictionaries() if own else _empty(table)
        rows = rows.filter(compute.is_in(rows.column("recording"), value_set=wanted))
        if table == "ranks":
            for column in schema.MESH_COLUMNS:
                values = [schema.mesh_columns(mesh)[column.name] for mesh in rows.column("mesh").to_pylist()]
                rows = rows.append_column(column.name, pyarrow.array(values, schema.type_of(column, dictionaries=False)))
        made[table] = _typed(table, rows, dictionaries=False)
    return made


def _typed(table: str, rows: "pyarrow.Table", dictionaries: bool = True) -> "pyarrow.Table":
    """Rows of the reader with the types of a dataset."""
    import pyarrow

    def typed(column: "pyarrow.ChunkedArray", kind: "pyarrow.DataType") -> "pyarrow.ChunkedArray":
        if pyarrow.types.is_floating(kind):
            return pyarrow.chunked_array([chunk.view(kind) for chunk in column.chunks], kind)
        return column if column.type == kind else column.cast(kind)

    target = schema.arrow(table, dictionaries)
    return pyarrow.table([typed(rows.column(field.name), field.type) for field in target], schema=target)


def _empty(table: str) -> "pyarrow.Table":
    import pyarrow

    number = pyarrow.field("recording", pyarrow.int64())
    fields = [field.with_type(pyarrow.int64()) if pyarrow.types.is_floating(field.type) else field for field in schema.arrow(table)]
    return pyarrow.schema([number, *fields]).empty_table()


class _File:
    """A table's file, which begins with its first row group."""

    def __init__(self, table: str, commit: dataset.Commit) -> None:
        self.table, self._commit = table, commit
        self._open = contextlib.ExitStack()
        self._writer: Any = None
        self._rows = 0

    def write(self, rows: "pyarrow.Table") -> None:
        """Writes a row group."""
        if self._writer is None:
            self._writer = self._open.enter_context(dataset.parquet_writer(self._commit.new_file(self.table), self.table))
        self._writer.write_table(_typed(self.table, rows), row_group_size=rows.num_rows)
        self._rows += rows.num_rows
        if self._rows >= dataset.FILE_ROWS:
            self.close()

    def close(self, *error: Any) -> None:
        """Ends the file. With an error, deletes it."""
        self._open.__exit__(*(error or (None, None, None)))
        self._writer, self._rows = None, 0


class _Written(NamedTuple):
    """What was written of some recordings."""

    allocations: int
    summaries: Dict[str, "pyarrow.Table"]
    failed: Dict[int, str]


class _Thread:
    """Writes the detail of some recordings, and keeps their summaries."""

    def __init__(self, rows: _reader.DatasetRows, most: Dict[str, int], commit: dataset.Commit) -> None:
        self._rows, self._most = rows, most
        self._files = {table: _File(table, commit) for table in schema.DETAIL}
        self._count = 0

    def write(self, heads: Sequence[_Head], stopped: threading.Event) -> _Written:
        """Writes these recordings. The others are written if one fails."""
        failed = {}
        try:
            with contextlib.ExitStack() as closing:
                for file in self._files.values():
                    closing.push(file.close)
                for head in heads:
                    # Another thread has an error that ends the export.
                    if stopped.is_set():
                        break
                    try:
                        self._add(head)
                    except (_reader.ReadError, OSError) as error:
                        failed[head.number] = str(error)
                    self._flush(self._most)
                self._flush(dict.fromkeys(self._most, 1))
        except BaseException:
            stopped.set()
            raise
        return _Written(self._count, {name: self._rows.take(name) for name in schema.SUMMARY if self._rows.rows(name)}, failed)

    def _add(self, head: _Head) -> None:
        with _reader.Trace(head.path, native_names=False) as trace:
            self._rows.add_summary(trace, head.number)
            while not self._rows.add_detail(trace):
                self._flush({**self._most, "allocations": 1})

    def _flush(self, fewest: Dict[str, int]) -> None:
        """Writes the tables that have so many rows."""
        for table, file in self._files.items():
            found = self._rows.rows(table)
            if found >= max(1, fewest[table]):
                self._count += found if table == "allocations" else 0
                file.write(self._rows.take(table))


def _write(commit: dataset.Commit, heads: Sequence[_Head]) -> List[_Written]:
    """Writes recordings in their order, each thread a slice of them."""
    slices = _slices(heads)
    most = dict.fromkeys(schema.DETAIL, min(dataset.GROUP_ROWS, _OPEN_ROWS // len(slices)))
    most["stacks"] = _STACK_ROWS
    first = _reader.DatasetRows(most["allocations"])
    rows_of = [first, *(_reader.DatasetRows(most["allocations"], beside=first) for _ in slices[1:])]
    stopped = threading.Event()
    with concurrent.futures.ThreadPoolExecutor(len(slices)) as pool:
        return list(pool.map(lambda own, rows: _Thread(rows, most, commit).write(own, stopped), slices, rows_of))


def export(
    paths: Sequence[str], root: pathlib.Path, run: Optional[str] = None, progress: Callable[[str], None] = lambda text: None
) -> Tuple[int, int, List[str]]:
    """Writes recordings into a dataset. Returns the numbers of ranks and allocations, and a line for each that was left out.

    `run` replaces the recordings' own name. Recordings of one name are one run.
    """
    need("pyarrow", "pyarrow", "a dataset")
    files = recordings_in(paths)
    _files.make_directories(root)
    runs, problems = _runs_of(files)
    if run is not None:
        runs = {dataset.name_of_run(run): sorted(head for heads in runs.values() for head in heads)} if runs else {}
    ranks = allocations = 0
    for name, heads in sorted(runs.items()):
        progress(f"run {name}: {len(heads)} recordings")
        with dataset.Commit(root, name) as commit:
            written = _write(commit, heads)
            failed = {number: why for part in written for number, why in part.failed.items()}
            problems += [f"left out: {why}" for why in failed.values()]
            tables = _summaries([part.summaries for part in written], {head.number for head in heads} - set(failed))
            ids = summaries.ids_of(tables)
            if not ids:
                continue
            allocations += sum(part.allocations for part in written)
            dataset.write_tables(commit, tables)
            commit.commit("export", ids, _replaced(root, name, ids))
        # The export has the rows of these ranks now.
        summaries.write(root, name, summaries.together([]))
        ranks += len(ids)
    return ranks, allocations, problems


def _replaced(root: pathlib.Path, run: str, ids: Set[dataset.RankId]) -> List[dataset.Manifest]:
    """The exports of these ranks. An export with other ranks, too, cannot be replaced."""
    found = [one for one in dataset.manifests(root) if (one.run, one.kind) == (run, "export") and one.ranks & ids]
    for old in found:
        if old.ranks - ids:
            raise FleetError(
                f"{root}: run {run} was exported together with {len(old.ranks - ids)} other ranks; export all of its "
                "recordings at once"
            )
    return found
