# SPDX-License-Identifier: Apache-2.0
"""Data-parallel training on every GPU of the machine, with NCCL.

With --mesh the ranks are a mesh of data x tensor parallel, with a communicator for each axis. At the end the communicators
go one after the other: memory of equal sizes is shared with different peers, and freed at different times.
"""

import pacing

args = pacing.arguments(mesh=False)

import os

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch import nn
from torch.distributed.device_mesh import init_device_mesh


def train(rank, world, seconds):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "RANK": str(rank), "WORLD_SIZE": str(world)}
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.GELU()) for _ in range(8)]).cuda()
    groups = []
    if args.mesh:
        mesh = init_device_mesh("cuda", (world // 2, 2), mesh_dim_names=("dp", "tp"))
        groups = [mesh.get_group("dp"), mesh.get_group("tp")]
    else:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(model.parameters())
    stop = torch.zeros(1, device="cuda")
    for turn in pacing.turns(seconds + 3600):
        loss = model(torch.randn(512, 2048, device="cuda")).square().mean()
        loss.backward()
        for group in groups:
            for parameter in model.parameters():
                distributed.all_reduce(parameter.grad, group=group)
        optimizer.step()
        optimizer.zero_grad()
        # Rank 0's clock ends the training of all.
        if rank == 0 and turn * 0.05 >= seconds:
            stop.fill_(1)
        distributed.broadcast(stop, 0)
        if stop.item():
            break
    print(f"rank {rank} loss {loss.item():.6f}", flush=True)
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
