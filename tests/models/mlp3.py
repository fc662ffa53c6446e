# SPDX-License-Identifier: Apache-2.0
"""The three-layer MLP of MXNet's profiler test: 128 tanh, dropout, 64 tanh, 32 relu, input 16 x 10."""

import oracle
import torch
from torch import nn


def main():
    run = oracle.Run(__doc__)
    net = nn.Sequential(
        nn.Linear(10, 128), nn.Tanh(), nn.Dropout(0.5), nn.Linear(128, 64), nn.Tanh(), nn.Linear(64, 32), nn.ReLU()
    ).to(run.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    run.watch(net=net, optimizer=optimizer)
    for _ in run.steps():
        x = run.data(torch.rand(16, 10, device=run.device))
        y = net(x)
        loss = y.sum()
        run.at("end of forward", y, loss)
        loss.backward()
        run.at("end of backward", y, loss)
        optimizer.step()
        run.at("after step", y, loss)
        optimizer.zero_grad()
        run.loss(loss)
        del y, loss
    run.finish()


if __name__ == "__main__":
    main()
