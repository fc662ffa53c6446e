# SPDX-License-Identifier: Apache-2.0
"""Programs on the stand-in driver that say what its books hold, step by step: the ledger says the same."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest
from driver_steps import Recording, Step, check, record, report
from places import FAKE, HOSTS, MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


def test_pools_of_every_kind(tmp_path):
    recording = record("driver_pool_kinds", tmp_path, VRAMSCOPE_FAKE_DEVICES="2")
    check(recording, unread=("reset",))
    host = [d for d in recording.report("host-and-managed")["devices"] if d["kind"] == "host"]
    assert [d["ledger_bytes"] for d in host] == [32 * MIB]


@pytest.mark.parametrize("end", ["free", "die"])
@pytest.mark.parametrize("way", ["ipc", "fabric", "descriptor"])
def test_shared_memory_is_counted_once(tmp_path, way, end):
    recording = record("driver_sharing", tmp_path, way, end)
    check(recording)
    importer = next(s.pid for s in recording.steps if s.name == "closed")
    rows = {
        step: [r["bytes"] for r in recording.report(step)["rows"] if r["pid"] == importer and r["path"][-1] == "imported"]
        for step in ("imported", "exporter-gone", "closed")
    }
    assert rows == {"imported": [0], "exporter-gone": [64 * MIB], "closed": []}


def test_handles_of_every_kind(tmp_path):
    recording = record("driver_handles", tmp_path)
    check(recording)
    host = [d for d in recording.report("on-the-host")["devices"] if d["kind"] == "host"]
    assert [d["ledger_bytes"] for d in host] == [20 * MIB]


def test_an_engine_that_sleeps_keeps_its_names_and_has_no_memory(tmp_path):
    recording = record("driver_sleep", tmp_path)
    check(recording)
    found = {}
    for step in recording.steps:
        said = recording.report(step.name, "--by", "category")
        rows = {key: {row["path"][0]: row["bytes"] // MIB for row in said[key]} for key in ("rows", "unbacked")}
        assert sum(rows["unbacked"].values()) * MIB == said["devices"][0]["unbacked_bytes"]
        found[step.name] = (rows["rows"].get("parameter", 0), rows["rows"].get("kv cache", 0), rows["unbacked"])
    assert found == {
        "awake": (60, 256, {}),
        "asleep": (0, 0, {"parameter": 60, "kv cache": 256}),
        "awake-again": (60, 256, {}),
        "half": (60, 0, {"kv cache": 256}),
        "asleep-again": (0, 0, {"parameter": 50, "kv cache": 256, "unknown": 4}),
        "at-last": (50, 256, {}),
    }
    # The tags of its regions, also for what is allocated in one while it sleeps.
    tagged = recording.report("asleep-again", "--by", "tag")["unbacked"]
    assert {row["path"][0]: row["bytes"] // MIB for row in tagged} == {"weights": 54, "kv_cache": 256}
    asleep = next(step for step in recording.steps if step.name == "asleep")
    text = subprocess.run([VRAMSCOPE, "report", str(recording.file), "--at", f"@{asleep.time_ns}"], capture_output=True, text=True, check=True)
    assert "  Asleep: 316 MiB in 7 blocks have no device memory now\n    kv cache 256 MiB, parameter 60.0 MiB\n" in text.stdout
    info = subprocess.run([VRAMSCOPE, "info", str(recording.file)], capture_output=True, text=True, check=True)
    assert "Asleep: at most 316 MiB of gpu0" in info.stdout


def test_an_engine_that_is_killed_asleep_has_no_memory_at_its_end(tmp_path):
    file = tmp_path / "killed.vram"
    machine = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    done = subprocess.run(
        [VRAMSCOPE, "run", "--no-report", "-o", str(file), "--", str(HOSTS / "driver_sleep"), "die"],
        env=machine, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 128 + 9, done.stderr
    said = report(file, "end", "--by", "category")
    assert [row["bytes"] for row in said["rows"] if row["path"][0] in ("parameter", "kv cache")] == []
    assert {row["path"][0]: row["bytes"] // MIB for row in said["unbacked"]} == {"parameter": 50, "kv cache": 256, "unknown": 4}
BALANCE = """\
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
SIZE = ctypes.c_size_t
def check(result):
    assert result == 0, result
def step(name):
    time.sleep(0.12)  # several samples
    print(name, time.monotonic_ns(), flush=True)
    time.sleep(0.05)
