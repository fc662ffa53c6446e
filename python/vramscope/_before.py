# SPDX-License-Identifier: Apache-2.0
"""Memory allocated before recording began, as listed by PyTorch's caching allocator."""

from __future__ import annotations

import gc
import sys
from typing import Any, Iterator, List, Tuple

from . import _probe


# Whether torch was imported before the recording began. Earlier CPU tensors are then unknown.
cpu_is_partial = False


def note(probe: _probe.Probe) -> None:
    """Passes this memory to the probe, which already records.

    All of it counts from the first call on. Other threads may allocate and free meanwhile: the probe sees such a
    free later, and it has already recorded such an allocation.
    """
    global cpu_is_partial
    cpu_is_partial = "torch" in sys.modules
    collects = gc.isenabled()
    # A garbage collection here would free memory between the notes of this thread.
    gc.disable()
    try:
        probe.prior(_probe.PRIOR_PROCESS, _probe.NO_DEVICE, 0, cpu_is_partial, b"vramscope.start")
        for kind, device, address, size in _memory(_segments()):
            probe.prior(kind, device, address, size, b"PyTorch")
    finally:
        if collects:
            gc.enable()


def segments(torch: Any) -> List[Any]:
    """What PyTorch's caching allocator has, without the history of its events: to copy that can take seconds."""
    try:
        return list(torch.cuda.memory_snapshot(include_traces=False))
    except TypeError:  # an older PyTorch
        return list(torch.cuda.memory_snapshot())


def _segments() -> List[Any]:
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        return segments(torch) if cuda is not None and cuda.is_initialized() else []
    except Exception:  # an allocator without a snapshot; NVML still gives the total
        return []


def _memory(segments: List[Any]) -> Iterator[Tuple[int, int, int, int]]:
    """Yields kind, device, address and bytes; each segment comes before its blocks."""
    for segment in segments:
        device, address = segment["device"], segment["address"]
        yield _probe.PRIOR_SEGMENT, device, address, segment["total_size"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                yield _probe.PRIOR_BLOCK, device, block.get("address", address), block["size"]
            address += block["size"]
