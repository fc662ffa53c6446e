# SPDX-License-Identifier: Apache-2.0
"""IterationProfiler, and the interface of PyTorch Memory Profiler over it, in programs of their own."""
from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from pathlib import Path

import package
import pytest
import warm_torch
from places import VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

# Outputs of every kind, a name with a comma, tied weights; 1 KiB is too small to show in MB.
MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(64, 256)
        self.add_module("head,er", nn.Linear(256, 1000))
        self.tied = nn.Linear(256, 1000)
        self.tied.weight = self._modules["head,er"].weight
        self.nothing = Nothing()
    def forward(self, x):
        y, (h, c) = self.lstm(x)
        self.nothing(y)
        return {"a": self._modules["head,er"](y), "b": (self.tied(y), None)}
class Nothing(nn.Module):
    def forward(self, x):
        return None
"""
PROGRAM = f"""
IMPORT
import json, sys
import torch, torch.nn as nn
torch.set_num_threads(1)
{MODEL}
net = Net()
optimizer = torch.optim.Adam(net.parameters())
profiler = PROFILER(net, print_period=2, csv=True)
def size(t): return 0 if t is None else t.untyped_storage().nbytes()
for epoch in range(2):
    for i in range(3):
        optimizer.zero_grad()
        output = net(torch.randn(16, 8, 64))
        loss = output["a"].sum() + output["b"][0].sum()
        loss.backward()
        optimizer.step()
        profiler.record_stats()
    profiler.epoch_end()
