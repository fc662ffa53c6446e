# SPDX-License-Identifier: Apache-2.0
"""A training step captured in a CUDA graph, replayed, dropped and captured anew: PyTorch's private pools."""

import pacing

args = pacing.arguments()

import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(12)]).cuda()
optimizer = torch.optim.Adam(model.parameters(), capturable=True)


def step(x):
    optimizer.zero_grad(set_to_none=True)
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    return loss


def capture(batch):
    x = torch.randn(batch, 1024, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step(x)
    return graph, x, loss


held = None
for turn in pacing.turns(args.seconds):
    if turn % 60 == 0:
        held = None
        torch.cuda.empty_cache()
        held = capture(256 << (turn // 60 % 4))
    graph, x, loss = held
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
print("loss", loss.item())
