# SPDX-License-Identifier: Apache-2.0
"""`vramscope snapshot`, and every command on a recording whose program goes on."""
from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
from places import HOSTS, VRAMSCOPE

NOBODY = 65534


def vramscope(*words: object, **more) -> subprocess.CompletedProcess:
    command = [str(word) for word in (VRAMSCOPE, *words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **more)


def done(*words: object, **more) -> str:
    ended = vramscope(*words, **more)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def error(*words: object, **more) -> str:
    ended = vramscope(*words, **more)
    assert ended.returncode == 2 and ended.stdout == "" and ended.stderr.count("\n") == 1, ended
    return ended.stderr


def wait_for(path: Path) -> None:
    deadline = time.monotonic() + 100
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.01)


@contextlib.contextmanager
def recorded(folder: Path, *command: object, options: tuple[str, ...] = ()) -> Iterator[subprocess.Popen]:
    """A program under `vramscope run` that has begun, and goes on until its standard input ends."""
    words = [str(word) for word in (VRAMSCOPE, "run", "-o", folder / "x.vram", "--cpu", *options, "--", *command)]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder
    ) as run:
        assert run.stdout is not None
        assert run.stdout.readline() == "running\n"
        yield run
        _, run.said = run.communicate("")  # type: ignore[attr-defined]
    assert run.returncode == 0, run.said  # type: ignore[attr-defined]


def program_of(run: subprocess.Popen) -> int:
    return int(Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()[0])


def check_balance(report: str) -> None:
    told = json.loads(report)
    assert told["losses"] == []
    assert [found["name"] for found in told["invariants"] if not found["holds"]] == []
    for device in told["devices"]:
        assert sum(row["bytes"] for row in told["rows"] if row["device"] == device["index"]) == device["ledger_bytes"]
    assert sum(row["count"] for row in told["rows"]) <= 2 * (30 + 2)


def test_the_ledger_balances_at_any_time(tmp_path):
    """Threads write on while their chunks are read one after the other."""
    with recorded(tmp_path, HOSTS / "handoff"):
        for _ in range(6):
            check_balance(done("report", tmp_path / "x.vram.d", "--json", "--at", "end"))
            check_balance(done("report", tmp_path / "x.vram", "--json", "--at", "peak"))
    check_balance(done("report", tmp_path / "x.vram", "--json", "--at", "peak"))


def test_a_snapshot_is_a_finished_recording(tmp_path):
    with recorded(tmp_path, HOSTS / "handoff") as run:
        for number, what in enumerate((program_of(run), run.pid, "x", "x.vram", tmp_path / "x.vram.d"), 1):
            ended = vramscope("snapshot", what, cwd=tmp_path)
            assert ended.returncode == 0
            assert ended.stderr.startswith(f"vramscope: x.snapshot-{number}.vram ("), ended.stderr
        done("snapshot", run.pid, "-o", tmp_path / "mine.vram")
        done("snapshot", run.pid, "-o", tmp_path / "mine.vram")  # a recording of ours is replaced
        snapshots = sorted(tmp_path.glob("*.vram"))
        for path in snapshots:
            assert oct(path.stat().st_mode & 0o777) == "0o600"
            check_balance(done("report", path, "--json", "--at", "end"))
    rows = [done("export", path, "--to", "json").count("\n") for path in snapshots if path.name != "mine.vram"]
    assert rows == sorted(rows) and rows[0] > 0
    assert not list(tmp_path.glob(".vramscope-*"))


def test_a_snapshot_at_a_signal(tmp_path):
    program = "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *_: print('USR1'))\nprint('running', flush=True)"
    with recorded(
        tmp_path, sys.executable, "-c", f"{program}\nsys.stdin.read()", options=("--snapshot-on", "SIGUSR2")
    ) as run:
        os.kill(run.pid, signal.SIGUSR2)
        wait_for(tmp_path / "x.snapshot-1.vram")
        os.kill(run.pid, signal.SIGUSR2)
        wait_for(tmp_path / "x.snapshot-2.vram")
        done("report", tmp_path / "x.snapshot-1.vram")
    assert "vramscope: x.snapshot-1.vram (" in run.said


def test_what_is_no_snapshot(tmp_path):
    with recorded(tmp_path, HOSTS / "handoff") as run:
        own = f"another `vramscope run` is recording into {tmp_path}/x.vram.d: choose another name with -o"
        assert own in error("snapshot", run.pid, "-o", tmp_path / "x.vram")
        assert "does not exist" in error("snapshot", run.pid, "-o", tmp_path / "none" / "y.vram")
        foreign = tmp_path / "foreign"
        foreign.write_text("mine")
        assert "is not a vramscope trace" in error("snapshot", run.pid, "-o", foreign)
        assert foreign.read_text() == "mine"
        assert "is a directory" in error("snapshot", run.pid, "-o", tmp_path)
        program = program_of(run)
    assert f"process {program} does not exist" in error("snapshot", program)
    assert "process 0 does not exist" in error("snapshot", 0)
    assert f"process {os.getpid()} " in error("snapshot", os.getpid()) and "is not recorded" in error(
        "snapshot", os.getpid()
    )
    assert "x.vram is finished" in error("snapshot", tmp_path / "x.vram")
    assert "no live recording is named none" in error("snapshot", "none")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    assert "is not a live recording" in error("snapshot", tmp_path / "folder")


def test_a_recording_whose_program_was_killed(tmp_path):
    words = [str(VRAMSCOPE), "run", "-o", str(tmp_path / "x.vram"), "--cpu", "--", str(HOSTS / "handoff")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as run:
        assert run.stdout is not None and run.stdout.readline() == b"running\n"
        program = program_of(run)
        run.kill()
        run.wait()
        # The program continues without its launcher, and so does its recording.
        done("snapshot", program, "-o", tmp_path / "y.vram")
        assert run.stdin is not None
        run.stdin.close()
        while Path(f"/proc/{program}").exists() and "Z" not in Path(f"/proc/{program}/stat").read_text().split()[2]:
            time.sleep(0.01)
    assert "has ended: `vramscope finish" in error("snapshot", tmp_path / "x.vram.d")


def test_a_full_disk(tmp_path):
    with recorded(tmp_path, HOSTS / "handoff") as run:
        full = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", str(VRAMSCOPE), "snapshot", str(run.pid)]
        ended = subprocess.run(full, capture_output=True, text=True, timeout=60, cwd=tmp_path, check=False)
        assert ended.returncode != 0
        assert not list(tmp_path.glob("*.snapshot-*"))
        check_balance(done("report", tmp_path / "x.vram.d", "--json", "--at", "end"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_users_process(tmp_path, open_path):
    program = open_path / "vramscope"
    shutil.copy(VRAMSCOPE, program)
    program.chmod(0o755)
    with recorded(tmp_path, HOSTS / "handoff") as run:
        ended = subprocess.run(
            [str(program), "snapshot", str(run.pid)],
            capture_output=True, text=True, timeout=60, check=False, user=NOBODY, group=NOBODY, cwd="/",
        )
    assert ended.returncode == 2
    assert "belongs to another user: run the command as that user" in ended.stderr
    assert not list(tmp_path.glob("*.snapshot-*"))