said = {{name: size(p) for name, p in net.named_parameters()}}
state = sum(t.untyped_storage().nbytes() for s in optimizer.state.values() for t in s.values())
print(json.dumps({{"names": said, "state": state}}))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return package.make(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def warm(environment, tmp_path_factory):
    process = warm_torch.Warm(environment, tmp_path_factory.mktemp("programs"), imports=warm_torch.SLOW)
    yield process
    process.close()


def run(code: str, directory: Path, environment: dict[str, str], *under: str):
    (directory / "program.py").write_text(code)
    return subprocess.run(
        [*under, sys.executable, "program.py"],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=300,
    )


def program(import_line: str, profiler: str) -> str:
    return PROGRAM.replace("IMPORT", import_line).replace("PROFILER", profiler)


def under(kind: str, directory: Path) -> list[str]:
    if kind == "alone":
        return []
    return [str(VRAMSCOPE), "run", "--cpu", "--no-report", "-o", str(directory / "x.vram"), "--"]


def tables(text: str) -> list[dict[str, int]]:
    """The rows of each table, sizes in MB as printed."""
    found = []
    for line in text.splitlines():
        if line.startswith("Memory Usage for Iteration"):
            found.append({"title": line})
        row = re.fullmatch(r"( {2}|)([^.].*?)\.+(\d+) MB", line)
        if row:
            assert len(line) == 53, line
            found[-1][row[2]] = int(row[3])
    return found


@pytest.mark.parametrize("kind", ["alone", "run"])
def test_the_old_interface_prints_the_old_table(kind, tmp_path, environment):
    code = program("from vramscope.compat.pytorch_mem_profiler import *", "memory_profiler")
    done = run(code, tmp_path, environment, *under(kind, tmp_path))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    names = said["names"]
    (first, second) = tables(done.stdout)
    assert first["title"] == "Memory Usage for Iteration 2 of Epoch 1"
    assert second["title"] == "Memory Usage for Iteration 2 of Epoch 2"
    assert "Epoch 1 finished\n" in done.stdout and "Epoch 2 finished\n" in done.stdout
    megabytes = lambda size: round(size / 1e6)  # noqa: E731
    for table in (first, second):
        for name, size in names.items():
            assert table[name] == megabytes(size) == table[f"{name} grad"], name
        assert table["Total layer weight usage"] == megabytes(sum(names.values()))
        assert table["Total layer weight gradient usage"] == megabytes(sum(names.values()))
        assert table["Optimizer state"] == megabytes(said["state"])
        assert table["Peak cached"] >= table["Peak allocated"] > 0
    order = list(first)
    assert order[1:5] == ["Peak cached", "Current cached", "Total feature map usage", "Total layer weight usage"]
    assert order[order.index("Intermediate gradients") + 1 :] == [
        "Peak allocated", "Current allocated", "Optimizer state", "Workspace", "Driver-owned", "Before recording",
    ]

    (path,) = (tmp_path / "memory_csv_data").glob("*.csv")
    assert re.fullmatch(r"\d{14}\.csv", path.name)
    assert f"Logging data in ./memory_csv_data/{path.name}\n" in done.stdout
    rows = list(csv.reader(path.open(newline="")))
    assert rows[0] == [
        "epoch", "iteration", "peak_cached", "current_cached", "total_feature_map_usage", "total_weight_usage",
        *names, "total_layer_weight_gradient_usage", *(f"{name}_grad" for name in names), "intermediate_gradients",
        "peak_allocated_bytes", "current_allocated_bytes", "optimizer_state_bytes", "workspace_bytes",
        "driver_owned_bytes", "before_recording_bytes",
    ]
    assert [row[:2] for row in rows[1:]] == [["1", "2"], ["2", "2"]]
    for row, table in zip(rows[1:], (first, second)):
        figures = dict(zip(rows[0], map(int, row)))
        assert figures["optimizer_state_bytes"] == said["state"]
        assert figures["before_recording_bytes"] == 0
        assert figures["peak_cached"] == table["Peak cached"]
        assert figures["head,er.bias_grad"] == table["head,er.bias grad"]
        assert figures["current_allocated_bytes"] >= sum(names.values()) + said["state"]
    if kind == "run":
        iterations = json.loads(
            subprocess.run(
                [VRAMSCOPE, "iterations", "--json", tmp_path / "x.vram"], capture_output=True, check=True
            ).stdout
        )["iterations"]
        assert len(iterations) == 6
        assert int(rows[1][rows[0].index("peak_allocated_bytes")]) == iterations[1]["peak_allocated"]


def test_the_new_interface_has_exact_bytes(tmp_path, environment):
    done = run(program("from vramscope import IterationProfiler", "IterationProfiler"), tmp_path, environment)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    (path,) = (tmp_path / "memory_csv_data").glob("*.csv")
    rows = list(csv.DictReader(path.open(newline="")))
    assert len(rows) == 2
    for row in rows:
        assert {name: int(row[name]) for name in said["names"]} == said["names"]
        assert {name: int(row[f"{name}_grad"]) for name in said["names"]} == said["names"]
        assert int(row["total_weight_usage"]) == sum(said["names"].values())
        assert int(row["optimizer_state"]) == said["state"]
        # Autograd keeps at least what the LSTM gave to both heads.
        assert int(row["total_feature_map_usage"]) >= 16 * 8 * 256 * 4
    assert "Total layer weight usage" in done.stdout and " KiB\n" in done.stdout


def test_bad_periods(tmp_path, warm):
    old = "from vramscope.compat.pytorch_mem_profiler import *\nmemory_profiler(torch.nn.Linear(1, 1), print_period=0)"
    done = warm.run(old, tmp_path)
    assert (done.returncode, done.stdout) == (0, "ERROR: Please use a print period larger than zero!\n")
    new = "from vramscope import IterationProfiler\nimport torch\nIterationProfiler(torch.nn.Linear(1, 1), 0)"
    done = warm.run(new, tmp_path)
    assert done.returncode == 1 and done.stderr.endswith("ValueError: vramscope: print_period must be 1 or more\n")


LATE = f"""
import json, os, sys, tempfile, warnings
os.environ["TMPDIR"] = tempfile.tempdir = TEMPORARY
from pathlib import Path
import torch, torch.nn as nn
torch.set_num_threads(1)
{MODEL}
net = Net()
optimizer = torch.optim.Adam(net.parameters())
data = torch.randn(16, 8, 64)
def train():
    output = net(data)
    (output["a"].sum() + output["b"][0].sum()).backward()
    optimizer.step()
    optimizer.zero_grad()
def size(tensors):
    return sum({{t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}}.values())
for i in range(3):
    train()
assert "vramscope" not in sys.modules
state = size(t for s in optimizer.state.values() for t in s.values())
print(json.dumps({{"state": state, "parameters": size(net.parameters())}}))
def temporary():
    return sorted(path.name for path in Path(tempfile.gettempdir()).glob("vramscope-*/*"))
CONTINUE
"""


def late(code: str, directory: Path, warm: warm_torch.Warm) -> tuple[dict, list[dict[str, str]], str]:
    """What a training says that has long begun when `code` runs: of itself; rows of the CSV; what `code` printed."""
    own = directory / "temporary"
    own.mkdir()
    done = warm.run(LATE.replace("CONTINUE", code).replace("TEMPORARY", repr(str(own))), directory)
    assert done.returncode == 0, done.stderr
    assert "Warning" not in done.stderr
    assert list(own.glob("vramscope-*")) == [], "nothing is left behind"
    first, _, rest = done.stdout.partition("\n")
    found = []
    for path in (directory / "memory_csv_data").glob("*.csv"):
        found += csv.DictReader(path.open(newline=""))
    return json.loads(first), found, rest


def check_late(said: dict, rows: list[dict[str, str]]) -> None:
    for row in rows:
        # Made before the recording, and known all the same: of tied weights one.
        assert int(row["total_weight_usage"]) == said["parameters"]
        assert int(row["optimizer_state"]) == said["state"]
        # Autograd keeps at least what the LSTM gave to both heads.
        assert 16 * 8 * 256 * 4 <= int(row["total_feature_map_usage"]) < 8 << 20
        assert int(row["peak_allocated"]) >= int(row["current_allocated"]) >= said["parameters"] + said["state"]


def test_it_begins_late(tmp_path, warm):
    said, rows, printed = late(
        """
from vramscope import IterationProfiler
assert temporary() == [], "the class alone records nothing"
profiler = IterationProfiler(net, csv=True)
assert temporary() == ["recording.vram.d"]
for i in range(3):
    train()
    profiler.record_stats()
""",
        tmp_path,
        warm,
    )
    assert [row["iteration"] for row in rows] == ["1", "2", "3"]
    check_late(said, rows)
    # The training data have no name and are never freed, so their size is unknown.
    assert {row["before_recording"] for row in rows} == {""}
    assert re.search(r"Before recording\.+unknown\n", printed)


def test_what_stood_before_without_a_name_is_a_row(tmp_path, warm):
    said, rows, printed = late(
        """
from vramscope import IterationProfiler
cache = torch.zeros(3 << 20, dtype=torch.uint8)
profiler = IterationProfiler(net, csv=True)
train()
del cache
train()
profiler.record_stats()
""",
        tmp_path,
        warm,
    )
    check_late(said, rows)
    # Of a free alone, only the C library knows the size: with what it rounded up.
    assert 3 << 20 <= int(rows[0]["before_recording"]) <= (3 << 20) + 8192
    assert re.search(r"Before recording\.+at least 3\.0 MiB\n", printed)


def test_a_second_one_shares_the_recording(tmp_path, warm):
    said, rows, _ = late(
        """
from vramscope import IterationProfiler, is_recording, live_directory
def loop():
    profiler = IterationProfiler(net, print_period=2, csv=True)
    for i in range(2):
        train()
        profiler.record_stats()
loop()
first = live_directory()
os.remove(next(Path("memory_csv_data").iterdir()))
loop()
assert is_recording() and live_directory() == first and temporary() == ["recording.vram.d"]
""",
        tmp_path,
        warm,
    )
    assert [row["iteration"] for row in rows] == ["2"]
    check_late(said, rows)


def test_a_recording_under_way_is_shared_and_a_later_one_has_room(tmp_path, warm):
    said, rows, _ = late(
        """
import vramscope
from vramscope import IterationProfiler
with vramscope.record("a.vram", cpu=True):
    profiler = IterationProfiler(net, csv=True)
    for i in range(2):
        train()
        profiler.record_stats()
    assert temporary() == []
assert not vramscope.is_recording()
train()
profiler.record_stats()
assert temporary() == ["recording.vram.d"]
with vramscope.record("b.vram", cpu=True):
    assert temporary() == []
    for i in range(2):
        train()
        profiler.record_stats()
""",
        tmp_path,
        warm,
    )
    assert [row["iteration"] for row in rows] == ["1", "2", "3", "4", "5"]
    check_late(said, rows[:2] + rows[3:])
    assert int(rows[2]["total_weight_usage"]) == said["parameters"], "no more had happened in that recording"
    for name in ("a", "b"):
        found = subprocess.run(
            [VRAMSCOPE, "iterations", "--json", tmp_path / f"{name}.vram"], capture_output=True, check=True
        ).stdout
        assert len(json.loads(found)["iterations"]) == 2


def test_in_cells(tmp_path, warm):
    said, rows, _ = late(
        """
names = globals()
for number, cell in enumerate([
    "from vramscope import IterationProfiler\\nprofiler = IterationProfiler(net, csv=True)",
    "for i in range(2):\\n    train()\\n    profiler.record_stats()",
    "import os\\nos.remove(profiler.fname)\\nprofiler = IterationProfiler(net, csv=True)",
    "train()\\nprofiler.record_stats()",
]):
    exec(compile(cell, f"<ipython-input-{number}>", "exec"), names)
""",
        tmp_path,
        warm,
    )
    assert [row["iteration"] for row in rows] == ["1"]
    check_late(said, rows)


def test_a_fork_leaves_the_recording_alone(tmp_path, warm):
    said, rows, _ = late(
        """
from vramscope import IterationProfiler
profiler = IterationProfiler(net, csv=True)
child = os.fork()
if child == 0:
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
train()
profiler.record_stats()
""",
        tmp_path,
        warm,
    )
    check_late(said, rows)


def test_helpers(tmp_path, warm):
    code = """
from vramscope.compat.pytorch_mem_profiler import *
import vramscope.compat.pytorch_mem_profiler as module
t = torch.empty(3_000_000, dtype=torch.int16)
assert getDataPtr(t) == t.data_ptr() == getDataPtr(t[10:])
assert getTensorSize(t) == getTensorSize(t[10:]) == 6 and getTensorSize(t, "B") == 6_000_000
assert [MB(500_000), MB(1_500_000), MB(2_500_000)] == [0, 2, 2], "rounded to even as before"
assert OUTPUT_DIR == "./memory_csv_data/" and datetime.now() and os.getpid()
print(sorted(module.__all__))
getTensorSize(t, "GB")
"""
    done = warm.run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    names, error = done.stdout.splitlines()
    assert names == str(
        ["MB", "OUTPUT_DIR", "datetime", "getDataPtr", "getTensorSize", "memory_profiler", "os", "torch"]
    )
    assert error == "ERROR: unknown scale in getTensorSize: GB"


def test_a_paused_recording_costs_a_warning_and_no_training(tmp_path, environment):
    code = """
import torch
from vramscope import IterationProfiler
net = torch.nn.Linear(4, 4)
profiler = IterationProfiler(net)
for i in range(3):
    profiler.record_stats()
from vramscope import _recording
def full():
    raise OSError(28, "No space left on device")
profiler._warned, _recording.join_or_begin = False, full
profiler.record_stats()
print("trained")
"""
    command = [str(VRAMSCOPE), "run", "--cpu", "--start-paused", "--no-report", "-o", str(tmp_path / "x.vram"), "--"]
    done = run(code, tmp_path, environment, *command)
    assert done.returncode == 0 and done.stdout == "trained\n"
    assert done.stderr.count("RuntimeWarning: vramscope: no table: ") == 2
