# SPDX-License-Identifier: Apache-2.0
"""What stood before recording began in a process under way, as PyTorch's caching allocator knows it."""

from __future__ import annotations

import gc
import sys
from typing import Any, Iterator, List, Tuple

from . import _probe, _tensors


# Whether the recording under way began in a process that had PyTorch: what it had of CPU tensors is not known then.
cpu_is_partial = False


def note(probe: _probe.Probe) -> None:
    """Tells the probe, which records already.

    All of it counts as of the first call: what the snapshot still shows and a thread frees in between is freed
    after that, and what the snapshot shows and a thread has just allocated is known by its allocation.
    """
    global cpu_is_partial
    cpu_is_partial = "torch" in sys.modules
    collects = gc.isenabled()
    # A collection in here would free memory in this thread, between its notes.
    gc.disable()
    try:
        probe.prior(_probe.PRIOR_PROCESS, _probe.NO_DEVICE, 0, cpu_is_partial, b"vramscope.start")
        for kind, device, address, size in _memory(_segments()):
            probe.prior(kind, device, address, size, b"PyTorch")
    finally:
        if collects:
            gc.enable()


def cpu_tensor_bytes() -> int:
    """Bytes of the CPU tensors that Python holds; each storage counts once."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    storages = {}
    with _tensors.looking(torch):
        for tensor in _tensors.live(torch).tensors:
            memory = _tensors.memory_of(torch, tensor)
            if memory is not None and memory.place[0] == "cpu":
                storages[memory.storage] = memory.bytes
    return sum(storages.values())


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
