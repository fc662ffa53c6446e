# SPDX-License-Identifier: Apache-2.0
"""A kernel written in Triton, beside PyTorch's: the launcher reaches the driver by a library of its own."""

import pacing

args = pacing.arguments()

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(out, x, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * columns + at, values / tl.sum(values, axis=0), mask=at < columns)


kept = []
for turn in pacing.turns(args.seconds, 0.1):
    columns = 500 * (1 + turn % 8)
    x = torch.randn(2048, columns, device="cuda")
    out = torch.empty_like(x)
    softmax[(2048,)](out, x, columns, BLOCK=triton.next_power_of_2(columns))
    kept.append(out)
    if turn % 30 == 29:
        kept.clear()
        torch.cuda.empty_cache()
    torch.cuda.synchronize()
print("sum", out.sum().item())
