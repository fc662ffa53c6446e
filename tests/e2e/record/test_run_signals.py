# SPDX-License-Identifier: Apache-2.0
"""`vramscope run` and signals: which reach the program, what a kill leaves, and how `vramscope finish` completes it."""
from __future__ import annotations

import os
import pty
import select
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live_file import LiveFile
from places import BUILD, VRAMSCOPE
from run_command import (
    child_of,
    live_directory,
    nothing_stays_behind,  # noqa: F401 (of every test here)
    one_error_line,
    run,
    start,
    started_pids,
    until,
)

pytestmark = pytest.mark.skipif(not Path(VRAMSCOPE).exists(), reason="vramscope is not built")

# ---- signals -------------------------------------------------------------------------------------------

COUNT_SIGNALS = """
import signal, sys, time
counts = {}
def on(number, frame):
    counts[number] = counts.get(number, 0) + 1
    if number == signal.SIGTERM:
        time.sleep(0.2)  # room for a second delivery, which must not come
        print(sorted(counts.items()), flush=True)
        sys.exit(9)
    print("had", number, flush=True)
for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT,
               signal.SIGWINCH, signal.SIGTERM):
    signal.signal(number, on)
print("ready", flush=True)
while True:
    time.sleep(0.05)  # not signal.pause(): a signal just before it would wait for the next one
"""


