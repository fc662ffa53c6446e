# SPDX-License-Identifier: Apache-2.0
"""Iterations and leaks of real trainings on the CPU, beside what the programs themselves say."""
from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

BATCH, INPUTS, WIDTH, OUTPUTS = 64, 32, 256, 10

# After each optimizer step it prints the storages that its objects hold.
PROGRAM = f"""\
import json, sys, torch
mode, iterations = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(1)

def storages(tensors):
    return sum({{t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}}.values())

net = torch.nn.Sequential(
    torch.nn.Linear({INPUTS}, {WIDTH}), torch.nn.ReLU(), torch.nn.Linear({WIDTH}, {WIDTH}), torch.nn.ReLU(),
    torch.nn.Linear({WIDTH}, {OUTPUTS}),
)
optimizer = torch.optim.Adam(net.parameters())
kept, cache = [], {{}}

def train():
    x = torch.randn({BATCH}, {INPUTS})
    output = net(x)
    loss = output.sum()
    if mode == "leak":
        kept.append(loss)
    loss.backward(retain_graph=mode == "leak")
    optimizer.step()
    return loss

for i in range(iterations):
    loss = train()
    said = {{
        "parameter": storages(net.parameters()),
        "gradient": storages(p.grad for p in net.parameters()),
        "optimizer state": storages(t for s in optimizer.state.values() for t in s.values()),
    }}
    print(json.dumps(said), flush=True)
    if mode == "cache" and i < iterations // 2:
        cache[i] = torch.empty(1 << 16)
    optimizer.zero_grad()
names = {{name: p.untyped_storage().nbytes() for name, p in net.named_parameters()}}
print(json.dumps(names))
"""


