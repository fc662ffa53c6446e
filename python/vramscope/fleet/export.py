# SPDX-License-Identifier: Apache-2.0
"""Whole recordings as a dataset: ``vramscope export --to parquet FILE|FOLDER... -o DIR``."""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import multiprocessing
import os
import pathlib
import subprocess
from typing import TYPE_CHECKING, Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from .. import _files, _paths, _reader
from . import dataset, schema, summaries
from .errors import FleetError, need, without_pandas

if TYPE_CHECKING:
    import pyarrow

_NEVER = (1 << 63) - 1
_MASK = (1 << 63) - 1
# Columns that are not text and depend on the site.
_OF_SITE = ("rank", "pid", "device", "backing", "unbacked")
# A worker process costs as much as a few small recordings.
_FEWEST_FOR_WORKERS = 8
_MOST_WORKERS = 8


def _hash(text: str) -> int:
    """A positive int64."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest(), "little") & _MASK


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


def summary_of(path: pathlib.Path) -> Tuple[str, dataset.Tables]:
    """The summary of a recording: its run, and its tables."""
    words = [os.fspath(_paths.program()), "export", "--to", "summary", os.fspath(path)]
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode != 0:
        raise FleetError(done.stderr.decode("utf-8", "replace").strip().removeprefix("vramscope: ") or f"{path}: no summary")
    summary = json.loads(done.stdout.decode("utf-8", "replace"))
    return summaries.run_of(summary), summaries.tables_of(summary, os.fspath(path))


class _Texts:
    """The dictionary of a column: strings in the order of their numbers."""

    def __init__(self) -> None:
        self.numbers: Dict[str, int] = {}

    def number(self, text: Optional[str]) -> Optional[int]:
        if not text:
            return None
        return self.numbers.setdefault(text, len(self.numbers))


class _Sink:
    """Collects batches of a table and writes them as row groups of `dataset.GROUP_ROWS`."""

    def __init__(self, table: str, new_file: Callable[[str], pathlib.Path]) -> None:
        self.table, self._new_file = table, new_file
        self.columns = schema.TABLES[table]
        self.texts = {column.name: _Texts() for column in self.columns if column.type == "string"}
        self._batches: List["pyarrow.RecordBatch"] = []
        self._rows = self._file_rows = 0
        self._open: Any = None
        self._writer: Any = None

    def add(self, arrays: Dict[str, "pyarrow.Array"]) -> None:
        """Adds rows. A text column has int32 numbers of `texts`."""
        import pyarrow

        batch = pyarrow.record_batch([arrays[column.name] for column in self.columns], [column.name for column in self.columns])
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= dataset.GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        import pyarrow

        if not self._rows:
            return
        if self._writer is None:
            self._open = dataset.parquet_writer(self._new_file(self.table), self.table)
            self._writer = self._open.__enter__()
        table = pyarrow.Table.from_batches(self._batches).combine_chunks()
        columns = []
        for column in self.columns:
            array = table.column(column.name).combine_chunks()
            if column.type == "string":
                words = pyarrow.array(list(self.texts[column.name].numbers) or [""], pyarrow.string())
                array = pyarrow.DictionaryArray.from_arrays(array, words)
            columns.append(array)
        self._writer.write_table(pyarrow.table(columns, schema=schema.arrow(self.table)), row_group_size=dataset.GROUP_ROWS)
        self._file_rows += self._rows
        self._batches, self._rows = [], 0
        if self._file_rows >= dataset.FILE_ROWS:
            self.close()

    def close(self) -> None:
        """Writes what is left."""
        self._flush()
        if self._writer is not None:
            self._open.__exit__(None, None, None)
        self._writer, self._file_rows = None, 0
        for texts in self.texts.values():
            texts.numbers.clear()

    def abandon(self) -> None:
        """Ends without a whole file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


