# SPDX-License-Identifier: Apache-2.0
"""An engine that sleeps: weights and a KV cache whose device memory goes and comes back below live tensors.

--saver says by what: `own` is a pluggable allocator that does what vLLM's CuMemAllocator does, `preload` and `torch` are the two
ways in of torch_memory_saver. With --die it is killed while it sleeps. In each state it prints what is true of it.
"""

import pacing

args = pacing.arguments(saver="own", die=False)

import contextlib
import hashlib
import json
import os
import signal
import sys
import time

if args.saver == "preload" and "torch_memory_saver" not in os.environ.get("LD_PRELOAD", ""):
    from torch_memory_saver import configure_subprocess

    with configure_subprocess():
        os.execv(sys.executable, [sys.executable, *sys.argv])

import torch
import vramscope
from own_saver import OwnSaver
from torch import nn

TAGS = ("weights", "kv_cache")
STATES = 7


class MemorySaver:
    """torch_memory_saver, as SGLang uses it."""

    def __init__(self, mode):
        from torch_memory_saver import torch_memory_saver

        self.saver = torch_memory_saver
        self.saver.hook_mode = mode

    def region(self, tag):
        return self.saver.region(tag=tag, enable_cpu_backup=tag == "weights")

    def sleep(self, tag):
        torch.cuda.synchronize()
        self.saver.pause(tag)

    def wake(self, tag):
        self.saver.resume(tag)


saver = OwnSaver(TAGS) if args.saver == "own" else MemorySaver(args.saver)
torch.manual_seed(0)
model = nn.Sequential(*[nn.Sequential(nn.Linear(2048, 2048), nn.ReLU()) for _ in range(6)])
allocated = {}
asleep = set()
torch.cuda.init()


@contextlib.contextmanager
def region(tag):
    before = torch.cuda.memory_allocated()
    with saver.region(tag):
        yield
    allocated[tag] = torch.cuda.memory_allocated() - before


def go(action, *tags):
    for tag in tags:
        getattr(saver, action)(tag)
        (asleep.add if action == "sleep" else asleep.remove)(tag)


def state(name):
    """Says what is true now, and lets NVML be sampled before and after."""
    time.sleep(args.seconds / STATES / 2)
    vramscope.mark(name)
    weights = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    facts = {
        "mark": name,
        "parameter": 0 if "weights" in asleep else weights,
        "unbacked_parameter": weights if "weights" in asleep else 0,
        "unbacked": sum(allocated[tag] for tag in asleep),
        "memory_allocated": torch.cuda.memory_allocated(),
        "memory_reserved": torch.cuda.memory_reserved(),
    }
    if args.saver != "own":  # torch_memory_saver tells the probe its tags
        for key, is_asleep in (("kv cache", False), ("unbacked_kv cache", True)):
            facts[key] = allocated["kv_cache"] if ("kv_cache" in asleep) == is_asleep else 0
    print("MARK " + json.dumps(facts), flush=True)
    time.sleep(args.seconds / STATES / 2)


def answer():
    """What the engine computes, with the cache filled anew."""
    for index, part in enumerate(cache):
        part.fill_(index + 1)
    x = torch.linspace(-1, 1, 64 * 2048, device="cuda").reshape(64, 2048)
    with torch.no_grad():
        y = model(x) + sum(part[-1, -1] for part in cache)
    return hashlib.sha256(y.cpu().numpy().tobytes()).hexdigest()


with region("weights"):
    model = model.cuda()
with region("kv_cache"):
    cache = [torch.empty(32, 1 << 18, device="cuda") for _ in range(8)]
# Nothing has run: no module has said which parameters are its own.
go("sleep", *TAGS)
state("asleep before the first forward")
go("wake", *TAGS)
first = answer()
state("awake")
go("sleep", *TAGS)
state("asleep")
go("wake", *TAGS)
assert answer() == first
state("awake again")
go("sleep", *reversed(TAGS))
state("asleep again")
if args.die:
    os.kill(os.getpid(), signal.SIGKILL)
go("wake", "weights")
state("half awake")
go("wake", "kv_cache")
assert answer() == first
state("awake at last")
print("DIGEST", first, flush=True)
if args.saver == "torch":
    os._exit(0)  # torch_memory_saver 0.0.10 aborts the program where its pool ends outside of a region
