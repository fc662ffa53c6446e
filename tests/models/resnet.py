# SPDX-License-Identifier: Apache-2.0
"""A ResNet-50 (bottleneck blocks, batch norm) with SGD and momentum; --size small is one block a stage."""

import oracle
import torch
from torch import nn
from torch.nn import functional as F


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    def __init__(self, blocks, width, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        inputs = width
        for stage, count in enumerate(blocks):
            layers = []
            for number in range(count):
                layers.append(Bottleneck(inputs, width << stage, 2 if stage > 0 and number == 0 else 1))
                inputs = 4 * (width << stage)
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layers))
        self.fc = nn.Linear(inputs, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(F.adaptive_avg_pool2d(x, 1).flatten(1))


def main():
    run = oracle.Run(__doc__)
    if run.full:
        model, batch, side = ResNet((3, 4, 6, 3), 64, 1000), 32, 224
    else:
        model, batch, side = ResNet((1, 1, 1, 1), 16, 100), 4, 64
    model.to(run.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        images = torch.randn(batch, 3, side, side, device=run.device)
        labels = torch.randint(model.fc.out_features, (batch,), device=run.device)
        run.data(images, labels)
        optimizer.zero_grad()
        logits = model(images)
        loss = F.cross_entropy(logits, labels)
        run.at("end of forward", logits, loss)
        loss.backward()
        run.at("end of backward", logits, loss)
        optimizer.step()
        run.at("after step", logits, loss)
        run.loss(loss)
        del logits, loss
    run.finish()


if __name__ == "__main__":
    main()
