# SPDX-License-Identifier: Apache-2.0
"""A training under way, with its model and optimizer on the GPU, that begins to record itself: --trace FILE."""

import pacing

args = pacing.arguments(trace="late.vram")

import json

import torch
import vramscope
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
kept = torch.ones(64, 1 << 20, device="cuda")


def step(batch):
    loss = model(torch.randn(batch, 2048, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def mark(name):
    torch.cuda.synchronize()
    vramscope.mark(name)
    figures = {"memory_allocated": torch.cuda.memory_allocated(), "memory_reserved": torch.cuda.memory_reserved()}
    print("MARK " + json.dumps({"mark": name, **figures}), flush=True)


for _ in range(10):
    step(256)
torch.cuda.synchronize()
vramscope.start(args.trace)
mark("started")
for turn in pacing.turns(args.seconds):
    step(256 << turn % 4)
    if turn == 100:
        # Memory from before the recording goes while it is under way.
        del kept
        torch.cuda.empty_cache()
mark("trained")
