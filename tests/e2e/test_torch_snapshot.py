# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory snapshots: ours are read by PyTorch's own functions."""
from __future__ import annotations

import json
import pickle
import random
import subprocess
from collections import defaultdict
from pathlib import Path

import package
import pytest

H200 = package.ROOT / "examples" / "traces" / "gpt2-h200.vram"
RECORDINGS = [*sorted((package.ROOT / "tests" / "golden").glob("v[2-9]*/*.vram*")), H200]

pytestmark = pytest.mark.skipif(not package.VRAMSCOPE.exists(), reason="vramscope is not built")


def vramscope(*arguments: str | Path) -> bytes:
    return subprocess.run([package.VRAMSCOPE, *arguments], capture_output=True, check=True, timeout=60).stdout


def snapshot(recording: Path, at: str = "end") -> dict:
    return pickle.loads(vramscope("export", recording, "--to", "torch-snapshot", "--at", at))


def ledger(recording: Path, at: str) -> dict[str, int]:
    devices = json.loads(vramscope("report", recording, "--json", "--by", "category", "--at", at))["devices"]
    return {f"{device['kind']} {device['index']}": device["ledger_bytes"] for device in devices if device["ledger_bytes"]}


def segment_bytes(data: dict) -> dict[str, int]:
    names = {device["device"]: f"{device['kind']} {device['index']}" for device in data["vramscope"]["devices"]}
    found = defaultdict(int)
    for segment in data["segments"]:
        found[names[segment["device"]]] += segment["total_size"]
    return dict(found)


class Replay:
    """Takes a snapshot's events back, as MemoryViz does, and says what is wrong with them."""

    def __init__(self, data: dict, device: int) -> None:
        self.segments, self.blocks = {}, {}
        for segment in data["segments"]:
            if segment["device"] != device:
                continue
            self.segments[segment["address"]] = segment["total_size"]
            address = segment["address"]
            for block in segment["blocks"]:
                assert block["address"] == address and block["requested_size"] <= block["size"]
                if block["state"] == "active_allocated":
                    self.blocks[address] = block["requested_size"]
                address += block["size"]
            assert address == segment["address"] + segment["total_size"]
            assert segment["allocated_size"] == sum(b["size"] for b in segment["blocks"] if b["state"] == "active_allocated")
        self.events = data["device_traces"][device]

    def back(self) -> tuple[int, int]:
        """The largest and the first sum of segments."""
        largest = total = sum(self.segments.values())
        for event in reversed(self.events):
            action = event["action"]
            if action == "alloc":
                assert self.blocks.pop(event["addr"]) == event["size"]
            elif action == "free_completed":
                assert event["addr"] not in self.blocks
                self.blocks[event["addr"]] = event["size"]
            elif action == "segment_alloc":
                assert self.segments.pop(event["addr"]) == event["size"]
                total -= event["size"]
            elif action == "segment_free":
                assert event["addr"] not in self.segments
                self.segments[event["addr"]] = event["size"]
                total += event["size"]
            elif action in ("segment_map", "segment_unmap"):
                total += event["size"] if action == "segment_unmap" else -event["size"]
            else:
                assert action in ("free_requested", "snapshot", "oom"), event
            largest = max(largest, total)
        return largest, total


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_our_snapshot_has_the_ledger_at_every_instant(recording):
    lines = [json.loads(line) for line in vramscope("export", recording, "--to", "json").splitlines()]
    for at in ["peak", "end", *(f"@{line['begin_ns']}" for line in random.Random(11).sample(lines, 3))]:
        data = snapshot(recording, at)
        assert segment_bytes(data) == ledger(recording, at), at
        for device in range(len(data["device_traces"])):
            assert Replay(data, device).back()[1] == 0, "what is left before the first event"


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_pytorchs_own_functions_read_our_snapshot(recording):
    viz = pytest.importorskip("torch.cuda._memory_viz")
    data, peak = snapshot(recording), snapshot(recording, "peak")
    total = sum(segment["total_size"] for segment in data["segments"])
    folded = viz.memory(data, format_flamegraph=lambda text: text)
    assert sum(int(line.rpartition(" ")[2]) for line in folded.splitlines()) == total
    assert viz.segments(data, format_flamegraph=lambda text: text).count("\n") == folded.count("\n")
    assert f"segments: {len(data['segments'])}\n" in viz.segsum(data)
    assert "entries" in viz.trace(data)
    ranges = [{(segment["address"], segment["total_size"]) for segment in data["segments"]} for data in (peak, data)]
    changed = viz.compare(peak["segments"], data["segments"], format_flamegraph=lambda text: text)
    assert ("only_before" in changed, "only_after" in changed) == (bool(ranges[0] - ranges[1]), bool(ranges[1] - ranges[0]))
    for plot in (viz.trace_plot, viz.segment_plot):
        assert "snapshot.pickle" in plot(data)


def test_our_snapshot_says_whose_memory_it_is():
    data = snapshot(H200, "peak")
    blocks = [block for segment in data["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    by_category = defaultdict(int)
    for block in blocks:
        by_category[block["category"]] += block["requested_size"]
    said = defaultdict(int)
    for row in json.loads(vramscope("report", H200, "--json", "--by", "category"))["rows"]:
        said[row["path"][0]] += row["bytes"]
    for category in ("parameter", "activation", "driver"):
        assert by_category[category] == said[category]
    activation = max((b for b in blocks if b["category"] == "activation"), key=lambda block: block["size"])
    assert "module" in activation["user_metadata"]
    assert activation["frames"][-1]["name"] == "<module>" and all(f["line"] > 0 for f in activation["frames"])
    events = data["device_traces"][0]
    assert [e["time_us"] for e in events] == sorted(e["time_us"] for e in events)
