# SPDX-License-Identifier: Apache-2.0
"""Holds 64 MiB of GPU memory until its input ends: three allocations, of which one is freed, and a failed one.

With --after-child a child process does the same before, and ends.
"""
import ctypes
import subprocess
import sys

MIB = 1 << 20
if "--after-child" in sys.argv:
    quiet = subprocess.DEVNULL
    subprocess.run([sys.executable, __file__], stdin=quiet, stdout=quiet, check=True)
cuda = ctypes.CDLL("libcuda.so.1")


def allocate(size: int) -> ctypes.c_uint64:
    address = ctypes.c_uint64()
    allocate.status = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    return address


context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
held = [allocate(48 * MIB), allocate(16 * MIB)]
freed = allocate(32 * MIB)
assert allocate.status == 0 and cuda.cuMemFree_v2(freed) == 0
allocate(1 << 40)
assert allocate.status == 2
print("ready", flush=True)
sys.stdin.read()