def test_signals_reach_the_program_once(tmp_path):
    process = start(sys.executable, "-c", COUNT_SIGNALS, cwd=tmp_path, options=("-o", "x.vram"))
    assert process.stdout.readline() == "ready\n"
    numbers = [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT, signal.SIGWINCH]
    # One after the other: Python takes several at once by their numbers, SIGWINCH behind SIGTERM.
    for number in numbers:
        process.send_signal(number)
        assert process.stdout.readline() == f"had {int(number)}\n"
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert eval(output) == sorted((int(n), 1) for n in [*numbers, signal.SIGTERM])
    assert process.returncode == 9
    assert (tmp_path / "x.vram").exists(), errors


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class Terminal:
    """A terminal of its own with `vramscope run` as its foreground job."""

    def __init__(self, *command: str, cwd: Path, options: tuple[str, ...] = ()) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(cwd)
            os.execv(VRAMSCOPE, [VRAMSCOPE, "run", *options, "--", *command])
        self.output = b""
        started_pids.append(self.pid)

    def _read(self, deadline: float) -> bytes:
        ready, _, _ = select.select([self.fd], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, self.output
        try:
            return os.read(self.fd, 65536)
        except OSError:  # EIO: the other side is closed
            return b""

    def read_until(self, text: bytes) -> None:
        deadline = time.monotonic() + 30
        while text not in self.output:
            self.output += self._read(deadline)

    def wait(self) -> int:
        """Reads to the end; the exit status."""
        deadline = time.monotonic() + 60
        while data := self._read(deadline):
            self.output += data
        os.close(self.fd)
        _, status = os.waitpid(self.pid, 0)
        return os.waitstatus_to_exitcode(status)


def test_ctrl_c_reaches_the_program_once_and_the_report_follows(tmp_path):
    terminal = Terminal(sys.executable, "-c", COUNT_SIGNALS, cwd=tmp_path, options=("--no-report", "-o", "x.vram"))
    terminal.read_until(b"ready")
    os.write(terminal.fd, b"\x03")
    terminal.read_until(b"had 2")
    time.sleep(0.2)  # room for a second delivery, which must not come
    os.kill(terminal.pid, signal.SIGTERM)
    assert terminal.wait() == 9
    assert b"[(2, 1), (15, 1)]" in terminal.output
    assert b"x.vram" in terminal.output
    assert (tmp_path / "x.vram").exists()


def test_ctrl_c_ends_a_plain_program(tmp_path):
    terminal = Terminal("sh", "-c", "echo ready; exec sleep 60", cwd=tmp_path, options=("--no-report", "-o", "x.vram"))
    terminal.read_until(b"ready")
    os.write(terminal.fd, b"\x03")
    assert terminal.wait() == 128 + signal.SIGINT
    assert (tmp_path / "x.vram").exists()


def test_job_control_stops_and_continues_both(tmp_path):
    # Its own process group, like a shell's job, but no new session, where it could not be continued.
    process = start("sleep", "60", cwd=tmp_path, options=("-o", "x.vram"), preexec_fn=os.setpgrp)
    child = until(lambda: child_of(process.pid))
    until(lambda: "sleep" in Path(f"/proc/{child}/comm").read_text())
    process.send_signal(signal.SIGTSTP)
    until(lambda: state_of(child) == "T" and state_of(process.pid) == "T")
    process.send_signal(signal.SIGCONT)
    until(lambda: state_of(child) == "S" and state_of(process.pid) == "S")
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    process.communicate()


# ---- kills, leftovers, finish --------------------------------------------------------------------------


def test_a_killed_run_leaves_a_directory_that_finish_completes(tmp_path):
    process = start("sleep", "60", cwd=tmp_path, options=("-o", "x.vram"))
    directory = live_directory(process, tmp_path)
    child = until(lambda: child_of(process.pid))
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)
    assert LiveFile(directory / "launcher.vrl")
    assert not (tmp_path / "x.vram").exists()
    until(lambda: not Path(f"/proc/{child}").exists())
    result = subprocess.run([VRAMSCOPE, "report", "x.vram"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    hint = "This recording is unfinished: `vramscope finish x.vram` completes it"
    assert result.stdout.splitlines()[-1] == hint
    result = subprocess.run(
        [VRAMSCOPE, "finish", "--no-report", str(directory)], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["x.vram"]


def test_finish_takes_another_name_and_refuses_foreign_files(tmp_path):
    process = start("sleep", "60", cwd=tmp_path, options=("-o", "x.vram"))
    live_directory(process, tmp_path)
    child = until(lambda: child_of(process.pid))
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)
    (tmp_path / "thesis.txt").write_text("years of work")
    finish = [VRAMSCOPE, "finish", "--no-report", "x.vram.d", "-o"]
    result = subprocess.run([*finish, "thesis.txt"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert "thesis.txt" in one_error_line(result)
    result = subprocess.run([*finish, "y.vram"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["thesis.txt", "y.vram"]


def test_a_new_run_replaces_what_a_killed_one_left(tmp_path):
    process = start("sleep", "60", cwd=tmp_path, options=("-o", "x.vram"))
    live_directory(process, tmp_path)
    child = until(lambda: child_of(process.pid))
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)
    until(lambda: not Path(f"/proc/{child}").exists())
    assert run("true", cwd=tmp_path, options=("-o", "x.vram")).returncode == 0
    assert [path.name for path in tmp_path.iterdir()] == ["x.vram"]


def test_finish_refuses_a_directory_that_is_no_recording(tmp_path):
    (tmp_path / "precious").write_text("data")
    result = subprocess.run([VRAMSCOPE, "finish", str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert str(tmp_path) in one_error_line(result)
    assert (tmp_path / "precious").exists()


def test_an_older_trace_does_not_stand_in_for_a_killed_run(tmp_path):
    assert run("true", cwd=tmp_path, options=("-o", "x.vram")).returncode == 0
    process = start("sleep", "60", cwd=tmp_path, options=("-o", "x.vram"))
    live_directory(process, tmp_path)
    child = until(lambda: child_of(process.pid))
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)
    # Both exist: the name refers to the newer one, and the older one is removed when that is complete.
    assert (tmp_path / "x.vram.d").is_dir() and (tmp_path / "x.vram").exists()
    until(lambda: not Path(f"/proc/{child}").exists())
    for words in (["info", "x.vram"], ["finish", "--no-report", "x.vram"], ["info", "x.vram"]):
        result = subprocess.run([VRAMSCOPE, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stderr
        assert words[0] == "finish" or "session     sleep, " in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["x.vram"]
    # A second one has nothing to do.
    result = subprocess.run([VRAMSCOPE, "finish", "--no-report", "x.vram.d"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and "x.vram.d is finished" in result.stderr


HOST = BUILD / "hosts" / "steady_threads"
needs_host = pytest.mark.skipif(not HOST.exists(), reason="the test hosts are not built")


@needs_host
def test_a_child_that_goes_on_recording_is_left_alone(tmp_path):
    # The program ends, its background child does not.
    script = (
        f"{shlex.quote(str(HOST))} pairs >/dev/null 2>&1 & echo $!; "
        "until ls x.vram.d/$!.* >/dev/null 2>&1; do sleep 0.02; done"
    )
    result = run("sh", "-c", script, cwd=tmp_path, options=("--cpu", "-o", "x.vram"))
    child = int(result.stdout)
    try:
        assert result.returncode == 0
        assert f"process {child}" in result.stderr and "vramscope finish" in result.stderr
        assert (tmp_path / "x.vram.d").is_dir() and not (tmp_path / "x.vram").exists()
        refused = subprocess.run([VRAMSCOPE, "finish", "x.vram.d"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 2
        assert f"process {child}" in one_error_line(refused)
    finally:
        os.kill(child, signal.SIGKILL)
    finished = subprocess.run(
        [VRAMSCOPE, "finish", "--no-report", "x.vram.d"], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    assert (tmp_path / "x.vram").exists() and not (tmp_path / "x.vram.d").exists()


@needs_host
def test_an_interrupted_finish_leaves_the_directory(tmp_path):
    process = start(str(HOST), "pairs", cwd=tmp_path, options=("--cpu", "-o", "x.vram"))
    assert process.stdout.readline() == "running\n"
    time.sleep(1.0)
    os.kill(child_of(process.pid), signal.SIGKILL)
    (temporary,) = until(lambda: list(tmp_path.glob(".vramscope-*")))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL
    assert "vramscope finish x.vram.d" in errors
    assert not temporary.exists()
    assert (tmp_path / "x.vram.d" / "session.json").exists()
