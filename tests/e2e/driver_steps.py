# SPDX-License-Identifier: Apache-2.0
"""Programs on the stand-in driver that say what its books hold, step by step."""
from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from places import FAKE, HOSTS, MIB, VRAMSCOPE

INIT = 3 * MIB + MIB // 4  # of cuInit, by device


@dataclass
class Step:
    name: str
    time_ns: int
    pid: int
    used: list[int]


@dataclass
class Recording:
    file: Path
    steps: list[Step]

    def report(self, step: str, *options: str) -> dict:
        (found,) = [s for s in self.steps if s.name == step]
        return report(self.file, f"@{found.time_ns}", *options)

    def row(self, step: str, *path: str) -> int:
        """Bytes of a row, of all processes and devices."""
        return sum(r["bytes"] for r in self.report(step)["rows"] if tuple(r["path"][-len(path) :]) == path)


def report(file: Path, when: str, *options: str) -> dict:
    done = subprocess.run(
        [VRAMSCOPE, "report", str(file), "--at", when, "--json", *options], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def record(name: str, directory: Path, *arguments: str, **extra: str) -> Recording:
    """Runs the host alone and recorded: the same outcome, and at each step the bytes that the books had."""
    steps = directory / "steps"
    machine = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "plain"), **extra}
    command = [str(HOSTS / name), *arguments]
    plain = subprocess.run(command, env=machine, capture_output=True, text=True, timeout=120)
    assert plain.returncode == 0, plain.stderr
    machine |= {"VRAMSCOPE_FAKE_BOOKS": str(directory / "books"), "VRAMSCOPE_TEST_STEPS": str(steps)}
    file = directory / f"{name}.vram"
    command = [VRAMSCOPE, "run", "--no-report", "-o", str(file), "--", *command]
    done = subprocess.run(command, env=machine, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, plain.stdout), done.stderr
    recording = Recording(file, [])
    for line in steps.read_text().splitlines():
        step, time_ns, pid, *used = line.split()
        recording.steps.append(Step(step, int(time_ns), int(pid), [int(u) for u in used]))
    return recording


def check(recording: Recording, unread: tuple[str, ...] = ()) -> None:
    """Every step: what the ledger has of each device is what the books had, and nothing was broken or lost.

    In an `unread` step there is no context, so that nothing can be read: what cuInit took cannot always be told
    from what the context took, and may have gone with it.
    """
    assert recording.steps
    wrong = []
    for step in recording.steps:
        said = report(recording.file, f"@{step.time_ns}")
        ledger = {d["index"]: d["ledger_bytes"] for d in said["devices"] if d["kind"] == "gpu"}
        # Calls of other instants that the nearest sample of this state met.
        for row in said["rows"]:
            if row["path"][-1] == "in transit":
                ledger[row["device"]] -= row["bytes"]
        for device, used in enumerate(step.used):
            missing = used - ledger.get(device, 0)
            if missing != 0 and not (step.name in unread and missing == INIT):
                wrong.append(f"{step.name}: device {device} has {used / MIB:.3f} MiB, the ledger {ledger.get(device, 0) / MIB:.3f}")
    end = report(recording.file, "end")
    wrong += [f"{i['name']}: {i['detail']}" for i in end["invariants"] if not i["holds"]]
    wrong += [f"lost: {loss['name']}" for loss in end["losses"] if "NVML" not in loss["name"]]
    assert not wrong, "\n".join(wrong)
