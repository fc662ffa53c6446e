# SPDX-License-Identifier: Apache-2.0
"""A caching allocator as PyTorch's, small, which writes memory snapshots as PyTorch does and knows the truth.

PyTorch without a GPU cannot make any. The schema is that of torch/csrc/cuda/memory_snapshot.cpp and Module.cpp
(2.x), and of 1.13 where `history` is asked for; sizes and their rounding are CUDACachingAllocator's.
"""
from __future__ import annotations

import random
from dataclasses import dataclass, field

SMALL_SEGMENT, LARGE_SEGMENT = 2 << 20, 20 << 20
FIRST_US = 1_772_000_000_000_000


@dataclass
class Block:
    size: int
    requested: int
    state: str = "inactive"
    frames: list = field(default_factory=list)


@dataclass
class Segment:
    address: int
    size: int
    blocks: list[Block]
    stream: int = 0
    frames: list = field(default_factory=list)
    expandable: bool = False
    pool: tuple[int, int] = (0, 0)

    def address_of(self, wanted: Block) -> int:
        address = self.address
        for block in self.blocks:
            if block is wanted:
                return address
            address += block.size
        raise KeyError(wanted)


class Allocator:
    """One device."""

    def __init__(self, device: int = 0, ring: int | None = None, stacks: bool = True) -> None:
        self.device, self.ring, self.stacks = device, ring, stacks
        self.segments: list[Segment] = []
        self.events: list[dict] = []
        self.now_us = FIRST_US + 7 * device
        self.next_address = 0x7F00_0000_0000 + (device << 36)
        # After each event: its time, and what is requested, in blocks, and reserved.
        self.truth: list[tuple[int, int, int, int]] = []
        self.requested = self.active = 0
        self.frames = {name: {"filename": "/home/u/train.py", "name": name, "line": 10 + i} for i, name in enumerate("fgh")}
        self.main = {"filename": "/home/u/train.py", "name": "<module>", "line": 99}

    def _stack(self, name: str) -> list:
        return [self.frames[name], self.main] if self.stacks else []

    def _tell(self, action: str, address: int, size: int, frames: list, stream: int = 0, **more: object) -> None:
        self.now_us += 3
        self.events.append(
            {"action": action, "addr": address, "size": size, "stream": stream, "time_us": self.now_us, "frames": frames, **more}
        )
        reserved = sum(segment.size for segment in self.segments)
        self.truth.append((self.now_us, self.requested, self.active, reserved))

    def alloc(self, requested: int, name: str = "f", stream: int = 0, pool: tuple[int, int] = (0, 0)) -> tuple[Segment, Block]:
        size = max((requested + 511) // 512 * 512, 512)
        for segment in self.segments:
            for i, block in enumerate(segment.blocks):
                if block.state == "inactive" and block.size >= size and segment.stream == stream and segment.pool == pool:
                    return self._cut(segment, i, size, requested, name)
        bytes_ = SMALL_SEGMENT if size <= 1 << 20 else max((size + LARGE_SEGMENT - 1) // LARGE_SEGMENT * LARGE_SEGMENT, LARGE_SEGMENT)
        segment = Segment(self.next_address, bytes_, [Block(bytes_, 0)], stream, self._stack(name), pool=pool)
        self.next_address += bytes_ + (2 << 20)
        self.segments.append(segment)
        self._tell("segment_alloc", segment.address, bytes_, self._stack(name), stream)
        return self._cut(segment, 0, size, requested, name)

    def _cut(self, segment: Segment, i: int, size: int, requested: int, name: str) -> tuple[Segment, Block]:
        whole = segment.blocks[i]
        block = Block(size, requested, "active_allocated", self._stack(name))
        segment.blocks[i : i + 1] = [block] + ([Block(whole.size - size, 0)] if whole.size > size else [])
        self.requested += requested
        self.active += size
        self._tell("alloc", segment.address_of(block), requested, block.frames, segment.stream)
        return segment, block

    def free(self, segment: Segment, block: Block, pending: bool = False) -> None:
        address = segment.address_of(block)
        self._tell("free_requested", address, block.requested, [], segment.stream)
        block.state = "active_pending_free"
        if not pending:
            self.complete(segment, block)

    def complete(self, segment: Segment, block: Block) -> None:
        address, requested = segment.address_of(block), block.requested
        self.requested -= requested
        self.active -= block.size
        block.state, block.requested, block.frames = "inactive", 0, []
        self._tell("free_completed", address, requested, [], segment.stream)
        i = segment.blocks.index(next(b for b in segment.blocks if b is block))
        for at in (i, i - 1):  # free neighbours become one
            if 0 <= at < len(segment.blocks) - 1 and all(b.state == "inactive" for b in segment.blocks[at : at + 2]):
                segment.blocks[at : at + 2] = [Block(segment.blocks[at].size + segment.blocks[at + 1].size, 0)]

    def empty_cache(self) -> None:
        for segment in [s for s in self.segments if len(s.blocks) == 1 and s.blocks[0].state == "inactive"]:
            self.segments = [s for s in self.segments if s is not segment]
            action = "segment_unmap" if segment.expandable else "segment_free"
            self._tell(action, segment.address, segment.size, [], segment.stream)

    def grow(self, segment: Segment, size: int) -> None:
        """Maps more of an expandable segment."""
        segment.expandable = True
        address = segment.address + segment.size
        segment.size += size
        if segment.blocks and segment.blocks[-1].state == "inactive":
            segment.blocks[-1].size += size
        else:
            segment.blocks.append(Block(size, 0))
        self._tell("segment_map", address, size, self._stack("g"), segment.stream)

    def shrink(self, segment: Segment, size: int) -> None:
        assert segment.blocks[-1].state == "inactive" and segment.blocks[-1].size > size
        segment.blocks[-1].size -= size
        segment.size -= size
        self._tell("segment_unmap", segment.address + segment.size, size, [], segment.stream)

    def refuse(self, size: int) -> None:
        self._tell("oom", 0, size, self._stack("h"))
        del self.events[-1]["addr"]
        self.events[-1]["device_free"] = 1 << 20

    def expandable(self, size: int) -> Segment:
        segment = Segment(self.next_address, 0, [], frames=self._stack("g"))
        self.next_address += 1 << 34
        self.segments.append(segment)
        self.grow(segment, size)
        return segment

    def play(self, seed: int, steps: int, expandable: bool = True) -> Allocator:
        choose = random.Random(seed)
        live: list[tuple[Segment, Block]] = []
        pending: list[tuple[Segment, Block]] = []
        live.append(self.alloc(3 << 20, "h", pool=(0, 1)))
        arena = self.expandable(8 << 20) if expandable else None
        for _ in range(steps):
            what = choose.random()
            if what < 0.5 or not live:
                size = choose.choice([choose.randint(1, 4000), choose.randint(1, 3 << 20), choose.randint(1 << 20, 30 << 20)])
                live.append(self.alloc(size, choose.choice("fgh"), stream=choose.choice([0, 0, 0, 0x5500])))
            elif what < 0.9:
                held = live.pop(choose.randrange(len(live)))
                self.free(*held, pending=choose.random() < 0.1)
                if held[1].state == "active_pending_free":
                    pending.append(held)
            elif what < 0.93 and pending:
                self.complete(*pending.pop())
            elif what < 0.96:
                self.empty_cache()
                if arena and not any(s is arena for s in self.segments):
                    arena = self.expandable(4 << 20)
            elif what < 0.98 and arena:
                self.grow(arena, 2 << 20)
            elif arena and arena.blocks[-1].state == "inactive" and arena.blocks[-1].size > 2 << 20:
                self.shrink(arena, 2 << 20)
            else:
                self.refuse(1 << 40)
        return self


def snapshot(*devices: Allocator, timed: bool = True, traced: bool = True, history: bool = False) -> dict:
    """What torch.cuda.memory._snapshot() gives; with `history` as torch 1.13 gave it."""

    def of_block(address: int, block: Block) -> dict:
        entry = {"size": block.size, "state": block.state}
        if not history:
            return {"address": address, **entry, "requested_size": block.requested, "frames": block.frames}
        if block.state != "inactive":
            entry["history"] = [{"addr": address, "real_size": block.requested, "frames": block.frames}]
        return entry

    def of_segment(device: int, segment: Segment) -> dict:
        addresses = [segment.address + sum(b.size for b in segment.blocks[:i]) for i in range(len(segment.blocks))]
        active = sum(b.size for b in segment.blocks if b.state != "inactive")
        entry = {
            "device": device, "address": segment.address, "total_size": segment.size,
            "allocated_size": sum(b.size for b in segment.blocks if b.state == "active_allocated"), "active_size": active,
            "stream": segment.stream, "segment_type": "small" if segment.size <= SMALL_SEGMENT else "large",
            "blocks": [of_block(address, block) for address, block in zip(addresses, segment.blocks)],
        }
        if not history:
            entry.update(segment_pool_id=segment.pool, is_expandable=segment.expandable, frames=segment.frames, requested_size=0)
        return entry

    traces = []
    for device in devices:
        events = device.events[-device.ring :] if device.ring else device.events
        traces.append([e if timed else {k: v for k, v in e.items() if k != "time_us"} for e in events] if traced else [])
    found = {"segments": [of_segment(d.device, s) for d in devices for s in d.segments], "device_traces": traces}
    if not history:
        found["allocator_settings"] = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512", "max_split_size": -1, "garbage_collection_threshold": 0.0}
        found["external_annotations"] = []
    return found
