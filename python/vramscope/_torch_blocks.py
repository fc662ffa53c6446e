# SPDX-License-Identifier: Apache-2.0
"""What PyTorch's caching allocator says of its blocks, device by device, without changing anything."""

from __future__ import annotations

import bisect
import dataclasses
import os
from typing import Any, Dict, List, Optional


@dataclasses.dataclass
class Block:
    address: int
    bytes: int
    requested: int
    stream: int
    private: bool  # of a CUDA graph or a memory pool of the program's
    pending: bool  # freed by the program, and still in use by a stream
    line: str  # from PyTorch's own recording of its history, where that is on

    @property
    def end(self) -> int:
        return self.address + self.bytes


@dataclasses.dataclass
class Cache:
    """The allocator's memory of one device. Its figures are those of torch.cuda.memory_stats()."""

    device: int
    blocks: List[Block] = dataclasses.field(default_factory=list)  # live ones, by address
    cached: int = 0  # segments wholly free
    fragmentation: int = 0  # free bytes of segments in use
    reserved: int = 0
    complete: bool = True  # False: another allocator, which does not show its blocks
    allocated: int = 0
    requested: int = 0
    pending: int = 0

    def __post_init__(self) -> None:
        self._addresses: Optional[List[int]] = None

    def block_at(self, address: int) -> Optional[Block]:
        """The live block that an address is in."""
        if self._addresses is None:
            self.blocks.sort(key=lambda block: block.address)
            self._addresses = [block.address for block in self.blocks]
        index = bisect.bisect_right(self._addresses, address) - 1
        if index >= 0 and address < self.blocks[index].end:
            return self.blocks[index]
        return None


def is_ready(torch: Any) -> bool:
    """Whether CUDA is in use in this process. Asking does not begin to."""
    try:
        return bool(torch.cuda.is_initialized())
    except Exception:
        return False


def devices_in_use(torch: Any) -> List[int]:
    """GPUs that this process has a context on, even if it has no tensor there."""
    has_context = getattr(torch._C, "_cuda_hasPrimaryContext", None)
    if not is_ready(torch) or has_context is None:
        return []
    try:
        return [device for device in range(torch.cuda.device_count()) if has_context(device)]
    except Exception:
        return []


def caches(torch: Any) -> Dict[int, Cache]:
    """The devices that the allocator has memory of."""
    if not is_ready(torch):
        return {}
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        return {}  # each tensor is an allocation of the driver's, and the allocator knows nothing of them
    try:
        native = torch.cuda.get_allocator_backend() == "native"
        segments = _segments(torch) if native else None
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


def _segments(torch: Any) -> List[Dict[str, Any]]:
    try:
        # The history of all events, if it is recorded, can take seconds; blocks have what is needed of it.
        return list(torch.cuda.memory_snapshot(include_traces=False))
    except TypeError:
        return list(torch.cuda.memory_snapshot())


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
    """The innermost line that is not PyTorch's; frames stand innermost first."""
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
    except Exception:  # an allocator of the program's, which keeps no figures
        return {}
    return found


def uuid_of(torch: Any, device: int) -> Optional[str]:
    try:
        return str(torch.cuda.get_device_properties(device).uuid)
    except Exception:  # PyTorch before 2.4
        return None

