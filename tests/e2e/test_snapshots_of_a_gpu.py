# SPDX-License-Identifier: Apache-2.0
"""Snapshots that PyTorch wrote on a GPU, imported, beside what PyTorch says of itself and what vramscope saw of
the same run: tests/data/snapshots, which tests/gpu/make_snapshots.py writes."""
from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import package
import pytest

DATA = package.ROOT / "tests" / "data" / "snapshots"
CASES = sorted(path.stem for path in DATA.glob("*.json"))

pytestmark = pytest.mark.skipif(not package.VRAMSCOPE.exists(), reason="vramscope is not built")

# Prints a recording's blocks of PyTorch's allocator as [address, bytes, begin_ns, end_ns, stack, tag], a stack
# outermost first as [file, line, function]; and its segments.
READ = """
import json, sys, vramscope
trace = vramscope.read(sys.argv[1])
names = ("sites", "stacks", "frames", "devices", "accounts")
sites, stacks, frames, devices, accounts = (list(trace.table(name)) for name in names)
def unfold(stack):
    found = []
    while stack:
        frame = frames[stacks[stack]["frame"]]
        found.append([frame["file"], frame["line"], frame["function"].rsplit(".", 1)[-1]])
        stack = stacks[stack]["parent"]
    return found[::-1]
blocks, segments, ends = [], [], {}
for row in trace.table("allocations"):
    site = sites[row["site"]]
    if devices[accounts[site["account"]]["device"]]["kind"] != 0 or not row["segment"]:
        continue
    life = [row["address"], row["bytes"] - row["rounding_bytes"], row["begin_ns"], row["end_ns"], unfold(site["stack"]), site["tag"]]
    if site["backing"]:
        segments.append([row["address"], row["bytes"], row["begin_ns"], row["end_ns"]])
    elif row["alloc_ns"] == row["begin_ns"]:
        ends[row["address"], row["alloc_ns"]] = life
        blocks.append(life)
    else:
        ends[row["address"], row["alloc_ns"]][3] = row["end_ns"]
print(json.dumps([blocks, segments]))
"""


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
            command = [package.VRAMSCOPE, "import", DATA / f"{case}.pickle.gz", "-o", recording]
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


def highest(lives: list, size: int, begin: int, end: int) -> int:
    """The largest sum of sizes at one instant; at an instant ends count before begins."""
    changes = sorted([(life[begin], 1, life[size]) for life in lives] + [(life[end], 0, -life[size]) for life in lives])
    total = most = 0
    for _, _, change in changes:
        total += change
        most = max(most, total)
    return most


def test_there_are_cases():
    assert CASES == ["expandable", "graph", "refused", "ring", "streams", "train"]
