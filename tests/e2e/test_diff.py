# SPDX-License-Identifier: Apache-2.0
"""Diffs of trainings of the example's GPT on the CPU that differ in one thing each."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("VRAMSCOPE_BUILD", ROOT / "build"))
VRAMSCOPE = BUILD / "bin" / "vramscope"

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

# The command line is the same for all: the change comes from the environment, so that only memory can tell it.
PROGRAM = f"""\
import os, sys, torch
from torch.utils.checkpoint import checkpoint
sys.path.insert(0, {str(ROOT / "examples")!r})
import train_gpt2 as gpt

change = os.environ["CHANGE"]
torch.set_num_threads(1)
torch.manual_seed(1)
batch = 16 if change == "batch" else 8
length = context = 128 if change == "sequence" else 64
model = gpt.GPT(65, layers=4, heads=4, width=64, context=context)
if change == "wider":
    model.blocks[2].expand = torch.nn.Linear(64, 384)
    model.blocks[2].contract = torch.nn.Linear(384, 64)
if change == "checkpoint":
    for block in model.blocks:
        block.forward = lambda x, whole=block.forward: checkpoint(whole, x, use_reentrant=False)
latest, history = {{}}, []
def keep(module, inputs, output):
    latest[module] = output
if change == "hook":
    for block in model.blocks:
        block.register_forward_hook(keep)
kind = torch.optim.SGD if change == "optimizer" else torch.optim.AdamW
optimizer = kind(model.parameters(), lr=1e-3)
for step in range(8):
    tokens, targets = torch.randint(65, (2, batch, length))
    loss = model(tokens, targets)
    if change == "leak":
        history.append(torch.zeros(1000))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
"""
CHANGES = ("none", "again", "batch", "sequence", "optimizer", "checkpoint", "wider", "leak", "hook")


def vramscope(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """What vramscope prints on its two streams."""
    done = subprocess.run(
        [VRAMSCOPE, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def traces(tmp_path_factory) -> dict[str, Path]:
    """By change."""
    directory = tmp_path_factory.mktemp("diff")
    (directory / "program.py").write_text(PROGRAM)

    def record(change: str) -> Path:
        trace = directory / f"{change}.vram"
        done = subprocess.run(
            [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", sys.executable, "program.py"],
            cwd=directory, capture_output=True, text=True, timeout=300, env={**os.environ, "CHANGE": change},
        )
        assert done.returncode == 0, done.stderr
        return trace

    with ThreadPoolExecutor(2) as pool:
        return dict(zip(CHANGES, pool.map(record, CHANGES)))


def first_lines(traces, change: str) -> str:
    return "\n".join(vramscope("diff", traces["none"], traces[change])[0].splitlines()[:3])


@pytest.mark.parametrize(
    "change, said",
    [
        ("batch", ["activations of blocks.[0-3] x4 grew by", "(2.00x)", "a larger batch", "positions"]),
        ("sequence", ["activations of blocks.[0-3] x4 grew by", "(2.00x)", "a longer sequence", "positions.weight"]),
        ("optimizer", ["optimizer state is gone: 1.", "exp_avg, exp_avg_sq"]),
        ("checkpoint", ["activations of blocks.[0-3] x4 shrank by", "recomputes them", "torch.utils.checkpoint"]),
        ("wider", ["layers blocks.2.{contract,expand} are wider: parameters grew", "optimizer state by"]),
        ("leak", ["3.91 KiB more per iteration are never freed: program.py:30 in <module>"]),
        ("hook", ["512 KiB of activations of blocks.[0-3] x4 are kept beyond their iteration", "in Block.forward"]),
    ],
)
def test_the_first_lines_name_the_one_change(traces, change, said):
    lines = first_lines(traces, change)
    for words in said:
        assert words in lines, lines
    # What did not change is not blamed.
    for other, word in {"batch": "batch", "sequence": "sequence", "leak": "never freed", "hook": "kept beyond"}.items():
        if other != change:
            assert word not in lines, lines


def test_two_runs_of_one_program_do_not_differ(traces):
    out, err = vramscope("diff", traces["none"], traces["again"], "--fail-above", "1MiB")
    assert out.startswith("no difference: ") and not err
    assert "Differences of up to 64.0 KiB are taken for noise." in out
    found = json.loads(vramscope("diff", traces["none"], traces["again"], "--json")[0])
    assert found["same"] is True and found["causes"] == found["notes"] == []


@pytest.mark.parametrize("change", CHANGES)
def test_rows_sum_to_the_peak_that_the_report_shows(traces, change):
    found = json.loads(vramscope("diff", traces["none"], traces[change], "--json")[0])
    assert found["schema"] == "vramscope.diff/1"
    for side, trace in (("a_bytes", traces["none"]), ("b_bytes", traces[change])):
        (device,) = json.loads(vramscope("report", trace, "--json")[0])["devices"]
        assert found["peak"][side] == device["ledger_bytes"] == sum(row[side] for row in found["rows"])
        assert sum(row[side] for row in found["categories"]) == found["peak"][side]
    assert all(row["delta_bytes"] == row["b_bytes"] - row["a_bytes"] for row in found["rows"] + [found["peak"]])
    assert all(len(row["path"]) == len(found["levels"]) for row in found["rows"])
    assert [entry["number"] for entry in found["iterations"]][0] == 0


def test_fail_above_is_a_gate(traces):
    peak = json.loads(vramscope("diff", traces["none"], traces["batch"], "--json")[0])["peak"]
    more = peak["delta_bytes"]
    percent = 100 * more / peak["a_bytes"]
    for limit, status in ((more, 0), (more - 1, 1), (f"{percent + 0.1} %", 0), (f"{percent - 0.1}%", 1)):
        err = vramscope("diff", traces["none"], traces["batch"], "--fail-above", str(limit), status=status)[1]
        assert err.count("\n") == status, err
    # What shrank does not fail, whatever the limit.
    vramscope("diff", traces["batch"], traces["none"], "--fail-above", "0")


def test_what_cannot_be_compared_is_one_line(traces, tmp_path):
    (tmp_path / "idle.py").write_text("import sys\n")
    subprocess.run(
        [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "idle.vram", "--", sys.executable, "idle.py"],
        cwd=tmp_path, check=True, timeout=60, capture_output=True,
    )
    data = bytearray(traces["none"].read_bytes())
    (tmp_path / "cut.vram").write_bytes(data[: len(data) // 2])
    for a, b, said in (
        (tmp_path / "none.vram", traces["none"], "no such file"),
        (traces["none"], tmp_path / "cut.vram", "cut.vram: "),
        (traces["none"], tmp_path / "idle.vram", "idle.vram: nothing was allocated in this recording"),
    ):
        out, err = vramscope("diff", a, b, status=2)
        assert not out and err.count("\n") == 1 and said in err, err
    for limit in ("x%", "-1%", "nan%", "lots", "%"):
        assert "--fail-above" in vramscope("diff", traces["none"], traces["batch"], f"--fail-above={limit}", status=2)[1]


def test_other_programs_are_compared_and_said(traces, tmp_path):
    (tmp_path / "other.py").write_text("import torch\nx = torch.zeros(3 << 20)\n")
    subprocess.run(
        [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "other.vram", "--", sys.executable, "other.py"],
        cwd=tmp_path, check=True, timeout=60, capture_output=True,
    )
    out, _ = vramscope("diff", traces["none"], tmp_path / "other.vram")
    assert "note: the command lines differ: program.py in A, other.py in B" in out
    assert "note: 8 iterations in A, 0 in B" in out
