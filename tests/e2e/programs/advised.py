# SPDX-License-Identifier: Apache-2.0
"""Programs for the rules of `report --advice`: advised.py RULE [follow] [cuda]. With `follow` they do what the rule says.

A name that is no rule's is a program that does something else on purpose, and gets no advice about it.
"""
import contextlib
import os
import sys
import tempfile

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

STEPS = 5
DEVICE = "cuda" if "cuda" in sys.argv else "cpu"
BATCH = 64 if DEVICE == "cuda" else 8


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + functional.scaled_dot_product_attention(q, k, v)
        return x + self.down(functional.gelu(self.up(x)))


class Model(nn.Module):
    def __init__(self, width=128, layers=6, again=False):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.head = nn.Linear(width, 8 * width)
        self.again = again

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return self.head(x)


def train(model, make_input, optimizer, after=lambda outputs: None):
    for _ in range(STEPS):
        outputs = model(make_input())
        outputs.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after(outputs)


def fused(model):
    return torch.optim.AdamW(model.parameters(), fused=True)


def batch():
    return torch.randn(BATCH, 128, 128)


def run_checkpoint(follow):
    model = Model(again=follow)
    train(model, batch, fused(model))


def run_checkpoint_amp(follow):
    model = Model(again=follow)
    optimizer = fused(model)
    for _ in range(STEPS):
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(batch()).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def run_checkpoint_cnn(follow):
    layers = [nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)) for _ in range(6)]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(layers)

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False) if follow else layer(x)
            return x

    model = Net()
    train(model, lambda: torch.randn(2 * BATCH, 8, 64, 64), fused(model))


def run_no_grad(follow):
    model = Model()
    with torch.no_grad() if follow else contextlib.nullcontext():
        for _ in range(STEPS):
            outputs = model(batch())
            outputs.argmax(-1)


class Attention(nn.Module):
    def __init__(self, width, fused):
        super().__init__()
        self.qkv, self.out, self.fused = nn.Linear(width, 3 * width), nn.Linear(width, width), fused

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (8, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        if self.fused:
            y = functional.scaled_dot_product_attention(q, k, v)
        else:
            scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
            y = functional.softmax(scores, -1) @ v
        return x + self.out(y.transpose(1, 2).flatten(-2))


def run_attention(follow):
    model = nn.Sequential(*[Attention(128, follow) for _ in range(4)])
    train(model, lambda: torch.randn(BATCH // 2, 256, 128), fused(model))


def run_fused(follow):
    model = Model(width=512, layers=2)
    train(model, lambda: torch.randn(1, 8, 512), torch.optim.AdamW(model.parameters(), **{"fused" if follow else "foreach": True}))


def run_buckets(follow):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="1")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl" if DEVICE == "cuda" else "gloo", store=store, rank=0, world_size=1)
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(8)])
    # What gloo's threads exchanged, they free when they run again: neither parameters nor buckets that are made anew.
    fixed = {"init_sync": False, "find_unused_parameters": True}
    parallel = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=follow, **fixed)
    train(parallel, lambda: torch.randn(8, 512), torch.optim.SGD(model.parameters(), lr=0.1, fused=True))
    torch.distributed.destroy_process_group()


def run_release(follow):
    model = Model(layers=2)
    held = []

    def hold(outputs):
        held[:] = [] if follow else [outputs]

    train(model, batch, fused(model), hold)


def run_keep(follow):
    model = Model(layers=2)
    kept = []
    train(model, batch, fused(model), lambda outputs: kept.append(float(outputs.detach().mean()) if follow else outputs))


def wide(layers=6):
    return nn.Sequential(*[nn.Linear(512, 512) for _ in range(layers)])


def run_zero_grad(follow):
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(STEPS):
        model(torch.randn(8 * BATCH, 512)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=follow)


def run_zero_grad_late(follow):
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for _ in range(STEPS):
        loss = model(torch.randn(8 * BATCH, 512)).square().mean()
        if not follow:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if follow:
            optimizer.zero_grad()


def saved_state(model, folder):
    torch.save(model.state_dict(), folder + "/model.pt")
    return folder + "/model.pt"


