# SPDX-License-Identifier: Apache-2.0
"""What PyTorch and vLLM's CuMemAllocator do with the driver, for a stand-in engine: segments of mapped memory, and blocks
that are reported to the probe as PyTorch reports them."""
from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator

MIB = 1 << 20
report = ctypes.PyDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
report.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_uint16]
report.restype = None
cuda = ctypes.CDLL("libcuda.so.1")


def call(name: str, *arguments: object) -> None:
    status = getattr(cuda, name)(*arguments)
    assert status == 0, (name, status)


def start() -> None:
    context = ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)


class Block:
    """A tensor's memory: a segment of its own, of plain or of mapped memory."""

    def __init__(self, size: int, sleeps: bool = False) -> None:
        self.size, self.sleeps = size, sleeps
        self.address, self.handle = ctypes.c_uint64(), ctypes.c_uint64()
        if sleeps:
            call("cuMemAddressReserve", ctypes.byref(self.address), ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_uint64(0), ctypes.c_uint64(0))
            self.wake()
        else:
            call("cuMemAlloc_v2", ctypes.byref(self.address), ctypes.c_size_t(size))
        report(self.address.value, size, 0, 0, 1)

    def wake(self) -> None:
        # CUmemAllocationProp: pinned memory, of device 0.
        properties = (ctypes.c_uint32 * 8)(1, 0, 1, 0)
        call("cuMemCreate", ctypes.byref(self.handle), ctypes.c_size_t(self.size), properties, ctypes.c_uint64(0))
        call("cuMemMap", self.address, ctypes.c_size_t(self.size), ctypes.c_size_t(0), self.handle, ctypes.c_uint64(0))

    def sleep(self) -> None:
        call("cuMemUnmap", self.address, ctypes.c_size_t(self.size))
        call("cuMemRelease", self.handle)

    def free(self) -> None:
        report(self.address.value, -self.size, 0, 0, 1)
        call("cuMemFree_v2", self.address)


def pinned(size: int) -> ctypes.c_void_p:
    address = ctypes.c_void_p()
    call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(size), ctypes.c_uint(0))
    return address


@contextlib.contextmanager
def capture() -> Iterator[None]:
    stream, graph, executable = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuStreamCreate", ctypes.byref(stream), 1)
    call("cuStreamBeginCapture_v2", stream, 2)
    yield
    call("cuStreamEndCapture", stream, ctypes.byref(graph))
    call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
