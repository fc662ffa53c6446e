# SPDX-License-Identifier: Apache-2.0
"""CuPy's arrays in managed memory: 64 MiB, and then 256 MiB more."""

import time

import pacing

args = pacing.arguments()

import cupy

cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
first = cupy.ones(8 << 20, dtype=cupy.float64)
cupy.cuda.Device().synchronize()
time.sleep(args.seconds / 4)
second = cupy.full(32 << 20, 2.0)
cupy.cuda.Device().synchronize()
time.sleep(args.seconds / 4)
print("sum", float(first.sum() + second.sum()))
time.sleep(args.seconds / 4)
del first
cupy.get_default_memory_pool().free_all_blocks()
second += 1
cupy.cuda.Device().synchronize()
time.sleep(args.seconds / 4)
print("sum", float(second.sum()))
