# SPDX-License-Identifier: Apache-2.0
"""A `torch` without PyTorch, for interpreters that have none: a GPU allocator that reports to the probe what
PyTorch's does, through the function that PyTorch calls, and keeps books as torch.cuda.memory_stats() does."""
from __future__ import annotations

import ctypes
import sys
import threading
import types

_REPORT = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
_SEGMENT = 2 << 20


class Books:
    def __init__(self) -> None:
        self.allocated = self.reserved = self.given = self.blocks = 0
        self.speaks = True  # reports to the probe


BOOKS = [Books(), Books()]
_LOCK = threading.RLock()  # a block may die while its thread makes another
_next_address = [0x7F0000000000]
_report = None


def _say(address: int, size: int, device: int) -> None:
    global _report
    if _report is None:
        _report = getattr(ctypes.PyDLL(None), _REPORT, None)
        if _report is None:
            return  # the probe is not there yet
        _report.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_uint16]
        _report.restype = None
    books = BOOKS[device]
    if not books.speaks:
        return
    _report(address, size, books.allocated, books.reserved, 1 | device << 8)


class Block:
    """`size` bytes of a device, for as long as the object lives."""

    def __init__(self, size: int, device: int = 0) -> None:
        self.size, self.device = size, device
        with _LOCK:
            self.address = _next_address[0]
            _next_address[0] += size
            books = BOOKS[device]
            books.allocated += size
            books.blocks += 1
            books.given += size
            while books.reserved < books.allocated:
                books.reserved += _SEGMENT
            _say(self.address, size, device)

    def __del__(self) -> None:
        with _LOCK:
            BOOKS[self.device].allocated -= self.size
            _say(self.address, -self.size, self.device)


def _memory_stats(device: int = 0) -> dict[str, int]:
    books = BOOKS[device]
    return {
        "allocated_bytes.all.current": books.allocated,
        "reserved_bytes.all.current": books.reserved,
        "allocated_bytes.all.allocated": books.given,
        "allocated_bytes.all.freed": books.given - books.allocated,
        "allocation.all.allocated": books.blocks,
        "segment.all.current": books.reserved // _SEGMENT,
    }


torch = types.ModuleType("torch")
torch.cuda = types.SimpleNamespace(
    device_count=lambda: len(BOOKS), is_initialized=lambda: True, memory_stats=_memory_stats
)
sys.modules["torch"] = torch
