# SPDX-License-Identifier: Apache-2.0
"""torch.compile with fullgraph=True; prints Dynamo's own counters, which must not depend on us."""

import argparse
import json

import oracle
import torch
import transformer
from torch._dynamo.utils import counters


def main():
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 3):
        print("SKIP before PyTorch 2.3 what is compiled takes its arguments' storages away, and nothing can be summed up")
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--compile-step", action="store_true", help="the optimizer's step too")
    run = oracle.Run(__doc__, parser=parser)
    model, shape = transformer.build(run.full)
    model.to(run.device)
    step_model = torch.compile(model, fullgraph=True, backend=run.args.backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    step = optimizer.step
    if run.args.compile_step:
        step = torch.compile(step, backend=run.args.backend)
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        tokens, targets = run.data(*transformer.batch_of(model, shape, run.device))
        logits = step_model(tokens)
        loss = transformer.loss_of(logits, targets)
        run.at("end of forward", logits, loss)
        loss.backward()
        run.at("end of backward", logits, loss)
        step()
        run.at("after step", logits, loss)
        optimizer.zero_grad()
        run.loss(loss)
        del logits, loss
    run.finish()
    print("COUNTERS " + json.dumps({name: dict(found) for name, found in sorted(counters.items())}))


if __name__ == "__main__":
    main()
