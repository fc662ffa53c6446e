# SPDX-License-Identifier: Apache-2.0
"""Recordings of every released format must read as they did: tests/golden/vMAJOR.MINOR. Format 1 held
events and not tables: it is refused in one line.

`python tests/e2e/record/test_golden.py --bless` writes the expected reports anew; look at the difference
before you commit it.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, VRAMSCOPE

GOLDEN = ROOT / "tests" / "golden"

QUESTIONS = {
    "peak": [],
    "end": ["--at", "end"],
    "lines": ["--by", "line,size_class"],
}


def traces() -> list[Path]:
    return sorted(path for path in GOLDEN.glob("v[2-9]*/*") if path.name.endswith((".vram", ".vram.d")))


def expected_path(trace: Path, question: str) -> Path:
    return trace.parent / f"{trace.name.removesuffix('.d').removesuffix('.vram')}.{question}.json"


def answer(trace: Path, question: str) -> str:
    command = [str(VRAMSCOPE), "report", str(trace), "--json", *QUESTIONS[question]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.dumps(json.loads(done.stdout), indent=1, sort_keys=True) + "\n"


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("trace", traces(), ids=lambda path: f"{path.parent.name}-{path.name}")
def test_golden(trace: Path, question: str) -> None:
    assert answer(trace, question) == expected_path(trace, question).read_text()


def test_events_of_format_1_are_refused_in_one_line() -> None:
    command = [str(VRAMSCOPE), "report", str(GOLDEN / "v1.0" / "driver_standin.vram")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "vramscope 0.1" in done.stderr and "record again" in done.stderr, done.stderr


def bless() -> None:
    for trace in traces():
        for question in QUESTIONS:
            expected_path(trace, question).write_text(answer(trace, question))


if __name__ == "__main__":
    if sys.argv[1:] != ["--bless"]:
        sys.exit("usage: test_golden.py --bless")
    bless()
