# SPDX-License-Identifier: Apache-2.0
"""Mixed precision: autocast and GradScaler, float16 on a GPU, bfloat16 on the CPU."""

import oracle
import small
import torch
from torch.nn import functional as F


def main():
    if not hasattr(torch.amp, "GradScaler"):
        print("SKIP GradScaler of any device came with PyTorch 2.3")
        return
    run = oracle.Run(__doc__)
    model, shape = small.build(run.full)
    model.to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    kind = torch.float16 if run.device.type == "cuda" else torch.bfloat16
    scaler = torch.amp.GradScaler(run.device.type)
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        x = torch.randn(shape, device=run.device)
        labels = torch.randint(model.head.out_features, (shape[0],), device=run.device)
        run.data(x, labels)
        optimizer.zero_grad()
        with torch.autocast(run.device.type, dtype=kind):
            logits = model(x)
            loss = F.cross_entropy(logits, labels)
        scaled = scaler.scale(loss)
        run.at("end of forward", logits, loss, scaled)
        scaled.backward()
        run.at("end of backward", logits, loss, scaled)
        scaler.step(optimizer)
        scaler.update()
        run.at("after step", logits, loss, scaled)
        run.loss(loss)
        del logits, loss, scaled
    run.finish()


if __name__ == "__main__":
    main()
