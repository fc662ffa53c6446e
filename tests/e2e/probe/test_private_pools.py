# SPDX-License-Identifier: Apache-2.0
"""What is free in a CUDA graph's private pool is a row of its own: empty_cache() gives none of it back. PyTorch's
allocator is played by the program: memory of the stand-in driver, blocks told to the probe as PyTorch does, and
PyTorch's own word for which segments are private."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest
from places import FAKE, MIB, VRAMSCOPE

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")

PROGRAM = """
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


def rows(tmp_path, history: bool) -> tuple[int, dict[str, int]]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    text = textwrap.dedent(PROGRAM).replace("HISTORY", str(history))
    command = [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, "-c", text]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found = subprocess.run(
        [VRAMSCOPE, "report", tmp_path / "x.vram", "--at", "end", "--by", "owner,category", "--json"],
        capture_output=True, text=True, timeout=60, check=True,
    )
    of_pytorch = [r for r in json.loads(found.stdout)["rows"] if r["path"][0] == "PyTorch" and r["device"] == 0]
    return int(done.stdout), {r["path"][1]: r["bytes"] for r in of_pytorch}


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
