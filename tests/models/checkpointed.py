# SPDX-License-Identifier: Apache-2.0
"""A transformer with activation checkpointing of every block, of both kinds (--reentrant)."""

import argparse
import functools

import oracle
import torch
import transformer
from torch.utils.checkpoint import checkpoint


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reentrant", action="store_true")
    run = oracle.Run(__doc__, parser=parser)
    model, shape = transformer.build(run.full)
    # Without dropout there is no random state, which autograd's hooks would not see.
    model.call = functools.partial(
        checkpoint, use_reentrant=run.args.reentrant, preserve_rng_state=False
    )
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
