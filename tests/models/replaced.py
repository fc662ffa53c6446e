# SPDX-License-Identifier: Apache-2.0
"""Layers that change while training: the body is frozen, the head replaced by a wider one each step."""

import oracle
import small
import torch
from torch import nn


def main():
    run = oracle.Run(__doc__)
    model, shape = small.build(run.full)
    model.to(run.device)
    for parameter in model.body[0].parameters():
        parameter.requires_grad_(False)
    trained = [parameter for parameter in model.body.parameters() if parameter.requires_grad]
    run.watch(model=model)
    for step in run.steps():
        model.head = nn.Linear(model.head.in_features, model.head.out_features + 16).to(run.device)
        optimizer = torch.optim.Adam([*trained, *model.head.parameters()], lr=1e-3)
        run.watch(optimizer=optimizer)
        x = run.data(torch.randn(shape, device=run.device))
        y = model(x)
        loss = y.square().mean()
        run.at("end of forward", y, loss)
        loss.backward()
        run.at("end of backward", y, loss)
        optimizer.step()
        run.at("after step", y, loss)
        if step == 1:
            # Another object in the old one's place, of the same class and shape.
            model.body[2] = nn.Linear(model.head.in_features, model.head.in_features).to(run.device)
            trained = [parameter for parameter in model.body.parameters() if parameter.requires_grad]
        optimizer.zero_grad()
        run.loss(loss)
        del y, loss
    run.finish()


if __name__ == "__main__":
    main()
