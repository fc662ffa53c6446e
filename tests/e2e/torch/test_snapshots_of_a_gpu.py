# SPDX-License-Identifier: Apache-2.0
"""What PyTorch and JAX wrote of their memory on a GPU, imported, beside what they say of themselves and what
vramscope saw of the same run: tests/data/snapshots, which tests/gpu/make_snapshots.py writes."""
from __future__ import annotations

import gzip
import json
import pickle
import subprocess
import sys
from pathlib import Path

import package
import pytest
from places import ROOT, VRAMSCOPE

DATA = ROOT / "tests" / "data" / "snapshots"
CASES = sorted(path.stem for path in DATA.glob("*.json"))

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

# Prints the blocks of PyTorch's allocator that a recording has, in the order of their allocation, as
# [address, bytes, begin_ns, end_ns, stack, tag], a stack outermost first as [file, line, function].
READ = """
import json, sys, vramscope
trace = vramscope.read(sys.argv[1])
sites, stacks, frames = (list(trace.table(name)) for name in ("sites", "stacks", "frames"))
def unfold(stack):
    found = []
    while stack:
        frame = frames[stacks[stack]["frame"]]
        found.append([frame["file"], frame["line"], frame["function"].rsplit(".", 1)[-1]])
        stack = stacks[stack]["parent"]
    return found[::-1]
lives = {}
for row in sorted(trace.table("allocations"), key=lambda row: row["begin_ns"]):
    site = sites[row["site"]]
    if site["allocator"] != "PyTorch" or site["backing"]:
        continue
    # A block has several rows where something about it changed.
    first = [row["address"], row["bytes"], row["begin_ns"], row["end_ns"], unfold(site["stack"]), site["tag"]]
    lives.setdefault((row["address"], row["alloc_ns"]), first)[3] = row["end_ns"]
print(json.dumps(sorted(lives.values(), key=lambda life: life[2])))
"""
ADDRESS, BYTES, BEGIN, END, STACK, TAG = range(6)
NEVER = (1 << 63) - 1


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return package.make(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """The snapshot of a case as a recording."""
    directory = tmp_path_factory.mktemp("imported")

    def make(case: str) -> Path:
        recording = directory / f"{case}.vram"
        if not recording.exists():
            command = [VRAMSCOPE, "import", DATA / f"{case}.pickle.gz", "-o", recording]
            subprocess.run(command, check=True, capture_output=True, timeout=60)
        return recording

    return make


@pytest.fixture(scope="module")
def read(environment):
    def run(recording: Path):
        command = [sys.executable, "-c", READ, recording]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def figures(case: str) -> dict:
    return json.loads((DATA / f"{case}.json").read_text())


def pending_bytes(case: str) -> int:
    data = pickle.loads(gzip.decompress((DATA / f"{case}.pickle.gz").read_bytes()))
    blocks = [block for segment in data["segments"] for block in segment["blocks"]]
    return sum(block["size"] for block in blocks if block["state"] == "active_pending_free")


def ledger_bytes(recording: Path, at: str) -> int:
    command = [VRAMSCOPE, "report", recording, "--json", "--at", at]
    devices = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)["devices"]
    (gpu,) = [device for device in devices if device["kind"] == "gpu"]
    return gpu["ledger_bytes"]


def highest(lives: list) -> int:
    """The most bytes at one instant; at an instant ends count before begins."""
    changes = [(life[BEGIN], 1, life[BYTES]) for life in lives] + [(life[END], 0, -life[BYTES]) for life in lives]
    total = most = 0
    for _, _, change in sorted(changes):
        total += change
        most = max(most, total)
    return most


def test_there_are_cases():
    assert CASES == ["expandable", "graph", "ring", "streams", "train"]


@pytest.mark.parametrize("case", CASES)
def test_live_bytes_segments_and_peaks_are_what_pytorch_says(case, imported, read):
    said, recording = figures(case), imported(case)
    blocks = read(recording)
    # Freed by the program, still used by another stream: PyTorch calls them active, and no longer allocated.
    pending = pending_bytes(case)
    assert (pending > 0) == (case == "streams")
    assert sum(block[BYTES] for block in blocks if block[END] == NEVER) == said["allocated"] + pending
    assert ledger_bytes(recording, "end") == said["reserved"]
    if case == "ring":  # which ran over: PyTorch's peaks were before it
        assert highest(blocks) <= said["peak_allocated"] and ledger_bytes(recording, "peak") <= said["peak_reserved"]
    else:
        assert highest(blocks) == said["peak_allocated"]
        assert ledger_bytes(recording, "peak") == said["peak_reserved"]


@pytest.mark.parametrize("case", CASES)
def test_vramscope_saw_the_same_blocks_with_the_same_stacks(case, imported, read):
    theirs, ours = read(imported(case)), read(DATA / f"{case}.vram")
    history = [block for block in theirs if block[TAG] != "before the trace"]
    assert len(history) > 10
    # The first of ours is what made the context; in the ring there is the end alone.
    before = ours[: -len(history)]
    assert len(before) == 1 if case != "ring" else len(before) > 100
    for their, our in zip(history, ours[-len(history) :]):
        assert their[ADDRESS] == our[ADDRESS] and their[BYTES] == our[BYTES]
        assert their[STACK] == our[STACK]
    # What the ring had lost was live in ours, and each block was freed in the same order.
    held = {(block[ADDRESS], block[BYTES]) for block in theirs if block[TAG] == "before the trace"}
    begin = ours[-len(history)][BEGIN]
    assert held <= {(block[ADDRESS], block[BYTES]) for block in before if block[END] > begin}
    freed = [[block for block in blocks if block[END] != NEVER] for blocks in (history, ours[-len(history) :])]
    dumped = len(freed[0])  # ours has the program's end, too
    orders = [[block[ADDRESS] for block in sorted(blocks, key=lambda block: block[END])] for blocks in freed]
    if case == "streams":  # ours are freed when the program says so, theirs when the other stream is done
        assert set(orders[0]) <= set(orders[1])
    else:
        assert orders[0] == orders[1][:dumped]


@pytest.mark.parametrize("file, figure, says", [("jax.prof", "bytes_in_use", "JAX"), ("profiler.json.gz", "reserved", "PyTorch")])
def test_profiles_of_jax_and_pytorch(file, figure, says, tmp_path):
    recording = tmp_path / "x.vram"
    subprocess.run([VRAMSCOPE, "import", DATA / file, "-o", recording], check=True, capture_output=True, timeout=60)
    said = json.loads((DATA / f"{file.split('.')[0]}.figures").read_text())
    assert ledger_bytes(recording, "end") == said[figure]
    command = [VRAMSCOPE, "report", recording, "--json", "--at", "end", "--by", "allocator"]
    rows = json.loads(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout)["rows"]
    assert says in {row["path"][0] for row in rows}
