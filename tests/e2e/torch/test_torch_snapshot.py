# SPDX-License-Identifier: Apache-2.0
"""PyTorch's memory snapshots: ours are read by PyTorch's own functions."""
from __future__ import annotations

import json
import pickle
import random
import subprocess
from collections import defaultdict
from pathlib import Path

import pytest
from places import ROOT, VRAMSCOPE
from torch_allocator import Allocator
from torch_allocator import snapshot as snapshot_of

GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"
RECORDINGS = [*sorted((ROOT / "tests" / "golden").glob("v[2-9]*/*.vram*")), GPT2]

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


def vramscope(*arguments: str | Path) -> bytes:
    return subprocess.run([VRAMSCOPE, *arguments], capture_output=True, check=True, timeout=60).stdout


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
    data = snapshot(GPT2, "peak")
    blocks = [block for segment in data["segments"] for block in segment["blocks"] if block["state"] == "active_allocated"]
    by_category = defaultdict(int)
    for block in blocks:
        by_category[block["category"]] += block["requested_size"]
    said = defaultdict(int)
    for row in json.loads(vramscope("report", GPT2, "--json", "--by", "category"))["rows"]:
        said[row["path"][0]] += row["bytes"]
    for category in ("parameter", "activation", "driver"):
        assert by_category[category] == said[category]
    activation = max((b for b in blocks if b["category"] == "activation"), key=lambda block: block["size"])
    assert "module" in activation["user_metadata"]
    assert activation["frames"][-1]["name"] == "<module>" and all(f["line"] > 0 for f in activation["frames"])
    events = data["device_traces"][0]
    assert [e["time_us"] for e in events] == sorted(e["time_us"] for e in events)


def imported(data: object, folder: Path, protocol: int = 4) -> Path:
    (folder / "snapshot.pickle").write_bytes(data if isinstance(data, bytes) else pickle.dumps(data, protocol))
    vramscope("import", folder / "snapshot.pickle", "-o", folder / "snapshot.vram")
    return folder / "snapshot.vram"


def state(recording: Path, at: str) -> dict[int, tuple[int, int, int]]:
    """By device: what was asked for, in blocks, reserved."""
    found = json.loads(vramscope("report", recording, "--json", "--by", "category", "--at", at))
    slack = ("cached", "fragmentation", "graph pool")
    states = {}
    for device in found["devices"]:
        rows = {row["path"][0]: row["bytes"] for row in found["rows"] if row["device"] == device["index"]}
        active = sum(size for name, size in rows.items() if name not in slack)
        states[device["index"]] = (active - rows.get("rounding", 0), active, device["ledger_bytes"])
    return states


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_snapshot_is_what_pytorch_had_at_every_instant(tmp_path, protocol):
    allocator = Allocator().play(protocol, 300)
    recording = imported(snapshot_of(allocator), tmp_path, protocol)
    first_us = allocator.truth[0][0]
    peak = max(reserved for *_, reserved in allocator.truth)
    assert state(recording, "peak")[0][2] == peak
    for time_us, *truth in [allocator.truth[-1], *random.Random(protocol).sample(allocator.truth, 4)]:
        assert state(recording, f"@{(time_us - first_us) * 1000 + 1000}") == {0: tuple(truth)}
    info = vramscope("info", recording).decode()
    assert "max_split_size_mb:512" in info and "outside of PyTorch's caching allocator" in info


def test_what_a_ring_forgot_stands_from_its_begin(tmp_path):
    devices = [Allocator(device, ring=100).play(device, 300) for device in range(2)]
    recording = imported(snapshot_of(*devices), tmp_path)
    first_us = min(device.events[-100]["time_us"] for device in devices)
    for time_us in sorted(row[0] for device in devices for row in device.truth[-100:])[:: 40]:
        truth = {}
        for device in devices:
            # Before its first event in the ring a device is as it was then.
            before = [row for row in device.truth if row[0] <= time_us and row[0] >= device.events[-100]["time_us"]]
            truth[device.device] = tuple((before or [device.truth[-101]])[-1][1:])
        found = state(recording, f"@{(time_us - first_us) * 1000 + 1000}")
        # Of a block that was freed since, the size is what was asked for, rounded up as PyTorch does.
        assert found == truth
    tags = json.loads(vramscope("report", recording, "--json", "--by", "tag", "--at", f"@{1000}"))["rows"]
    assert any(row["path"] == ["before the trace"] and row["bytes"] for row in tags)