class _Attributes:
    """The columns of a recording that depend on the site alone, as Arrow arrays by site number."""

    def __init__(self, trace: _reader.Trace) -> None:
        def of(name: str) -> Dict[str, "pyarrow.Array"]:
            table = trace.table(name).arrow()
            return {column: table.column(column).combine_chunks() for column in table.column_names}

        self._sites, accounts, devices, processes = of("sites"), of("accounts"), of("devices"), of("processes")
        hosts = of("hosts")["name"].to_pylist()
        self._words: Dict[str, Dict[int, str]] = {}
        for row in trace.table("words").arrow().to_pylist():
            self._words.setdefault(row["column"], {})[row["number"]] = row["word"]
        host_of_device = devices["host"].to_pylist()
        indices, uuids = devices["index"].to_pylist(), devices["uuid"].to_pylist()
        self.devices = [
            {"host": hosts[host], "device": index, "device_uuid": uuid} for host, index, uuid in zip(host_of_device, indices, uuids)
        ]
        ranks, pids, host_of = processes["rank"].to_pylist(), processes["pid"].to_pylist(), processes["host"].to_pylist()
        self.accounts: List[Dict[str, Any]] = [
            {
                "rank": ranks[process] if process else -1,
                "host": hosts[host_of[process] if process else host_of_device[device]],
                "pid": pids[process],
                "device": indices[device],
            }
            for process, device in zip(accounts["process"].to_pylist(), accounts["device"].to_pylist())
        ]
        frames = of("frames")
        self._library = frames["library"].to_pylist()
        self._frame_columns = [frames[name].to_pylist() for name in ("function", "file", "line", "image", "pc")]
        stacks = of("stacks")
        self._parent, self._frame = stacks["parent"].to_pylist(), stacks["frame"].to_pylist()
        self._texts: Dict[int, str] = {}

    def integers(self, column: schema.Column) -> "pyarrow.Array":
        """A column that is not text."""
        import pyarrow
        import pyarrow.compute as compute

        if column.type == "bool":
            return compute.not_equal(self._sites[column.name], 0)
        values = pyarrow.array([account[column.name] for account in self.accounts], pyarrow.int64())
        return values.take(self._sites["account"])

    def texts(self, name: str, texts: _Texts) -> "pyarrow.Array":
        """A column of text, as numbers of `texts`."""
        import pyarrow

        if name == "host":
            return self._numbers([account["host"] for account in self.accounts], texts).take(self._sites["account"])
        if name in self._words:
            words = self._words[name]
            known = [words.get(number, "unknown") for number in range(max(words) + 1)]
            return self._numbers(known, texts).take(self._sites[name].cast(pyarrow.int64()))
        if name == "line":
            return self.by_stack(self._sites["place"], lambda stacks: self._numbers([self._line_of(stack) for stack in stacks], texts))
        column = self._sites[name]
        return self._numbers(column.dictionary.to_pylist(), texts).take(column.indices)

    def stack_ids(self, of: Callable[[int], Optional[int]]) -> "pyarrow.Array":
        """The ids of the Python stacks, or of the native ones if there is no Python."""
        import pyarrow
        import pyarrow.compute as compute

        own = self._sites["stack"]
        stack = compute.if_else(compute.not_equal(own, 0), own, self._sites["native_stack"])
        return self.by_stack(stack, lambda stacks: pyarrow.array([of(stack) for stack in stacks], pyarrow.int64()))

    @staticmethod
    def by_stack(stack: "pyarrow.Array", of: Callable[[List[int]], "pyarrow.Array"]) -> "pyarrow.Array":
        """A column of the stacks' values, each computed once."""
        encoded = stack.dictionary_encode()
        return of(encoded.dictionary.to_pylist()).take(encoded.indices)

    @staticmethod
    def _numbers(values: Sequence[Optional[str]], texts: _Texts) -> "pyarrow.Array":
        import pyarrow

        return pyarrow.array([texts.number(value) for value in values], pyarrow.int32())

    def _frame_text(self, frame: int) -> str:
        text = self._texts.get(frame)
        if text is None:
            function, file, line, image, pc = [column[frame] for column in self._frame_columns]
            if line:
                text = f"{file.rsplit('/', 1)[-1]}:{line}" + (f" in {function}" if function else "")
            else:
                text = f"{function or hex(pc)} ({image.rsplit('/', 1)[-1]})"
            self._texts[frame] = text
        return text

    def _line_of(self, stack: int) -> str:
        """The innermost frame of the user's code, or the innermost of all."""
        innermost = stack
        while stack:
            if not self._library[self._frame[stack]]:
                return self._frame_text(self._frame[stack])
            stack = self._parent[stack]
        return self._frame_text(self._frame[innermost]) if innermost else ""

    def stack_id(self, stack: int, ids: Dict[int, int]) -> int:
        """A hash of the frames, so that equal stacks of all ranks have equal ids. `ids` has those of this recording."""
        open_stacks = []
        while stack and stack not in ids:
            open_stacks.append(stack)
            stack = self._parent[stack]
        known = ids[stack] if stack else 0
        for stack in reversed(open_stacks):
            known = ids[stack] = _hash(f"{known:x} {self._frame_text(self._frame[stack])}")
        return known

    def stack_text(self, stack: int) -> str:
        """The frames, outermost first, one a line."""
        frames = []
        while stack:
            frames.append(self._frame_text(self._frame[stack]))
            stack = self._parent[stack]
        return "\n".join(reversed(frames))


