# SPDX-License-Identifier: Apache-2.0
"""`vramscope run` as tests start it, and what it has started."""
from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from places import VRAMSCOPE

started_pids: list[int] = []


def run(*command: str, cwd: Path, options: tuple[str, ...] = (), **more) -> subprocess.CompletedProcess:
    more.setdefault("stdin", subprocess.DEVNULL if "input" not in more else None)
    if more["stdin"] is None:
        del more["stdin"]
    return subprocess.run(
        [VRAMSCOPE, "run", "--no-report", *options, "--", *command],
        cwd=cwd, capture_output=True, text=True, timeout=120, **more,
    )


def start(*command: str, cwd: Path, options: tuple[str, ...] = (), **more) -> subprocess.Popen:
    process = subprocess.Popen(
        [VRAMSCOPE, "run", "--no-report", *options, "--", *command],
        cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more,
    )
    started_pids.append(process.pid)
    return process


@pytest.fixture(autouse=True)
def nothing_stays_behind():
    """A test that fails must not leave the programs that it started."""
    yield
    for pid in started_pids:
        for victim in (child_of(pid), pid):
            if victim is not None and Path(f"/proc/{victim}").exists():
                os.kill(victim, signal.SIGKILL)
    started_pids.clear()


def one_error_line(result: subprocess.CompletedProcess) -> str:
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("vramscope: ")
    return lines[0]


def until(condition, seconds: float = 20.0):
    """The first true value of condition(), or a failure."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("waited in vain")


def child_of(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return None
    return int(children[0]) if children else None


def live_directory(process: subprocess.Popen, directory: Path) -> Path:
    path = directory / "x.vram.d"
    until(lambda: (path / "session.json").exists() and (path / "launcher.vrl").exists())
    return path
