# SPDX-License-Identifier: Apache-2.0
"""Diffs of trainings of the example's GPT on the CPU that differ in one thing each."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import package
import pytest
from browser import EXECUTABLE, Browser
from places import ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

# The command line is the same for all, so that only memory can tell the change: of one process that has imported
# what there is, which takes longer than the training, each is a child.
PROGRAM = f"""\
import os, sys, torch, vramscope
from torch.utils.checkpoint import checkpoint
sys.path.insert(0, {str(ROOT / "examples")!r})
import train_gpt2 as gpt

torch.set_num_threads(1)
torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=1)  # the first one imports, too
for rank, change in enumerate(os.environ["CHANGES"].split()):
    if os.fork() == 0:
        break
    if os.wait()[1] != 0:
        sys.exit(change)
else:
    sys.exit()
os.environ["RANK"] = str(min(rank, 7))
recording = vramscope.record(change + ".vram", cpu=True)
recording.__enter__()
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
recording.__exit__(None, None, None)
"""
# Runs of the same program; there are 21 pairs.
SAME = ("none", "again", "third", "fourth", "fifth", "sixth", "seventh")
CHANGES = (*SAME, "batch", "sequence", "optimizer", "checkpoint", "wider", "leak", "hook")


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

    done = subprocess.run(
        [sys.executable, "program.py"], cwd=directory, capture_output=True, text=True, timeout=1200,
        env={**package.make(directory), "CHANGES": " ".join(CHANGES)},
    )
    assert done.returncode == 0, done.stderr
    return {change: directory / f"{change}.vram" for change in CHANGES}


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
        ("leak", ["3.91 KiB more per iteration are never freed: program.py:40 in <module>"]),
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
    assert "Differences of up to 64.0 KiB are treated as noise." in out
    found = json.loads(vramscope("diff", traces["none"], traces["again"], "--json")[0])
    assert found["same"] is True and found["causes"] == found["notes"] == []


def test_no_two_of_seven_runs_differ(traces):
    """20 times of 20."""
    for i, a in enumerate(SAME):
        for b in SAME[:i]:
            assert vramscope("diff", traces[a], traces[b])[0].startswith("no difference: "), (a, b)


def ranks(traces, directory: Path, *changes: str) -> Path:
    directory.mkdir()
    for change in changes:
        (directory / traces[change].name).write_bytes(traces[change].read_bytes())
    return directory


def test_of_ranks_the_medians_are_compared_and_the_outlier_is_named(traces, tmp_path):
    a = ranks(traces, tmp_path / "a", "none", "again", "third", "fourth")
    same = ranks(traces, tmp_path / "same", "fifth", "sixth", "seventh")
    odd = ranks(traces, tmp_path / "odd", "fifth", "sixth", "batch", "seventh")
    out, _ = vramscope("diff", a, same)
    assert out.startswith("no difference: ")
    assert "note: 4 ranks in A, 3 in B: those with the median peak are compared, rank " in out
    out, _ = vramscope("diff", a, odd)
    first = out.splitlines()[0]
    assert first.startswith("rank 7 of B is ") and "above the median of its 4 ranks: activations of" in first, first
    assert "Ranks of B: rank 4 " in out and "(outlier)" in out
    found = json.loads(vramscope("diff", a, odd, "--json")[0])
    assert [rank["rank"] for rank in found["ranks"]["b"]] == [4, 5, 6, 7]
    assert [rank["outlier"] for rank in found["ranks"]["b"]] == [False, False, False, True]
    assert sum(rank["compared"] for rank in found["ranks"]["a"]) == 1 and found["same"] is False
    # The gate is of the medians.
    vramscope("diff", a, odd, "--fail-above", "5%")
    # One of them, and one of all.
    vramscope("diff", traces["none"], same)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "notes.txt").write_text("x")
    for _ in range(2):
        assert "contains no recording (*.vram)" in vramscope("diff", a, tmp_path / "empty", status=2)[1]
        (tmp_path / "empty" / "notes.txt").unlink(missing_ok=True)


def test_the_page_has_the_figures_of_json(traces, tmp_path):
    page = tmp_path / "diff.html"
    out, err = vramscope("diff", traces["none"], traces["batch"], "--html", page)
    assert not out and not err
    found = json.loads(vramscope("diff", traces["none"], traces["batch"], "--json")[0])
    text = page.read_text()
    data = json.loads(re.search(r'<script type="application/json" id="vramscope-data">(.*?)</script>', text, re.DOTALL)[1])
    assert data["diff"] == found
    for side in ("a", "b"):
        (history,) = data["histories"][side]
        assert max(map(sum, zip(*history["bytes"]))) == found["peak"][f"{side}_bytes"]
        assert len(history["iterations"]) == 8 and len(history["groups"]) == len(history["bytes"])
    assert not re.search(r"(src|href)=.?https?:", text)
    assert "is the recording itself" in vramscope(
        "diff", traces["none"], traces["batch"], "--html", traces["none"], status=2
    )[1]


@pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_draws_and_zooms(traces, tmp_path, width):
    page = tmp_path / "diff.html"
    vramscope("diff", traces["none"], traces["batch"], "--html", page)
    shown = Browser()
    try:
        shown.resize(width, 1600, mobile=width < 600)
        shown.open(page)
        assert not shown.complaints
        assert "a larger batch" in shown.run("document.querySelector('h1').textContent")
        assert shown.run("document.querySelectorAll('.histories polygon').length") >= 6
        assert shown.run("document.querySelectorAll('.icicle-area .box').length") > 10
        assert shown.run("document.documentElement.scrollWidth") <= width
        before = shown.run("document.querySelectorAll('.rows-table tbody tr').length")
        shown.run("[...document.querySelectorAll('.icicle-area .box')].find((box) => box.title.startsWith('parameter:')).click()")
        rows = shown.run("[...document.querySelectorAll('.rows-table tbody tr')].map((row) => row.children[3].textContent).join()")
        assert before > 10 and set(rows.split(",")) == {"parameter"}
        shown.run("""(() => { const align = document.querySelector('select[aria-label^="Alignment"]');
            align.value = 'start'; align.dispatchEvent(new Event('change')); })()""")
        assert shown.run("document.querySelectorAll('.histories polygon').length") >= 6
        assert not shown.complaints
    finally:
        shown.close()


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
        (tmp_path / "none.vram", traces["none"], "does not exist"),
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
