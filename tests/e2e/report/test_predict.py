# SPDX-License-Identifier: Apache-2.0
"""Peaks of trainings on the CPU, predicted from small ones and compared with what they truly take."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import package
import pytest
from places import ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

PROGRAM = ROOT / "tests/e2e/programs/sized_training.py"
# Of one process that has imported what there is, which takes longer than the trainings, each is a child.
TRAININGS = f"""\
import os, sys, torch, vramscope
sys.path.insert(0, {str(PROGRAM.parent)!r})
from sized_training import train

train("mlp", 1, 1, steps=1)  # the first one imports, too
for name in os.environ["TRAININGS"].split():
    if os.fork() == 0:
        model, batch, length = name.split("-")
        with vramscope.record(name + ".vram", cpu=True):
            train(model, int(batch), int(length))
        break
    if os.wait()[1] != 0:
        sys.exit(name)
"""
# The model, what differs, the sizes recorded, and the one that is predicted.
CASES = [
    ("transformer", "batch", (2, 4, 8), 32),
    ("wide", "batch", (2, 4, 8), 32),
    ("attention", "length", (16, 32, 64), 256),
    ("loop", "length", (8, 16, 32), 128),
]


def name_of(case, size: int) -> str:
    model, variable, *_ = case
    return f"{model}-{size}-32" if variable == "batch" else f"{model}-4-{size}"


def vramscope(*arguments: str | Path, status: int = 0) -> tuple[str, str]:
    """What vramscope prints on its two streams."""
    done = subprocess.run(
        [VRAMSCOPE, *arguments], capture_output=True, text=True, timeout=120, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("predict")
    (directory / "program.py").write_text(TRAININGS)
    names = {name_of(case, size) for case in CASES for size in (*case[2], case[3])}
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=directory, capture_output=True, text=True, timeout=600,
        env={**package.make(directory), "TRAININGS": " ".join(sorted(names))},
    )
    assert done.returncode == 0, done.stderr
    return directory


def sized(folder: Path, case, sizes) -> list[str]:
    return [f"{folder / name_of(case, size)}.vram={size}" for size in sizes]


def prediction(*arguments: str | Path) -> dict:
    return json.loads(vramscope("predict", *arguments, "--json")[0])


def true_peak(file: Path) -> int:
    iterations = json.loads(vramscope("iterations", file, "--json")[0])["iterations"]
    return max(iteration["peak_allocated"] for iteration in iterations)


@pytest.mark.parametrize("recorded", [2, 3])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case[:2]))
def test_four_times_the_largest_size_is_predicted(folder, case, recorded):
    *_, sizes, target = case
    found = prediction(*sized(folder, case, sizes[-recorded:]), "--batch", str(target))
    truth = true_peak(folder / f"{name_of(case, target)}.vram")
    assert abs(found["peak_bytes"] / truth - 1) < 0.02
    assert found["schema"] == "vramscope.predict/1" and found["size"] == target and found["kind"] == "cpu"
    rows = found["categories"]
    # Each is rounded to a byte.
    assert abs(sum(row["bytes"] for row in rows) - found["allocated_bytes"]) <= len(rows)
    for i, source in enumerate(found["recordings"]):
        assert sum(row["measured_bytes"][i] for row in rows) == source["peak_bytes"]
        assert abs(source["fitted_bytes"] / source["peak_bytes"] - 1) < 0.02
        assert (source["left_out_bytes"] is not None) == (recorded == 3)
    forms = {row["category"]: row["form"] for row in rows}
    assert forms["parameter"] == forms["optimizer state"] == "constant"


def test_text_begins_with_the_answer_and_fits_a_screen(folder):
    case = CASES[2]
    out, err = vramscope("predict", *sized(folder, case, case[2]), "--batch", "256", "--card", "24GiB")
    assert not err and max(map(len, out.split("\n\n")[1].splitlines())) <= 80
    first, *lines = out.splitlines()
    assert first.startswith("At size 256: peak 5.5") and " in backward, of it temporary " in first
    assert "; tensors alone fit in 24.0 GiB with 24.0 GiB to spare; the largest that does is about 2" in first
    assert "temporary 2.25 MiB (grows with the square of size)" in first
    assert [line.split()[0] for line in lines if "quadratic" in line] == ["temporary", "activation"]
    assert [line.split()[1:] for line in lines if line.startswith("residual")] == [["0.0", "%"] * 3]
    assert "On a GPU the context, libraries and fragmentation come on\ntop" in out
    # The largest have columns.
    more = [f"{folder / name_of(case, 16)}.vram={size}" for size in (8, 12)]
    out, _ = vramscope("predict", *more, *sized(folder, case, (*case[2], 256)), "--batch", "300")
    assert "(2 smaller recordings without a column: --json has all)" in out
    assert re.search("^MiB +at 16 +at 32 +at 64 +at 256  form +at 300$", out, re.MULTILINE)


def test_a_card_has_a_largest_size(folder):
    case = CASES[0]
    files = sized(folder, case, case[2])
    limit = true_peak(folder / f"{name_of(case, 32)}.vram")
    assert prediction(*files, "--card", str(limit))["size"] == 32
    found = prediction(*files, "--card", str(limit - 1), "--batch", "32")
    assert found["fits"] is False and found["largest_size"] == 31
    assert "tensors alone do not fit in" in vramscope("predict", *files, "--card", str(limit - 1), "--batch", "32")[0]


def test_one_recording_has_a_range(folder):
    case = CASES[0]
    found = prediction(*sized(folder, case, (8,)), "--batch", "32")
    truth = true_peak(folder / f"{name_of(case, 32)}.vram")
    assert found["least_bytes"] < truth <= found["peak_bytes"]
    out, _ = vramscope("predict", *sized(folder, case, (8,)), "--batch", "32")
    assert out.startswith("At size 32: peak between ") and "only parameters, gradients and optimizer" in out


def test_a_gpu_has_cache_and_driver_as_well():
    found = prediction(f"{ROOT / 'examples/traces/gpt2.vram'}=8", "--batch", "8", "--card", "80GiB")
    # The note of the recording.
    assert found["kind"] == "gpu" and found["allocated_bytes"] == 11397066240
    assert found["cached_bytes"] > 0 and found["driver_bytes"] > 500 << 20 and found["fits"] is True
    assert found["peak_bytes"] == found["allocated_bytes"] + found["cached_bytes"] + found["driver_bytes"]
    assert "CPU" not in "".join(found["notes"])


def test_what_cannot_be_predicted_is_one_line(folder, tmp_path):
    case = CASES[0]
    small, large = (folder / f"{name_of(case, size)}.vram" for size in (2, 8))
    nothing = tmp_path / "nothing.vram"
    subprocess.run([VRAMSCOPE, "run", "--cpu", "--no-report", "-o", nothing, "--", "true"], check=True, timeout=60)
    text = tmp_path / "text.vram"
    text.write_text("no recording")
    for words, *arguments in [
        ("no number differs between the commands", small, large),
        ("all recordings are of size 4", f"{small}=4", f"{large}=4"),
        (f"{large}: has no size", f"{small}=4", large),
        ("one recording does not say what its size is", small),
        ("is not a whole number from 1 on", f"{small}=x", f"{large}=4"),
        ("--batch: '0' is not a whole number", f"{small}=2", f"{large}=8", "--batch", "0"),
        ("--card: ", f"{small}=2", f"{large}=8", "--card", "much"),
        (f"{nothing}: nothing was allocated", f"{small}=2", f"{nothing}=8"),
        ("text.vram", f"{small}=2", f"{text}=8"),
        ("absent.vram", f"{small}=2", f"{tmp_path / 'absent.vram'}=8"),
    ]:
        out, err = vramscope("predict", *arguments, status=2)
        assert words in err and err.count("\n") == 1 and not out, err


def test_the_commands_tell_the_sizes(tmp_path):
    files = []
    for batch in ("4", "8"):
        files.append(tmp_path / f"{batch}.vram")
        subprocess.run(
            [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", files[-1], "--", sys.executable, PROGRAM, "--batch", batch],
            check=True, timeout=120,
        )
    found = prediction(*files)
    assert found["variable"] == "batch" and found["size"] == 16
    assert [source["size"] for source in found["recordings"]] == [4, 8]
    assert vramscope("predict", *files)[0].startswith("At batch 16: peak ")
