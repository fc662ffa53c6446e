# SPDX-License-Identifier: Apache-2.0
"""A recorded program beside one that nobody records, on one stand-in device: the ledger has of each what is its own."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import neighbour
from places import FAKE, HOSTS, MIB, VRAMSCOPE

CONTEXT = 518 * MIB
# Long enough that the neighbour moves while each of them is priced.
SLOW = "cuDevicePrimaryCtxRetain:120000,cuModuleLoadData:60000,cuLaunchKernel:40000,cuStreamCreate:40000"

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


@pytest.fixture
def machine(tmp_path) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}


def record(machine: dict[str, str], file: Path) -> list[tuple[int, int]]:
    """Instants at which the recorded program rests, with NVML's figure of it."""
    command = [str(VRAMSCOPE), "run", "--no-report", "-o", str(file), "--", str(HOSTS / "driver_beside")]
    done = subprocess.run(
        command, env={**machine, "VRAMSCOPE_FAKE_DELAY_US": SLOW}, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [(int(time_ns), int(figure)) for _, time_ns, figure in map(str.split, done.stdout.splitlines())]


def report(file: Path, *options: str) -> dict:
    command = [str(VRAMSCOPE), "report", str(file), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_one_that_takes_and_gives_back_all_the_time(machine, tmp_path, seed):
    file = tmp_path / "x.vram"
    with neighbour(machine, seed):
        rests = record(machine, file)
    assert len(rests) == 4
    wrong = []
    for time_ns, figure in rests:
        said = report(file, "--at", f"@{time_ns}")
        (process,) = said["processes"]
        context = sum(r["bytes"] for r in said["rows"] if r["path"][:2] == ["driver-owned", "context"])
        if (process["ledger_bytes"], context) != (figure, CONTEXT):
            wrong.append(
                f"NVML {figure / MIB:.2f} MiB, ledger {process['ledger_bytes'] / MIB:.2f}, context {context / MIB:.2f}"
            )
    assert not wrong, "\n".join(wrong)
    info = subprocess.run([str(VRAMSCOPE), "info", str(file)], capture_output=True, text=True, timeout=60).stdout
    assert "holds   NVML and the rows differ by at most 4 MiB or 0.1 %" in info and "BROKEN" not in info, info


def test_alone_nothing_is_guessed(machine, tmp_path):
    rests = record(machine, tmp_path / "x.vram")
    for time_ns, figure in rests:
        said = report(tmp_path / "x.vram", "--at", f"@{time_ns}")
        assert [p["ledger_bytes"] for p in said["processes"]] == [figure]
        assert [d["residual_bytes"] for d in said["devices"] if d["kind"] == "gpu"] == [0]
        assert not [r for r in said["rows"] if r["path"][0] == "other processes"]


ON_THE_SECOND = """
import ctypes, time
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
context, pointer = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
assert cuda.cuCtxSetCurrent(context) == 0 and cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(64 << 20)) == 0
assert nvml.nvmlInit_v2() == 0
before = nvml.FakeProcessLists()
while nvml.FakeProcessLists() - before < 3:
    time.sleep(0.01)
"""


def test_on_another_device_it_breaks_nothing(machine, tmp_path):
    """What others do on a device that the recorded program only initialised is no matter of its rows."""
    file = tmp_path / "x.vram"
    machine = {**machine, "VRAMSCOPE_FAKE_DEVICES": "2"}
    with neighbour(machine, 1):
        command = [str(VRAMSCOPE), "run", "--no-report", "-o", str(file), "--", sys.executable, "-c", ON_THE_SECOND]
        done = subprocess.run(command, env=machine, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (process,) = report(file)["processes"]
    assert process["ledger_bytes"] == CONTEXT + (64 << 20)
    info = subprocess.run([str(VRAMSCOPE), "info", str(file)], capture_output=True, text=True, timeout=60).stdout
    assert "holds   NVML and the rows differ by at most 4 MiB or 0.1 %" in info and "BROKEN" not in info, info
