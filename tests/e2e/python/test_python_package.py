# SPDX-License-Identifier: Apache-2.0
"""The Python package as a user has it: installed, in processes of its own."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from places import BUILD, ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


def run_python(code: str, *under: str, **options):
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    command = [*under, sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, **options)


def report(trace: Path, *arguments: str) -> dict:
    done = subprocess.run(
        [str(VRAMSCOPE), "report", str(trace), "--json", *arguments],
        capture_output=True, text=True, timeout=60, check=True,
    )
    return json.loads(done.stdout)


def cpu_bytes(found: dict) -> int:
    return sum(device["ledger_bytes"] for device in found["devices"] if device["kind"] == "cpu")


def test_without_a_probe_everything_is_a_no_op():
    done = run_python(
        "import vramscope; vramscope.mark('x'); vramscope.stop(); vramscope.tag(64, 'x');"
        "print(vramscope.is_recording(), vramscope.__version__)"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["False", (ROOT / "VERSION").read_text().strip()]


def test_the_installed_command_has_the_questions_of_fleet(tmp_path):
    script = Path(sys.executable).with_name("vramscope")
    if not script.exists():
        pytest.skip("the package is not installed")
    pytest.importorskip("duckdb")

    def run(*words):
        environment = {**os.environ, "PATH": "/usr/bin:/bin"}
        return subprocess.run([script, *words], capture_output=True, text=True, timeout=60, check=True, cwd=tmp_path, env=environment)

    assert run("fleet", "--help").stdout.startswith("Usage: vramscope fleet")
    run("export", "--to", "parquet", ROOT / "examples/traces/gpt2.vram", "-o", "data")
    (row,) = json.loads(run("fleet", "data", "heaviest", "--json").stdout)["rows"]
    assert row["category"] == "activation"
    run("fleet", "data", "page")
    assert "train_gpt2" in (tmp_path / "fleet.html").read_text()


def test_record_leaves_one_finished_trace(tmp_path):
    trace = tmp_path / "part.vram"
    done = run_python(
        f"""
import vramscope
with vramscope.record({str(trace)!r}, cpu=True) as recording:
    import torch
    kept = torch.zeros(1 << 20, dtype=torch.uint8)
    vramscope.mark("here")
    more = torch.zeros(3 << 20, dtype=torch.uint8)
    del more
print(recording.path, vramscope.is_recording())
after = torch.zeros(64 << 20, dtype=torch.uint8)
"""
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(trace), "False"]
    assert trace.is_file() and not trace.with_name("part.vram.d").exists()
    at_mark = cpu_bytes(report(trace, "--at", "mark:here"))
    at_peak = cpu_bytes(report(trace))
    assert 1 << 20 <= at_mark < 2 << 20
    assert 4 << 20 <= at_peak < 5 << 20, "what was allocated after the block is not in it"


def test_record_leaves_a_foreign_file_alone(tmp_path):
    precious = tmp_path / "x.vram"
    precious.write_text("mine")
    done = run_python(f"import vramscope\nwith vramscope.record({str(precious)!r}): pass")
    assert done.returncode == 1 and "is no vramscope trace" in done.stderr
    assert precious.read_text() == "mine"


def test_record_under_run_goes_into_the_launchers_trace(tmp_path):
    trace = tmp_path / "run.vram"
    under = (str(VRAMSCOPE), "run", "--cpu", "--start-paused", "--no-report", "-o", str(trace), "--")
    done = run_python(
        f"""
import torch, vramscope
before = torch.zeros(32 << 20, dtype=torch.uint8)
with vramscope.record({str(tmp_path / 'mine.vram')!r}):
    inside = torch.zeros(2 << 20, dtype=torch.uint8)
    vramscope.mark("inside")
after = torch.zeros(16 << 20, dtype=torch.uint8)
""",
        *under,
    )
    assert done.returncode == 0, done.stderr
    assert "RuntimeWarning" in done.stderr and "mine.vram will not be written" in done.stderr
    assert trace.is_file() and not (tmp_path / "mine.vram").exists()
    rows = report(trace, "--at", "mark:inside", "--by", "line")["rows"]
    inside = [row["bytes"] for row in rows if row["path"][0].startswith("<string>:5")]
    assert inside == [2 << 20]


def test_the_console_script_is_the_program():
    script = Path(sys.executable).parent / "vramscope"
    if not script.exists():
        pytest.skip("vramscope is not installed beside this Python")
    done = subprocess.run([str(script), "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert (ROOT / "VERSION").read_text().strip() in done.stdout


@pytest.mark.parametrize("compiler", ["with", "without"])
def test_a_build_names_all_that_is_missing(tmp_path, compiler):
    """A machine with a compiler that has no headers of others, or with none, and without cmake and ninja."""
    if compiler == "with":
        (tmp_path / "c++").write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / "c++").chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "VRAMSCOPE_PREBUILT"}
    done = subprocess.run(
        [sys.executable, "setup.py", "-q", "build", "--build-base", tmp_path / "build", "egg_info", "--egg-base", tmp_path],
        cwd=ROOT, env={**environment, "PATH": str(tmp_path)}, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if line.startswith("vramscope: ")]
    assert said[:2] == [
        "vramscope: cmake is missing: apt-get install cmake",
        "vramscope: ninja is missing: apt-get install ninja-build",
    ], done.stderr
    if compiler == "without":  # the headers of this machine are found as files
        assert said[2] == "vramscope: c++ is missing: apt-get install g++"
        assert not [line for line in said if "<zstd.h>" in line]
        return
    assert "vramscope: <zstd.h> is missing: apt-get install libzstd-dev" in said and len(said) == 12


def test_the_wheel_has_program_and_libraries_for_every_python(tmp_path):
    pytest.importorskip("wheel")
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path), str(ROOT)],
        capture_output=True, text=True, timeout=120, env={**os.environ, "VRAMSCOPE_PREBUILT": str(BUILD)},
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    assert re.fullmatch(r"vramscope-[\d.]+-py3-none-(manylinux_2_\d+|linux)_\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(tmp_path)
    assert {f"vramscope/_native/{name}" for name in ("bin/vramscope", "lib/libvramscope_probe.so", "lib/libvramscope_read.so")} <= names
    assert {"vramscope/py.typed", "vramscope/__init__.py"} <= names
    data = ("include/vramscope/annotate.h", "include/vramscope/read.h", "share/keywords/layers.toml",
            "share/completions/vramscope.bash", "share/man/man1/vramscope.1", "share/licences/vramscope")
    assert {f"vramscope/_native/{name}" for name in data} <= names
    # As pip would: zipfile forgets modes.
    (tmp_path / "vramscope" / "_native" / "bin" / "vramscope").chmod(0o755)
    program = tmp_path / "vramscope" / "_native" / "bin" / "vramscope"
    done = subprocess.run([program, "--include-dir"], capture_output=True, text=True, timeout=60)
    assert done.stdout == f"{tmp_path}/vramscope/_native/include\n", done.stderr
    live = ROOT / "tests" / "golden" / "v2.0" / "killed.vram.d"
    code = f"import vramscope; print(vramscope.__file__, vramscope.read({str(live)!r}).report().devices['ledger_bytes'])"
    done = run_python(code, cwd=tmp_path)
    assert done.stdout.split() == [str(tmp_path / "vramscope" / "__init__.py"), "[1275]"], done.stderr
