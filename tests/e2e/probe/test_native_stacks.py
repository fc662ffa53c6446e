# SPDX-License-Identifier: Apache-2.0
"""Native stacks in whole programs: they reach from the allocator to the program's first function."""
from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from places import DUMP, FAKE, HOSTS, PROBE, VRAMSCOPE

NATIVE_STACKS = 21  # losses.def

pytestmark = pytest.mark.skipif(not DUMP.exists(), reason="the probe is not built")

TRAIN = """
import threading
import torch
net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
def train():
    for _ in range(3):
        net(torch.randn(32, 64)).sum().backward()
train()
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


def record(command: list[str], directory: Path, **extra: str) -> Path:
    directory.mkdir()
    environment = {**os.environ, "LD_PRELOAD": str(PROBE), "VRAMSCOPE_DIR": str(directory), **extra}
    subprocess.run(command, env=environment, capture_output=True, timeout=120, check=True)
    (file,) = directory.glob("*.vrl")
    return file


class Stacks:
    """The native stacks of one process as paths of binaries, innermost first."""

    def __init__(self, file: Path) -> None:
        done = subprocess.run([str(DUMP), str(file)], capture_output=True, text=True, check=True)
        self.records = [json.loads(line) for line in done.stdout.splitlines()]
        self.images = [r for r in self.records if r["record"] == "Image"]
        self.frames = {(r["stream"], r["id"]): r for r in self.records if r["record"] == "NativeStack"}
        self.lost = struct.unpack_from("<32Q", file.read_bytes(), 80)[NATIVE_STACKS]

    def path(self, stream: int, native: int) -> list[str]:
        path, frame = [], self.frames.get((stream, native))
        while frame is not None:
            pc = frame["pc"] - 1
            path += [next((i["path"] for i in self.images if i["begin"] <= pc < i["end"]), "?")]
            frame = self.frames.get((stream, frame["parent"]))
        return path


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch")
def test_pytorch(tmp_path: Path) -> None:
    stacks = Stacks(record([sys.executable, "-c", TRAIN], tmp_path / "live", VRAMSCOPE_OPTIONS="cpu,native"))
    blocks = [r for r in stacks.records if r["record"] == "BlockAlloc"]
    assert len(blocks) > 20 and stacks.lost == 0
    for block in blocks:
        path = stacks.path(block["stream"], block["native"])
        assert "libc10.so" in path[0] and any("libtorch_cpu.so" in image for image in path)
        # The empty path is the program itself; threads begin in the C library.
        assert path[-1] == "" or "libc.so" in path[-1], path
        assert "?" not in path
    # A binary is described once a stream.
    described = [(i["stream"], i["begin"]) for i in stacks.images]
    assert len(described) == len(set(described))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no PyTorch")
@pytest.mark.skipif(not Path(VRAMSCOPE).exists(), reason="vramscope is not built")
def test_frames_name_the_functions_of_pytorch(tmp_path: Path) -> None:
    trace = tmp_path / "train.vram"
    environment = {**os.environ, "VRAMSCOPE_PROBE": str(PROBE)}
    command = [VRAMSCOPE, "run", "--no-report", "--native", "--cpu", "-o", str(trace), "--"]
    subprocess.run([*command, sys.executable, "-c", TRAIN], env=environment, capture_output=True, timeout=120, check=True)
    report = subprocess.run(
        [VRAMSCOPE, "report", "--at", "peak", "--by", "native", "--json", str(trace)],
        capture_output=True, text=True, check=True, timeout=60,
    ).stdout
    assert "c10::alloc_cpu" in report or "c10::DefaultCPUAllocator" in report
    assert "at::" in report


def test_driver_calls(tmp_path: Path) -> None:
    file = record(
        [str(HOSTS / "driver_event_cost"), "20"], tmp_path / "live",
        VRAMSCOPE_OPTIONS="", LD_LIBRARY_PATH=str(FAKE),
    )
    stacks = Stacks(file)
    allocations = [r for r in stacks.records if r["record"] == "Alloc"]
    assert allocations and stacks.lost == 0
    # main, 20 calls, the one that loops, what it calls; the C library's start and the program's.
    path = stacks.path(1, allocations[-1]["native"])
    assert path.count("") >= 23 and path[-1] == ""
    assert not any("vramscope_probe" in image for image in path)
    assert len({a["native"] for a in allocations}) == 1


def test_stacks_that_are_cut_are_counted(tmp_path: Path) -> None:
    file = record(
        [str(HOSTS / "driver_event_cost"), "200"], tmp_path / "live",
        VRAMSCOPE_OPTIONS="", LD_LIBRARY_PATH=str(FAKE),
    )
    stacks = Stacks(file)
    allocations = [r for r in stacks.records if r["record"] == "Alloc"]
    # The innermost frames, and nothing of the C library's start.
    path = stacks.path(1, allocations[-1]["native"])
    assert 90 < len(path) <= 96 and set(path) == {""}
    # Once a stack, however often it allocates: those of cuMemAllocAsync and of cuMemFreeAsync.
    assert len(allocations) > 1000 and 1 <= stacks.lost <= 2
