# SPDX-License-Identifier: Apache-2.0
"""Writes a dataset: DIR/TABLE/run=NAME/FILE.parquet.

A file is written under a temporary name that readers skip, and renamed when all files are complete. A manifest in
DIR/_vramscope lists the files of an export and its ranks, so that a repeated export replaces its rows.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import json
import os
import pathlib
import re
import secrets
import urllib.parse
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from .. import _files
from . import schema
from .errors import FleetError, need

if TYPE_CHECKING:
    import pyarrow

MANIFESTS = "_vramscope"
# A row group: large enough for dictionaries, small enough to skip.
GROUP_ROWS = 1 << 20
# About 128 MiB of allocations.
FILE_ROWS = 8 << 20

# How the columns of large tables are encoded: times are sorted or nearly so, ids of a rank repeat, and few sizes,
# addresses and stacks occur.
_STEADY = ("rank", "pid", "device", "begin_ns", "end_ns", "time_ns", "alloc_ns")
_FEW_VALUES = ("bytes", "rounding_bytes", "address", "stack_id", "segment_id")
# Readers skip row groups by these. Minima of the others take a third of the time to write.
_STATISTICS = ("rank", "pid", "device", "host", "device_uuid", "begin_ns", "end_ns", "time_ns", "iteration", "bytes", "peak_bytes")

#: A rank's identity over all hosts and runs: host, pid and begin of its first event.
RankId = str
#: The tables of summaries, with plain strings.
Tables = Dict[str, "pyarrow.Table"]


def name_of_run(name: str) -> str:
    """A run's name begins with a letter, so that no reader takes its folder's for a number or a date."""
    return name if re.match(r"[A-Za-z]", name) else f"run-{name}"


def folder_of_run(run: str) -> str:
    """The partition's folder."""
    return "run=" + urllib.parse.quote(run, safe="")


def run_of_folder(folder: str) -> str:
    """The reverse of `folder_of_run`."""
    return urllib.parse.unquote(folder[len("run=") :])


def _key(ranks: Iterable[RankId]) -> str:
    return hashlib.blake2b("\n".join(sorted(ranks)).encode(), digest_size=6).hexdigest()


_FILE = re.compile(r"[a-z]+/run=[^/]+/[0-9a-f]+-\d+\.parquet")


class Manifest(NamedTuple):
    """An export of some ranks of a run."""

    path: pathlib.Path
    run: str
    kind: str  # "export" or "summary"
    ranks: Set[RankId]
    files: Set[str]  # relative to the dataset


def manifests(root: pathlib.Path) -> List[Manifest]:
    """All manifests of a dataset, in the order of their names."""
    found = []
    for path in sorted((root / MANIFESTS).glob("*.json")):
        try:
            entry = json.loads(path.read_text(encoding="utf-8"))
            # These files may be deleted.
            if not all(_FILE.fullmatch(name) for name in entry["files"]):
                raise ValueError("a file outside of the dataset")
            found.append(Manifest(path, entry["run"], entry["kind"], set(entry["ranks"]), set(entry["files"])))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FleetError(f"{path}: not a manifest of this dataset ({error}); delete it and export its run again") from error
    return found


class Commit:
    """Files that appear together. Used as a context: without `commit()`, the temporary files are deleted."""

    def __init__(self, root: pathlib.Path, run: str) -> None:
        self.root, self.run = root, run
        self._files: List[Tuple[pathlib.Path, str]] = []  # temporary, and table

    def __enter__(self) -> "Commit":
        return self

    def __exit__(self, *error: object) -> None:
        for temporary, _ in self._files:
            _files.remove_file(temporary)

    def new_file(self, table: str) -> pathlib.Path:
        """The temporary path of a file. Spark skips names with `_`, and DuckDB names that do not end in .parquet."""
        folder = self.root / table / folder_of_run(self.run)
        _files.make_directories(folder)
        path = folder / f"_{secrets.token_hex(8)}.tmp"
        self._files.append((path, table))
        return path

    def add(self, path: pathlib.Path, table: str) -> None:
        """Takes over a temporary file that another process wrote."""
        self._files.append((path, table))

    def release(self) -> List[Tuple[pathlib.Path, str]]:
        """Gives the temporary files to the caller, who passes them to `add()` of another commit."""
        files, self._files = self._files, []
        return files

    def commit(self, kind: str, ranks: Set[RankId], replaced: Sequence[Manifest]) -> None:
        """Renames the files, and deletes those of the manifests that they replace."""
        key = _key(ranks)
        names: List[str] = []
        numbers: Dict[str, int] = {}
        for _, table in self._files:
            number = numbers.setdefault(table, 0)
            numbers[table] += 1
            names.append(f"{table}/{folder_of_run(self.run)}/{key}-{number:05d}.parquet")
        entry = {"run": self.run, "kind": kind, "ranks": sorted(ranks), "files": names}
        # The manifest comes first: after a crash the next export of these ranks knows the files to replace.
        _files.make_directories(self.root / MANIFESTS)
        own = self.root / MANIFESTS / f"{key}-{kind}.json"
        _files.write_whole(own, json.dumps(entry, indent=1))
        for (temporary, _), name in zip(self.release(), names):
            _files.replace(temporary, self.root / name)
        for old in replaced:
            remove(self.root, old, kept={*names, own.name})


