# SPDX-License-Identifier: Apache-2.0
"""Random programs of allocator calls: sizes, streams, pools, settings, limits, and devices that are nearly full."""

import random

STREAMS = (0, 0, 0, 256, 512)
SETTINGS = (
    "expandable_segments:True",
    "max_split_size_mb:20",
    "max_split_size_mb:64",
    "max_split_size_mb:100",
    "max_split_size_mb:64,max_non_split_rounding_mb:30",
    "max_split_size_mb:64,expandable_segments:True",
    "garbage_collection_threshold:0.6",
    "garbage_collection_threshold:0.3,max_split_size_mb:64",
    "garbage_collection_threshold:0.5,expandable_segments:True",
    "roundup_power2_divisions:4",
    "roundup_power2_divisions:1",
    "roundup_power2_divisions:[32:8,64:4,128:2,>:1]",
    "roundup_power2_divisions:[64:8,256:4]",
    "roundup_power2_divisions:8,expandable_segments:True,garbage_collection_threshold:0.8",
)
NEW_SETTINGS = ("large_segment_size_mb:32", "large_segment_size_mb:40,expandable_segments:True")
EDGES = (1, 511, 512, 513, 1 << 20, (1 << 20) + 1, 10485248, 10485759, 10 << 20, (20 << 20) - 512, 20 << 20)


def size_of(rng, scale):
    """A size; the mixture meets every class of sizes, and each of their borders."""
    kind = rng.random()
    if kind < 0.1:
        return rng.choice(EDGES)
    if kind < 0.4:
        return rng.randrange(1, 1 << rng.randrange(9, 21))
    if kind < 0.7:
        return rng.randrange(1 << 20, 12 << 20)
    if kind < 0.9:
        return rng.randrange(1 << 20, scale)
    return (rng.randrange(1, scale >> 20) << 20) - rng.choice((0, 0, 1, 512))


class Program:
    def __init__(self, seed, version, requests):
        self.rng = random.Random(seed)
        self.is_new = int(version.split(".")[1]) >= 13
        self.lines = [f"version {version}"]
        self.live = []
        self.names = 0
        self.pools = {}  # references by number, of those that can be opened
        self.next_pool = 7
        self.open = []
        self.has_fallback = None
        self.scale = self.rng.choice((24, 48, 160, 700)) << 20
        self.settings()
        self.limits()
        self.uses_streams = self.rng.random() < 0.6
        self.uses_events = self.rng.random() < 0.5
        self.uses_pools = self.rng.random() < 0.4
        self.share = self.rng.choice((0.5, 0.52, 0.55))
        for _ in range(requests):
            self.step()
            if self.rng.random() < 0.05:
                self.lines.append("stat")
        self.lines += ["empty", "stat"]

    def settings(self):
        rng = self.rng
        choices = SETTINGS + (NEW_SETTINGS if self.is_new else ())
        setting = rng.choice(choices) if rng.random() < 0.75 else ""
        self.is_expandable = "expandable" in setting
        if setting:
            self.lines.append(f"set {setting}")

    def limits(self):
        rng = self.rng
        if rng.random() < 0.6:
            self.lines.append(f"capacity {rng.choice((1, 2, 4, 10)) * self.scale >> 20}M")
        if rng.random() < 0.5:
            self.lines.append(f"fraction {rng.choice((1.0, 4 * self.scale / (80 << 30), 8 * self.scale / (80 << 30)))!r}")

    def step(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.01:
            self.rare()
        elif self.uses_pools and kind < 0.03:
            self.pool()
        elif self.uses_events and kind < 0.13:
            self.event()
        elif rng.random() < self.share or not self.live:
            self.names += 1
            stream = rng.choice(STREAMS) if self.uses_streams else 0
            self.lines.append(f"alloc b{self.names} {size_of(rng, self.scale)} {stream}")
            self.live.append(f"b{self.names}")
        else:
            # Mostly what is new, or all at once.
            if rng.random() < 0.002:
                rng.shuffle(self.live)
                self.lines += [f"free {name}" for name in self.live]
                self.live.clear()
                return
            last = len(self.live) - 1
            index = last - int(rng.expovariate(0.1)) if rng.random() < 0.5 else rng.randrange(last + 1)
            self.lines.append(f"free {self.live.pop(max(index, 0))}")

    def rare(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.6:
            self.lines.append("empty")
        elif kind < 0.8:
            self.lines.append(f"capacity {rng.choice((1, 2, 4, 10, 40)) * self.scale >> 20}M")
        else:
            self.lines.append("expandable")  # the caller may know how

    def event(self):
        rng = self.rng
        # Up to 2.12 the uses in an open scope outlive their block, and count for the next one in its place.
        if self.live and rng.random() < 0.7 and (self.is_new or not self.open):
            name = rng.choice(self.live[-20:])
            self.lines += [f"use {name} {stream}" for stream in rng.sample((0, 256, 512, 1024), rng.choice((1, 1, 2)))]
        else:
            self.lines.append(f"finish {rng.choice((0, 256, 512, 1024))}")

    def pool(self):
        rng = self.rng
        if self.open and rng.random() < 0.6:
            self.lines.append(f"pool {self.open.pop(rng.randrange(len(self.open)))} close")
            return
        kind = rng.random()
        if len(self.pools) < 3 and kind < 0.3:
            number = self.next_pool
            self.next_pool += 1
            self.pools[number] = 1
            self.lines.append(f"pool {number} create")
            if self.has_fallback is None and rng.random() < 0.4:  # of several, a hash says which comes first
                self.has_fallback = number
                self.lines.append(f"pool {number} fallback")
            if self.is_new and rng.random() < 0.2:
                self.lines.append(f"pool {number} nosplit")
        elif self.pools and kind < 0.45:
            self.release_pool(rng.choice(list(self.pools)))
        elif self.pools and len(self.open) < 2:
            number = rng.choice(list(self.pools))
            if number not in self.open:
                self.open.append(number)
                self.pools[number] += 1
                self.lines.append(f"pool {number} open")

    def release_pool(self, number):
        """PyTorch itself counts expandable segments so that it deletes a pool in use; up to 2.12 no other may be open."""
        if self.is_expandable or number == self.has_fallback or (self.open if not self.is_new else number in self.open):
            return
        self.lines += [f"pool {number} release"] * self.pools.pop(number)
        # Up to 2.12 events that an open scope held back are recorded in the order of a hash.
        if self.rng.random() < 0.5 and (self.is_new or not self.uses_events):
            self.lines.append(f"pool {number} empty")


def make(seed, version, requests):
    """The lines of a program; the same for the same arguments."""
    lines = Program(seed, version, requests).lines
    return [line for line in lines if line != "expandable"]