def test_snapshots_of_all_ages_and_without_traces(tmp_path):
    allocator = Allocator().play(7, 200, expandable=False)
    end = tuple(allocator.truth[-1][1:])
    for data in (
        snapshot_of(allocator, timed=False), snapshot_of(allocator, traced=False), snapshot_of(allocator, history=True, traced=False),
        snapshot_of(allocator, history=True, timed=False), snapshot_of(allocator)["segments"],
    ):
        recording = imported(data, tmp_path)
        assert state(recording, "end") == {0: end}
        lines = json.loads(vramscope("report", recording, "--json", "--by", "line", "--at", "end"))["rows"]
        assert sum(row["bytes"] for row in lines if row["path"][0].startswith("train.py:")) >= end[0]
    assert "the snapshot has no trace" in vramscope("info", recording).decode()
    vramscope("plot", recording, "--kind", "timeline", "-o", tmp_path / "a.svg")
    vramscope("report", recording, "--html", tmp_path / "a.html")
    vramscope("diff", recording, recording)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.name)
def test_our_own_snapshot_comes_back(recording, tmp_path):
    data = snapshot(recording)
    back = imported(data, tmp_path)
    names = {device["device"]: (device["kind"], device["index"]) for device in data["vramscope"]["devices"]}
    origin = min(e["time_us"] for trace in data["device_traces"] for e in trace)
    times = sorted({e["time_us"] for trace in data["device_traces"] for e in trace})
    for time_us in [times[-1], *random.Random(3).sample(times, min(3, len(times)))]:
        sums = defaultdict(int)
        for device, trace in enumerate(data["device_traces"]):
            for event in trace:
                sign = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}.get(event["action"], 0)
                if event["time_us"] <= time_us and sign:
                    sums[names[device]] += sign * event["size"]
        # Events of one microsecond come one nanosecond after the other.
        at = min((time_us - origin) * 1000 + 1999, (times[-1] - origin) * 1000 + 1000 + len(data["device_traces"][0]))
        found = json.loads(vramscope("report", back, "--json", "--by", "category", "--at", f"@{at}" if time_us != times[-1] else "end"))
        assert {(d["kind"], d["index"]): d["ledger_bytes"] for d in found["devices"] if d["ledger_bytes"]} == {k: v for k, v in sums.items() if v}


def hostile() -> dict[str, tuple[bytes, str]]:
    class Code:
        def __reduce__(self):
            import os

            return (os.system, ("touch /tmp/vramscope-was-run",))

    segments = [{"device": 0, "address": 0, "total_size": 1 << 70, "blocks": []}]
    cycle: dict = {"segments": []}
    cycle["segments"].append(cycle)
    whole = pickle.dumps(snapshot_of(Allocator().play(1, 30)), 4)
    bomb = b"\x80\x04]\x94(" + b"h\x00" * 500 + b"e\x94"
    return {
        "code": (pickle.dumps({"segments": Code()}, 4), "contains code"),
        "old code": (pickle.dumps({"segments": Code()}, 2), "contains code (GLOBAL"),
        "truncated": (whole[:-200], "ends in the middle"),
        "empty": (b"\x80\x04.", "is empty"),
        "no snapshot": (pickle.dumps({"weights": [1, 2]}), "not a memory snapshot"),
        "sizes": (pickle.dumps({"segments": segments}), "nothing was imported"),
        "wrong types": (pickle.dumps({"segments": [1, "a", None, {"device": "x", "blocks": 5}], "device_traces": [[3], 4]}), "nothing was imported"),
        "cycle": (pickle.dumps(cycle), "nothing was imported"),
        "deep": (b"\x80\x04" + b"](" * 200_000, "ends in the middle"),
        "memo": (b"\x80\x04]r\xff\xff\xff\x7f.", "damaged"),
        "list of itself": (b"\x80\x04}\x94\x8c\x08segments" + bomb[2:] + b"s.", "nothing was imported"),
        "text": (b"\x80\x04X\xff\xff\xff\xff.", "ends in the middle"),
    }


@pytest.mark.parametrize("name", list(hostile()))
def test_hostile_snapshots_are_refused_in_a_line(name, tmp_path):
    data, word = hostile()[name]
    (tmp_path / "a.pickle").write_bytes(data)
    done = subprocess.run([VRAMSCOPE, "import", tmp_path / "a.pickle", "-o", tmp_path / "a.vram"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1) and word in done.stderr, done.stderr
    assert not (tmp_path / "a.vram").exists() and not Path("/tmp/vramscope-was-run").exists()
