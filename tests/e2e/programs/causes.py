# SPDX-License-Identifier: Apache-2.0
"""Twelve programs that run out of device memory, each for another reason: causes.py CAUSE[,CAUSE...] [SHARE].

Ordinary PyTorch. On a machine without a GPU the tensors of its CPU stand in the memory of a driver that
`CAUSES_ALLOCATOR`, a library, asks for it; there, what PyTorch does on GPUs alone is played by other means.
SHARE (1 if not given) makes the sizes others.
"""
from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

CPU = "CAUSES_ALLOCATOR" in os.environ
device = torch.device("cpu" if CPU else "cuda")
share = float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
width = 32 if CPU else 2048


if CPU:
    allocator = ctypes.CDLL(os.environ["CAUSES_ALLOCATOR"])
    allocator.most_bytes.restype = ctypes.c_size_t
    allocator.segment_after.restype = ctypes.c_size_t
    allocator.segment_after.argtypes = [ctypes.c_size_t]
    allocator.pool_of.argtypes = [ctypes.c_size_t]


def most_bytes() -> int:
    """Of this device that a program can have."""
    if CPU:
        return allocator.most_bytes()
    return int(torch.cuda.get_device_properties(0).total_memory * 0.985)


def rows_of(part: float, columns: int) -> int:
    """Of a matrix of float32 that takes this part of the device."""
    return max(int(total * part / columns / 4), 1)


def full_of(part: float) -> torch.Tensor:
    return torch.zeros(rows_of(part, 1024), 1024, device=device)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, blocks=4, classes=10):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(blocks)])
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.blocks(x))


def step(model, optimizer, rows):
    x = torch.randn(rows, width, device=device)
    y = torch.zeros(rows, dtype=torch.long, device=device)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def train(part, steps=1):
    """A step of it keeps about `part` of the device."""
    model = Model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for _ in range(steps):
        step(model, optimizer, rows_of(part / 40, width))


def batch():
    train(1.5 * share)


def kept_loss():
    model = nn.Linear(width, width).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(rows_of(0.06 * share, width), width, device=device)
    losses = []
    while True:
        loss = F.mse_loss(model(x), x, reduction="none")
        loss.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)


def fragmentation():
    """What is kept of each large table is half as large, and stands where the table stood."""
    count = round(8 / share)
    rows = rows_of(0.97 / count, 1024)
    tables = []
    for _ in range(count):
        tables.append(torch.zeros(rows, 1024, device=device))
    tables.clear()
    for _ in range(count):
        tables.append(torch.zeros(int(rows * 0.55), 1024, device=device))
    torch.zeros(int(rows * 0.6), 1024, device=device)


def another_process():
    train(0.7 * share, steps=3)


def hold(part):
    """What the other process of `another_process` does; a line when it is done, and until its input ends."""
    held = full_of(part)
    print("holds", held.numel() * 4, flush=True)
    sys.stdin.read()


@contextlib.contextmanager
def captured(number):
    """A graph with a pool of its own."""
    if not CPU:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            yield graph
        return

    def snapshot():
        found, address = [], allocator.segment_after(0)
        while address:
            found.append({"address": address, "segment_pool_id": (0, allocator.pool_of(address))})
            address = allocator.segment_after(address)
        return found

    torch.cuda.memory_snapshot = snapshot
    torch._C._cuda_isHistoryEnabled = lambda: False
    driver = ctypes.CDLL("libcuda.so.1")
    stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuStreamCreate(ctypes.byref(stream), 1) == 0
    assert driver.cuStreamBeginCapture_v2(stream, 0) == 0
    allocator.set_pool(number)
    yield graph
    allocator.set_pool(0)
    assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0


@torch.no_grad()
def capture_some(graphs):
    model = nn.Linear(width, width).to(device)
    x = torch.randn(rows_of(0.06 * share, width), width, device=device)
    model(x)
    for number in range(1, 7):
        with captured(number) as graph:
            for _ in range(2):
                y = model(x).relu_()
            y = y.sum()
        graphs.append((graph, y))


def graph_pool():
    graphs = []
    capture_some(graphs)
    train(0.8)


def played_by(library: str, size: int) -> None:
    """A library of this name takes memory of the driver."""
    address = ctypes.c_uint64()
    assert ctypes.CDLL(library).Take(ctypes.byref(address), ctypes.c_size_t(size)) == 0


def communicators():
    size = int(total * 0.1 * share)
    for _ in range(7):
        if CPU:
            played_by("libnccl.so.2", size)
        else:
            torch.zeros(1, device=device)
            memory = ctypes.c_void_p()
            assert ctypes.CDLL("libnccl.so.2").ncclMemAlloc(ctypes.byref(memory), ctypes.c_size_t(size)) == 0
    train(0.8)


def eval_graph():
    train(0.05, steps=3)
    model = Model(blocks=2).to(device)
    model.eval()
    outputs = []
    while True:
        outputs.append(model(torch.randn(rows_of(0.005 * share, width), width, device=device)))


