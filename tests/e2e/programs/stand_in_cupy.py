# SPDX-License-Identifier: Apache-2.0
"""Makes a package `cupy` in a folder: what of CuPy's pools the probe relies on (cupy/cuda/memory.pyx, memory_hook.pyx), on the
driver's own interface. make(folder, library): `library` stands for its extension modules."""

import shutil
import textwrap
from pathlib import Path

INIT = """
import ctypes, os
ctypes.CDLL(os.path.join(os.path.dirname(__file__), "core.so"))
from . import cuda
_pool = cuda.MemoryPool()
cuda.set_allocator(_pool.malloc)

def get_default_memory_pool():
    return _pool

class ndarray:
    def __init__(self, size, dtype="u1"):
        self.data = cuda.alloc(size)
        self.nbytes = size
    @property
    def __cuda_array_interface__(self):
        return {"data": (self.data.ptr, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}

def empty(size, dtype="u1"):
    return ndarray(size)
"""

CUDA = """
import ctypes
from .memory_hook import MemoryHook, get_memory_hooks

_driver = ctypes.CDLL("libcuda.so.1")
_context = ctypes.c_void_p()
assert _driver.cuInit(0) == 0
assert _driver.cuDevicePrimaryCtxRetain(ctypes.byref(_context), 0) == 0
assert _driver.cuCtxSetCurrent(_context) == 0

class PooledMemory:
    def __init__(self, pool, ptr, size):
        self.pool, self.ptr, self.size = pool, ptr, size
    def __del__(self):
        self.pool.free(self)

class MemoryPool:
    def __init__(self):
        self.chunks, self.spare, self.used = [], {}, 0
    def malloc(self, size):
        rounded = (size + 511) // 512 * 512
        address = self.spare.setdefault(rounded, []).pop() if self.spare.get(rounded) else self._from_chunk(rounded)
        self.used += rounded
        for hook in list(get_memory_hooks().values()):
            hook.malloc_postprocess(device_id=0, size=size, mem_size=rounded, mem_ptr=address, pmem_id=id(address))
        return PooledMemory(self, address, rounded)
    def _from_chunk(self, size):
        if not self.chunks or self.chunks[-1][1] < size:
            address, whole = ctypes.c_uint64(), max(size, 8 << 20)
            assert _driver.cuCtxSetCurrent(_context) == 0
            assert _driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(whole)) == 0
            self.chunks.append([address.value, whole])
        chunk = self.chunks[-1]
        chunk[0] += size
        chunk[1] -= size
        return chunk[0] - size
    def free(self, memory):
        for hook in list(get_memory_hooks().values()):
            hook.free_preprocess(device_id=0, mem_size=memory.size, mem_ptr=memory.ptr, pmem_id=id(memory))
        self.used -= memory.size
        self.spare.setdefault(memory.size, []).append(memory.ptr)
    def used_bytes(self):
        return self.used

_allocator = None

def set_allocator(allocator):
    global _allocator
    _allocator = allocator

def get_allocator():
    return _allocator

def alloc(size):
    return _allocator(size)
"""

HOOK = """
import threading
_local = threading.local()

def get_memory_hooks():
    if not hasattr(_local, "hooks"):
        _local.hooks = {}
    return _local.hooks

class MemoryHook:
    name = "MemoryHook"
    def malloc_preprocess(self, **kwargs): pass
    def malloc_postprocess(self, **kwargs): pass
    def free_preprocess(self, **kwargs): pass
    def free_postprocess(self, **kwargs): pass
"""


def make(folder: Path, library: Path) -> None:
    (folder / "cupy" / "cuda").mkdir(parents=True)
    shutil.copy(library, folder / "cupy" / "core.so")
    for name, text in {"__init__.py": INIT, "cuda/__init__.py": CUDA, "cuda/memory_hook.py": HOOK}.items():
        (folder / "cupy" / name).write_text(textwrap.dedent(text))
