# SPDX-License-Identifier: Apache-2.0
"""Recordings that begin in a process under way: torch imported, threads at work, memory already taken."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import package
import pytest
from places import BUILD, FAKE, MIB, PROBE, VRAMSCOPE

LATE = BUILD / "hosts" / "late"

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
has_stand_ins = pytest.mark.skipif(
    not (LATE / "libc10_cuda.so").exists() or not (FAKE / "libcuda.so.1").exists(),
    reason="the stand-ins are not built",
)

TRAIN = """
import sys, threading, time
import torch
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
optimizer = torch.optim.Adam(model.parameters())
data, wanted = torch.randn(64, 256), torch.randint(0, 8, (64,))
def step():
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(data), wanted)
    loss.backward()
    optimizer.step()
    return loss.item()
losses = [step() for _ in range(3)]
"""
# 256 * 512 + 512 + 512 * 8 + 8 floats
PARAMETERS = 4 * (256 * 512 + 512 + 512 * 8 + 8)


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return package.make(tmp_path_factory.mktemp("package"))


def run_python(code: str, environment: dict[str, str], directory: Path, *arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *(arguments or ("-c", code))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, env=environment, cwd=directory)
    assert done.returncode == 0, done.stderr
    return done


def report(trace: Path, *arguments: str) -> dict:
    command = [str(VRAMSCOPE), "report", str(trace), "--json", *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)


def rows(found: dict) -> dict[str, int]:
    return {" / ".join(row["path"]): row["bytes"] for row in found["rows"]}


def lost(found: dict) -> set[str]:
    return {loss["name"] for loss in found["losses"]}


def broken(found: dict) -> list[str]:
    return [invariant["name"] for invariant in found["invariants"] if not invariant["holds"]]


def test_start_beside_a_training_thread(tmp_path, environment):
    pytest.importorskip("torch")
    loop = (
        TRAIN
        + """
going = True
def train():
    while going: losses.append(step())
thread = threading.Thread(target=train)
thread.start()
def wait_for(count):
    count += len(losses)
    while len(losses) < count: time.sleep(0.002)
wait_for(10)
RECORD
going = False
thread.join()
print(len(losses), file=sys.stderr)
torch.manual_seed(0)
print(*losses[:40])
"""
    )
    recorded = run_python(
        loop.replace(
            "RECORD",
            """
import vramscope
assert not vramscope.is_recording() and vramscope.live_directory() is None
print("file", vramscope.start("train.vram", cpu=True))
assert vramscope.is_recording()
wait_for(20)
vramscope.mark("inside")
live = vramscope.live_directory()
vramscope.stop()
assert not vramscope.is_recording()
wait_for(5)
vramscope.start()
wait_for(10)
""",
        ),
        environment,
        tmp_path,
    )
    plain = run_python(loop.replace("RECORD", "wait_for(35)"), environment, tmp_path)
    name, losses = recorded.stdout.splitlines()
    assert name == f"file {tmp_path / 'train.vram'}"
    assert losses == plain.stdout.splitlines()[0], "results are the same"
    assert [path.name for path in tmp_path.iterdir()] == ["train.vram"]

    found = report(tmp_path / "train.vram", "--at", "mark:inside", "--by", "category")
    assert broken(found) == []
    assert "CPU tensors from before the start are not counted" in {loss["name"] for loss in found["losses"]}
    by_category = rows(found)
    # All of it was made before: parameters, and Adam's two moments and its step of each.
    assert by_category["parameter"] == PARAMETERS
    named = rows(report(tmp_path / "train.vram", "--at", "mark:inside", "--by", "category,parameter"))
    # The instant can be in the middle of a step, which has memory without names too.
    state = {name: size for name, size in named.items() if name.startswith("optimizer state / ") and "(none)" not in name}
    assert sum(state.values()) == 2 * PARAMETERS + 4 * 4
    assert {"optimizer state / 0.weight", "parameter / 2.bias"} <= set(named)


def test_record_as_often_as_wanted(tmp_path, environment):
    pytest.importorskip("torch")
    done = run_python(
        TRAIN
        + """
import vramscope
for name in ("a", "b", "c"):
    with vramscope.record(f"{name}.vram", cpu=True) as recording:
        step()
        kept = torch.zeros(3 << 20, dtype=torch.uint8)
        vramscope.mark("kept")
    print(recording.path, vramscope.is_recording(), vramscope.live_directory())
    step()
with vramscope.record("d.vram", cpu=True, python_stacks=False):
    other = torch.zeros(5 << 20, dtype=torch.uint8)
