# SPDX-License-Identifier: Apache-2.0
"""What stood before recording began in a process under way, as PyTorch's caching allocator knows it."""

from __future__ import annotations

import gc
import sys
from typing import Any, Iterator, List, Tuple

from . import _probe


def note(probe: _probe.Probe) -> None:
    """Tells the probe, which records already.

    All of it counts as of the first call: what the snapshot still shows and a thread frees in between is freed
    after that, and what the snapshot shows and a thread has just allocated is known by its allocation.
    """
    collects = gc.isenabled()
    # A collection in here would free memory in this thread, between its notes.
    gc.disable()
    try:
        probe.prior(_probe.PRIOR_PROCESS, _probe.NO_DEVICE, 0, 0, b"vramscope.start")
        for kind, device, address, size in _memory(_segments()):
            probe.prior(kind, device, address, size, b"PyTorch")
    finally:
        if collects:
            gc.enable()


def _segments() -> List[Any]:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        return cuda.memory_snapshot() if cuda is not None and cuda.is_initialized() else []
    except Exception:  # an allocator that cannot say: NVML's figure says how much there is
        return []


def _memory(segments: List[Any]) -> Iterator[Tuple[int, int, int, int]]:
    """Kind, device, address and bytes; each segment before its blocks."""
    for segment in segments:
        device, address = segment["device"], segment["address"]
        yield _probe.PRIOR_SEGMENT, device, address, segment["total_size"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                yield _probe.PRIOR_BLOCK, device, block.get("address", address), block["size"]
            address += block["size"]
