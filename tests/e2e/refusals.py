# SPDX-License-Identifier: Apache-2.0
"""Programs to which the stand-in driver refuses memory."""
from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from places import FAKE, VRAMSCOPE

# The driver, and PyTorch's way to report blocks and to give up, as its caching allocator uses them.
PRELUDE = """
import ctypes, os, signal, sys
MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def alloc(size):
    address = ctypes.c_uint64()
    return address.value if cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0 else None
def free(address):
    assert cuda.cuMemFree_v2(ctypes.c_uint64(address)) == 0
program = ctypes.PyDLL(None)
say = getattr(program, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
say.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_uint16]
give_up = getattr(program, "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")
give_up.argtypes = [ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_uint16]
def block(address, size):
    say(address, size, 0, 0, 1)
"""


def record(
    tmp_path: Path, text: str, status: int = 0, options: tuple[str, ...] = (), total_mib: int = 4096
) -> subprocess.CompletedProcess:
    program = tmp_path / "program.py"
    program.write_text("from allocator import *\n" + textwrap.dedent(text))
    # As PyTorch is: an installed package, whose lines are not the user's.
    packages = tmp_path / "site-packages"
    packages.mkdir(exist_ok=True)
    (packages / "allocator.py").write_text(PRELUDE)
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FAKE),
        "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "PYTHONPATH": str(packages),
        "VRAMSCOPE_FAKE_TOTAL_MIB": str(total_mib),
    }
    done = subprocess.run(
        [VRAMSCOPE, "run", "-o", tmp_path / "x.vram", *options, "--", sys.executable, program],
        env=environment, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == status, done.stderr
    return done


def report(tmp_path: Path, *words: str) -> str:
    done = subprocess.run(
        [VRAMSCOPE, "report", tmp_path / "x.vram", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def head(text: str) -> str:
    return "\n".join(text.splitlines()[:3])
