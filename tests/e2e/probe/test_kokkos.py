# SPDX-License-Identifier: Apache-2.0
"""Views of Kokkos by their labels: a program that calls the interface of Kokkos Tools, on the stand-in driver."""
from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from driver_steps import check, record, report
from places import FAKE, HOSTS, MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(
    not (FAKE / "libcuda.so.1").exists() or not (HOSTS / "kokkos_views").exists(), reason="the hosts are not built"
)


def size_of(view: int) -> int:
    return (2 + view % 5) * MIB


def tags(recording, step: str) -> dict[str, int]:
    rows = recording.report(step, "--by", "tag,category")["rows"]
    return {row["path"][0]: row["bytes"] for row in rows if row["path"][1] == "unknown"}


def test_views_have_their_labels(tmp_path: Path) -> None:
    recording = record("kokkos_views", tmp_path)
    check(recording)
    expected = {f"field {view}": size_of(view) for view in range(100)}
    assert tags(recording, "all") == expected
    del expected["field 7"], expected["field 8"]
    assert tags(recording, "changed") == {**expected, "matrix": size_of(7)}
    (rows,) = [recording.report("all", "--by", "module,category")["rows"]]
    assert {row["path"][0]: row["bytes"] for row in rows if row["path"][1] == "unknown"} == {
        "assembly": sum(map(size_of, range(100)))
    }
    assert not recording.report("changed")["losses"]


def test_another_tool_keeps_its_place(tmp_path: Path) -> None:
    machine = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FAKE),
        "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "KOKKOS_TOOLS_LIBS": str(HOSTS / "libkokkos_tool.so"),
    }
    command = [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "x.vram", "--", HOSTS / "kokkos_views"]
    done = subprocess.run(command, env=machine, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "tool 103\n"), done.stderr
    assert all(row["path"][0] == "(none)" for row in report(tmp_path / "x.vram", "end", "--by", "tag")["rows"])
