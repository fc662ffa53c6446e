# SPDX-License-Identifier: Apache-2.0
"""Training on a mesh of data x tensor parallel, with a communicator for each axis. At the end the communicators go one after
the other: memory of equal sizes is shared with different peers, and freed at different times."""

import pacing

args = pacing.arguments()

import os

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import init_device_mesh


def train(rank, world, seconds):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29512", "RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", rank=rank, world_size=world)
    mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
    model = torch.nn.Linear(4096, 4096).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    turns = int(seconds / 0.05)
    for _ in pacing.turns(seconds + 3600):
        model(torch.randn(64, 4096, device="cuda")).sum().backward()
        for axis in ("dp", "tp"):
            distributed.all_reduce(model.weight.grad, group=mesh.get_group(axis))
        optimizer.step()
        optimizer.zero_grad()
        turns -= 1
        if turns < 0:
            break
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    world = torch.cuda.device_count()
    context = multiprocessing.get_context("spawn")
    ranks = [context.Process(target=train, args=(rank, world, args.seconds)) for rank in range(world)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
    assert all(process.exitcode == 0 for process in ranks), [process.exitcode for process in ranks]
