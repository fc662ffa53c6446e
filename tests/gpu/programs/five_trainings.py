# SPDX-License-Identifier: Apache-2.0
"""Five small trainings that need several GiB each, deterministic to the bit: five_trainings.py NAME... prints a line of JSON for each."""

import hashlib
import json
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
import torch  # noqa: E402
from torch import nn  # noqa: E402

STEPS = 4


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width, mix):
        super().__init__()
        self.first, self.mix, self.second = nn.LayerNorm(width), mix, nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.mix(self.first(x))
        return x + self.mlp(self.second(x))


class MixTokens(nn.Module):
    def __init__(self, length):
        super().__init__()
        self.linear = nn.Linear(length, length)

    def forward(self, x):
        return self.linear(x.transpose(1, 2)).transpose(1, 2)


def mlp():
    layers = [layer for _ in range(12) for layer in (nn.Linear(4096, 4096), nn.ReLU())]
    return nn.Sequential(*layers), lambda: torch.randn(8192, 4096), None


def convolutions():
    layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()]
    for _ in range(8):
        layers += [nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()]
    layers += [nn.AvgPool2d(24), nn.Flatten(), nn.Linear(64 * 16, 100)]
    return nn.Sequential(*layers), lambda: torch.randn(64, 3, 96, 96), 100


def gpt():
    width, words = 1024, 32000
    layers = [nn.Embedding(words, width)] + [Block(width, Attention(width, 16)) for _ in range(4)]
    return nn.Sequential(*layers, nn.Linear(width, words)), lambda: torch.randint(words, (8, 1024)), words


def autoencoder():
    layers, channels = [], [3, 64, 128, 256]
    for a, b in zip(channels, channels[1:]):
        layers += [nn.Conv2d(a, b, 4, 2, 1), nn.GELU()]
    for a, b in zip(channels[::-1], channels[-2::-1]):
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.GELU()]
    return nn.Sequential(*layers), lambda: torch.randn(192, 3, 192, 192), None


def mixer():
    width, length = 512, 256
    blocks = [Block(width, MixTokens(length)) for _ in range(6)]
    return nn.Sequential(nn.Linear(768, width), *blocks, nn.Linear(width, 768)), lambda: torch.randn(64, length, 768), None


def train(name):
    torch.manual_seed(7)
    model, make_input, classes = TRAININGS[name]()
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses = []
    for _ in range(STEPS):
        data = make_input().cuda()
        out = model(data)
        if classes is None:
            loss = (out - data).square().mean()
        else:
            target = torch.randint(classes, out.shape[:-1]).cuda()
            loss = nn.functional.cross_entropy(out.flatten(0, -2), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item().hex())
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    allocated = torch.cuda.max_memory_allocated()
    return {"name": name, "losses": losses, "weights": digest.hexdigest(), "allocated": allocated}


TRAININGS = {function.__name__: function for function in (mlp, convolutions, gpt, autoencoder, mixer)}

if __name__ == "__main__":
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    for wanted in sys.argv[1:] or TRAININGS:
        print(json.dumps(train(wanted)), flush=True)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
