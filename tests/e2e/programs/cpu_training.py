# SPDX-License-Identifier: Apache-2.0
"""Trains on the CPU for ten iterations, keeps 1 MiB more in each, and waits for the end of its input.

Marks end the iterations: the first step of an optimizer imports half of torch.
"""
import sys

import torch
import vramscope

model = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 16))
kept = []
for _ in range(10):
    model(torch.randn(64, 256)).square().mean().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.01 * parameter.grad
    model.zero_grad()
    kept.append(torch.ones(1 << 18))
    vramscope.mark("iteration")
print("ready", flush=True)
sys.stdin.read()