""",
        environment,
        tmp_path,
    )
    assert done.stdout.splitlines() == [f"{name}.vram False None" for name in "abc"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vram", "b.vram", "c.vram", "d.vram"]
    for name in "abc":
        found = report(tmp_path / f"{name}.vram", "--at", "mark:kept", "--by", "category")
        by_category = rows(found)
        assert (by_category["parameter"], broken(found)) == (PARAMETERS, []), name
        assert by_category["optimizer state"] == 2 * PARAMETERS + 4 * 4
        assert "allocations at a live address" not in lost(found)
        lines = rows(report(tmp_path / f"{name}.vram", "--at", "mark:kept", "--by", "line"))
        assert [size for line, size in lines.items() if "zeros" in line or size == 3 * MIB] == [3 * MIB]
    assert rows(report(tmp_path / "d.vram", "--by", "line")).get("(no stack)", 0) >= 5 * MIB


def test_a_live_directory_can_be_read_at_any_time(tmp_path, environment):
    pytest.importorskip("torch")
    done = run_python(
        TRAIN
        + """
import vramscope, subprocess, os
vramscope.start(cpu=True)
kept = torch.zeros(3 << 20, dtype=torch.uint8)
step()
answer = subprocess.run([PROGRAM, "report", str(vramscope.live_directory()), "--json", "--at", "end", "--by", "category"],
                        stdout=subprocess.PIPE, check=True)
sys.stdout.write(answer.stdout.decode())
""".replace("PROGRAM", repr(str(VRAMSCOPE))),
        environment,
        tmp_path,
    )
    found = json.loads(done.stdout)
    assert broken(found) == []
    assert rows(found)["parameter"] == PARAMETERS
    assert sum(rows(found).values()) == sum(device["ledger_bytes"] for device in found["devices"])
    (trace,) = tmp_path.iterdir()
    assert trace.name.startswith("python-") and trace.suffix == ".vram"


def test_a_fork_in_between_leaves_the_parents_recording_alone(tmp_path, environment):
    pytest.importorskip("torch")
    run_python(
        TRAIN
        + """
import os, vramscope
vramscope.start("all.vram", cpu=True)
child = os.fork()
if child == 0:
    more = torch.zeros(7 << 20, dtype=torch.uint8)
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
kept = torch.zeros(3 << 20, dtype=torch.uint8)
""",
        environment,
        tmp_path,
    )
    assert [path.name for path in tmp_path.iterdir()] == ["all.vram"]
    assert len(report(tmp_path / "all.vram", "--by", "process")["processes"]) == 2


OUTLIVED = """
import ctypes, os, shutil, sys, vramscope
c10 = ctypes.CDLL(LATE + "/libc10.so")
c10.late_cpu_tensor.argtypes, c10.late_cpu_tensor.restype = [ctypes.c_size_t], ctypes.c_void_p
begun, end = os.pipe(), os.pipe()
with vramscope.record("x.vram", cpu=True) as outlived:
    c10.late_cpu_tensor(1000)
    child = os.fork()
    if child == 0:
        c10.late_cpu_tensor(2000)
        os.write(begun[1], b"x")
        os.read(end[0], 1)
        os._exit(0)
    os.read(begun[0], 1)
assert outlived.path is None and outlived.unfinished.name == "x.vram.d", outlived
try:
    with vramscope.record("y.vram", cpu=True):
        shutil.rmtree(vramscope.live_directory())
        raise KeyError("the program's own")
except KeyError:
    print("goes on")
with vramscope.record("z.vram", cpu=True) as block:
    c10.late_cpu_tensor(3000)
    if os.fork() == 0:
        block.__exit__(None, None, None)
        os._exit(0)
    os.wait()
print(block.path)
os.write(end[1], b"x")
os.waitpid(child, 0)
"""


@has_stand_ins
def test_the_end_of_a_recording_never_raises(tmp_path, environment):
    code = f"LATE = {str(LATE)!r}\n" + OUTLIVED
    done = run_python(code, environment, tmp_path, "-W", "error", "-c", code)
    assert done.stdout.splitlines() == ["goes on", "z.vram"]
    first, second = done.stderr.splitlines()
    assert "x.vram.d could not be finished" in first and "is still recording" in first
    assert "y.vram.d could not be finished" in second
    finished = subprocess.run([str(VRAMSCOPE), "finish", "x.vram.d"], cwd=tmp_path, capture_output=True, text=True)
    assert (finished.returncode, len(report(tmp_path / "x.vram", "--by", "process")["processes"])) == (0, 2)


def test_in_ipython(tmp_path, environment):
    pytest.importorskip("torch")
    pytest.importorskip("IPython")
    (tmp_path / "cells.ipy").write_text(
        "import torch\n"
        "layer = torch.nn.Linear(100, 100)\n"
        "import vramscope\n"
        "vramscope.start('cells.vram', cpu=True)\n"
        "out = layer(torch.ones(50, 100))\n"
        "vramscope.mark('here')\n"
    )
    home = {**environment, "IPYTHONDIR": str(tmp_path / "home")}
    run_python("", home, tmp_path, "-m", "IPython", "cells.ipy")
    by_category = rows(report(tmp_path / "cells.vram", "--at", "mark:here", "--by", "category"))
    assert by_category["parameter"] == 4 * (100 * 100 + 100)


@has_stand_ins
def test_a_program_in_c_opens_the_probe(tmp_path):
    live = tmp_path / "c.vram.d"
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([str(LATE / "program"), str(PROBE), str(live)], check=True, timeout=60, env=environment)
    found = report(live, "--at", "end")
    (device,) = found["devices"]
    assert device["ledger_bytes"] == 5000
    (unknown,) = [loss for loss in found["losses"] if loss["name"] == "frees of unknown allocations"]
    assert unknown["count"] == 1 and unknown["bytes"] >= 1000


@has_stand_ins
def test_what_a_process_holds_does_not_grow_with_its_recordings(tmp_path):
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    command = [str(LATE / "program"), str(PROBE), str(tmp_path), "60"]
    done = subprocess.run(command, check=True, timeout=60, env=environment, capture_output=True, text=True)
    early, late = ([int(figure) for figure in line.split()] for line in done.stdout.splitlines())
    # Mappings, descriptors, anonymous KiB: the other thread has more or fewer at any moment, but not by 50 recordings.
    assert late[0] <= early[0] + 10 and late[1] <= early[1] + 1 and late[2] <= early[2] + 50 * 4, (early, late)
    assert len(list(tmp_path.glob("*/*.vrl"))) == 60


GPU = """
import ctypes, sys, types, json, os
c10 = ctypes.CDLL(LATE + "/libc10.so")
cuda = ctypes.CDLL(LATE + "/libc10_cuda.so")
for name in ("late_segment", "late_block", "late_block_free", "late_release"):
    getattr(cuda, name).argtypes = [ctypes.c_void_p, ctypes.c_size_t]
