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


class _Summaries:
    """The summaries of recordings. A column `recording` has the number of a recording."""

    def __init__(self, tables: Dict[str, "pyarrow.Table"]) -> None:
        self._tables = tables

    def runs(self) -> Dict[str, List[int]]:
        """The numbers of each run's recordings."""
        found: Dict[str, List[int]] = {}
        rows = self._tables["recordings"]
        for number, run in zip(rows.column("recording").to_pylist(), rows.column("run").to_pylist()):
            found.setdefault(dataset.name_of_run(run or "run"), []).append(number)
        return found

    def first_ranks(self) -> Dict[int, int]:
        """The lowest rank of each recording."""
        rows = self._tables["ranks"].select(["recording", "rank"]).group_by("recording").aggregate([("rank", "min")])
        return dict(zip(rows.column("recording").to_pylist(), rows.column("rank_min").to_pylist()))

    def of(self, numbers: Iterable[int]) -> dataset.Tables:
        """The rows of these recordings, as `summaries.tables_of` makes them."""
        import pyarrow
        import pyarrow.compute as compute

        wanted = pyarrow.array(sorted(numbers), pyarrow.int64())
        made = {}
        for table in schema.SUMMARY:
            rows = self._tables[table]
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


def _summaries_of(paths: Sequence[pathlib.Path]) -> Tuple[_Summaries, List[str]]:
    """The summaries of recordings, by the numbers of `paths`, and a line for each that was left out."""
    import pyarrow

    def read(numbers: Sequence[int]) -> Tuple[Dict[str, "pyarrow.Table"], List[str]]:
        rows, problems = _reader.DatasetRows(dataset.GROUP_ROWS), []
        for number in numbers:
            try:
                with _reader.Trace(paths[number]) as trace:
                    rows.add_summary(trace, number)
            except (_reader.ReadError, OSError) as error:
                problems.append(f"left out: {error}")
        names = [name for name in ("recordings", *schema.SUMMARY) if rows.rows(name)]
        return {name: rows.take(name) for name in names}, problems

    slices = _slices(range(len(paths)))
    with concurrent.futures.ThreadPoolExecutor(len(slices)) as pool:
        found = list(pool.map(read, slices))
    # A table without rows has no columns.
    tables = {table: _empty(table) for table in schema.SUMMARY}
    tables["recordings"] = pyarrow.table({"recording": pyarrow.array([], pyarrow.int64()), "run": pyarrow.array([], pyarrow.string())})
    for name in tables:
        parts = [own[name] for own, _ in found if name in own]
        if parts:
            tables[name] = pyarrow.concat_tables(parts).unify_dictionaries()
    return _Summaries(tables), [problem for _, problems in found for problem in problems]


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
    failed: Dict[int, str]


def _write(commit: dataset.Commit, paths: Dict[int, pathlib.Path]) -> _Written:
    """Writes the detail of recordings in their order. The others are written if one fails."""
    slices = _slices(list(paths.items()))
    most = dict.fromkeys(schema.DETAIL, min(dataset.GROUP_ROWS, _OPEN_ROWS // len(slices)))
    most["stacks"] = _STACK_ROWS
    first = _reader.DatasetRows(most["allocations"])
    rows_of = [first, *(_reader.DatasetRows(most["allocations"], beside=first) for _ in slices[1:])]
    stopped = threading.Event()

    def write(own: Sequence[Tuple[int, pathlib.Path]], rows: _reader.DatasetRows) -> _Written:
        files = {table: _File(table, commit) for table in schema.DETAIL}
        failed, count = {}, 0

        def flush(fewest: Dict[str, int]) -> None:
            nonlocal count
            for table, file in files.items():
                found = rows.rows(table)
                if found >= max(1, fewest[table]):
                    count += found if table == "allocations" else 0
                    file.write(rows.take(table))

        with contextlib.ExitStack() as closing:
            for file in files.values():
                closing.push(file.close)
            for number, path in own:
                # Another thread has an error that ends the export.
                if stopped.is_set():
                    break
                try:
                    with _reader.Trace(path, native_names=False) as trace:
                        while not rows.add_detail(trace):
                            flush({**most, "allocations": 1})
                except _reader.ReadError as error:
                    failed[number] = str(error)
                flush(most)
            flush(dict.fromkeys(most, 1))
        return _Written(count, failed)

    def guarded(own: Sequence[Tuple[int, pathlib.Path]], rows: _reader.DatasetRows) -> _Written:
        try:
            return write(own, rows)
        except BaseException:
            stopped.set()
            raise

    with concurrent.futures.ThreadPoolExecutor(len(slices)) as pool:
        parts = list(pool.map(guarded, slices, rows_of))
    return _Written(sum(part.allocations for part in parts), {number: why for part in parts for number, why in part.failed.items()})


def export(
    paths: Sequence[str], root: pathlib.Path, run: Optional[str] = None, progress: Callable[[str], None] = lambda text: None
) -> Tuple[int, int, List[str]]:
    """Writes recordings into a dataset. Returns the numbers of ranks and allocations, and a line for each that was left out.

    `run` replaces the recordings' own name. Recordings of one name are one run.
    """
    need("pyarrow", "pyarrow", "a dataset")
    files = recordings_in(paths)
    _files.make_directories(root)
    found, problems = _summaries_of(files)
    runs, first_ranks = found.runs(), found.first_ranks()
    if run is not None:
        runs = {dataset.name_of_run(run): [number for numbers in runs.values() for number in numbers]} if runs else {}
    ranks = allocations = 0
    for name, numbers in sorted(runs.items()):
        progress(f"run {name}: {len(numbers)} recordings")
        tables = found.of(numbers)
        _replaced(root, name, summaries.ids_of(tables))
        with dataset.Commit(root, name) as commit:
            order = sorted(numbers, key=lambda number: (first_ranks.get(number, -1), files[number]))
            written = _write(commit, {number: files[number] for number in order})
            allocations += written.allocations
            if written.failed:
                problems += [f"left out: {why}" for why in written.failed.values()]
                tables = found.of(set(numbers) - set(written.failed))
            ids = summaries.ids_of(tables)
            if not ids:
                continue
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