context, module, touch = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
memory = [ctypes.c_uint64() for _ in range(8)]
check(cuda.cuInit(0))
def begin():
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(ctypes.byref(module), b"FAKE code=2097152 global=0 kernel=touch:0:0"))
    check(cuda.cuModuleGetFunction(ctypes.byref(touch), module, b"touch"))
def run():
    check(cuda.cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, None, None, None))
    check(cuda.cuCtxSynchronize())
begin()
step("context")
check(cuda.cuMemAllocManaged(ctypes.byref(memory[0]), SIZE(64 << 20), 1))
run()
step("touched")
check(cuda.cuMemAllocManaged(ctypes.byref(memory[1]), SIZE(300 << 20), 1))
run()
step("second")
check(cuda.cuMemFree_v2(memory[1]))
check(cuda.cuMemFree_v2(memory[0]))
step("freed")
for turn in range(3):
    check(cuda.cuMemAlloc_v2(ctypes.byref(memory[2]), SIZE(40 << 20)))
    step("work-%d" % turn)
    check(cuda.cuDevicePrimaryCtxReset_v2(0))
    step("reset-%d" % turn)
    begin()
check(cuda.cuMemAlloc_v2(ctypes.byref(memory[3]), SIZE(16 << 20)))
step("end")
"""


@pytest.fixture(scope="module")
def balanced(tmp_path_factory):
    """Managed memory, resets, and at the fourth cuMemAlloc 7 MiB that nobody knows of."""
    directory = tmp_path_factory.mktemp("balance")
    program, file = directory / "cm.py", directory / "cm.vram"
    program.write_text(BALANCE)
    machine = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "books"),
        "VRAMSCOPE_FAKE_SECRET": "cuMemAlloc_v2:4",
    }  # fmt: skip
    done = subprocess.run(
        [VRAMSCOPE, "run", "-o", str(file), "--", sys.executable, str(program)],
        env=machine, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    steps = [Step(name, int(ns), 0, []) for name, ns in (line.split() for line in done.stdout.splitlines())]
    return Recording(file, steps), done.stderr


def test_managed_memory_is_where_it_was_touched(balanced):
    recording, _ = balanced
    found = {
        step: (recording.row(step, "managed"), recording.row(step, "UVM driver"))
        for step in ("context", "touched", "second", "freed")
    }
    mib = {step: (managed // MIB, uvm // MIB) for step, (managed, uvm) in found.items()}
    assert mib == {"context": (0, 0), "touched": (64, 64), "second": (364, 20), "freed": (0, 20)}
    # NVML counts it for no process; the allocating line has it.
    (process,) = recording.report("second")["processes"]
    assert process["residual_bytes"] == 0
    lines = {r["path"][0]: r["bytes"] // MIB for r in recording.report("second", "--by", "line")["rows"]}
    first, second = (1 + BALANCE.splitlines().index(line) for line in BALANCE.splitlines() if "cuMemAllocManaged" in line)
    assert {name: size for name, size in lines.items() if "cm.py" in name and size in (64, 300)} == {
        f"cm.py:{first} in <module>": 64, f"cm.py:{second} in <module>": 300,
    }  # fmt: skip


def test_a_reset_keeps_the_context(balanced):
    recording, _ = balanced
    contexts = {s.name: recording.row(s.name, "context") for s in recording.steps if s.name.startswith("reset")}
    tops = [r for r in recording.report("reset-2")["rows"] if "context" in r["path"]]
    assert [r["bytes"] // MIB for r in tops] == [518]
    assert len(contexts) == 3


def test_what_nobody_knows_is_said_by_call_and_line(balanced):
    recording, text = balanced
    said = recording.report("end")
    line = 1 + next(i for i, text in enumerate(BALANCE.splitlines()) if "16 << 20" in text)
    (unexplained,) = said["unexplained"]
    assert unexplained["bytes"] == 7 * MIB
    assert unexplained["near"] == f"at cuMemAlloc_v2 in cm.py:{line} in <module>"
    assert f"at cuMemAlloc_v2 in cm.py:{line} in <module>: no known cause" in text
    (row,) = [r for r in said["rows"] if r["path"][0] == "unexplained"]
    assert (row["bytes"], row["pid"]) == (7 * MIB, None)
    broken = [i for i in said["invariants"] if not i["holds"]]
    assert [i["name"] for i in broken] == ["NVML and the rows differ by at most 4 MiB or 0.1 %"]
    # From its second sample on the rows add up, as at every other one.
    (residual,) = said["residuals"]
    assert residual["worst_bytes"] == 0