def vramscope(*arguments: str | Path, status: int = 0) -> str:
    """What vramscope prints; the error line instead where `status` is 2."""
    done = subprocess.run(
        [VRAMSCOPE, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    assert done.returncode == status, done.stderr
    if status != 2:
        return done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.rstrip("\n")


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Records the program in a mode; the trace, and the lines of JSON that it printed."""
    made = {}

    def record(mode: str, iterations: int) -> tuple[Path, list[dict]]:
        if mode not in made:
            directory = tmp_path_factory.mktemp(mode)
            (directory / "program.py").write_text(PROGRAM)
            trace = directory / f"{mode}.vram"
            done = subprocess.run(
                [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", sys.executable, "program.py", mode]
                + [str(iterations)],
                cwd=directory, capture_output=True, text=True, timeout=300,
            )
            assert done.returncode == 0, done.stderr
            made[mode] = (trace, [json.loads(line) for line in done.stdout.splitlines()])
        return made[mode]

    return record


def test_each_iteration_ends_with_what_the_program_holds(recorded):
    trace, said = recorded("plain", 12)
    found = json.loads(vramscope("iterations", trace, "--json"))
    assert found["schema"] == "vramscope.iterations/1" and found["source"] == "optimizer steps"
    rows = found["iterations"]
    assert [row["number"] for row in rows] == list(range(12))
    for row, sums in zip(rows, said):
        assert row["device"] == -1
        for category, size in sums.items():
            assert row["categories_end"][category] == size, category
        assert row["peak_bytes"] >= row["end_bytes"] == row["end_allocated"] and row["end_reserved"] == 0
        assert row["begin_ns"] < row["peak_ns"] <= row["end_ns"]
    # What autograd keeps of the forward: the results of both ReLUs; and what the program holds: output and loss.
    activation = 2 * BATCH * WIDTH * 4 + BATCH * OUTPUTS * 4 + 4
    assert {row["categories_peak"]["activation"] for row in rows[1:]} == {activation + 4}, "and the loss before"
    assert rows[0]["categories_peak"]["activation"] == activation
    # Backward holds the gradient of one ReLU's result while it makes the next.
    assert all(row["backward_temporary_peak"] >= BATCH * WIDTH * 4 for row in rows)


def test_parameters_have_the_models_names_and_order(recorded):
    trace, said = recorded("plain", 12)
    found = json.loads(vramscope("iterations", trace, "--json"))["parameters"]
    names = said[-1]
    assert [row["name"] for row in found] == list(names)
    assert {row["name"]: row["parameter"] for row in found} == names
    assert {row["name"]: row["gradient"] for row in found} == names
    # Adam keeps two of the parameter's size and a step of four bytes.
    assert {row["name"]: row["optimizer_state"] for row in found} == {n: 2 * size + 4 for n, size in names.items()}


def test_csv_and_text_say_the_same(recorded):
    trace, _ = recorded("plain", 12)
    rows = json.loads(vramscope("iterations", trace, "--json"))["iterations"]
    table = list(csv.DictReader(io.StringIO(vramscope("iterations", trace, "--csv"))))
    assert [int(row["peak_bytes"]) for row in table] == [row["peak_bytes"] for row in rows]
    assert [int(row["optimizer_state_end"]) for row in table] == [
        row["categories_end"]["optimizer state"] for row in rows
    ]
    text = vramscope("iterations", trace)
    assert re.match(r"12 iterations \([KM]iB\), by optimizer steps\n", text)
    assert "(1 more)" not in text and "6 parameters of 3 layers" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    rows_of_text = vramscope("iterations", trace, "--all").partition("Parameters")[0]
    assert re.findall(r"^ +(\d+)[* ] ", rows_of_text, re.MULTILINE) == [str(number) for number in range(12)]


def test_last_pid_and_device(recorded):
    trace, _ = recorded("plain", 12)
    rows = json.loads(vramscope("iterations", trace, "--json"))["iterations"]
    last = json.loads(vramscope("iterations", trace, "--json", "--last", "--device=-1", f"--pid={rows[0]['pid']}"))
    assert last["iterations"] == rows[-1:]
    assert "no iteration of that process" in vramscope("iterations", trace, "--device", "0", status=2)


def test_without_iterations_it_says_what_makes_them(tmp_path):
    trace = tmp_path / "none.vram"
    code = "import torch; kept = torch.zeros(1000)"
    subprocess.run(
        [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", sys.executable, "-c", code],
        check=True, capture_output=True, timeout=120,
    )
    error = vramscope("iterations", trace, status=2)
    assert "optimizer" in error and 'mark("iteration")' in error
    assert "No iterations in this recording" in vramscope("leaks", trace)
    assert "needs iterations" in vramscope("leaks", trace, "--fail-above", "1M", status=2)


def test_a_kept_graph_is_found_to_the_byte(recorded):
    trace, _ = recorded("leak", 20)
    found = json.loads(vramscope("leaks", trace, "--json"))
    assert found["schema"] == "vramscope.leaks/1" and found["iterations"] == 20
    # Each loss keeps its graph: the input, the results of both ReLUs, and itself.
    graph = BATCH * INPUTS * 4 + 2 * BATCH * WIDTH * 4 + 4
    assert sum(row["bytes_per_iteration"] for row in found["growing"]) == pytest.approx(graph)
    assert all(row["steady"] for row in found["growing"])
    assert found["bytes_per_iteration"] == pytest.approx(graph) and found["unexplained_bytes_per_iteration"] == pytest.approx(0)
    worst = found["growing"][0]
    assert any("in train" in frame for frame in worst["stack"])
    assert worst["bytes_per_iteration"] >= BATCH * WIDTH * 4
    text = vramscope("leaks", trace)
    assert text.startswith("Memory grows by ") and "in train" in text
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("mode", ["plain", "cache"])
def test_what_does_not_leak_is_not_reported(recorded, mode):
    trace, _ = recorded(mode, 12 if mode == "plain" else 24)
    found = json.loads(vramscope("leaks", trace, "--json"))
    assert found["growing"] == []
    cached = [row for row in found["never_freed"] if row["bytes"] >= 1 << 18]
    assert [row["count"] for row in cached] == ([12] if mode == "cache" else [])
    assert vramscope("leaks", trace).startswith("Nothing grows")


def test_limits_and_suppressions(recorded, tmp_path):
    trace, _ = recorded("leak", 20)
    vramscope("leaks", trace, "--fail-above", "1M")
    vramscope("leaks", trace, "--fail-above", "1K", status=1)
    patterns = tmp_path / "suppressions"
    patterns.write_text("# known\n\n  in train  # by its place\n")
    quiet = json.loads(vramscope("leaks", trace, "--json", "--suppressions", patterns))
    assert quiet["growing"] == [] and quiet["suppressed"]["count"] >= 60
    vramscope("leaks", trace, "--suppressions", patterns, "--fail-above", "1K")
    assert "no such file" in vramscope("leaks", trace, "--suppressions", tmp_path / "none", status=2).lower()
    table = list(csv.DictReader(io.StringIO(vramscope("leaks", trace, "--csv"))))
    assert {row["list"] for row in table} == {"total", "growing", "never_freed"}
    assert table[0]["place"].startswith("Memory grows by ")


def test_the_headline_and_the_star_are_of_one_instant():
    """Ten iterations of this recording have the same peak to the byte, most of it cached in nine of them."""
    recording = ROOT / "examples" / "traces" / "gpt2.vram"
    report = json.loads(subprocess.run([VRAMSCOPE, "report", recording, "--json"], capture_output=True, text=True, check=True).stdout)
    at = next(device["at"] for device in report["devices"] if device["index"] == 0)
    asked = subprocess.run([VRAMSCOPE, "iterations", recording, "--json", "--device", "0"], capture_output=True, text=True, check=True)
    rows = json.loads(asked.stdout)["iterations"]
    highest = max(row["peak_bytes"] for row in rows)
    assert sum(row["peak_bytes"] == highest for row in rows) > 1
    assert [row["number"] for row in rows if row["peak_ns"] == at["time_ns"]] == [at["iteration"]]
    text = subprocess.run([VRAMSCOPE, "iterations", recording, "--device", "0"], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"^ +(\d+)\*", text, re.MULTILINE) == [str(at["iteration"])]
    # A row's peak is where the report goes within it.
    for row in rows:
        within = subprocess.run([VRAMSCOPE, "report", recording, "--json", "--at", f"iter:{row['number']}"], capture_output=True, text=True)
        device = next(device for device in json.loads(within.stdout)["devices"] if device["index"] == 0)
        assert device["at"]["time_ns"] == row["peak_ns"]
