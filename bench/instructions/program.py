# SPDX-License-Identifier: Apache-2.0
"""Events below Python stacks and in modules with names, for run.py: `program.py LIBRARY PAIRS`."""

import ctypes
import sys
import time

import torch

LAYERS, WIDTH, BATCH, STEPS = 12, 64, 8, 4  # of the training step; bench/mlp_step.py times 48 layers

events = ctypes.PyDLL(sys.argv[1])
PAIRS = int(sys.argv[2])


class Inner(torch.nn.Module):
    def forward(self, name):
        events.count_blocks(PAIRS, name)


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()

    def forward(self, name):
        self.inner(name)


def at_depth(frames, function, name):
    """Calls function(name) below so many Python frames, this file's own included."""
    if frames > 2:
        at_depth(frames - 1, function, name)
    else:
        function(name)


def names_are_known():
    """Waits for the probe's search for names, which runs between two instructions of this thread."""
    for _ in range(60):
        time.sleep(0.05)


def main():
    torch.set_num_threads(1)
    outer = Outer()
    model = torch.nn.Sequential(
        *(layer for _ in range(LAYERS) for layer in (torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = torch.randn(BATCH, WIDTH)

    def step():
        optimizer.zero_grad(set_to_none=True)
        model(data).square().mean().backward()
        optimizer.step()

    for _ in range(3):
        step()
        names_are_known()
    events.instrumentation_begins()
    # In one line: another one's stacks would all be new in the first step that is counted.
    for number in range(4 + STEPS):
        if number == 4:
            events.counting_begins()
        step()
    events.counting_ends(b"CPU tensors of a training step, with names")

    at_depth(4, lambda name: events.count_blocks(PAIRS, name), b"block, 6 Python frames")
    at_depth(18, lambda name: events.count_blocks(PAIRS, name), b"block, 20 Python frames")
    outer(b"not counted")
    names_are_known()
    # Two modules are four frames here: _wrapped_call_impl, _call_impl and forward, less what at_depth has.
    at_depth(13, outer, b"block, 20 Python frames, in named modules")


main()
