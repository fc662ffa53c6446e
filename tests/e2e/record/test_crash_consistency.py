# SPDX-License-Identifier: Apache-2.0
"""A kill at any call that changes the file system, and finishes, readers and runs at once: what can be read has all that
was recorded, or says what it lacks, and a second `finish` completes it (docs/FILES.md).

libkill_at.so counts the calls and kills before the Nth. `make test` takes some points of each command, `make soak` all
(VRAMSCOPE_CRASH_POINTS=all).
"""
from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from places import HOSTS, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

ALL = os.environ.get("VRAMSCOPE_CRASH_POINTS") == "all"
ROUNDS = int(os.environ.get("VRAMSCOPE_CRASH_ROUNDS", "1"))
HOST = str(HOSTS / "fork_without_exec")  # two processes


def vramscope(*words: str, cwd: Path, **more) -> subprocess.CompletedProcess:
    return subprocess.run(
        [VRAMSCOPE, *words], cwd=cwd, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **more
    )


def killed_at(number: int, *words: str, cwd: Path) -> int:
    """Runs a command that is killed at that call (0: at none); how many calls there were."""
    state = cwd / "state"
    state.write_bytes(struct.pack("<2Q", 0, number).ljust(4096, b"\0"))
    environment = {**os.environ, "LD_PRELOAD": str(HOSTS / "libkill_at.so"), "VRAMSCOPE_KILL_STATE": str(state)}
    result = vramscope(*words, cwd=cwd, env=environment)  # its output ends when all that it started has ended
    calls = struct.unpack_from("<Q", state.read_bytes())[0]
    assert number == 0 or calls < number or result.returncode == -signal.SIGKILL, result.stderr
    assert number != 0 or result.returncode == 0, result.stderr
    state.unlink()
    return calls


