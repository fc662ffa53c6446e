# SPDX-License-Identifier: Apache-2.0
"""What the recording of this process says of the instant, through the command-line program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from typing import Dict, List, NamedTuple, Optional, Set

from . import _nvml, _paths, _probe

# Rows of the ledger.
CONTEXT = "driver-owned: context"
RM_INTERNAL = "RM-internal"

_SECONDS = 60.0
_SECONDS_FOR_LINES = 20.0


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


def _environment() -> Dict[str, str]:
    """For our own program: nobody wants it recorded."""
    return {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def _run(arguments: List[str]) -> str:
    done = subprocess.run(
        [os.fspath(_paths.program()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_environment(),
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.decode("utf-8", "replace").strip().removeprefix("vramscope: "))
    return done.stdout.decode("utf-8", "replace")


def outside_pytorch(live: str) -> Dict[str, Outside]:
    """By the bare UUID of a GPU: this process's rows of the ledger that are not of PyTorch's allocator."""
    report = json.loads(_run(["report", live, "--json", "--at", "end"]))
    uuids = {device["index"]: device["uuid"] for device in report["devices"] if device.get("uuid")}
    apart = {row["device"] for row in report["rows"] if row["path"][0] == RM_INTERNAL}
    found: Dict[str, Outside] = {}
    for row in report["rows"]:
        uuid = uuids.get(row["device"])
        if uuid is None or row["pid"] != os.getpid():
            continue
        rows, pytorch, _ = found.get(_nvml.bare(uuid), Outside({}, 0, False))
        if row["path"][0] == "PyTorch":
            pytorch += row["bytes"]
        elif row["bytes"]:
            name = ": ".join(row["path"][:2])
            rows[name] = rows.get(name, 0) + row["bytes"]
        found[_nvml.bare(uuid)] = Outside(rows, pytorch, row["device"] in apart)
    return found


def lines_of(live: str, addresses: Set[int]) -> Dict[int, str]:
    """The user's line that allocated what is live at each of the addresses."""
    if not addresses:
        return {}
    found: Dict[int, str] = {}
    own = f'"pid":{os.getpid()},'
    skipped = _files_of_torch()
    # A line for each event of the recording so far, which can be millions: read as they come, and not for ever.
    process = subprocess.Popen(
        [os.fspath(_paths.program()), "export", live, "--to", "json"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=_environment(),
        encoding="utf-8",
        errors="replace",
    )
    killer = threading.Timer(_SECONDS_FOR_LINES, process.kill)
    killer.start()
    try:
        assert process.stdout is not None
        for text in process.stdout:
            if '"free_ns":null' not in text or own not in text or not text.endswith("\n"):
                continue
            row = json.loads(text)
            address = int(row["address"], 16)
            if address in addresses and row["stack"]:
                found[address] = users_line(row["stack"], skipped)
        status = process.wait()
        if status != 0:
            why = f"took more than {_SECONDS_FOR_LINES:.0f} s" if status < 0 else f"ended with {status}"
            raise RuntimeError(f"reading its lines {why}")
    finally:
        killer.cancel()
        process.kill()
        process.communicate()
    return found


def users_line(stack: List[str], files_of_torch: Set[str]) -> str:
    """The innermost frame that is not of PyTorch's; frames stand outermost first, with bare file names."""
    for frame in reversed(stack):
        if frame.split(":", 1)[0] not in files_of_torch:
            return frame
    return stack[-1]


def _files_of_torch() -> Set[str]:
    """Names of PyTorch's files, without those that a file of the program's has too."""
    torch: Set[str] = set()
    program: Set[str] = set()
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__dict__", {}).get("__file__")
        if not isinstance(file, str):
            continue
        if name.split(".", 1)[0] == "torch":
            torch.add(os.path.basename(file))
        elif "site-packages" not in file and "/lib/python" not in file:
            program.add(os.path.basename(file))
    return torch - program
