# SPDX-License-Identifier: Apache-2.0
"""Reads the summaries that ``vramscope run --summary DIR`` leaves, and compacts them into tables."""

from __future__ import annotations

import json
import pathlib
from typing import Any, Dict, List, Tuple

from .. import _files
from . import dataset, schema
from .errors import FleetError

SCHEMA = "vramscope.summary/"
VERSION = 1
ENDING = ".summary.json"

#: The rows of each table.
Rows = Dict[str, List[Dict[str, Any]]]


def no_rows() -> Rows:
    """Empty tables."""
    return {table: [] for table in schema.SUMMARY}


def rows_of(summary: Dict[str, Any], where: str) -> Rows:
    """The rows of a summary, with the computed columns. Raises FleetError if it is not one of this version."""
    text = summary.get("schema", "") if isinstance(summary, dict) else ""
    if not isinstance(text, str) or not text.startswith(SCHEMA):
        raise FleetError(f"{where}: not a summary of vramscope")
    if text != f"{SCHEMA}{VERSION}":
        raise FleetError(f"{where}: a summary of another version, {text}; this vramscope reads {SCHEMA}{VERSION}")
    rows = no_rows()
    for table in schema.SUMMARY:
        found = summary.get(table, [])
        if not isinstance(found, list) or not all(isinstance(row, dict) for row in found):
            raise FleetError(f"{where}: damaged: `{table}` is not a list of rows")
        rows[table] = found
    for rank in rows["ranks"]:
        if not {"rank", "host", "pid", "begin_wall_ns"} <= rank.keys():
            raise FleetError(f"{where}: damaged: a rank without rank, host, pid or begin_wall_ns")
        coordinates, rank["peers"] = schema.mesh_columns(rank.get("mesh", ""))
        for axis in schema.AXES:
            rank[f"mesh_{axis}"] = coordinates.get(axis)
    return rows


def read(path: pathlib.Path) -> Tuple[str, Rows]:
    """The run and the rows of a summary file. Raises FleetError for a file that is damaged or incomplete."""
    try:
        summary = json.loads(path.read_bytes().decode("utf-8", "replace"))
    except OSError as error:
        raise FleetError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise FleetError(f"{path}: damaged or incomplete ({error})") from error
    rows = rows_of(summary, str(path))
    return str(summary.get("run") or "run"), rows


def read_all(root: pathlib.Path) -> Tuple[Dict[str, Rows], List[pathlib.Path], List[str]]:
    """The rows of all summaries by run, the files that were read, and a line for each file that was left out."""
    runs: Dict[str, Rows] = {}
    files, problems = [], []
    for path in sorted(root.glob(f"[!_.]*{ENDING}")):
        try:
            run, rows = read(path)
        except FleetError as error:
            # A file that was renamed or compacted since the folder was listed has no problem.
            if path.exists():
                problems.append(f"left out: {error}")
            continue
        files.append(path)
        into = runs.setdefault(run, no_rows())
        for table, found in rows.items():
            into[table] += found
    return runs, files, problems


def without(rows: Rows, ids: "set[str]") -> Rows:
    """The rows of other ranks than these."""
    gone = {(rank["host"], rank["pid"], rank["rank"]) for rank in rows["ranks"] if dataset.rank_id(rank) in ids}
    hosts_left = {rank["host"] for rank in rows["ranks"] if dataset.rank_id(rank) not in ids}
    kept = no_rows()
    for table, found in rows.items():
        for row in found:
            # `growing` has no pid: its rows are those of a whole host.
            lost = row["host"] not in hosts_left if table == "growing" else (row["host"], row["pid"], row["rank"]) in gone
            if not lost:
                kept[table].append(row)
    return kept


def compact(root: pathlib.Path) -> Tuple[int, List[str]]:
    """Moves all summary files into one Parquet file a table and run.

    Returns the number of ranks, and a line for each file that was left out. Rows of the same ranks in an older
    compaction are replaced. A summary of ranks whose recordings were exported is dropped: the export has its rows.
    """
    import pyarrow.parquet

    runs, files, problems = read_all(root)
    count = 0
    for run, rows in sorted(runs.items()):
        old = [manifest for manifest in dataset.manifests(root) if manifest.run == run]
        exported = set().union(*(manifest.ranks for manifest in old if manifest.kind == "export"))
        rows = without(rows, exported)
        ids = {dataset.rank_id(rank) for rank in rows["ranks"]}
        if not ids:
            continue
        for manifest in old:
            # Those that were compacted before are written again, together with the new ones.
            if manifest.kind != "summary":
                continue
            before = no_rows()
            for name in sorted(manifest.files):
                table = name.split("/")[0]
                before[table] += pyarrow.parquet.ParquetFile(root / name).read().to_pylist()
            before = without(before, ids)
            for table, found in before.items():
                rows[table] += found
        ids = {dataset.rank_id(rank) for rank in rows["ranks"]}
        with dataset.Commit(root, run) as commit:
            for table, found in rows.items():
                found.sort(key=lambda row: (row["rank"], row["host"], row.get("iteration") or 0))
                dataset.write_rows(commit, table, found)
            commit.commit("summary", ids)
        count += len(ids)
    for path in files:
        _files.remove_file(path)
    return count, problems

