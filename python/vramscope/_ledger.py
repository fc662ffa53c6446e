# SPDX-License-Identifier: Apache-2.0
"""What the recording of this process says of the instant."""

from __future__ import annotations

import os
from typing import Dict, NamedTuple, Optional, Set

from . import _nvml, _probe
from ._reader import Trace

# Rows of the ledger.
CONTEXT = "driver-owned: context"
RM_INTERNAL = "RM-internal"
# In no process's figure of NVML's.
MANAGED = "managed"

_NO_STACK = "(no stack"
# A recording that takes longer to read is left alone.
_SECONDS = 60.0


class Outside(NamedTuple):
    """What the ledger has besides PyTorch's memory."""

    rows: Dict[str, int]
    pytorch_bytes: int
    #: Whether the rows have the driver's share apart that NVML's figure of a process lacks: it is known from the
    #: first sample of the process on, and in the context's row until then.
    has_rm_internal: bool


def session() -> Optional[str]:
    """The live directory of this process's recording; None where it is not recorded."""
    probe = _probe.current
    return probe.session_path() if probe is not None else None


def read(live: str) -> Trace:
    """The recording of this process as it is now."""
    return Trace(live, limit_seconds=_SECONDS)


def outside_pytorch(trace: Trace) -> Dict[str, Outside]:
    """By the bare UUID of a GPU: this process's rows of the ledger that are not of PyTorch's allocator."""
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
    """The user's line that allocated what is live at each of the addresses."""
    found: Dict[int, str] = {}
    if not addresses:
        return found
    # As `end` is of this process: its last event.
    now_ns = max(row["exit_ns"] for row in trace.table("processes") if row["pid"] == os.getpid())
    for batch in trace.allocations(between=(now_ns, now_ns), by=["line"]):
        columns = zip(batch["address"], batch["pid"], batch["backing"], batch["line"])
        for address, pid, backing, line in columns:
            if address in addresses and pid == os.getpid() and not backing and not line.startswith(_NO_STACK):
                found[address] = line
    return found
