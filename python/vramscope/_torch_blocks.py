# SPDX-License-Identifier: Apache-2.0
"""Reads the blocks of PyTorch's caching allocator, device by device. Changes nothing."""

from __future__ import annotations

import bisect
import dataclasses
import os
from typing import Any, Dict, List, Optional

from . import _before


@dataclasses.dataclass
class Block:
    address: int
    bytes: int
    requested: int
    stream: int
    private: bool  # belongs to a CUDA graph or a memory pool of the program
    pending: bool  # freed by the program, but still used by a stream
    line: str  # from PyTorch's memory history, if that is on

    @property
    def end(self) -> int:
        return self.address + self.bytes


@dataclasses.dataclass
class Cache:
    """The allocator's memory of one device. The figures, in bytes, are those of torch.cuda.memory_stats()."""

    device: int
    blocks: List[Block] = dataclasses.field(default_factory=list)  # live blocks by address
    cached: int = 0  # bytes of segments without a live block
    fragmentation: int = 0  # free bytes of segments with live blocks
    reserved: int = 0
    complete: bool = True  # False: another allocator, without a list of its blocks
    allocated: int = 0
    requested: int = 0
    pending: int = 0

    def __post_init__(self) -> None:
        self._addresses: Optional[List[int]] = None

    def block_at(self, address: int) -> Optional[Block]:
        """The live block that contains an address."""
        if self._addresses is None:
            self.blocks.sort(key=lambda block: block.address)
            self._addresses = [block.address for block in self.blocks]
        index = bisect.bisect_right(self._addresses, address) - 1
        if index >= 0 and address < self.blocks[index].end:
            return self.blocks[index]
        return None


def is_ready(torch: Any) -> bool:
    """Whether this process uses CUDA. Does not initialise it."""
    try:
        return bool(torch.cuda.is_initialized())
    except Exception:
        return False


def devices_in_use(torch: Any) -> List[int]:
    """GPUs with a context of this process, also those without a tensor."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if not is_ready(torch) or has_context is None:
        return []
    try:
        return [device for device in range(torch.cuda.device_count()) if has_context(device)]
    except Exception:
        return []


def caches(torch: Any) -> Dict[int, Cache]:
    """The devices with memory of the allocator."""
    if not is_ready(torch):
        return {}
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        return {}  # the allocator does not know tensors that the driver allocates directly
    try:
        native = torch.cuda.get_allocator_backend() == "native"
        segments = _before.segments(torch) if native else None
    except Exception:
        segments = None
    if segments is None:
        return _without_blocks(torch)
    found: Dict[int, Cache] = {}
    for segment in segments:
        cache = found.setdefault(segment["device"], Cache(segment["device"]))
        cache.reserved += segment["total_size"]
        private = tuple(segment.get("segment_pool_id", (0, 0))) != (0, 0)
        address, free, used = segment["address"], 0, False
        for entry in segment["blocks"]:
            address = entry.get("address", address)
            if entry["state"] == "inactive":
                free += entry["size"]
            else:
                used = True
                _add(cache, entry, address, segment["stream"], private)
            address += entry["size"]
        if used:
            cache.fragmentation += free
        else:
            cache.cached += free
    return found


def _add(cache: Cache, entry: Dict[str, Any], address: int, stream: int, private: bool) -> None:
    pending = entry["state"] != "active_allocated"
    requested = entry.get("requested_size", entry["size"])
    line = _line_of(entry.get("frames") or ())
    cache.blocks.append(Block(address, entry["size"], requested, stream, private, pending, line))
    if pending:
        cache.pending += entry["size"]
    else:
        cache.allocated += entry["size"]
        cache.requested += requested


def _line_of(frames: Any) -> str:
    """The innermost line outside PyTorch. Frames are ordered innermost first."""
    for frame in frames:
        file = str(frame.get("filename", ""))
        if file.endswith(".py") and "/torch/" not in file:
            return f"{os.path.basename(file)}:{frame.get('line', 0)} in {frame.get('name', '?')}"
    return ""


def _without_blocks(torch: Any) -> Dict[int, Cache]:
    found: Dict[int, Cache] = {}
    try:
        for device in range(torch.cuda.device_count()):
            stats = torch.cuda.memory_stats(device)
            allocated = int(stats.get("allocated_bytes.all.current", 0))
            reserved = int(stats.get("reserved_bytes.all.current", 0))
            if reserved:
                cache = Cache(device, complete=False, allocated=allocated, requested=allocated)
                cache.reserved, cache.cached = reserved, reserved - allocated
                found[device] = cache
    except Exception:  # an allocator of the program may have no statistics
        return {}
    return found


def uuid_of(torch: Any, device: int) -> Optional[str]:
    try:
        return str(torch.cuda.get_device_properties(device).uuid)
    except Exception:  # PyTorch before 2.4
        return None