def run_state_dict(follow):
    model = wide(layers=12)
    with tempfile.TemporaryDirectory() as folder:
        state = torch.load(saved_state(model, folder))
        model.load_state_dict(state)
    if follow:
        del state
    train(model, lambda: torch.randn(8, 512), torch.optim.SGD(model.parameters(), lr=0.1, fused=True))


def run_assigned_state(_):
    """What is loaded is what the model has."""
    model = wide(layers=12)
    with tempfile.TemporaryDirectory() as folder:
        state = torch.load(saved_state(model, folder))
        model.load_state_dict(state, assign=True)
    train(model, lambda: torch.randn(8, 512), torch.optim.SGD(model.parameters(), lr=0.1, fused=True))


def run_loaded_data(_):
    """A data set of other sizes than the parameters'."""
    model = wide(layers=2)
    with tempfile.TemporaryDirectory() as folder:
        torch.save([torch.randn(8 * (i + 1), 512) for i in range(16)], folder + "/data.pt")
        batches = torch.load(folder + "/data.pt")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for batch in batches:
        model(batch).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def run_accumulated_zeroed(_):
    """The gradients that wait in a forward are added to."""
    model = wide()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    for step in range(4 * STEPS):
        model(torch.randn(8 * BATCH, 512)).square().mean().backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)


def run_slow_optimizer(_, slow=torch.optim.AdamW):
    """One optimizer steps each time, the other adds up the gradients of three steps."""
    model = wide()
    often = torch.optim.SGD(model[:3].parameters(), lr=0.1, fused=True)
    rarely = slow(model[3:].parameters(), lr=0.1, fused=True)
    for step in range(2 * STEPS):
        model(torch.randn(128 * BATCH, 512)).square().mean().backward()
        often.step()
        often.zero_grad()
        if step % 3 == 2:
            rarely.step()
            rarely.zero_grad(set_to_none=False)


def run_slow_like_optimizer(_):
    run_slow_optimizer(_, torch.optim.SGD)


def run_bucket_views(_):
    """The buckets are the gradients, and stay."""
    run_buckets(True)


def run_kv_cache(_):
    """Generation with a cache that grows by a token a step."""
    layers = [nn.Linear(512, 1536) for _ in range(6)]
    caches = [None] * 6
    with torch.no_grad():
        x = torch.randn(8, 64, 512)
        for _ in range(20):
            for i, layer in enumerate(layers):
                q, k, v = layer(x).chunk(3, -1)
                caches[i] = (k, v) if caches[i] is None else tuple(torch.cat(pair, 1) for pair in zip(caches[i], (k, v)))
                x = x + functional.scaled_dot_product_attention(q, *caches[i])
            x = x[:, -1:]


def run_carried_state(_):
    """Truncated backpropagation: the state of an LSTM goes on without its graph."""
    model = nn.LSTM(256, 256, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    state = None
    for _ in range(STEPS):
        outputs, state = model(torch.randn(32, 64, 256), state)
        outputs.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        state = tuple(part.detach() for part in state)


def run_frozen(_):
    """A teacher whose parameters need no gradients keeps nothing."""
    teacher = Model().requires_grad_(False)
    student = nn.Linear(128, 1024)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, fused=True)
    for _ in range(STEPS):
        x = batch()
        (student(x) - teacher(x)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def run_accumulated(_):
    """Gradients stay for four backwards."""
    model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(4)])
    optimizer = fused(model)
    for step in range(4 * STEPS):
        model(torch.randn(8, 512)).square().mean().backward()
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()


def run_averaged(_):
    """Averages of the weights live until the next step makes new ones."""
    model = nn.Linear(1024, 1024)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, fused=True)
    average = [parameter.detach().clone() for parameter in model.parameters()]
    for _ in range(STEPS):
        model(torch.randn(8, 1024)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        average = [0.9 * old + 0.1 * parameter.detach() for old, parameter in zip(average, model.parameters())]


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    torch.set_default_device(DEVICE)
    globals()["run_" + sys.argv[1]]("follow" in sys.argv)
