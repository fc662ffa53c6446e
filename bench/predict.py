#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Errors of `vramscope predict`: small CPU trainings, and the peak that they truly have at four times the size.

    .venv/bin/python bench/predict.py [--keep FOLDER]   uses the recordings that are there already
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VRAMSCOPE = Path(os.environ.get("VRAMSCOPE_BUILD", ROOT / "build")) / "bin/vramscope"
PROGRAM = ROOT / "tests/e2e/programs/sized_training.py"
GPT = ROOT / "examples/train_gpt2.py"
# By option: the sizes recorded, and the one predicted.
SIZES = {"batch": (2, 4, 8, 32), "length": (16, 32, 64, 256)}
CASES = [
    *((model, "batch") for model in ("mlp", "cnn", "lstm", "loop", "attention", "transformer", "wide", "gpt")),
    *((model, "length") for model in ("lstm", "loop", "attention", "transformer")),
]


def record(folder: Path, model: str, option: str, size: int) -> Path:
    file = folder / f"{model}-{option}-{size}.vram"
    if not file.exists():
        words = [GPT, "--steps", "3"] if model == "gpt" else [PROGRAM, "--model", model]
        subprocess.run(
            [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", file, "--", sys.executable, *words, f"--{option}", str(size)],
            check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
    return file


def ask(*words: str | Path) -> dict:
    return json.loads(subprocess.run([VRAMSCOPE, *words, "--json"], check=True, stdout=subprocess.PIPE).stdout)


def main(folder: Path) -> None:
    errors: dict[int, list[float]] = {2: [], 3: []}
    for model, option in CASES:
        *small, target = SIZES[option]
        files = [record(folder, model, option, size) for size in small]
        truth = max(row["peak_allocated"] for row in ask("iterations", record(folder, model, option, target))["iterations"])
        line = f"{model + ' by ' + option:24} {truth / 2**20:8.1f} MiB"
        for count, found in errors.items():
            found.append(100 * (ask("predict", *files[-count:], "--batch", str(target))["peak_bytes"] / truth - 1))
            line += f"   {found[-1]:+6.2f} % from {count}"
        print(line, flush=True)
    for count, found in errors.items():
        sizes = [abs(error) for error in found]
        print(f"from {count} recordings: median error {statistics.median(sizes):.2f} %, worst {max(sizes):.2f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="keep the recordings in this folder")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as scratch:
        main(keep or Path(scratch))