def optimizer_state():
    wide = int((total * 0.26 * share / 6 / 4) ** 0.5)
    model = nn.Sequential(*[nn.Linear(wide, wide, bias=False) for _ in range(6)]).to(device)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(8, wide, device=device)).sum().backward()
    optimizer.step()


@torch.no_grad()
def leak():
    model = Model(blocks=1, classes=256).to(device)
    answered = {}
    for request in range(1 << 30):
        x = torch.randn(rows_of(0.01 * share, 256), width, device=device)
        answered[request] = model.head(x)


def vocabulary():
    words = 8000 if CPU else 256000
    embed = nn.Embedding(words, width).to(device)
    head = nn.Linear(width, words).to(device)
    optimizer = torch.optim.SGD([*embed.parameters(), *head.parameters()], lr=1e-3)
    for part in (0.05, 0.4 * share):
        tokens = torch.zeros(rows_of(part, words), dtype=torch.long, device=device)
        logits = head(embed(tokens))
        F.cross_entropy(logits, tokens).backward()
        optimizer.step()
        optimizer.zero_grad()
        del logits


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.keys = self.values = None

    def forward(self, x):
        query, key, value = self.qkv(x).split(width, dim=-1)
        if self.keys is not None:
            key, value = torch.cat([self.keys, key], 1), torch.cat([self.values, value], 1)
        self.keys, self.values = key.contiguous(), value.contiguous()
        return query


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Attention() for _ in range(4)])

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@torch.no_grad()
def kv_cache():
    model = Decoder().to(device)
    requests = 64
    tokens = rows_of(0.01 * share, width * requests)
    while True:
        model(torch.randn(requests, tokens, width, device=device))


def workspace():
    size = int(total * 0.12 * share)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = f":{size >> 10}:1"
    for _ in range(6):
        if CPU:
            played_by("libcublas.so.12", size)
        else:
            with torch.cuda.stream(torch.cuda.Stream()):
                a = torch.ones(64, 64, device=device)
                a @ a
    train(0.8)


def caught():
    part = 3.0
    while part > 0.1:
        try:
            train(part * share)
            break
        except RuntimeError:  # torch.cuda.OutOfMemoryError is one
            part /= 4
    print("goes on with", part)


# The right answer in the first three lines: all of these are there (regular expressions).
EXPECTED = {
    "batch": ["(forward passes|activation).*(GiB|MiB)", r"causes\.py:\d+ in \w+\.forward", r"blocks\.\d"],
    "kept_loss": ["cause: kept from earlier iterations.*(GiB|MiB)", r"causes\.py:\d+ in kept_loss"],
    "fragmentation": ["cause: fragmentation: .*(GiB|MiB)", r"causes\.py:\d+ in fragmentation"],
    "another_process": ["cause: other processes.*(GiB|MiB)"],
    "graph_pool": ["cause: graph pool.*(GiB|MiB)"],
    "communicators": ["cause: communication.*(GiB|MiB)", r"causes\.py:\d+ in (communicators|played_by)"],
    "eval_graph": ["(forward passes|activation|kept).*(GiB|MiB)", r"causes\.py:\d+ in (\w+\.forward|eval_graph)"],
    "optimizer_state": ["cause: optimizer state.*(GiB|MiB)", r"causes\.py:\d+ in optimizer_state"],
    "leak": ["cause: allocated and never freed.*(GiB|MiB)", r"causes\.py:\d+ in leak"],
    "vocabulary": [r"(GiB|MiB).* at causes\.py:\d+ in vocabulary"],
    "kv_cache": ["(GiB|MiB)", r"causes\.py:\d+ in \w+\.forward", r"layers\.\d"],
    "workspace": ["cause: workspace.*(GiB|MiB)", r"first used at causes\.py:\d+\)"],
    "caught": ["(forward passes|activation).*(GiB|MiB)", r"causes\.py:\d+ in \w+\.forward", r"blocks\.\d"],
}

def run(name: str) -> None:
    global total
    total = most_bytes()
    globals()[name]()


def run_each(names: list[str]) -> None:
    """One after the other, each in a process of its own, with one import of PyTorch for all of them."""
    for name in names:
        child = os.fork()
        if child == 0:
            try:
                run(name)
            except RuntimeError:
                # The memory of the program's functions is still allocated here, as for an uncaught error.
                os._exit(3)
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        print(name, os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    if CPU:
        torch.set_num_threads(1)
    else:
        torch.backends.cuda.matmul.allow_tf32 = True
    # Other programs' imports may overlap with this one's; their memory may not.
    if "CAUSES_GO" in os.environ:
        while not os.path.exists(os.environ["CAUSES_GO"]):
            time.sleep(0.01)
    if sys.argv[1] == "hold":
        total = most_bytes()
        hold(share)
    elif "," in sys.argv[1]:
        run_each(sys.argv[1].split(","))
    else:
        run(sys.argv[1])
