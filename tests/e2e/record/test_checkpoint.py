# SPDX-License-Identifier: Apache-2.0
"""Programs on the stand-in driver whose memory goes to host memory and comes back: the ledger is without it meanwhile."""
from __future__ import annotations

import re
import subprocess

import pytest
from driver_steps import Recording, check, record, report
from places import FAKE, MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")

WAYS = {
    "self": ["self"],
    "recorded": ["recorded"],
    "outside": ["outside"],
    "yield": ["with", VRAMSCOPE],
}


def rows(recording: Recording, step: str) -> dict[tuple[str, ...], int]:
    """The worker's rows, by path."""
    (pid,) = {s.pid for s in recording.steps if s.name == "first"}
    return {tuple(r["path"]): r["bytes"] for r in recording.report(step)["rows"] if r["pid"] == pid and r["bytes"] > 0}


@pytest.mark.parametrize("way", WAYS)
def test_all_rows_leave_and_come_back(tmp_path, way):
    recording = record("driver_checkpoint", tmp_path, *WAYS[way])
    check(recording)
    allocated = [rows(recording, "first")]
    for i in range(sum(s.name.startswith("away-") for s in recording.steps)):
        assert rows(recording, f"there-{i}") == allocated[-1]
        assert rows(recording, f"away-{i}") == {}
        allocated.append(rows(recording, f"back-{i}"))
    # Less each time: a thread freed what it began to free meanwhile.
    sizes = [step["application", "allocated"] for step in allocated]
    assert len(sizes) >= 2 and sizes == sorted(sizes, reverse=True) and len(set(sizes)) == len(sizes)


def test_people_are_told(tmp_path):
    recording = record("driver_checkpoint", tmp_path, "self")
    (pid,) = {s.pid for s in recording.steps}
    page = tmp_path / "page.html"
    told = re.compile(rf"^ *pid {pid} was checkpointed, its memory off the device, from \S+ \S?s to \S+ \S?s$", re.MULTILINE)
    for command in (["info"], ["report", "--html", str(page)]):
        done = subprocess.run(
            [VRAMSCOPE, *command, str(recording.file)], capture_output=True, text=True, timeout=60, check=True
        )
        assert len(told.findall(done.stdout)) == 2, done.stdout
    assert page.read_text().count(f"pid {pid} was checkpointed") == 2


def test_an_end_meanwhile(tmp_path):
    recording = record("driver_checkpoint", tmp_path, "dies")
    check(recording)
    assert rows(recording, "there-0") and not rows(recording, "away-0")
    assert report(recording.file, "peak")["devices"][0]["ledger_bytes"] > 64 * MIB
