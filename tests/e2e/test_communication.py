# SPDX-License-Identifier: Apache-2.0
"""Memory of NCCL: whose it is, and what for, by the function of NCCL that the program called."""
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hosts import STAND_IN, VRAMSCOPE

pytestmark = pytest.mark.skipif(not (STAND_IN / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
MIB = 1 << 20

# As NCCL does it: the interface is C and exported, what serves it C++ and hidden, and a proxy has a thread of its own.
LIBRARY = """
#include <thread>
extern "C" int cuMemAlloc_v2(unsigned long long*, unsigned long);
extern "C" int cuCtxSetCurrent(void*);
__attribute__((visibility("hidden"), noinline)) int ncclCudaMalloc(unsigned long mib) {
  unsigned long long address = 0;
  const int result = cuMemAlloc_v2(&address, mib << 20);
  return result == 0 && address != 0 ? 0 : 1;
}
#define NCCL extern "C" __attribute__((visibility("default"), noinline)) int
NCCL ncclCommInitRankConfig(unsigned long mib, void* context) {
  int proxied = 0;
  std::thread([&] { proxied = cuCtxSetCurrent(context) + ncclCudaMalloc(2 * mib); }).join();
  const int made = ncclCudaMalloc(mib);
  return made + proxied;
}
NCCL ncclAllReduce(unsigned long mib) { const int made = ncclCudaMalloc(mib); return made != 0 ? 1 : 0; }
NCCL ncclMemAlloc(unsigned long mib) { const int made = ncclCudaMalloc(mib); return made != 0 ? 2 : 0; }
"""
PROGRAM = """
import ctypes, sys
cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def world():
    assert nccl.ncclCommInitRankConfig(ctypes.c_ulong(20), context) == 0
def experts():
    assert nccl.ncclCommInitRankConfig(ctypes.c_ulong(30), context) == 0
world()
experts()
assert nccl.ncclAllReduce(ctypes.c_ulong(8)) == 0 and nccl.ncclMemAlloc(ctypes.c_ulong(64)) == 0
"""


@pytest.fixture(scope="module")
def recording(tmp_path_factory):
    folder = tmp_path_factory.mktemp("communication")
    (folder / "nccl.cc").write_text(LIBRARY)
    (folder / "program.py").write_text(PROGRAM)
    library = folder / "libnccl.so.2"
    build = ["c++", "-O1", "-fPIC", "-shared", "-pthread", folder / "nccl.cc", "-o", library, STAND_IN / "libcuda.so.1"]
    done = subprocess.run(build, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, "LD_LIBRARY_PATH": str(STAND_IN), "VRAMSCOPE_FAKE_BOOKS": str(folder / "books")}
    command = [VRAMSCOPE, "run", "--no-report", "-o", folder / "x.vram", "--", sys.executable, folder / "program.py", library]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return folder / "x.vram"


def rows(recording, by: str) -> dict[tuple[str, ...], int]:
    words = [VRAMSCOPE, "report", recording, "--by", by, "--where", "category=communication", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {tuple(row["path"]): row["bytes"] // MIB for row in json.loads(done.stdout)["rows"]}


def test_by_what_was_called(recording):
    assert rows(recording, "owner,tag") == {
        ("NCCL", "ncclCommInitRankConfig"): 50,
        ("NCCL", "a thread of NCCL's own"): 100,
        ("NCCL", "ncclAllReduce"): 8,
        ("NCCL", "ncclMemAlloc"): 64,
    }


def test_communicators_by_the_lines_that_make_them(recording):
    made = {path[1].split(" in ")[-1]: mib for path, mib in rows(recording, "tag,line").items() if path[0] == "ncclCommInitRankConfig"}
    assert made == {"world": 20, "experts": 30}
