# SPDX-License-Identifier: Apache-2.0
"""RAPIDS' memory resources: plain, pool, stream-ordered and arena-like binning, one after the other."""

import pacing

args = pacing.arguments()

import rmm

MIB = 1 << 20
plain = rmm.mr.CudaMemoryResource()
resources = [
    plain,
    rmm.mr.PoolMemoryResource(plain, initial_pool_size=256 * MIB, maximum_pool_size=2048 * MIB),
    rmm.mr.CudaAsyncMemoryResource(),
    rmm.mr.BinningMemoryResource(plain, 16, 22),
]
kept = []
for turn in pacing.turns(args.seconds):
    resource = resources[(turn // 20) % len(resources)]
    rmm.mr.set_current_device_resource(resource)
    kept.append(rmm.DeviceBuffer(size=(1 + turn % 13) * 700_000))
    if turn % 16 == 15:
        kept.clear()
    rmm.pylibrmm.stream.DEFAULT_STREAM.synchronize()
kept.clear()
print("turns", turn)
