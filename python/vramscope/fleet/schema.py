# SPDX-License-Identifier: Apache-2.0
"""The tables of a dataset. Integers are int64, because Spark has no unsigned types; text is dictionary-encoded UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, NamedTuple

if TYPE_CHECKING:
    import pyarrow


class Column(NamedTuple):
    name: str
    #: ``int64``, ``double``, ``bool`` or ``string``
    type: str
    meaning: str = ""


#: The axes of a mesh that have a column: data, tensor, pipeline, context and expert parallel.
AXES = ("dp", "tp", "pp", "cp", "ep")

#: Rows of a summary, from src/query/results.def: the fields of each object in `vramscope export --to summary`.
SUMMARY: Dict[str, List[Column]] = {
    # generated: Summary
    "ranks": [
        Column("rank", "int64", "-1: none"),
        Column("host", "string", "host name"),
        Column("pid", "int64"),
        Column("device", "int64", "NVML's number; -1: CPU tensors"),
        Column("device_uuid", "string", "empty: unknown"),
        Column("device_name", "string"),
        Column("program", "string", "`python train.py`, without arguments"),
        Column("mesh", "string", "`dp=0,tp=1`: its coordinates"),
        Column("local_rank", "int64", "among the processes of its node"),
        Column("group_rank", "int64", "number of its node"),
        Column("node", "string", "name of its node; `host` if only that is known"),
        Column("pod", "string", "Kubernetes' name or UID, or the id of the container; empty: unknown"),
        Column("version", "string", "the vramscope that recorded"),
        Column("begin_wall_ns", "int64", "its first event (CLOCK_REALTIME of its host)"),
        Column("end_wall_ns", "int64", "its last event"),
        Column("exit_status", "int64", "128 + N after signal N; null: not known"),
        Column("total_bytes", "int64", "size of the device; 0: unknown"),
        Column("peak_bytes", "int64", "its bytes at its device's peak, or at its own if ranks share a device"),
        Column("peak_wall_ns", "int64"),
        Column("peak_iteration", "int64", "-1: before the first; `iterations`: after the last"),
        Column("iterations", "int64", "how many it ended"),
        Column("failures", "int64", "failed requests for memory"),
        Column("worst_residual_bytes", "int64", "NVML minus ledger of its device: the largest in the recording"),
    ],
    "iterations": [
        Column("rank", "int64"),
        Column("host", "string"),
        Column("pid", "int64"),
        Column("iteration", "int64", "from 0; -1: before the first"),
        Column("end_wall_ns", "int64"),
        Column("peak_bytes", "int64", "highest total within it"),
        Column("end_bytes", "int64", "total at its end"),
        Column("peak_allocated_bytes", "int64", "without cache and driver"),
        Column("end_allocated_bytes", "int64"),
        Column("peak_reserved_bytes", "int64", "in segments of caching allocators"),
    ],
    "parts": [
        Column("rank", "int64"),
        Column("host", "string"),
        Column("pid", "int64"),
        Column("category", "string"),
        Column("layer", "string", "empty: none. `(others)`: smaller layers, if the rank has more than 48 rows"),
        Column("bytes", "int64"),
    ],
    "growing": [
        Column("rank", "int64", "-1: several ranks share the device"),
        Column("host", "string"),
        Column("pid", "int64", "if several ranks share the device, of the first"),
        Column("device", "int64"),
        Column("place", "string", "`train.py:42 in step`"),
        Column("layer", "string", "layers, parameters or tags that grew, grouped"),
        Column("category", "string"),
        Column("bytes_per_iteration", "double"),
        Column("first_bytes", "int64", "at the end of the first iteration used"),
        Column("last_bytes", "int64", "at the end of the last one"),
        Column("steady", "bool", "grew in nearly every iteration"),
    ],
    "failures": [
        Column("rank", "int64"),
        Column("host", "string"),
        Column("pid", "int64"),
        Column("wall_ns", "int64", "when the request failed: with the rank the key of a failure"),
        Column("iteration", "int64"),
        Column("requested_bytes", "int64"),
        Column("place", "string", "the line that asked; empty: not known"),
        Column("category", "string"),
        Column("held_bytes", "int64"),
    ],
    "settings": [
        Column("rank", "int64"),
        Column("host", "string"),
        Column("pid", "int64"),
        Column("name", "string", "as `info` prints it"),
        Column("value", "string"),
    ],
    # end
}

#: Columns that are computed from `mesh`.
MESH_COLUMNS = [
    *(Column(f"mesh_{axis}", "int64") for axis in AXES),
    Column("peers", "string", "`mesh` without data-parallel axes: ranks with equal text hold the same layers"),
]
SUMMARY["ranks"] += MESH_COLUMNS

_OF_ALLOCATION = [
    Column("rank", "int64", "-1: none"),
    Column("host", "string"),
    Column("pid", "int64", "0: memory of no recorded process"),
    Column("device", "int64", "NVML's number; -1: CPU tensors; -2: pinned host memory"),
]

#: Rows of whole recordings, from src/tables/tables.def: a row and the attributes of its site.
DETAIL: Dict[str, List[Column]] = {
    "allocations": [
        *_OF_ALLOCATION,
        Column("begin_ns", "int64", "CLOCK_MONOTONIC of the host"),
        Column("end_ns", "int64", "null: never freed"),
        Column("alloc_ns", "int64", "time of the allocation; `begin_ns` is later if a name changed"),
        Column("bytes", "int64"),
        Column("rounding_bytes", "int64", "the part of `bytes` beyond the request"),
        Column("address", "int64", "two's complement"),
        Column("category", "string"),
        Column("part", "string", "kind of memory"),
        Column("phase", "string"),
        Column("owner", "string", "library that called the driver"),
        Column("allocator", "string", "null: the driver"),
        Column("module", "string", "path of the torch.nn.Module, or scope"),
        Column("module_class", "string"),
        Column("parameter", "string"),
        Column("tag", "string"),
        Column("line", "string", "`train.py:42 in forward`"),
        Column("stack_id", "int64", "in `stacks`; null: no stack"),
        Column("segment_id", "int64", "the segment that contains it or that it backs; null: none"),
        Column("backing", "bool", "memory of a segment. Its blocks have rows, too: do not add both"),
        Column("unbacked", "bool", "alive without device memory (a sleeping engine)"),
    ],
    "deltas": [
        *_OF_ALLOCATION,
        Column("time_ns", "int64", "CLOCK_MONOTONIC of the host"),
        Column("bytes", "int64", "the difference"),
        Column("category", "string"),
        Column("part", "string"),
        Column("owner", "string"),
        Column("segment_id", "int64", "not null: memory of that segment"),
    ],
    "samples": [
        Column("host", "string"),
        Column("device", "int64"),
        Column("device_uuid", "string"),
        Column("time_ns", "int64", "CLOCK_MONOTONIC of the host"),
        Column("used_bytes", "int64", "NVML's used memory"),
        Column("ledger_bytes", "int64", "the ledger's sum then"),
    ],
    "stacks": [
        Column("stack_id", "int64", "a hash: equal stacks of all ranks have equal ids"),
        Column("stack", "string", "one frame a line, outermost first: `train.py:42 in forward`"),
    ],
}

TABLES: Dict[str, List[Column]] = {**SUMMARY, **DETAIL}

#: What a row of each table is.
MEANING = {
    # generated: SummaryText
    "ranks": "a process on the device where it has most, as in `report --ranks`",
    "iterations": "an iteration. Of more than 96, some are left out, but never the highest and the last",
    "parts": "a rank's bytes at its peak by category and layer: they add up to `peak_bytes`",
    "growing": "memory that grows from iteration to iteration, as `leaks` shows it",
    "failures": "what a rank held in a category when a request failed",
    "settings": "a version or setting: Python, PyTorch, driver, options",
    # end
    "allocations": "an allocated range of bytes, while nothing about it changed",
    "deltas": "a change of memory that is known from readings: contexts, code, pools",
    "samples": "NVML's figure of a device beside the ledger's",
    "stacks": "a Python or native stack",
}


# Of the largest table. Their files are written faster without a mark for each row.
_NEVER_NULL = ("rank", "pid", "device", "begin_ns", "alloc_ns", "bytes", "rounding_bytes", "address", "backing", "unbacked")


def type_of(column: Column, dictionaries: bool = True) -> "pyarrow.DataType":
    """The type of a column in a file. Text is dictionary-encoded; readers see plain strings."""
    import pyarrow

    text = pyarrow.dictionary(pyarrow.int32(), pyarrow.string()) if dictionaries else pyarrow.string()
    types = {"int64": pyarrow.int64(), "double": pyarrow.float64(), "bool": pyarrow.bool_(), "string": text}
    return types[column.type]


def arrow(table: str, dictionaries: bool = True) -> "pyarrow.Schema":
    """The schema of a table's files."""
    import pyarrow

    never_null = _NEVER_NULL if table == "allocations" else ()
    return pyarrow.schema([pyarrow.field(column.name, type_of(column, dictionaries), column.name not in never_null) for column in TABLES[table]])


