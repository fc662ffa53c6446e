# SPDX-License-Identifier: Apache-2.0
"""What is free in a CUDA graph's private pool is a row of its own: empty_cache() gives none of it back. PyTorch's
allocator is played by the program: memory of the stand-in driver, blocks told to the probe as PyTorch does, and
PyTorch's own word for which segments are private."""
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from places import FAKE, HOSTS, MIB, VRAMSCOPE

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")

SETUP = """
import ctypes, time, torch
MIB = 1 << 20
report = ctypes.PyDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
report.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_uint16]
report.restype = None
cuda = ctypes.CDLL("libcuda.so.1")
context, stream, graph = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0 and cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
"""
PROGRAM = """
segments = []
for size in (20 * MIB, 8 * MIB):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    segments.append(address.value)
    report(address.value, 2 * MIB, 0, 0, 1)
looks = []
def snapshot():
    looks.append(time.monotonic())
    pools = ((0, 7), (0, 0))
    return [dict(address=address, segment_pool_id=pool) for address, pool in zip(segments, pools)]
torch.cuda.memory_snapshot = snapshot
torch._C._cuda_isHistoryEnabled = lambda: HISTORY
assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
for _ in range(1000):
    pass
report(segments[1], -2 * MIB, 0, 0, 1)
for _ in range(100):
    report(segments[1], 2 * MIB, 0, 0, 1); report(segments[1], -2 * MIB, 0, 0, 1)
print(len(looks))
"""


GRAPHS = """
torch.nn.Linear(2, 2)(torch.zeros(1, 2))  # from now on modules are known, and how to read a function's variables
kept = []
def keep(size):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    report(address.value, size, 0, 0, 1)
    kept.append(address.value)
def capture(size, executable=True):
    assert cuda.cuStreamBeginCapture_v2(stream, 2) == 0
    keep(size)
    assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
    if executable:
        assert cuda.cuGraphInstantiateWithFlags(ctypes.byref(ctypes.c_void_p()), graph, ctypes.c_ulonglong(0)) == 0
def capture_one(batch_size, step):
    num_reqs = 7
    capture(batch_size * MIB)
def capture_all(step):
    for bs in (4, 2, 4):
        capture_one(bs, step)
        keep(3 * MIB)
def warm_up(batch):
    capture(6 * MIB, executable=False)
capture_all("decode")
warm_up("large")
warm_up(-1)
warm_up(2**31)
"""

# torch_memory_saver's pluggable mode: its library is opened when PyTorch runs already.
REGION = """
saver = ctypes.CDLL("SAVER")
saver.tms_set_interesting_region.argtypes = [ctypes.c_bool]
SIZE = ctypes.c_size_t(8 * MIB)
address, handle = ctypes.c_uint64(), ctypes.c_uint64()
assert cuda.cuMemAddressReserve(ctypes.byref(address), SIZE, SIZE, ctypes.c_uint64(0), ctypes.c_uint64(0)) == 0
assert cuda.cuMemCreate(ctypes.byref(handle), SIZE, (ctypes.c_uint32 * 8)(1, 0, 1, 0), ctypes.c_uint64(0)) == 0
saver.tms_set_interesting_region(True)
saver.tms_set_current_tag(b"kv_cache")
assert saver.saver_map(cuda.cuMemMap, address, SIZE, handle) == 0
report(address.value, 6 * MIB, 0, 0, 1)
"""


def run(tmp_path, program: str) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    text = SETUP + program
    command = [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(tmp_path, history: bool) -> tuple[int, dict[str, int]]:
    output = run(tmp_path, PROGRAM.replace("HISTORY", str(history)))
    found = subprocess.run(
        [VRAMSCOPE, "report", tmp_path / "x.vram", "--at", "end", "--by", "owner,category", "--json"],
        capture_output=True, text=True, timeout=60, check=True,
    )
    of_pytorch = [r for r in json.loads(found.stdout)["rows"] if r["path"][0] == "PyTorch" and r["device"] == 0]
    return int(output), {r["path"][1]: r["bytes"] for r in of_pytorch}


def test_free_memory_of_a_private_pool_is_no_cache(tmp_path):
    looks, found = rows(tmp_path, history=False)
    # One look for one capture: a look copies the allocator's whole state.
    assert looks == 1
    assert found.pop("graph pool") == 18 * MIB and found.pop("cached") == 8 * MIB, found
    assert sum(found.values()) == 2 * MIB, found


def test_where_the_program_records_history_nothing_is_asked(tmp_path):
    looks, found = rows(tmp_path, history=True)
    assert looks == 0
    assert found["fragmentation"] == 18 * MIB and found["cached"] == 8 * MIB, found


def test_each_captured_graph_is_a_row(tmp_path):
    """By the variable that says its batch, with what it left: its block, and the driver's part of an executable graph.
    What is allocated between captures is not of them."""
    run(tmp_path, GRAPHS)
    text = subprocess.run([VRAMSCOPE, "report", tmp_path / "x.vram", "--phases"], capture_output=True, text=True, check=True).stdout
    done = subprocess.run(
        [VRAMSCOPE, "report", tmp_path / "x.vram", "--phases", "--json"], capture_output=True, text=True, timeout=60, check=True
    )
    answer = json.loads(done.stdout)
    assert answer["phases"] == [] and not text.startswith("\n")
    graphs = {entry["name"]: entry for entry in answer["graphs"]}
    assert list(graphs) == [
        "batch_size=4 in capture_one", "batch_size=2 in capture_one", "<string>:21 in capture",
    ], text
    blocks = {name: sum(each["bytes"] for each in entry["left"] if each["category"] != "driver") for name, entry in graphs.items()}
    assert list(blocks.values()) == [8 * MIB, 2 * MIB, 18 * MIB], text
    assert [entry["count"] for entry in graphs.values()] == [2, 1, 3]
    assert "\n  CUDA graph " in text, text


def test_a_saver_that_is_opened_later_tells_its_region(tmp_path):
    run(tmp_path, REGION.replace("SAVER", str(HOSTS / "torch_memory_saver_stand_in.so")))
    done = subprocess.run(
        [VRAMSCOPE, "report", tmp_path / "x.vram", "--at", "end", "--by", "tag,category", "--json"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    found = {tuple(row["path"]): row["bytes"] for row in json.loads(done.stdout)["rows"]}
    assert found[("kv_cache", "kv cache")] == 6 * MIB, found
