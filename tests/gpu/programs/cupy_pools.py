# SPDX-License-Identifier: Apache-2.0
"""CuPy's own pool, its stream-ordered pool and its pinned pool; cuBLAS and cuFFT through it."""

import pacing

args = pacing.arguments()

import cupy

rng = cupy.random.default_rng(0)
kept = []
stream_ordered = cupy.cuda.MemoryAsyncPool()
for turn in pacing.turns(args.seconds, 0.1):
    if turn == 120:
        kept.clear()
        cupy.get_default_memory_pool().free_all_blocks()
    with cupy.cuda.using_allocator(stream_ordered.malloc if turn % 40 >= 20 else None):
        block = cupy.full((1 + turn % 9, 1 << 18), float(turn))
        kept.append(block * 2)
    if turn % 24 == 23:
        kept.clear()
    if turn % 10 == 0:
        with cupy.cuda.using_allocator(cupy.get_default_memory_pool().malloc):
            matrix = rng.standard_normal((1024, 1024), dtype=cupy.float32)
            product = matrix @ matrix
            spectrum = cupy.fft.fft2(product)
            host = cupy.asnumpy(spectrum[:4])
    cupy.cuda.get_current_stream().synchronize()
print("sum", float(abs(host).sum()))
