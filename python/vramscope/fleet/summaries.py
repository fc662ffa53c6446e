# SPDX-License-Identifier: Apache-2.0
"""Reads the summaries that ``vramscope run --summary DIR`` leaves, and compacts them into tables."""

from __future__ import annotations

import json
import os
import pathlib
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, NamedTuple, Set, Tuple

from .. import _files
from . import dataset, schema
from .errors import FleetError

if TYPE_CHECKING:
    import pyarrow

SCHEMA = "vramscope.summary/"
VERSION = 1
ENDING = ".summary.json"


def tables_of(summary: Any, where: str) -> dataset.Tables:
    """The tables of a summary, with the computed columns. Raises FleetError if it is not one of this version."""
    import pyarrow

    text = summary.get("schema") if isinstance(summary, dict) else None
    if not isinstance(text, str) or not text.startswith(SCHEMA):
        raise FleetError(f"{where}: not a summary of vramscope")
    if text != f"{SCHEMA}{VERSION}":
        raise FleetError(f"{where}: a summary of another version, {text}; this vramscope reads {SCHEMA}{VERSION}")
    made = {}
    for table in schema.SUMMARY:
        rows = summary.get(table, [])
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise FleetError(f"{where}: damaged: `{table}` is not a list of rows")
        try:
            if table == "ranks":
                rows = [{**row, **schema.mesh_columns(row.get("mesh") or "")} for row in rows]
            made[table] = dataset.table_of_rows(table, rows)
        except (pyarrow.ArrowException, AttributeError, OverflowError, TypeError) as error:
            raise FleetError(f"{where}: damaged: `{table}`: {str(error).splitlines()[0]}") from error
        for key in ("rank", "host", "pid", *(["begin_wall_ns"] if table == "ranks" else [])):
            if made[table].column(key).null_count:
                raise FleetError(f"{where}: damaged: a row of `{table}` has no {key}")
    return made


def run_of(summary: Dict[str, Any]) -> str:
    """The name of the run."""
    return dataset.name_of_run(str(summary.get("run") or "run"))


def read(path: pathlib.Path) -> Tuple[str, dataset.Tables]:
    """The run and the tables of a summary file. Raises FleetError for a file that is damaged or incomplete."""
    try:
        summary = json.loads(path.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise FleetError(f"{path}: damaged or incomplete ({error})") from error
    return (run_of(summary) if isinstance(summary, dict) else ""), tables_of(summary, str(path))


class Found(NamedTuple):
    """The summaries of a folder that are not compacted."""

    runs: Dict[str, dataset.Tables]
    files: List[Tuple[pathlib.Path, int]]  # and the inode that was read
    problems: List[str]  # a line for each file that was left out


def read_all(root: pathlib.Path) -> Found:
    """Reads all summary files of a folder."""
    parts: Dict[str, List[dataset.Tables]] = {}
    files: List[Tuple[pathlib.Path, int]] = []
    problems = []
    for path in sorted(root.glob(f"[!_.]*{ENDING}")):
        try:
            inode = path.stat().st_ino
            run, tables = read(path)
        except (OSError, FleetError) as error:
            # A file that was compacted since the folder was listed has no problem.
            if path.exists():
                problems.append(f"left out: {error}")
            continue
        files.append((path, inode))
        parts.setdefault(run, []).append(tables)
    return Found({run: together(found) for run, found in parts.items()}, files, problems)


def together(parts: Iterable[dataset.Tables]) -> dataset.Tables:
    """The rows of all of them."""
    import pyarrow

    found = list(parts)
    empty = {table: dataset.table_of_rows(table, []) for table in schema.SUMMARY}
    return {table: pyarrow.concat_tables([empty[table], *(tables[table] for tables in found)]) for table in empty}


def ids_of(tables: dataset.Tables) -> Set[dataset.RankId]:
    """The identities of the ranks."""
    return {identity for _, identity in _ranks_of(tables)}


def _ranks_of(tables: dataset.Tables) -> List[Tuple[str, dataset.RankId]]:
    """Of each rank the host and pid, which all tables have, and the identity."""
    columns = [tables["ranks"].column(name).to_pylist() for name in ("host", "pid", "begin_wall_ns")]
    return [(f"{host}/{pid}", f"{host}/{pid}/{begin}") for host, pid, begin in zip(*columns)]


def without(tables: dataset.Tables, ids: Set[dataset.RankId]) -> dataset.Tables:
    """The rows of other ranks than these."""
    import pyarrow
    import pyarrow.compute as compute

    gone = sorted({process for process, identity in _ranks_of(tables) if identity in ids})
    if not gone:
        return tables
    processes = pyarrow.array(gone, pyarrow.string())

    def kept(rows: "pyarrow.Table") -> "pyarrow.Table":
        process = compute.binary_join_element_wise(rows.column("host"), rows.column("pid").cast(pyarrow.string()), "/")
        return rows.filter(compute.invert(compute.is_in(process, value_set=processes)))

    return {table: kept(rows) for table, rows in tables.items()}


def merged(root: pathlib.Path, run: str, new: dataset.Tables) -> dataset.Tables:
    """All summaries of a run: the new ones, and the compacted ones of other ranks. Ranks whose recordings were exported are
    left out, because the export has their rows."""
    manifests = [one for one in dataset.manifests(root) if one.run == run]
    exported: Set[dataset.RankId] = set().union(*(one.ranks for one in manifests if one.kind == "export"))
    old = [dataset.read_tables(root, one.files) for one in manifests if one.kind == "summary"]
    return together([without(new, exported), *(without(tables, exported | ids_of(new)) for tables in old)])


def write(root: pathlib.Path, run: str, new: dataset.Tables) -> int:
    """Replaces the compacted summaries of a run by `merged()`. Returns the number of ranks."""
    tables = merged(root, run, new)
    old = [one for one in dataset.manifests(root) if one.run == run and one.kind == "summary"]
    ids = ids_of(tables)
    if ids:
        with dataset.Commit(root, run) as commit:
            dataset.write_tables(commit, tables)
            commit.commit("summary", ids, old)
    else:
        for manifest in old:
            dataset.remove(root, manifest, kept=set())
    return len(ids)


def compact(root: pathlib.Path) -> Tuple[int, List[str]]:
    """Moves all summary files into one Parquet file a table and run.

    Returns the number of ranks, and a line for each file that was left out.
    """
    found = read_all(root)
    count = sum(write(root, run, tables) for run, tables in sorted(found.runs.items()))
    for path, inode in found.files:
        # A newer summary of a rank that still runs stays.
        if os.path.exists(path) and path.stat().st_ino == inode:
            _files.remove_file(path)
    return count, found.problems
