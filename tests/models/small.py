# SPDX-License-Identifier: Apache-2.0
"""The small network that programs train which are about something else than their model."""

from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, width, outputs):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.LayerNorm(width), nn.Tanh()
        )
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.body(x))


def build(full):
    """A network, and the shape of its batch."""
    return (Net(1024, 4096, 1000), (512, 1024)) if full else (Net(20, 64, 10), (16, 20))
