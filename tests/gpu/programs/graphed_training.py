# SPDX-License-Identifier: Apache-2.0
"""A training whose forward and backward are CUDA graphs: by torch.compile(mode="reduce-overhead"), or by
torch.cuda.make_graphed_callables. At each instant it prints what its own objects hold.

Activations are what autograd keeps and the outputs that the program holds. Sizes are multiples of 512 bytes and at most 1 MiB,
which PyTorch's allocator gives out without rounding.
"""

import pacing

args = pacing.arguments(by="compile", steps=6, digest=False)

import hashlib
import json
import os

if args.digest:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import vramscope
from torch import nn

WIDTH, BATCH = 512, 128

if args.digest:
    torch.use_deterministic_algorithms(True)
torch.manual_seed(1729)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


model = nn.Sequential(*[Block() for _ in range(4)], nn.Linear(WIDTH, WIDTH)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
# What a graph keeps between its replays.
kept, kept_gradients = [], []


def free_variable(function, name):
    return function.__closure__[function.__code__.co_freevars.index(name)].cell_contents


if args.by == "compile":
    forward = torch.compile(model, mode="reduce-overhead")
else:
    sample = torch.randn(BATCH, WIDTH, device="cuda")
    forward = torch.cuda.make_graphed_callables(model, (sample,))
    backward = free_variable(free_variable(model.forward, "graphed"), "Graphed").backward
    if "fn" in backward.__code__.co_freevars:
        backward = free_variable(backward, "fn")
    kept = [sample, *free_variable(backward, "static_grad_outputs")]
    kept_gradients = [tensor for tensor in free_variable(backward, "static_grad_inputs") if tensor is not None]


def storages(tensors):
    """Address -> bytes."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
    return found


def saved(output):
    """What the graph that ends in `output` keeps."""
    nodes, seen = [output.grad_fn], set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        names = [name for name in dir(node) if name.startswith("_saved_") or name == "saved_tensors"]
        for name in names:
            try:
                value = getattr(node, name)
            except RuntimeError:
                continue  # freed by the backward
            for tensor in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(tensor, torch.Tensor):
                    yield tensor


def at(instant, *held):
    vramscope.mark(instant)
    parameters = storages(model.parameters())
    gradients = storages([*kept_gradients, *(p.grad for p in model.parameters() if p.grad is not None)])
    state = storages(t for entry in optimizer.state.values() for t in entry.values() if t.is_cuda)
    others = storages([*kept, *held])
    for output in held:
        if output.grad_fn is not None:
            others.update(storages(saved(output)))
    for known in (parameters, gradients, state):
        others = {address: size for address, size in others.items() if address not in known}
    facts = {
        "mark": instant,
        "parameter": sum(parameters.values()),
        "gradient": sum(gradients.values()),
        "optimizer state": sum(state.values()),
        "activation and input": sum(others.values()),
        "memory_allocated": torch.cuda.memory_allocated(),
    }
    print("MARK " + json.dumps(facts), flush=True)


digest = hashlib.sha256()
for step in range(1, args.steps + 1):
    x, target = torch.randn(BATCH, WIDTH, device="cuda"), torch.randn(BATCH, WIDTH, device="cuda")
    y = forward(x)
    loss = nn.functional.mse_loss(y, target)
    at(f"end of forward {step}", x, target, y, loss)
    loss.backward()
    at(f"end of backward {step}", x, target, y, loss)
    optimizer.step()
    at(f"after step {step}", x, target, y, loss)
    optimizer.zero_grad()
    at(f"without gradients {step}", x, target, y, loss)
    digest.update(loss.item().hex().encode())
    del y, loss
for parameter in model.parameters():
    digest.update(parameter.detach().cpu().numpy().tobytes())
print("DIGEST", digest.hexdigest(), flush=True)
