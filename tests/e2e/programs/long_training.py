# SPDX-License-Identifier: Apache-2.0
"""A small training of so many steps with a peak at step 20, and marks around each optimizer step of every 25th."""
import sys
import torch
import vramscope

torch.manual_seed(0)
torch.set_num_threads(1)
steps = int(sys.argv[1])
model = torch.nn.Sequential(
    *[torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.LayerNorm(64)) for _ in range(8)]
)
optimizer = torch.optim.Adam(model.parameters())
kept = []
for step in range(steps):
    x = torch.randn(512 if step == 20 else 32, 64)
    loss = model(x).square().mean()
    if step % 10 == 3:
        kept.append(loss.detach() * 2)
    loss.backward()
    if step % 25 == 7:
        vramscope.mark(f"at {step}")
    optimizer.step()
    if step % 25 == 9:
        vramscope.mark(f"at {step}")
    if step % 3 == 0:
        optimizer.zero_grad()
    else:
        optimizer.zero_grad(set_to_none=False)
    if step % 25 == 11:
        vramscope.mark(f"at {step}")
