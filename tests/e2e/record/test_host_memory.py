# SPDX-License-Identifier: Apache-2.0
"""Host memory of the program's processes beside their control group's limit, and programs that the kernel ended."""
from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import vramscope
from hosts import memory_group
from places import FAKE, MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

# Allocates that many MiB one at a time, in itself or in a child.
TAKE = """
import os, sys, time
def take(mib):
    taken = []
    for _ in range(mib):
        taken.append(bytearray(b"x" * (1 << 20)))
        time.sleep(0.01)
    return taken
def used():
    for line in open("/proc/self/cgroup"):
        _, controllers, path = line.strip().split(":", 2)
        if controllers == "memory":
            return int(open(f"/sys/fs/cgroup/memory{path}/memory.usage_in_bytes").read())
        if controllers == "":
            current = f"/sys/fs/cgroup{path}/memory.current"
            if os.path.exists(current):
                return int(open(current).read())
if sys.argv[2] == "child":
    child = os.fork()
    if child == 0:
        take(int(sys.argv[1]))
        os._exit(0)
    sys.exit(3 if os.waitpid(child, 0)[1] else 0)
if sys.argv[2] == "fill":
    # Up to 4 % below its group's limit: the recorder is in the group too.
    taken = []
    while used() < 0.96 * (int(sys.argv[1]) << 20):
        taken += take(1)
    time.sleep(1.5)
    sys.exit(0)
taken = take(int(sys.argv[1]))
"""


def record(directory: Path, *arguments: str, members: Path | None = None) -> tuple[int, dict, str]:
    """The status of `run`, the report and its text."""
    command = [str(VRAMSCOPE), "run", "--cpu", "-o", "x.vram", "--", sys.executable, "-c", TAKE, *arguments]
    if members is not None:
        command = ["sh", "-c", f'echo $$ > {members}; exec "$@"', "sh", *command]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)
    return done.returncode, report(directory), " ".join(done.stderr.split())


def report(directory: Path, *options: str) -> dict:
    command = [VRAMSCOPE, "report", "x.vram", "--json", *options]
    return json.loads(subprocess.run(command, cwd=directory, capture_output=True, text=True, check=True).stdout)


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
    # Pages of files that the group read first are the rest.
    assert 0.6 * limit < last["used_bytes"] <= limit, str(last)
    assert last["resident_bytes"] > 0.6 * limit, str(last)
    ended = "it" if who == "here" else "a process of its control group"
    assert f"Host memory ran out: the kernel's out-of-memory killer ended {ended}. At " in text
    assert "of 160 MiB" in text


def test_a_full_group_is_worth_a_line(tmp_path: Path) -> None:
    with memory_group(300 * MIB) as members:
        status, said, text = record(tmp_path, "300", "fill", members=members)
    fullest = at(said, "fullest")
    assert status == 0 and fullest["kills"] == 0
    assert fullest["used_bytes"] > 0.9 * fullest["limit_bytes"], fullest
    assert "the kernel kills processes of a group that exceeds its limit" in text


def test_another_kill_is_none_of_the_kernels(tmp_path: Path) -> None:
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    command = [VRAMSCOPE, "run", "--cpu", "-o", "x.vram", "--", sys.executable, "-c", kill]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 128 + signal.SIGKILL
    assert "killed by signal 9" in done.stderr and "Host memory" not in done.stderr


PIN = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context, memory = ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
for mib in (64, 32):
    assert cuda.cuMemHostAlloc(ctypes.byref(memory), ctypes.c_size_t(mib << 20), 0) == 0
    time.sleep(1.2)
assert cuda.cuMemFreeHost(memory) == 0
time.sleep(1.2)
"""


def test_pinned_memory_is_the_ledgers(tmp_path: Path) -> None:
    machine = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    command = [VRAMSCOPE, "run", "--no-report", "-o", "x.vram", "--", sys.executable, "-c", PIN]
    subprocess.run(command, cwd=tmp_path, env=machine, check=True, timeout=120)
    seen = set()
    with vramscope.read(tmp_path / "x.vram") as recording:
        samples = recording.table("host_samples")
        # The first sample is of before the program's first event, and the last of after its end.
        for time_ns, pinned in list(zip(samples["time_ns"], samples["pinned_bytes"]))[1:-1]:
            said = report(tmp_path, "--at", f"@{time_ns}")
            (host,) = (device["index"] for device in said["devices"] if device["kind"] == "host")
            assert sum(row["bytes"] for row in said["rows"] if row["device"] == host) == pinned, time_ns
            seen.add(pinned // MIB)
    assert seen >= {64, 96}