def remove(root: pathlib.Path, manifest: Manifest, kept: Set[str]) -> None:
    """Deletes a manifest and its files, but those that are kept."""
    for name in manifest.files - kept:
        _files.remove_file(root / name)
    if manifest.path.name not in kept:
        _files.remove_file(manifest.path)


def _large_pages(writer: Any) -> Dict[str, int]:
    """The option of pyarrow that limits a page by its bytes alone, as earlier versions do. Rows of one rank repeat, so that
    large pages take half of the bytes."""
    name = "max_rows_per_page"
    return {name: GROUP_ROWS} if name in inspect.signature(writer).parameters else {}


@contextlib.contextmanager
def parquet_writer(path: pathlib.Path, table: str) -> Iterator[Any]:
    """A pyarrow.parquet.ParquetWriter for a table's file. An error deletes the file."""
    parquet = need("pyarrow.parquet", "pyarrow", "writing Parquet")
    columns = {column.name: column.type for column in schema.TABLES[table]}
    texts = [name for name, kind in columns.items() if kind == "string"]
    writer = parquet.ParquetWriter(
        path,
        schema.arrow(table),
        compression="zstd",
        compression_level=1,
        use_dictionary=[*texts, *(name for name in _FEW_VALUES if name in columns)],
        column_encoding={name: "DELTA_BINARY_PACKED" for name in _STEADY if name in columns},
        dictionary_pagesize_limit=16 << 20,
        write_statistics=[name for name in _STATISTICS if name in columns],
        **_large_pages(parquet.ParquetWriter),
    )
    try:
        yield writer
    except BaseException:
        # A closed file is a valid file with too few rows.
        writer.close()
        _files.remove_file(path)
        raise
    writer.close()


def table_of_rows(table: str, rows: List[Dict[str, Any]]) -> "pyarrow.Table":
    """Rows as a table with plain strings. A missing value is null; keys that are no columns are left out."""
    import pyarrow

    plain = schema.arrow(table, dictionaries=False)
    return pyarrow.table([pyarrow.array([row.get(field.name) for row in rows], field.type) for field in plain], schema=plain)


def write_tables(commit: Commit, tables: Tables) -> None:
    """Writes the tables of summaries, a file each, sorted by rank and iteration."""
    for table, rows in tables.items():
        keys = [name for name in ("rank", "host", "pid", "iteration") if name in rows.column_names]
        rows = rows.sort_by([(name, "ascending") for name in keys]).combine_chunks().cast(schema.arrow(table))
        path = commit.new_file(table)
        with parquet_writer(path, table) as writer:
            writer.write_table(rows, row_group_size=GROUP_ROWS)


def read_tables(root: pathlib.Path, names: Iterable[str]) -> Tables:
    """The tables of summaries in these files. A file that is gone is left out: its export was interrupted."""
    import pyarrow
    import pyarrow.parquet

    found: Dict[str, List[Any]] = {table: [table_of_rows(table, [])] for table in schema.SUMMARY}
    for name in sorted(names):
        table = name.split("/")[0]
        if table in found and (root / name).exists():
            rows = pyarrow.parquet.ParquetFile(root / name).read()
            target = schema.arrow(table, dictionaries=False)
            # A file of an earlier version has fewer columns.
            for field in target:
                if field.name not in rows.column_names:
                    rows = rows.append_column(field, pyarrow.nulls(rows.num_rows, field.type))
            found[table].append(rows.select(target.names).cast(target))
    return {table: pyarrow.concat_tables(parts) for table, parts in found.items()}


def files_of(root: pathlib.Path, table: str, run: Optional[str] = None) -> List[pathlib.Path]:
    """The files of a table. Raises FleetError for one without Parquet's marks at its ends."""
    folder = "run=*" if run is None else folder_of_run(run)
    found = sorted(root.glob(f"{table}/{folder}/[!_.]*.parquet"))
    for path in found:
        with path.open("rb") as file:
            head = file.read(4)
            file.seek(0, os.SEEK_END)
            whole = file.tell() >= 12
            if whole:
                file.seek(-4, os.SEEK_END)
            if head != b"PAR1" or not whole or file.read(4) != b"PAR1":
                raise FleetError(f"{path}: a damaged Parquet file; delete it and export its run again")
    return found


def runs_of(root: pathlib.Path) -> List[str]:
    """The runs of a dataset."""
    return sorted({run_of_folder(path.name) for path in root.glob("ranks/run=*")})
