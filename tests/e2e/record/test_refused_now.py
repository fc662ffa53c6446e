# SPDX-License-Identifier: Apache-2.0
"""What is said and saved at the moment of a refusal, while the program still runs."""
from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import textwrap

import pytest
from places import FAKE, VRAMSCOPE
from refusals import PRELUDE, record, report

# A program that continues after the report: its death right afterwards does not remove it.
WAIT = """
import time
def wait_for_the_report():
    deadline = time.monotonic() + 100
    while not os.path.exists(os.path.join(os.path.dirname(__file__), "x.oom-1")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert time.monotonic() < deadline
"""


def refused_lines(stderr: str) -> list[str]:
    lines = stderr.splitlines()
    assert all(line.startswith("vramscope: ") for line in lines), lines
    return [line for line in lines if "Out of memory on" in line]


def test_it_is_saved_while_the_program_runs(tmp_path):
    done = record(
        tmp_path,
        WAIT
        + textwrap.dedent(
            """
            def want():
                assert alloc(3000 * MIB) is None
                give_up(3000 * MIB, 0, 0, 1)
            block(alloc(2000 * MIB), 2000 * MIB)
            want()
            wait_for_the_report()
            print("goes on")
            """
        ),
        options=("--no-report",),
    )
    assert done.stdout == "goes on\n"
    (line,) = refused_lines(done.stderr)
    assert "2.93 GiB requested at program.py" in line and "in want" in line
    assert (tmp_path / "x.oom-1").read_text() == report(tmp_path, "--oom")


def test_it_is_there_after_a_kill(tmp_path):
    """A refusal of the driver alone, which nobody can tell from one that is asked again but by waiting."""
    done = record(
        tmp_path,
        WAIT + "alloc(3000 * MIB); alloc(3000 * MIB); wait_for_the_report(); os.kill(os.getpid(), signal.SIGKILL)",
        status=137,
        options=("--no-report",),
    )
    assert len(refused_lines(done.stderr)) == 1
    assert (tmp_path / "x.oom-1").read_text() == report(tmp_path, "--oom")


def test_eight_forked_children_at_once(tmp_path):
    """Ranks that were forked before they first asked for the driver."""
    rank = tmp_path / "rank.py"
    rank.write_text(
        "import os, sys\nif os.fork() != 0:\n    sys.exit(os.wait()[1])\nfrom allocator import *\n"
        + WAIT
        + textwrap.dedent(
            """
            alloc(300 * MIB)
            assert alloc(20000 * MIB) is None
            give_up(20000 * MIB, 0, 0, 1)
            wait_for_the_report()
            """
        )
    )
    done = record(
        tmp_path,
        f"""
        import subprocess
        ranks = [subprocess.Popen([sys.executable, {str(rank)!r}]) for _ in range(8)]
        assert [rank.wait() for rank in ranks] == [0] * 8
        """,
        options=("--no-report",),
        total_mib=16384,
    )
    # At least one report. Each is complete, and later failures are reported later.
    assert 1 <= len(refused_lines(done.stderr)) <= 8
    assert sorted(path.name for path in tmp_path.glob("x.oom-*")) == ["x.oom-1", "x.oom-2", "x.oom-3"]
    assert "8 requests failed" in report(tmp_path)


