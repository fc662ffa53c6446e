# SPDX-License-Identifier: Apache-2.0
"""Small trainings whose memory PyTorch, and beside it vramscope, writes down: `snapshots.py CASE DIRECTORY`.

Leaves CASE.pickle.gz, PyTorch's own snapshot, and CASE.json, what PyTorch says of itself at that moment.
tests/gpu/make_snapshots.py runs the cases; tests/data/snapshots has what an H200 wrote.
"""

import gzip
import json
import os
import pathlib
import sys

case, directory = sys.argv[1], pathlib.Path(sys.argv[2])
if case == "expandable":
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"

import torch
from torch import nn

MIB = 1 << 20


def model():
    return nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 512)).cuda()


def step(net, optimizer, rows):
    x = torch.randn(rows, 512, device="cuda")
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss


def train(steps=2):
    net = model()
    optimizer = torch.optim.AdamW(net.parameters())
    for number in range(steps):
        step(net, optimizer, 256 << number)
    torch.cuda.empty_cache()
    step(net, optimizer, 4096)
    return net, optimizer


def graph():
    net = model()
    x = torch.randn(2048, 512, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        net(x)
    torch.cuda.current_stream().wait_stream(side)
    held = torch.cuda.CUDAGraph()
    with torch.cuda.graph(held):
        y = net(x)
    held.replay()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return net, x, y, held


def streams():
    side = torch.cuda.Stream()
    held = []
    for number in range(6):
        x = torch.ones((number + 1) * MIB, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            held.append(x * 2)
            x.record_stream(side)
        del x
    del held[::2]
    torch.cuda.synchronize()
    return held


def ring():
    return train(4)


CASES = {"train": train, "expandable": train, "graph": graph, "streams": streams, "ring": ring}

torch.ones(1, device="cuda")  # the context, so that its moment is not in the history
torch.cuda.empty_cache()
torch.cuda.memory._record_memory_history(stacks="python", max_entries=60 if case == "ring" else 100000)
torch.cuda.reset_peak_memory_stats()
held = CASES[case]()
torch.cuda.synchronize()
snapshot = directory / f"{case}.pickle"
torch.cuda.memory._dump_snapshot(str(snapshot))
(directory / f"{case}.json").write_text(
    json.dumps(
        {
            "torch": torch.__version__,
            "gpu": torch.cuda.get_device_name(),
            "allocated": torch.cuda.memory_allocated(),
            "reserved": torch.cuda.memory_reserved(),
            "peak_allocated": torch.cuda.max_memory_allocated(),
            "peak_reserved": torch.cuda.max_memory_reserved(),
        },
        indent=1,
    )
    + "\n"
)
torch.cuda.memory._record_memory_history(enabled=None)
pathlib.Path(f"{snapshot}.gz").write_bytes(gzip.compress(snapshot.read_bytes(), 9, mtime=0))
snapshot.unlink()
