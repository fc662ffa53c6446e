# SPDX-License-Identifier: Apache-2.0
"""A training that torchrun starts: DDP or FSDP2, over NCCL on GPUs and gloo on CPUs. One rank is made heavier.

    torchrun --nproc-per-node 2 ranks.py ddp|fsdp [--heavy 1] [--size small|large] [--hold SECONDS]

The heavy rank's `blocks.2` keeps what it computed. Batches come from a data loader with workers, losses are averaged
in a second communicator. Each rank says what its parameters and its optimizer's state have, and ends with a mark `trained`, at
which nothing of a step is under way.
"""

import argparse
import json
import os
import time

import torch
import vramscope
from torch import distributed, nn

KEPT = 24  # copies of its activation that the heavy rank's block keeps, some of each step
SIZES = {"small": (128, 256), "large": (1024, 4096)}  # rows of a batch, width


class Block(nn.Module):
    def __init__(self, width, keeps):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.kept = [] if keeps else None

    def forward(self, x):
        hidden = torch.relu(self.up(x))
        if self.kept is not None:
            self.kept += [hidden.detach().clone() for _ in range(min(6, KEPT - len(self.kept)))]
        return x + self.down(hidden)


class Model(nn.Module):
    def __init__(self, width, heavy):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width, heavy and i == 2) for i in range(4))
        self.head = nn.Linear(width, 16)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Rows(torch.utils.data.Dataset):
    def __init__(self, width):
        self.width = width

    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        return torch.full((self.width,), float(index % 7))


def of_storage(tensor):
    local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
    return local.untyped_storage().nbytes()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("how", choices=("ddp", "fsdp"))
    parser.add_argument("--heavy", type=int, default=-1)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--hold", type=float, default=0, help="seconds to keep all memory at the end")
    args = parser.parse_args()
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("nccl" if on_gpu else "gloo")
    averages = distributed.new_group(list(range(world)))
    rows, width = SIZES[args.size]
    model = Model(width, rank == args.heavy).to(device)
    if args.how == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (world,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        trained = model
    else:
        trained = nn.parallel.DistributedDataParallel(model, device_ids=[device.index] if on_gpu else None)
    optimizer = torch.optim.AdamW(model.parameters())
    loader = torch.utils.data.DataLoader(Rows(width), batch_size=rows, num_workers=2)
    for _, batch in zip(range(args.steps), loader):
        vramscope.mark("iteration")
        loss = trained(batch.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        average = loss.detach().clone()
        distributed.all_reduce(average, group=averages)
    own = {"parameter": model.parameters(), "optimizer state": (v for s in optimizer.state.values() for v in s.values())}
    held = {kind: sum(of_storage(tensor) for tensor in tensors if tensor.device == device) for kind, tensors in own.items()}
    said = json.dumps({"rank": rank, "loss": average.item() / world, "pid": os.getpid(), **held})
    os.write(1, f"{said}\n".encode())  # whole, whatever the other ranks print
    vramscope.mark("trained")
    time.sleep(args.hold)
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
