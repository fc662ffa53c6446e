# SPDX-License-Identifier: Apache-2.0
"""Forward and backward within the optimizer's step, as Lightning has them: gradients come after the step began."""

import oracle
import small
import torch
from torch.nn import functional as F


def main():
    run = oracle.Run(__doc__)
    model, shape = small.build(run.full)
    model.to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    run.watch(model=model, optimizer=optimizer)

    def closure():
        x = torch.randn(shape, device=run.device)
        labels = torch.randint(model.head.out_features, (shape[0],), device=run.device)
        run.data(x, labels)
        with torch.autocast(run.device.type, dtype=torch.bfloat16):
            logits = model(x)
            loss = F.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()
        run.at("end of backward", logits, loss)
        return loss

    for _ in run.steps():
        run.loss(optimizer.step(closure))
    run.finish()


if __name__ == "__main__":
    main()
