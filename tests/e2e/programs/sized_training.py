# SPDX-License-Identifier: Apache-2.0
"""A small training of one of several models, of any batch and length, for `vramscope predict`."""
from __future__ import annotations

import argparse

import torch
from torch import nn
from torch.nn import functional


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 10))

    def forward(self, x):
        return self.layers(x.mean(1))


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2))
        self.body = nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        images = x.reshape(x.shape[0], -1)[:, : 3 * 32 * 32].reshape(-1, 3, 32, 32)
        return self.head(self.body(self.stem(images)).flatten(1))


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTM(256, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        return self.head(self.cell(x)[0][:, -1])


class Loop(nn.Module):
    """A recurrent net whose number of allocations grows with the length."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(256, 128)
        self.head = nn.Linear(128, 10)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], 128)
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
        return self.head(state)


class Attention(nn.Module):
    """Attention that keeps the scores of all pairs."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(256, 3 * 64)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.head((functional.softmax(q @ k.transpose(1, 2) / 8, dim=-1) @ v).mean(1))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(256, 4, dim_feedforward=512, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3)
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.encoder(x).mean(1))


class Wide(nn.Module):
    """More parameters than activations at small batches: the peak is the optimizer's there."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(*[part for _ in range(4) for part in (nn.Linear(256, 2048), nn.Tanh(), nn.Linear(2048, 256))])
        self.head = nn.Linear(256, 10)

    def forward(self, x):
        return self.head(self.layers(x).mean(1))


MODELS = {"mlp": Mlp, "cnn": Cnn, "lstm": Lstm, "loop": Loop, "attention": Attention, "transformer": Transformer, "wide": Wide}


def train(model: str, batch: int, length: int, steps: int = 3) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = MODELS[model]()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    for _ in range(steps):
        inputs = torch.randn(batch, length, 256)
        targets = torch.randint(10, (batch,))
        loss = functional.cross_entropy(net(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(MODELS), default="mlp")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=32)
    options = parser.parse_args()
    train(options.model, options.batch, options.length)


if __name__ == "__main__":
    main()
