# SPDX-License-Identifier: Apache-2.0
"""An LSTM whose weights are slices of one flat tensor on any device, as cuDNN lays them out; Adam."""

import oracle
import torch
from torch import nn


class Flat(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, 1)

    def flatten(self):
        weights = list(self.rnn.parameters())
        flat = torch.cat([weight.data.reshape(-1) for weight in weights])
        begin = 0
        for weight in weights:
            weight.data = flat[begin : begin + weight.numel()].view(weight.shape)
            begin += weight.numel()

    def forward(self, x):
        return self.out(self.rnn(x)[0][:, -1])


def main():
    run = oracle.Run(__doc__)
    width, layers, batch, length = (512, 3, 64, 64) if run.full else (24, 2, 4, 6)
    model = Flat(width, layers).to(run.device)
    model.flatten()
    optimizer = torch.optim.Adam(model.parameters())
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        x = run.data(torch.randn(batch, length, width, device=run.device))
        y = model(x)
        loss = y.square().mean()
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
