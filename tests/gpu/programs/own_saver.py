# SPDX-License-Identifier: Apache-2.0
"""Pools of PyTorch whose device memory goes and comes back below live tensors, as vLLM's CuMemAllocator has them."""

import contextlib
import ctypes
import os
import pathlib
import subprocess
import tempfile

import torch


class OwnSaver:
    """A pool for each tag, of an allocator that is compiled here. What has the first tag keeps its content."""

    def __init__(self, tags):
        source = pathlib.Path(__file__).with_name("sleeping_allocator.cc")
        path = pathlib.Path(tempfile.mkdtemp(prefix="vramscope-sleeping-")) / "sleeping_allocator.so"
        clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        subprocess.run(["g++", "-std=c++17", "-O2", "-shared", "-fPIC", source, "-o", path, "-ldl"], env=clean, check=True)
        self.tags = tags
        self.library = ctypes.CDLL(str(path))
        self.allocator = torch.cuda.memory.CUDAPluggableAllocator(str(path), "sleeping_malloc", "sleeping_free")
        self.pools = {}

    @contextlib.contextmanager
    def region(self, tag):
        self.library.sleeping_set_tag(self.tags.index(tag))
        self.pools[tag] = torch.cuda.MemPool(self.allocator.allocator())
        with torch.cuda.use_mem_pool(self.pools[tag]):
            yield

    def sleep(self, tag):
        self.library.sleeping_sleep(self.tags.index(tag), int(tag == self.tags[0]))

    def wake(self, tag):
        self.library.sleeping_wake(self.tags.index(tag))
