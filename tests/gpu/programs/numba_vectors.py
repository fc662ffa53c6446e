# SPDX-License-Identifier: Apache-2.0
"""Kernels compiled by numba-cuda over device arrays that come and go."""

import pacing

args = pacing.arguments()

import numpy

# Versions of numba-cuda that compile nothing with NumPy 2.4, which dropped an old name, are still in use.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack
from numba import cuda


@cuda.jit
def add(x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]


kept = []
count = 1 << 20
host = numpy.ones(count, dtype=numpy.float32)
# numba-cuda keeps no pool: each array is a call of the driver, and samples fall into those.
for turn in pacing.turns(args.seconds, 0.4):
    x = cuda.to_device(host * turn)
    y = cuda.device_array(count * (1 + turn % 5), dtype=numpy.float32)
    out = cuda.device_array_like(x)
    add[(count + 255) // 256, 256](x, x, out)
    cuda.synchronize()
    kept.append(y)
    if turn % 20 == 19:
        kept.clear()
    if turn == 20:
        pinned = cuda.pinned_array(1 << 22, dtype=numpy.uint8)
print("sum", float(out.copy_to_host()[:10].sum()))