def points(calls: int, some: int) -> list[int]:
    return list(range(1, calls + 1)) if ALL else sorted({1 + i * (calls - 1) // (some - 1) for i in range(some)})


@dataclass(frozen=True)
class Facts:
    processes: int
    events: int
    losses: str


def facts(what: str, cwd: Path) -> Facts | None:
    """What a reader finds; nothing where it says in one line that there is no recording."""
    result = vramscope("info", what, cwd=cwd)
    if result.returncode != 0:
        assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
        return None
    number = {key: int(value.replace(",", "")) for key, value in re.findall(r"^(processes|events) +([\d,]+)$", result.stdout, re.M)}
    losses = re.search(r"^losses .*?(?=^\w)", result.stdout, re.M | re.S)
    return Facts(number["processes"], number["events"], losses.group() if losses else "")


def check(found: Facts | None, whole: Facts) -> None:
    assert found is not None
    assert found == whole or found.losses != whole.losses, f"{found} of {whole}, and no loss says so"


def remains(cwd: Path) -> list[str]:
    return sorted(path.name for path in cwd.iterdir() if re.match(r"x\.vram|\.vramscope-gone-", path.name))


def check_second_finish(cwd: Path, whole: Facts) -> None:
    result = vramscope("finish", "--no-report", "x.vram.d", cwd=cwd)
    assert result.returncode == 0, result.stderr
    check(facts("x.vram", cwd), whole)
    assert remains(cwd) == ["x.vram"]


def unfinished(cwd: Path, *command: str) -> Path:
    """The directory of a run whose launcher was killed when its program had ended."""
    script = '"$@"; kill -9 $PPID'
    vramscope("run", "--cpu", "--no-report", "-o", "x.vram", "--", "sh", "-c", script, "sh", *command, cwd=cwd)
    assert (cwd / "x.vram.d" / "manifest").exists()
    return cwd / "x.vram.d"


def test_a_finish_that_is_killed(tmp_path):
    template = unfinished(tmp_path, HOST)
    whole = facts("x.vram", tmp_path)
    assert whole is not None and whole.processes == 2
    place = tmp_path / "place"
    place.mkdir()

    def lay() -> None:
        shutil.rmtree(place)
        shutil.copytree(template, place / "x.vram.d")

    lay()
    calls = killed_at(0, "finish", "--no-report", "x.vram.d", cwd=place)
    for number in points(calls, 45):
        lay()
        killed_at(number, "finish", "--no-report", "x.vram.d", cwd=place)
        check(facts("x.vram", place), whole)
        if (place / "x.vram.d").exists():
            check(facts("x.vram.d", place), whole)
        check_second_finish(place, whole)


@pytest.mark.parametrize("older", ["nothing", "whole", "unfinished"])
def test_a_run_that_is_killed(tmp_path, older):
    command = ["run", "--cpu", "--no-report", "-o", "x.vram", "--", "sh", "-c", f"{HOST} && touch done"]
    earlier = tmp_path / "earlier"
    earlier.mkdir()
    unfinished(earlier, "sh", "-c", f"{HOST}; {HOST}")
    before = facts("x.vram", earlier)
    if older == "whole":
        assert vramscope("finish", "--no-report", "x.vram.d", cwd=earlier).returncode == 0
    place = tmp_path / "place"

    def lay() -> None:
        shutil.rmtree(place, ignore_errors=True)
        if older == "nothing":
            place.mkdir()
        else:
            shutil.copytree(earlier, place)

    lay()
    calls = killed_at(0, *command, cwd=place)
    whole = facts("x.vram", place)
    assert whole is not None and whole.processes == 2 and remains(place) == ["x.vram"]
    for number in points(calls, 35):
        lay()
        killed_at(number, *command, cwd=place)
        found = facts("x.vram", place)
        if (place / "done").exists():
            check(found, whole)
            check_second_finish(place, whole)
        elif older != "nothing":
            # The new one has not begun: the older one is there, by one of its names.
            if found is not None and found.processes == 0:  # killed between the two, which a reader sees
                shutil.rmtree(place / "x.vram.d")
                found = facts("x.vram", place)
            kept = facts("x.vram.d.older", place) if (place / "x.vram.d.older").exists() else found
            assert kept == before or found == before


def test_a_snapshot_that_is_killed(tmp_path):
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", "x.vram", "--", "sh", "-c", f"{HOST} && echo done && read wait"]
    with subprocess.Popen(command, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        assert run.stdout is not None and "done\n" in (run.stdout.readline(), run.stdout.readline())
        calls = killed_at(0, "snapshot", "x", "-o", "s.vram", cwd=tmp_path)
        whole = facts("s.vram", tmp_path)
        for number in points(calls, 12):
            (tmp_path / "s.vram").unlink(missing_ok=True)
            killed_at(number, "snapshot", "x", "-o", "s.vram", cwd=tmp_path)
            assert not (tmp_path / "s.vram").exists() or facts("s.vram", tmp_path) == whole
            assert vramscope("snapshot", "x", "-o", "s.vram", cwd=tmp_path).returncode == 0
            assert facts("s.vram", tmp_path) == whole
        run.communicate("\n")
    assert run.returncode == 0 and remains(tmp_path) == ["x.vram"]


def test_a_compaction_that_is_killed(tmp_path):
    template = unfinished(tmp_path, "timeout", "-s", "KILL", "0.08", str(HOSTS / "steady_threads"), "pairs")
    whole = facts("x.vram.d", tmp_path)
    place = tmp_path / "place"

    def lay() -> Path:
        shutil.rmtree(place, ignore_errors=True)
        return Path(shutil.copytree(template, place / "x.vram.d"))

    lay()
    calls = killed_at(0, "compact", "--to", "65536", "x.vram.d", cwd=place)
    assert list((place / "x.vram.d").glob("*.past"))
    after = facts("x.vram.d", place)
    assert whole is not None and after is not None
    folded = re.search(r"allocations older than the ring: ([\d,]+)", after.losses)
    assert folded is not None and "damaged" not in after.losses
    assert 0 <= after.events + 2 * int(folded.group(1).replace(",", "")) - whole.events <= 1  # the cut is an event
    for number in points(calls, 10):
        lay()
        killed_at(number, "compact", "--to", "65536", "x.vram.d", cwd=place)
        assert facts("x.vram.d", place) in (whole, after)
        assert vramscope("finish", "--no-report", "x.vram.d", cwd=place).returncode == 0
        assert remains(place) == ["x.vram"]


def test_an_output_that_is_killed(tmp_path):
    unfinished(tmp_path, HOST)
    assert vramscope("finish", "--no-report", "x.vram.d", cwd=tmp_path).returncode == 0
    output = tmp_path / "out"
    for words in (["export", "x.vram", "--to", "csv", "-o", "out"], ["report", "x.vram", "--html", "out"]):
        output.unlink(missing_ok=True)
        calls = killed_at(0, *words, cwd=tmp_path)
        whole = output.read_bytes()
        for number in points(calls, 8):
            for older in (None, whole):
                output.unlink(missing_ok=True)
                if older is not None:
                    output.write_bytes(older)
                killed_at(number, *words, cwd=tmp_path)
                assert output.read_bytes() == whole if output.exists() else older is None


def test_finishes_and_readers_at_once(tmp_path):
    """One of them works. The others wait, and a reader finds the directory or the file, never a part."""
    template = unfinished(tmp_path, "sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do {HOST}; done")
    whole = facts("x.vram", tmp_path)
    assert whole is not None and whole.processes == 16
    place = tmp_path / "place"
    for _ in range(ROUNDS):
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(template, place / "x.vram.d")
        finish = [VRAMSCOPE, "finish", "--no-report", "x.vram.d"]
        finishes = [subprocess.Popen(finish, cwd=place, stderr=subprocess.PIPE, text=True) for _ in range(4)]
        while any(process.poll() is None for process in finishes):
            assert facts("x.vram", place) == whole
            found = facts("x.vram.d", place)
            assert found in (whole, None)
        for process in finishes:
            _, errors = process.communicate()
            assert process.returncode == 0, errors
        assert facts("x.vram", place) == whole and remains(place) == ["x.vram"]


def test_runs_at_once_with_one_name(tmp_path):
    """One records, the others are refused in one line; ranks have names of their own."""
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", "x.vram", "--", "sh", "-c", f"{HOST} && sleep 0.3"]
    for number in range(2 * ROUNDS):
        has_ranks = number % 2 == 1
        place = tmp_path / str(number)
        place.mkdir()
        runs = [
            subprocess.Popen(
                command, cwd=place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, "OMPI_COMM_WORLD_RANK": str(rank)} if has_ranks else None,
            )
            for rank in range(6)
        ]
        ended = [(*run.communicate(timeout=60), run.returncode) for run in runs]
        recorded = [errors for _, errors, status in ended if status == 0]
        for output, errors, status in ended:
            assert (status, output != "") in ((0, True), (2, False)), errors
            if status == 2:
                assert re.fullmatch(r"vramscope: .*x\.vram\.d.*: choose another name with -o\n", errors), errors
        files = sorted(path.name for path in place.iterdir())
        if has_ranks:
            assert len(recorded) == 6
            assert all(re.fullmatch(r"x(\.rank\d)?\.vram", name) for name in files), files
        else:
            assert recorded and files == ["x.vram"]
        for name in files:
            found = facts(name, place)
            assert found is not None and found.processes == 2, ended


# Its result depends on every step. It goes on until its input ends, and then checks itself.
COUNT = """
import hashlib, select, sys
def steps(going):
    digest, i = hashlib.sha256(), 0
    while going(i):
        i += 1
        digest.update(repr((i, i / 7, {i: str(i)})).encode())
    return i, digest.hexdigest()
print("ready", flush=True)
count, digest = steps(lambda i: i % 1000 != 0 or not select.select([sys.stdin], [], [], 0)[0])
print("right" if steps(lambda i: i < count)[1] == digest else "wrong", count)
"""


def attach_and_kill(folder: Path, numbers: list[int]) -> int:
    """A process that is attached to, each time killed at one of those calls, and once more. How many calls that makes."""
    with subprocess.Popen(
        [sys.executable, "-c", COUNT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        attach = ["attach", str(process.pid), "--for", "1ms", "-o", "x.vram", "--no-report"]
        for number in numbers:
            killed_at(number, *attach, cwd=folder)
            assert process.poll() is None, number
            time.sleep(0.1)  # the process may do what it was asked for
            vramscope("detach", str(process.pid), cwd=folder)
        calls = killed_at(0, *attach, cwd=folder)
        output, errors = process.communicate("", timeout=120)
    assert process.returncode == 0 and errors == "" and output.startswith("right"), output
    return calls


def test_an_attach_that_is_killed(tmp_path):
    """The process continues with the right result, and can be attached to again."""
    calls = attach_and_kill(tmp_path, [])
    assert calls > 150
    numbers = points(calls, 20)
    for first in range(0, len(numbers), 50):  # in the end it does the same work again
        assert attach_and_kill(tmp_path, numbers[first : first + 50]) > 150