class _Part:
    """The part of an export that one process writes."""

    def __init__(self, root: pathlib.Path, run: str) -> None:
        self.commit = dataset.Commit(root, run)
        self.sinks = {table: _Sink(table, self.commit.new_file) for table in schema.DETAIL}
        self._stacks: set[int] = set()

    def add(self, path: pathlib.Path) -> int:
        """Adds a recording; returns the number of its allocations."""

        with _reader.Trace(path, native_names=False) as trace:
            of = _Attributes(trace)
            identity = _hash(f"{of.accounts}{trace.table('session').arrow().to_pylist()}")
            ids: Dict[int, int] = {}

            def by_site(table: str) -> Dict[str, "pyarrow.Array"]:
                sink = self.sinks[table]
                made = {name: of.texts(name, texts) for name, texts in sink.texts.items()}
                for column in sink.columns:
                    if column.name in _OF_SITE:
                        made[column.name] = of.integers(column)
                    elif column.name == "stack_id":
                        made[column.name] = of.stack_ids(lambda stack: self._stack(of, stack, ids))
                return made

            count = self._allocations(trace, by_site, identity)
            self._deltas(trace, by_site, identity)
            self._samples(trace, of)
        return count

    def _stack(self, of: _Attributes, stack: int, ids: Dict[int, int]) -> Optional[int]:
        import pyarrow

        if not stack:
            return None
        number = of.stack_id(stack, ids)
        if number not in self._stacks:
            self._stacks.add(number)
            sink = self.sinks["stacks"]
            text = pyarrow.array([sink.texts["stack"].number(of.stack_text(stack))], pyarrow.int32())
            sink.add({"stack_id": pyarrow.array([number], pyarrow.int64()), "stack": text})
        return number

    def _allocations(self, trace: _reader.Trace, by_site: Callable[..., Any], identity: int) -> int:
        import pyarrow
        import pyarrow.compute as compute

        sink, count = self.sinks["allocations"], 0
        batches: List["pyarrow.RecordBatch"] = []

        def flush() -> None:
            nonlocal batches
            if not batches:
                return
            # Numbers of texts are those of the open file: a new file has new ones.
            attributes = by_site("allocations")
            rows = pyarrow.Table.from_batches(batches).combine_chunks()
            batches = []
            site = rows.column("site").combine_chunks()
            rank = attributes["rank"].take(site)
            order = compute.sort_indices(
                pyarrow.table([rank, rows.column("begin_ns")], ["rank", "begin_ns"]),
                sort_keys=[("rank", "ascending"), ("begin_ns", "ascending")],
            )
            site = site.take(order)
            made = {name: array.take(site) for name, array in attributes.items()}
            for name in ("begin_ns", "end_ns", "alloc_ns", "address", "bytes", "rounding_bytes", "segment"):
                column = rows.column(name).combine_chunks().take(order)
                made[name] = column.cast(pyarrow.int64(), safe=False)
            made["end_ns"] = compute.if_else(compute.equal(made["end_ns"], _NEVER), None, made["end_ns"])
            made["segment_id"] = _segment_ids(made["segment"], identity)
            sink.add(made)

        if len(trace.table("allocations")) > dataset.GROUP_ROWS:
            # Rows of a damaged recording must not be in a file: read all of them before the first is written.
            for _ in pyarrow.RecordBatchReader.from_stream(trace.table("allocations")):
                pass
        pending = 0
        for batch in pyarrow.RecordBatchReader.from_stream(trace.table("allocations")):
            batches.append(batch)
            pending += batch.num_rows
            count += batch.num_rows
            if pending >= dataset.GROUP_ROWS:
                flush()
                pending = 0
        flush()
        return count

    def _deltas(self, trace: _reader.Trace, by_site: Callable[..., Any], identity: int) -> None:
        counters, steps = trace.table("counters").arrow(), trace.table("steps").arrow()
        if not steps.num_rows:
            return
        counter = steps.column("counter").combine_chunks()
        site = counters.column("site").combine_chunks().take(counter)
        made = {name: array.take(site) for name, array in by_site("deltas").items()}
        made["time_ns"] = steps.column("time_ns").combine_chunks()
        made["bytes"] = steps.column("bytes").combine_chunks()
        made["segment_id"] = _segment_ids(counters.column("segment").combine_chunks().take(counter), identity)
        self.sinks["deltas"].add(made)

    def _samples(self, trace: _reader.Trace, of: _Attributes) -> None:
        import pyarrow

        rows, sink = trace.table("samples").arrow(), self.sinks["samples"]
        if not rows.num_rows:
            return
        device = rows.column("device").combine_chunks()
        made = {}
        for name in ("host", "device", "device_uuid"):
            values = [entry[name] for entry in of.devices]
            if name in sink.texts:
                array = pyarrow.array([sink.texts[name].number(value) for value in values], pyarrow.int32())
            else:
                array = pyarrow.array(values, pyarrow.int64())
            made[name] = array.take(device)
        for name in ("time_ns", "used_bytes", "ledger_bytes"):
            made[name] = rows.column(name).combine_chunks().cast(pyarrow.int64(), safe=False)
        sink.add(made)


