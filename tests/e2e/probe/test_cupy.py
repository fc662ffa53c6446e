# SPDX-License-Identifier: Apache-2.0
"""Arrays in CuPy's pool, through its memory hooks: a stand-in of CuPy on the stand-in driver. The real one is in
tests/gpu/engines.py."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from driver_steps import report
from places import FAKE, HOSTS, VRAMSCOPE

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
sys.path.insert(0, str(PROGRAMS))
import stand_in_cupy  # noqa: E402

LIBRARY = HOSTS / "libkokkos_tool.so"  # any
pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists() or not LIBRARY.exists(), reason="the hosts are not built")


def run(directory: Path, program: Path) -> tuple[Path, subprocess.CompletedProcess]:
    packages = directory / "site-packages"
    stand_in_cupy.make(packages, LIBRARY)
    path = os.pathsep.join([str(packages), *filter(None, [os.environ.get("PYTHONPATH")])])
    machine = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "books"), "PYTHONPATH": path}
    command = [VRAMSCOPE, "run", "--no-report", "-o", directory / "x.vram", "--", sys.executable, program]
    return directory / "x.vram", subprocess.run(command, env=machine, capture_output=True, text=True, timeout=120)


def test_arrays_have_names_and_lines(tmp_path: Path) -> None:
    trace, done = run(tmp_path, PROGRAMS / "cupy_arrays.py")
    assert done.returncode == 0, done.stderr
    marks = [json.loads(line) for line in done.stdout.splitlines()]
    assert [mark for mark, _, _ in marks] == ["all", "some", "again"]
    for mark, used, names in marks:
        rows = report(trace, f"mark:{mark}", "--by", "tag,line,category")["rows"]
        assert {row["path"][0]: row["bytes"] for row in rows if row["path"][2] == "unknown"} == names, mark
        assert {row["path"][1] for row in rows if row["path"][0] in names} == {"cupy_arrays.py:15 in make"}
        # The rest of what the pool uses is rounding.
        owners = report(trace, f"mark:{mark}")["rows"]
        sums = {row["path"][-1]: row["bytes"] for row in owners if row["path"][0] == "CuPy"}
        assert sums["allocated"] == used == sum(names.values()), (mark, sums)
    assert not report(trace, "end")["losses"] and all(entry["holds"] for entry in report(trace, "end")["invariants"])


def test_a_program_with_its_own_allocator_keeps_it(tmp_path: Path) -> None:
    program = tmp_path / "own.py"
    program.write_text(
        "import cupy\n"
        "seen = []\n"
        "pool = cupy.cuda.MemoryPool()\n"
        "cupy.cuda.set_allocator(pool.malloc)\n"
        "assert cupy.cuda.get_allocator() == pool.malloc\n"
        "array = cupy.empty(1 << 20)\n"
        "import vramscope\n"
        "vramscope.mark('now')\n"
    )
    trace, done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    rows = report(trace, "mark:now", "--by", "line")["rows"]
    assert [row["bytes"] for row in rows if row["path"][0].startswith("own.py:6 ")] == [1 << 20], rows


def test_another_version_of_cupy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "old.py"
    program.write_text("import cupy\narray = cupy.empty(1 << 20)\n")
    for name in ("HOOK", "CUDA"):
        monkeypatch.setattr(stand_in_cupy, name, getattr(stand_in_cupy, name).replace("get_memory_hooks", "other_hooks"))
    trace, done = run(tmp_path, program)
    assert done.returncode == 0, done.stderr
    info = subprocess.run([VRAMSCOPE, "info", trace], capture_output=True, text=True, check=True).stdout
    assert "arrays of CuPy" in info and "off: CuPy's pools are not as expected" in info


def test_an_interrupt_reaches_the_program_and_no_tracer_sees_the_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It comes while the probe looks at CuPy, which the program does not.
    interrupt = "def get_allocator():\n    if not _asked:\n        _asked.append(1)\n        os.kill(os.getpid(), signal.SIGINT)\n"
    cuda = stand_in_cupy.CUDA.replace("def get_allocator():\n", interrupt)
    monkeypatch.setattr(stand_in_cupy, "CUDA", cuda.replace("import ctypes\n", "import ctypes, os, signal\n_asked = []\n", 1))
    program = tmp_path / "interrupted.py"
    program.write_text(
        "import sys, threading\n"
        "files = set()\n"
        "def trace(frame, event, argument):\n"
        "    files.add(frame.f_code.co_filename)\n"
        "sys.settrace(trace)\n"
        "threading.settrace(trace)\n"
        "try:\n"
        "    import cupy\n"
        "    for _ in range(100_000): pass\n"
        "    print('not interrupted')\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
        "import cupy, vramscope\n"
        "for _ in range(100_000): pass\n"
        "kept = []\n"
        "def allocate():\n"
        "    kept.append(cupy.empty(1 << 20))\n"
        "thread = threading.Thread(target=allocate)\n"
        "thread.start()\n"
        "thread.join()\n"
        "vramscope.mark('now')\n"
        "print(sorted(file for file in files if file.startswith('<vramscope')))\n"
    )
    trace, done = run(tmp_path, program)
    assert done.stdout == "interrupted\n[]\n", (done.stdout, done.stderr)
    rows = report(trace, "mark:now", "--by", "line")["rows"]
    assert [row["bytes"] for row in rows if row["path"][0].startswith("interrupted.py:17 ")] == [1 << 20], rows
