# SPDX-License-Identifier: Apache-2.0
"""Gradient accumulation: three backward passes before a step, a learning-rate schedule beside it."""

import oracle
import small
import torch
from torch.nn import functional as F

PASSES = 3


def main():
    run = oracle.Run(__doc__)
    model, shape = small.build(run.full)
    model.to(run.device)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, momentum=0.5)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        for number in range(PASSES):
            x = torch.randn(shape, device=run.device)
            labels = torch.randint(model.head.out_features, (shape[0],), device=run.device)
            run.data(x, labels)
            logits = model(x)
            loss = F.cross_entropy(logits, labels) / PASSES
            run.at(f"end of forward {number}", logits, loss)
            loss.backward()
            run.at(f"end of backward {number}", logits, loss)
        optimizer.step()
        schedule.step()
        run.at("after step", logits, loss)
        optimizer.zero_grad(set_to_none=False)
        run.loss(loss)
        del logits, loss
    run.finish()


if __name__ == "__main__":
    main()
