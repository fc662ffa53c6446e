# SPDX-License-Identifier: Apache-2.0
"""A GPT-2 (124 M parameters with --size full), output tied to the embedding, AdamW."""

import oracle
import torch
import transformer


def main():
    run = oracle.Run(__doc__)
    model, shape = transformer.build(run.full)
    model.to(run.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        tokens, targets = run.data(*transformer.batch_of(model, shape, run.device))
        logits = model(tokens)
        loss = transformer.loss_of(logits, targets)
        run.at("end of forward", logits, loss)
        loss.backward()
        run.at("end of backward", logits, loss)
        optimizer.step()
        run.at("after step", logits, loss)
        optimizer.zero_grad(set_to_none=True)
        run.loss(loss)
        del logits, loss
    run.finish()


if __name__ == "__main__":
    main()