def _segment_ids(segment: "pyarrow.Array", identity: int) -> "pyarrow.Array":
    """Numbers that are unique over all recordings; null for row 0."""
    import pyarrow
    import pyarrow.compute as compute

    # Half of the range, so that the sum stays below 2^63.
    ids = compute.add(compute.cast(segment, pyarrow.int64()), identity >> 1)
    return compute.if_else(compute.equal(segment, 0), None, ids)


class _Written(NamedTuple):
    """What a process wrote."""

    files: List[Tuple[pathlib.Path, str]]
    failed: Dict[pathlib.Path, str]
    allocations: int


def _write(root: pathlib.Path, run: str, paths: Sequence[pathlib.Path]) -> _Written:
    """Writes the detail of recordings. One that fails has its error in `failed`, and the others are written."""
    without_pandas()
    part = _Part(root, run)
    failed: Dict[pathlib.Path, str] = {}
    count = 0
    with part.commit:
        try:
            for path in paths:
                try:
                    count += part.add(path)
                except (_reader.ReadError, OSError) as error:
                    failed[path] = str(error)
            for sink in part.sinks.values():
                sink.close()
        except BaseException:
            for sink in part.sinks.values():
                sink.abandon()
            raise
        return _Written(part.commit.release(), failed, count)


def _summaries_of(paths: Sequence[pathlib.Path]) -> Tuple[Dict[str, Dict[pathlib.Path, dataset.Tables]], List[str]]:
    """The tables of each recording by run, and a line for each that was left out."""
    runs: Dict[str, Dict[pathlib.Path, dataset.Tables]] = {}
    problems = []

    def one(path: pathlib.Path) -> Any:
        try:
            return summary_of(path)
        except FleetError as error:
            return error

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for path, found in zip(paths, pool.map(one, paths)):
            if isinstance(found, FleetError):
                problems.append(f"left out: {found}")
            else:
                runs.setdefault(found[0], {})[path] = found[1]
    return runs, problems


def export(
    paths: Sequence[str], root: pathlib.Path, run: Optional[str] = None, progress: Callable[[str], None] = lambda text: None
) -> Tuple[int, int, List[str]]:
    """Writes recordings into a dataset. Returns the numbers of ranks and allocations, and a line for each that was left out.

    `run` replaces the recordings' own name. Recordings of one name are one run.
    """
    need("pyarrow", "pyarrow", "a dataset")
    files = recordings_in(paths)
    _files.make_directories(root)
    runs, problems = _summaries_of(files)
    if run is not None:
        runs = {dataset.name_of_run(run): {path: tables for found in runs.values() for path, tables in found.items()}}
    ranks = allocations = 0
    for name, entries in sorted(runs.items()):
        progress(f"run {name}: {len(entries)} recordings")
        _replaced(root, name, summaries.ids_of(summaries.together(entries.values())))
        with dataset.Commit(root, name) as commit:
            failed: Dict[pathlib.Path, str] = {}
            for written in _write_in_parallel(root, name, sorted(entries, key=lambda path: (_first_rank(entries[path]), path))):
                for path, table in written.files:
                    commit.add(path, table)
                failed.update(written.failed)
                allocations += written.allocations
            problems += [f"left out: {why}" for why in failed.values()]
            tables = summaries.together(own for path, own in entries.items() if path not in failed)
            ids = summaries.ids_of(tables)
            if not ids:
                continue
            dataset.write_tables(commit, tables)
            commit.commit("export", ids, _replaced(root, name, ids))
        # The export has the rows of these ranks now.
        summaries.write(root, name, summaries.together([]))
        ranks += len(ids)
    return ranks, allocations, problems


def _first_rank(tables: dataset.Tables) -> int:
    return min(tables["ranks"].column("rank").to_pylist(), default=-1)


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


def _write_in_parallel(root: pathlib.Path, run: str, paths: List[pathlib.Path]) -> List[_Written]:
    workers = min(os.cpu_count() or 1, _MOST_WORKERS, len(paths) // _FEWEST_FOR_WORKERS)
    if workers < 2:
        return [_write(root, run, paths)]
    # Neighbours stay together, so that a file has few ranks.
    slices = [paths[len(paths) * i // workers : len(paths) * (i + 1) // workers] for i in range(workers)]
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(workers, mp_context=context) as pool:
        return list(pool.map(_write, [root] * workers, [run] * workers, slices))
