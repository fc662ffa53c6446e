# SPDX-License-Identifier: Apache-2.0
"""The product of two matrices with the gradients of both, the workload of MXNet's profiler test."""

import oracle
import torch
from torch import nn


class TensorDot(nn.Module):
    def __init__(self):
        super().__init__()
        self.A = nn.Parameter(torch.rand(1024, 2048))
        self.B = nn.Parameter(torch.rand(2048, 4096))

    def forward(self):
        return torch.tensordot(self.A, self.B, dims=1)


def main():
    run = oracle.Run(__doc__, steps=1)
    model = TensorDot().to(run.device)
    run.watch(model=model)
    for _ in run.steps():
        dot = model()
        run.at("end of forward", dot)
        head = run.data(torch.ones_like(dot))
        dot.backward(head)
        run.at("end of backward", dot)
        run.loss(dot.sum())
        del dot, head
    run.finish()


if __name__ == "__main__":
    main()