cuda.late_segment.argtypes, cuda.late_segment.restype = [ctypes.c_size_t], ctypes.c_void_p
MIB = 1 << 20
first, second = cuda.late_segment(20 * MIB), cuda.late_segment(40 * MIB)
cuda.late_block(first, 12 * MIB)
cuda.late_block(first + 12 * MIB, 4 * MIB)
cuda.late_block(second, 30 * MIB)
def block(address, size, live=True):
    return {"address": address, "size": size, "state": "active_allocated" if live else "inactive"}
torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, memory_snapshot=lambda: [
    {"device": 0, "address": first, "total_size": 20 * MIB,
     "blocks": [block(first, 12 * MIB), block(first + 12 * MIB, 4 * MIB), block(first + 16 * MIB, 4 * MIB, False)]},
    {"device": 0, "address": second, "total_size": 40 * MIB,
     "blocks": [block(second, 30 * MIB), block(second + 30 * MIB, 10 * MIB, False)]}])
sys.modules["torch"] = torch
import vramscope
before = c10.late_report_count()
vramscope.start("gpu.vram", cpu=False)
vramscope.tag(first, "weights")
vramscope.mark("begun")
third = cuda.late_segment(64 * MIB)
cuda.late_block(third, 50 * MIB)
cuda.late_block_free(second, 30 * MIB)
cuda.late_release(second, 40 * MIB)
vramscope.mark("moved")
assert c10.late_report_count() - before == 2, "PyTorch's own function is called"
"""


@has_stand_ins
def test_memory_of_a_gpu_from_before_is_rows(tmp_path, environment):
    gpu = {**environment, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    run_python(f"LATE = {str(LATE)!r}\n" + GPU, gpu, tmp_path)
    trace = tmp_path / "gpu.vram"
    begun, moved = report(trace, "--at", "mark:begun"), report(trace, "--at", "mark:moved")
    (device,) = begun["devices"]
    assert device["nvml_bytes"] == device["ledger_bytes"] and device["residual_bytes"] == 0, device
    found = rows(begun)
    assert found["PyTorch / allocated"] == 12 * MIB
    assert found["PyTorch / before recording"] == 34 * MIB
    assert found["PyTorch / fragmentation"] == 14 * MIB
    assert found["before recording"] >= 500 * MIB, "the context"
    assert not [path for path in rows(report(trace, "--at", "0")) if "other processes" in path], "it is this process's"
    found = rows(moved)
    assert found["PyTorch / allocated"] == 62 * MIB
    assert found["PyTorch / before recording"] == 4 * MIB
    assert "frees of unknown allocations" not in lost(moved) and broken(moved) == []


@has_stand_ins
def test_what_samples_nvml_ends_with_the_process(tmp_path, environment):
    gpu = {**environment, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    # Nothing is finished: the process is killed.
    code = GPU + "\nimport signal\nprint(vramscope.live_directory(), flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    command = [sys.executable, "-c", f"LATE = {str(LATE)!r}\n" + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=gpu, cwd=tmp_path)
    assert done.returncode == -9, done.stderr
    live = done.stdout.strip()
    deadline = time.monotonic() + 10
    while sidecars_of(live) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sidecars_of(live) == []
    assert report(Path(live), "--at", "mark:begun")["devices"][0]["residual_bytes"] == 0


def sidecars_of(live: str) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            command = (entry / "cmdline").read_bytes().decode(errors="replace") if entry.name.isdigit() else ""
        except OSError:
            continue
        if "sidecar" in command and live in command:
            found.append(entry.name)
    return found