#: Names of axes whose ranks hold copies or shards of the same layers.
_DATA_AXES = ("dp", "ddp", "fsdp", "data", "replicate", "shard")


def _is_data_axis(name: str) -> bool:
    return name.split("_")[0] in _DATA_AXES


def mesh_columns(mesh: str) -> Dict[str, Any]:
    """The computed columns of ``dp=0,tp=1``: coordinates, and the text without data-parallel axes."""
    columns: Dict[str, Any] = {f"mesh_{axis}": None for axis in AXES}
    peers = []
    for part in mesh.split(",") if mesh else []:
        name, _, number = part.partition("=")
        if not number.isdigit():
            continue
        if name in AXES:
            columns[f"mesh_{name}"] = int(number)
        if not _is_data_axis(name):
            peers.append(part)
    return {**columns, "peers": ",".join(sorted(peers))}


#: Columns that every table has and docs/DATASET.md explains once.
_KEYS = ("rank", "host", "pid")


def document() -> str:
    """The tables of docs/DATASET.md."""
    lines, explained = [], set()
    for name, columns in TABLES.items():
        lines += [f"### {name}", "", f"{MEANING[name][0].upper()}{MEANING[name][1:]}.", ""]
        own = [column for column in columns if column.name not in _KEYS or column.meaning not in ("", "-1: none", "host name")]
        rows = [column for column in own if column.meaning and column[::2] not in explained]
        explained |= {column[::2] for column in rows}
        plain = [f"`{column.name}`" + (f" {column.type}" if column.type != "int64" else "") for column in own if column not in rows]
        if plain:
            lines += [f"Has {', '.join(plain)}.", ""]
        for column in rows:
            lines.append(f"* `{column.name}`{'' if column.type == 'int64' else ' ' + column.type}: {column.meaning}")
        lines.append("")
    return "\n".join(lines[:-1])
