# SPDX-License-Identifier: Apache-2.0
"""Host memory of the program's processes beside their control group's limit, and programs that the kernel ended."""
from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import memory_group
from places import MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

# Takes as many MiB as it is told, one at a time, in itself or in a child.
TAKE = """
import os, sys, time
def take(mib):
    taken = []
    for _ in range(mib):
        taken.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.01)
    return taken
if sys.argv[2] == "child":
    child = os.fork()
    if child == 0:
        take(int(sys.argv[1]))
        os._exit(0)
    sys.exit(3 if os.waitpid(child, 0)[1] else 0)
taken = take(int(sys.argv[1]))
"""


def record(directory: Path, *arguments: str, members: Path | None = None) -> tuple[int, dict, str]:
    """The status of `run`, the report and its text."""
    command = [str(VRAMSCOPE), "run", "--cpu", "-o", "x.vram", "--", sys.executable, "-c", TAKE, *arguments]
    if members is not None:
        command = ["sh", "-c", f'echo $$ > {members}; exec "$@"', "sh", *command]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    report = subprocess.run(
        [VRAMSCOPE, "report", "x.vram", "--json"], cwd=directory, capture_output=True, text=True, check=True
    )
    return done.returncode, json.loads(report.stdout), " ".join(done.stderr.split())


def at(report: dict, name: str) -> dict:
    return next(row for row in report["host_memory"] if row["at"] == name)


def info(directory: Path) -> str:
    return subprocess.run([VRAMSCOPE, "info", "x.vram"], cwd=directory, capture_output=True, text=True, check=True).stdout


def test_its_peak_is_known(tmp_path: Path) -> None:
    status, report, text = record(tmp_path, "150", "here")
    assert status == 0
    peak = at(report, "peak")
    assert 140 * MIB < peak["resident_bytes"] < 240 * MIB, peak
    assert peak["largest_bytes"] <= peak["resident_bytes"] and peak["processes"] >= 1
    assert peak["kills"] == 0
    assert "host memory" not in text, "what is no trouble is in `info`"
    assert "of host memory" in info(tmp_path)


def test_a_child_counts(tmp_path: Path) -> None:
    # Its own process is seen within a second.
    status, report, _ = record(tmp_path, "250", "child")
    assert status == 0
    peak = at(report, "peak")
    assert peak["processes"] >= 2 and peak["resident_bytes"] > 200 * MIB, peak
    assert peak["largest_bytes"] < peak["resident_bytes"]


@pytest.mark.parametrize("who", ["here", "child"])
def test_the_kernel_ends_what_exceeds_the_limit(tmp_path: Path, who: str) -> None:
    limit = 160 * MIB
    with memory_group(limit) as members:
        status, report, text = record(tmp_path, "600", who, members=members)
    assert status == (128 + signal.SIGKILL if who == "here" else 3)
    last = at(report, "last" if who == "here" else "fullest")
    assert last["kills"] == 1
    assert last["limit_bytes"] == limit
    assert 0.85 * limit < last["used_bytes"] <= limit, last
    assert last["resident_bytes"] > 0.7 * limit, last
    ended = "it" if who == "here" else "a process of its control group"
    assert f"Host memory ran out: the kernel's out-of-memory killer ended {ended}. At " in text
    assert "of 160 MiB" in text


def test_a_full_group_is_worth_a_line(tmp_path: Path) -> None:
    with memory_group(300 * MIB) as members:
        status, report, text = record(tmp_path, "240", "here", members=members)
    fullest = at(report, "fullest")
    assert status == 0 and fullest["kills"] == 0
    if fullest["used_bytes"] > 0.91 * fullest["limit_bytes"]:
        assert "the kernel kills processes of a group that exceeds its limit" in text


def test_another_kill_is_none_of_the_kernels(tmp_path: Path) -> None:
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    command = [VRAMSCOPE, "run", "--cpu", "-o", "x.vram", "--", sys.executable, "-c", kill]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGKILL
    assert "killed by signal 9" in done.stderr and "Host memory" not in done.stderr
