# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at any moment: of the program, of its launcher, of both. Whatever is left is readable, and no thread lacks
more than the record that it was writing.

VRAMSCOPE_KILL_ROUNDS says how many rounds; `make soak` runs 500.
"""
from __future__ import annotations

import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
from pathlib import Path

import pytest
from live_file import read_directory
from places import HOSTS, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

ROUNDS = int(os.environ.get("VRAMSCOPE_KILL_ROUNDS", "24"))
# What a kill may leave: half a record.
CUT_OFF = "last record of a thread cut off"


def child_of(pid: int) -> int | None:
    """The recorded program, once it has begun."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for child in map(int, children):
            if Path(f"/proc/{child}/comm").read_text() == "steady_threads\n":
                return child
    except OSError:
        pass
    return None


def kill(pid: int | None) -> None:
    if pid is not None:
        os.kill(pid, signal.SIGKILL)


def await_end(pid: int | None) -> None:
    """Of a process that is nobody's child here."""
    while pid is not None and Path(f"/proc/{pid}").exists():
        if " Z " in Path(f"/proc/{pid}/stat").read_text():
            return
        time.sleep(0.002)


def check_records(live: Path, truth: Path) -> None:
    """What the program counted as done is in its file, and at most one call a thread that it had not counted yet."""
    pairs = struct.unpack_from("<4Q", truth.read_bytes()) if truth.exists() and truth.stat().st_size else ()
    files = read_directory(live) if live.exists() else []
    found = sorted(
        (counts["BlockAlloc"], counts["BlockFree"])
        for file in files
        for counts in file.by_stream.values()
        if counts["BlockAlloc"]
    )
    expected = sorted(count for count in pairs if count)
    assert len(found) >= len(expected), (found, expected)
    for (allocations, frees), completed in zip(found[len(found) - len(expected) :], expected):
        assert completed <= allocations <= completed + 1, (found, expected)
        assert completed <= frees <= completed + 1, (found, expected)


def vramscope(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run([str(VRAMSCOPE), *words], capture_output=True, text=True, timeout=120)


def check_readable(trace: Path, has_events: bool) -> None:
    result = vramscope("report", str(trace), "--json")
    if not has_events and result.returncode == 2:
        assert result.stderr.count("\n") == 1, result.stderr  # nothing was recorded yet, and it says so
        return
    assert result.returncode == 0, result.stderr
    losses = {entry["name"] for entry in json.loads(result.stdout)["losses"]}
    assert losses <= {CUT_OFF}


def test_a_finish_with_the_process_id_of_the_dead_program(tmp_path):
    live, truth = tmp_path / "x.vram.d", tmp_path / "pairs"
    launcher = subprocess.Popen(
        [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "x.vram", "--", HOSTS / "steady_threads", truth],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    while not truth.exists() or not any(truth.read_bytes()):
        time.sleep(0.001)
    program = child_of(launcher.pid)
    for victim in (launcher.pid, program):
        kill(victim)
    launcher.wait(timeout=60)
    await_end(program)

    def take_its_number():  # as if the program had had the number of the `finish` to come
        for file in live.glob("*.vrl"):
            with file.open("r+b") as header:
                header.seek(20)
                if struct.unpack("<I", header.read(4))[0] == program:
                    header.seek(20)
                    header.write(struct.pack("<I", os.getpid()))

    result = subprocess.run(
        [VRAMSCOPE, "finish", "--no-report", live], preexec_fn=take_its_number, capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0 and not live.exists(), result.stderr


@pytest.mark.parametrize("number", range(ROUNDS))
def test_a_kill_costs_no_thread_more_than_a_record(tmp_path, number):
    rng = random.Random(number)
    trace, live, truth = tmp_path / "x.vram", tmp_path / "x.vram.d", tmp_path / "pairs"
    launcher = subprocess.Popen(
        [str(VRAMSCOPE), "run", "--cpu", "--no-report", "-o", str(trace), "--", str(HOSTS / "steady_threads"), str(truth)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    kind = ("program", "launcher", "both")[number % 3]
    program = None
    try:
        if rng.random() < 0.8:  # otherwise at any moment of its start
            while not truth.exists() and launcher.poll() is None:
                time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.04))
        program = child_of(launcher.pid)
        if kind == "program" and program is not None:
            # Held while its files are copied: it would make them one.
            os.kill(launcher.pid, signal.SIGSTOP)
            kill(program)
            await_end(program)
            shutil.copytree(live, tmp_path / "copy")
            os.kill(launcher.pid, signal.SIGCONT)
            assert launcher.wait(timeout=120) == 128 + signal.SIGKILL
            assert not live.exists()
            check_records(tmp_path / "copy", truth)
            check_readable(trace, has_events=truth.exists())
            return
        victims = [launcher.pid, program]
        if kind == "both":
            rng.shuffle(victims)
        for victim in victims:
            kill(victim)
            if kind == "launcher" or rng.random() < 0.5:
                time.sleep(rng.uniform(0, 0.01))
        launcher.wait(timeout=60)
    finally:
        # A launcher that was killed early may have begun the program meanwhile.
        launcher.kill()
        launcher.wait()
        await_end(program)
        for process in Path("/proc").iterdir():
            if process.name.isdigit():
                try:
                    command = (process / "cmdline").read_bytes().split(b"\0")
                except OSError:
                    continue
                # A process that the launcher has just forked has the launcher's name.
                if str(truth).encode() in command:
                    kill(int(process.name))
                    await_end(int(process.name))
    check_records(live, truth)
    has_events = truth.exists()
    if live.exists():
        check_readable(live, has_events)
        finished = vramscope("finish", str(live))
        assert finished.returncode == 0 or not has_events, finished.stderr
        if finished.returncode == 0:
            assert not live.exists()
            check_readable(trace, has_events)
