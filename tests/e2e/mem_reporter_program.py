# SPDX-License-Identifier: Apache-2.0
"""Programs that use MemReporter, and tensors of the CPU in them as if they were of a GPU."""
from __future__ import annotations

import subprocess
import sys

import package
import pytest
import warm_torch
from places import VRAMSCOPE

HEAD = """
import gc, json, sys, warnings, weakref
import torch
torch.set_num_threads(1)
from vramscope import MemReporter
"""

# Tensors of the CPU as if they were of a GPU: the caching allocator has a block for each storage, and some more.
ON_A_GPU = """
from vramscope import _mem_reporter, _tensors, _torch_blocks
MORE, SEGMENT, PENDING, NVML = [], 64 << 20, 0, None
memory_of = _tensors.memory_of
def on_gpu(torch, tensor):
    found = memory_of(torch, tensor)
    return found and found._replace(place=("cuda", *found.place[1:])) if found and found.place[0] == "cpu" else found
_tensors.memory_of = on_gpu
def caches(torch):
    there = _tensors.live(torch)
    every = there.tensors + [saved.tensor for saved in _tensors.saved_by_autograd(torch, there)]
    every += [g for g in map(_tensors.gradient_of, there.tensors) if g is not None]
    storages = {m.place[2]: m.bytes for m in (memory_of(torch, t) for t in every) if m and m.place[2]}
    blocks = [(address, -(-size // 512) * 512, size, "active_allocated", "") for address, size in storages.items()]
    blocks += [(10 + i, size, size, "active_allocated", line) for i, (size, line) in enumerate(MORE)]
    if PENDING: blocks.append((5, PENDING, PENDING, "active_pending_free", ""))
    cache = _torch_blocks.Cache(0)
    for address, size, requested, state, line in blocks:
        entry = {"state": state, "size": size, "requested_size": requested}
        if line: entry["frames"] = [{"filename": "/x/train.py", "line": int(line), "name": "step"}]
        _torch_blocks._add(cache, entry, address, 0, False)
    cache.reserved = SEGMENT
    cache.fragmentation = SEGMENT - sum(block[1] for block in blocks)
    return {0: cache}
_torch_blocks.caches = caches
_torch_blocks.is_ready = lambda torch: True
_torch_blocks.uuid_of = lambda torch, index: UUID
UUID = None
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return package.make(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def warm(environment, tmp_path_factory):
    process = warm_torch.Warm(environment, tmp_path_factory.mktemp("programs"))
    yield process
    process.close()


@pytest.fixture
def run(warm):
    def run_program(code: str, status: int = 0) -> str:
        done = warm.run(code)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run_program


@pytest.fixture
def run_recorded(tmp_path, environment):
    def run_program(code: str, *options: str, **more: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(code)
        command = [VRAMSCOPE, "run", *options, "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, path]
        done = subprocess.run(
            command, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_program