def test_one_that_the_cache_answers_is_not_told(tmp_path):
    record(
        tmp_path,
        """
        old = alloc(2000 * MIB)
        assert alloc(2500 * MIB) is None
        free(old)
        block(alloc(2500 * MIB), 2500 * MIB)
        """,
    )
    words = [VRAMSCOPE, "refused", tmp_path / "x.vram", tmp_path / "y.vram", "0"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert not list(tmp_path.glob("y.oom-*"))


def test_a_full_disk_is_said_with_the_cause(tmp_path):
    """The report is not saved, and said all the same; the program makes room and the recording is finished."""
    disk = tmp_path / "disk"
    disk.mkdir()
    (tmp_path / "allocator.py").write_text(PRELUDE)
    (tmp_path / "program.py").write_text(
        textwrap.dedent(
            f"""
            from allocator import *
            alloc(MIB)
            filler = {str(disk / "filler")!r}
            with open(filler, "wb", buffering=0) as file:
                try:
                    while True:
                        file.write(bytes(4096))
                except OSError:
                    pass
            assert alloc(5000 * MIB) is None
            give_up(5000 * MIB, 0, 0, 1)
            sys.stdin.readline()
            os.remove(filler)
            """
        )
    )
    run = [VRAMSCOPE, "run", "--no-report", "-o", disk / "x.vram", "--", sys.executable, tmp_path / "program.py"]
    script = f"mount -t tmpfs -o size=24m none {shlex.quote(str(disk))} && exec {shlex.join(map(str, run))}"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FAKE),
        "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "VRAMSCOPE_FAKE_TOTAL_MIB": "4096",
        "PYTHONPATH": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    process = subprocess.Popen(
        ["unshare", "-rm", "sh", "-c", script],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
    )
    lines = []
    try:
        while not (lines and "saved" in lines[-1]):
            lines.append(process.stderr.readline())
            if lines[0].startswith(("unshare", "mount")):
                pytest.skip("no file system can be mounted here: " + lines[0])
            assert lines[-1], "it ended without a word"
        assert "Out of memory on gpu0: 4.88 GiB requested at program.py" in lines[0]
        assert "not saved: " in lines[-1] and "No space left on device" in lines[-1]
        process.stdin.write("\n")
    finally:
        process.stdin.close()
    assert process.wait(timeout=120) == 0
    assert "x.vram (" in process.stderr.read()


@pytest.mark.parametrize("limit_kib", [12000, 40000, 70000])
def test_a_report_that_has_no_memory_itself(tmp_path, limit_kib):
    """Whatever it reads stays as it was, and it ends with a line and not with a fault."""
    record(tmp_path, "alloc(3000 * MIB)", options=("--no-report",))
    before = (tmp_path / "x.vram").read_bytes()
    words = shlex.join(map(str, [VRAMSCOPE, "refused", tmp_path / "x.vram", tmp_path / "y.vram", "0"]))
    done = subprocess.run(["sh", "-c", f"ulimit -v {limit_kib}; exec {words}"], capture_output=True, text=True, timeout=60)
    # Below what the loader or the C++ runtime needs before main(), they say so.
    by_runtime = done.returncode == -signal.SIGABRT and done.stderr.startswith("terminate called")
    assert done.returncode in (0, 2, 127) or by_runtime, (done.returncode, done.stderr)
    assert len(done.stderr.splitlines()) == (0 if done.returncode == 0 else 1), done.stderr
    assert (tmp_path / "x.vram").read_bytes() == before


def test_refusals_while_a_report_is_made(tmp_path):
    """A program that asks again and again, each time for less: the launcher keeps up, and the last one is told."""
    done = record(
        tmp_path,
        """
        import time
        for size in range(3900, 3500, -1):
            assert alloc(size * MIB) is None
            give_up(size * MIB, 0, 0, 1)
            time.sleep(0.005)
        """,
        options=("--no-report",),
    )
    lines = refused_lines(done.stderr)
    assert 1 <= len(lines) <= 9 and "3.42 GiB" in lines[-1], lines
    assert "400 requests failed" in report(tmp_path)
    assert sorted(path.name for path in tmp_path.glob("x.oom-*")) == ["x.oom-1", "x.oom-2", "x.oom-3"]
    assert "3.42 GiB" in (tmp_path / "x.oom-3").read_text()


def test_a_program_is_not_kept_waiting_by_a_report(tmp_path):
    """It ends right after the refusal: one report, and it comes after the run if not before."""
    done = record(tmp_path, "alloc(5000 * MIB); give_up(5000 * MIB, 0, 0, 1)", options=("--no-report",))
    assert len(refused_lines(done.stderr)) == 1
