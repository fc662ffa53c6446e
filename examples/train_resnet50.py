# SPDX-License-Identifier: Apache-2.0
"""Trains a ResNet-50 on made-up images, on the CPU or on a GPU.

An ordinary PyTorch program: nothing in it needs vramscope. The network is the published one
(He et al. 2015, with the stride in the 3x3 convolution), so its memory is that of real training.

    vramscope run -- python examples/train_resnet50.py --device cuda
"""

import argparse
import pathlib
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import evidence

if "--deterministic" in sys.argv:
    evidence.prepare_deterministic()

import torch
from torch import nn
from torch.nn import functional as F

CLASSES = 1000


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up to four times the width, and the way around."""

    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride=stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.around = None
        if stride != 1 or inputs != outputs:
            self.around = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride=stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        y = self.norm3(self.conv3(y))
        return F.relu(y + (x if self.around is None else self.around(x)), inplace=True)


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        inputs = 64
        stages = []
        for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
            stage = []
            for block in range(blocks):
                stride = 2 if block == 0 and width != 64 else 1
                stage.append(Bottleneck(inputs, width, stride))
                inputs = 4 * width
            stages.append(nn.Sequential(*stage))
        self.stages = nn.Sequential(*stages)
        self.classify = nn.Linear(inputs, CLASSES)

    def forward(self, images):
        x = self.stages(self.stem(images))
        return self.classify(x.mean(dim=(2, 3)))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    evidence.add_arguments(parser)
    parser.add_argument("--batch", type=int, help="images a step (default: 4 on a CPU, 64 on a GPU)")
    parser.add_argument("--image", type=int, help="pixels a side (default: 64 on a CPU, 224 on a GPU)")
    parser.add_argument("--steps", type=int, default=20)
    return parser.parse_args()


def main():
    args = parse_arguments()
    device = evidence.select_device(args)
    on_gpu = device.type == "cuda"
    batch = args.batch or (64 if on_gpu else 4)
    side = args.image or (224 if on_gpu else 64)

    torch.manual_seed(2015)
    model = ResNet50().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"ResNet-50 of {count / 1e6:.1f} M parameters on {device}, batch {batch}, {side} pixels", flush=True)

    losses = []
    began = time.perf_counter()
    for step in range(1, args.steps + 1):
        images = torch.randn(batch, 3, side, side, device=device)
        labels = torch.randint(CLASSES, (batch,), device=device)
        loss = F.cross_entropy(model(images), labels)
        evidence.mark(args, device, "last-forward", at=step == args.steps)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        if step == 1 or step % 10 == 0 or step == args.steps:
            seconds = time.perf_counter() - began
            print(f"step {step:4d}  loss {loss.item():.4f}  {seconds:6.1f} s", flush=True)
    evidence.mark(args, device, "trained", at=True)
    evidence.finish(args, losses, model)


if __name__ == "__main__":
    main()
