# SPDX-License-Identifier: Apache-2.0
"""Two processes that train one model: DistributedDataParallel, or FSDP with --shard; gloo or NCCL."""

import argparse
import os
import subprocess
import sys
import tempfile
from importlib import metadata

RANKS = 2


def launch():
    """Starts the ranks as torchrun does, by environment."""
    version = tuple(map(int, metadata.version("torch").split(".")[:2]))
    if "--shard" in sys.argv and version < (2, 6):
        print("SKIP fully_shard came with PyTorch 2.6")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            subprocess.Popen(
                [sys.executable, *sys.argv],
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(RANKS), "STORE": f"{folder}/store"},
            )
            for rank in range(RANKS)
        ]
        return max(rank.wait() for rank in ranks)


def main():
    import oracle
    import small
    import torch
    from torch import distributed

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shard", action="store_true", help="FSDP2 instead of DDP")
    run = oracle.Run(__doc__, parser=parser)
    rank = int(os.environ["RANK"])
    on_gpu = run.device.type == "cuda"
    device = torch.device("cuda", rank) if on_gpu else run.device
    if on_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl" if on_gpu else "gloo",
        init_method=f"file://{os.environ['STORE']}",
        rank=rank,
        world_size=RANKS,
        **({"device_id": device} if on_gpu else {}),
    )
    model, shape = small.build(run.full)
    model.to(device)
    if run.args.shard:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(run.device.type, (RANKS,))
        fully_shard(model.body, mesh=mesh)
        # The outermost one would keep its whole parameters until backward, beside its shard of them.
        fully_shard(model, mesh=mesh, reshard_after_forward=True)
        trained = model
    else:
        trained = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    run.watch(model=model, optimizer=optimizer)
    for _ in run.steps():
        x = run.data(torch.randn(shape, device=device))
        y = trained(x)
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
    distributed.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
    else:
        sys.exit(launch())
