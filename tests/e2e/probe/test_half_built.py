# SPDX-License-Identifier: Apache-2.0
"""Models that are being built or moved when something happens: their parameters have names before any forward."""
from __future__ import annotations

import json
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from places import VRAMSCOPE

pytest.importorskip("torch")

# `refuse()` is what PyTorch's caching allocator calls when it gives up.
PRELUDE = """
import ctypes, sys, torch
from torch import nn
refused = getattr(ctypes.PyDLL(None), "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE")
refused.argtypes = [ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_uint16]
def refuse():
    refused(1 << 30, 0, 0, 1)
"""


def start(tmp_path: Path, text: str) -> subprocess.Popen:
    program = tmp_path / "program.py"
    program.write_text(PRELUDE + textwrap.dedent(text))
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, program]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def record(tmp_path: Path, text: str, status: int = 0) -> str:
    process = start(tmp_path, text)
    out, error = process.communicate(timeout=300)
    assert process.returncode == status, error
    return out


def rows(path: Path) -> dict[tuple[str, str], int]:
    """(category, parameter) -> bytes of CPU tensors at their peak."""
    words = [VRAMSCOPE, "report", path, "--by", "category,parameter", "--where", "device=cpu", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return {tuple(row["path"]): row["bytes"] for row in json.loads(done.stdout)["rows"]}


def test_a_constructor_that_memory_is_refused_to(tmp_path):
    """Layers that are done stand in a list that nobody has yet; they have their class."""
    record(
        tmp_path,
        """
        class Block(nn.Module):
            def __init__(self, number):
                super().__init__()
                keep = lambda: self
                self.up = nn.Linear(64, 1000)
                if number == 3:
                    refuse()
                    raise torch.OutOfMemoryError("made up")
                self.norm = nn.BatchNorm1d(64)
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(100, 64)
                self.layers = nn.ModuleList([Block(i) for i in range(8)])
        Model()
        """,
        status=1,
    )
    found = rows(tmp_path / "x.vram")
    assert found["parameter", "Model.embed.weight"] == 100 * 64 * 4
    blocks = ["Block", "Block#2", "Block#3", "Block#4"]
    assert {f"{block}.up.weight" for block in blocks} <= {name for _, name in found}
    assert sum(("parameter", f"{block}.norm.weight") in found for block in blocks) == 3
    assert sum(size for (category, _), size in found.items() if category in ("parameter", "buffer")) > 4 * 64 * 1000 * 4
    assert {category for category, _ in found} <= {"parameter", "buffer", "rounding"}, found


def test_a_model_that_is_moved_half_way(tmp_path):
    record(
        tmp_path,
        """
        class Last(nn.Linear):
            def _apply(self, fn, recurse=True):
                refuse()
                raise torch.OutOfMemoryError("made up")
        model = nn.Sequential(nn.Linear(64, 1000), nn.Linear(1000, 500), Last(500, 8))
        model.to(torch.float64)
        """,
        status=1,
    )
    found = rows(tmp_path / "x.vram")
    assert found["parameter", "0.weight"] == 64 * 1000 * 8
    # The old allocation is still recorded. It has a name if the move took long enough for a scan.
    assert found["parameter", "1.weight"] in (1000 * 500 * 8, 1000 * 500 * (8 + 4))
    assert found["parameter", "2.weight"] == 500 * 8 * 4


def test_parts_that_become_a_whole_have_one_name(tmp_path):
    """What was named while it was built has its path once the model is known, and that alone."""
    said = record(
        tmp_path,
        """
        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc = nn.Linear(16, 16)
                refuse()
                len(str(self))  # what waits for the interpreter runs here
                self.scale = nn.Parameter(torch.ones(16))
            def forward(self, x):
                return self.fc(x) * self.scale
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.blocks = nn.ModuleList([Block() for _ in range(3)])
                self.head = nn.Linear(16, 4)
                self.tied = nn.Linear(16, 4)
                self.tied.weight = self.head.weight
            def forward(self, x):
                for block in self.blocks:
                    x = block(x)
                return self.head(x) + self.tied(x)
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 16)).sum().backward()
            optimizer.step()
        for name, _ in model.named_parameters():
            print(name)
        """,
    )
    names = {name for category, name in rows(tmp_path / "x.vram") if category == "parameter"}
    expected = {name if name != "head.weight" else "head.weight = tied.weight" for name in said.split()}
    assert names == expected


def test_a_program_that_is_killed_while_it_builds(tmp_path):
    """No forward, no refusal, no end: names come while it builds."""
    process = start(
        tmp_path,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                print("builds", flush=True)
                self.first = nn.Linear(64, 100)
                self.second = nn.Linear(100, 64)
                while True:
                    torch.ones(3)
        Model()
        """,
    )
    try:
        assert process.stdout.readline() == "builds\n"
        live, wanted = tmp_path / "x.vram.d", {("parameter", "first.weight"), ("parameter", "second.weight")}
        deadline = time.monotonic() + 300
        while not wanted <= rows(live).keys():
            assert process.poll() is None and time.monotonic() < deadline
    finally:
        process.terminate()
        process.communicate(timeout=120)
    assert wanted <= rows(tmp_path / "x.vram").keys()
