# SPDX-License-Identifier: Apache-2.0
"""Reads the current memory of this process from its recording."""

from __future__ import annotations

import os
from typing import Dict, NamedTuple, Optional, Set

from . import _nvml, _probe
from ._reader import Trace

# Names of ledger entries.
CONTEXT = "driver-owned: context"
RM_INTERNAL = "RM-internal"
# NVML counts this for no process.
MANAGED = "managed"

_NO_STACK = "(no stack"
# Give up on a recording that takes longer to read.
_SECONDS = 60.0


class Outside(NamedTuple):
    """The memory of the ledger outside PyTorch's allocator."""

    rows: Dict[str, int]
    pytorch_bytes: int
    #: Whether RM-internal memory is a row of its own. It is known from the first NVML sample of the process on, and
    #: counts as context before.
    has_rm_internal: bool


def session() -> Optional[str]:
    """The live directory of this process's recording; None if it is not recorded."""
    probe = _probe.current
    return probe.session_path() if probe is not None else None


def read(live: str) -> Trace:
    """Opens the recording of this process as it is now."""
    return Trace(live, limit_seconds=_SECONDS)


def outside_pytorch(trace: Trace) -> Dict[str, Outside]:
    """The ledger entries of this process outside PyTorch's allocator, by GPU UUID without prefix."""
    report = trace.report(at="end")
    uuids = {device["index"]: device["uuid"] for device in report.devices if device["uuid"]}
    apart = {row["index"] for row in report.rows if row.get("level2") == RM_INTERNAL}
    found: Dict[str, Outside] = {}
    for row in report.rows:
        uuid = uuids.get(row["index"])
        if uuid is None or row["pid"] != os.getpid():
            continue
        rows, pytorch, _ = found.get(_nvml.bare(uuid), Outside({}, 0, False))
        path = [level for level in (row["level1"], row.get("level2")) if level is not None]
        if path[0] == "PyTorch":
            pytorch += row["bytes"]
        elif row["bytes"] and MANAGED not in path:
            name = ": ".join(path)
            rows[name] = rows.get(name, 0) + row["bytes"]
        found[_nvml.bare(uuid)] = Outside(rows, pytorch, row["index"] in apart)
    return found


def lines_of(trace: Trace, addresses: Set[int]) -> Dict[int, str]:
    """The user line that allocated each of the live addresses."""
    found: Dict[int, str] = {}
    if not addresses:
        return found
    # "end" is the last event of this process.
    now_ns = max(row["exit_ns"] for row in trace.table("processes") if row["pid"] == os.getpid())
    for batch in trace.allocations(between=(now_ns, now_ns), by=["line"]):
        columns = zip(batch["address"], batch["pid"], batch["backing"], batch["line"])
        for address, pid, backing, line in columns:
            if address in addresses and pid == os.getpid() and not backing and not line.startswith(_NO_STACK):
                found[address] = line
    return found
