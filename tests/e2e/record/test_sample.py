# SPDX-License-Identifier: Apache-2.0
"""`vramscope sample`: NVML's figures of a program that has no probe in it, on the stand-in device."""
from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Iterator, Sequence

import pytest
from fake_books import process_lists
from hosts import wait_until_listed
from places import FAKE, HOSTS, MIB, VRAMSCOPE

CONTEXT = 518 * MIB
HELD = 64 * MIB  # by driver_steady, and 4 MiB more from time to time
MORE = 16 * MIB  # that, and what the kernel module takes for a context

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


@pytest.fixture
def machine(tmp_path) -> dict[str, str]:
    return {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "LC_ALL": "C.UTF-8",
    }


@contextlib.contextmanager
def steady(machine: dict[str, str]) -> Iterator[subprocess.Popen]:
    """A program that holds a context and 64 MiB until its input ends."""
    command = [str(HOSTS / "driver_steady")]
    with subprocess.Popen(command, env=machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
        out = process.communicate("")[0]
    assert process.returncode == 0 and "same addresses 1" in out


def sample(machine: dict[str, str], *arguments: str | Path, status: int = 0, **more) -> subprocess.CompletedProcess:
    done = subprocess.run(
        [VRAMSCOPE, "sample", *arguments], env=machine, capture_output=True, text=True, timeout=60, **more
    )
    assert done.returncode == status, done.stderr
    return done


def ask(command: str, file: Path, *options: str) -> str:
    done = subprocess.run([VRAMSCOPE, command, file, *options], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rows(file: Path, *options: str) -> dict[tuple, int]:
    said = json.loads(ask("report", file, "--json", *options))
    assert said["sampled"] is True
    for device in said["devices"]:
        assert sum(row["bytes"] for row in said["rows"]) == device["ledger_bytes"] == device["nvml_bytes"]
        assert device["residual_bytes"] is None
    return {(row["pid"], *row["path"]): row["bytes"] for row in said["rows"]}


def child_of(pid: int, but: Sequence[int] = ()) -> int:
    """The one child that it has, as soon as it has one."""
    deadline = time.monotonic() + 60
    while True:
        children = {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()} - set(but)
        if children:
            (child,) = children
            return child
        assert time.monotonic() < deadline, pid
        time.sleep(0.01)


def sample_steady(machine: dict[str, str], file: Path, seconds: float = 0, period: str = "2ms") -> int:
    """Samples driver_steady until it is listed, and for so long; its number."""
    command = [VRAMSCOPE, "sample", "-i", period, "--no-report", "-o", file, "--", HOSTS / "driver_steady"]
    with subprocess.Popen(command, env=machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        child = child_of(process.pid)
        wait_until_listed(file, child, CONTEXT + HELD)
        time.sleep(seconds)
        process.communicate("")
    assert process.returncode == 0
    return child


def test_a_command_has_what_came_after_the_start(machine, tmp_path):
    file = tmp_path / "s.vram"
    pid = sample_steady(machine, file)
    found = rows(file)
    assert CONTEXT + HELD <= found[(pid, "sampled")] <= CONTEXT + HELD + MORE
    assert set(found) <= {(pid, "sampled"), (None, "before the start")}
    said = json.loads(ask("report", file, "--json"))
    (process,) = said["processes"]
    assert process["pid"] == pid and process["command"].endswith("driver_steady")
    assert [invariant["name"] for invariant in said["invariants"]] == ["children sum to the parent"]
    info = ask("info", file)
    assert "sampled: allocations are unknown" in info and "not checked: frees" in info
    assert re.search(r"sampling period +2.00 ms", info) and re.search(r"readings +\d\d+; \d+ later than", info)
    assert f"pid {pid}" in info and "exit status 0" in info and "estimated" not in info
    text = ask("report", file)
    assert "sampled: allocations are unknown" in text and "Checks of the ledger" not in text
    page = tmp_path / "page.html"
    ask("report", file, "--html", str(page))
    assert '"sampled":true' in page.read_text()
    assert not list(tmp_path.glob("*.vram.d"))


def test_what_others_have_is_apart(machine, tmp_path):
    with steady(machine):
        pid = sample_steady(machine, tmp_path / "s.vram")
        found = rows(tmp_path / "s.vram")
    assert CONTEXT + HELD <= found[(None, "other processes")] <= CONTEXT + HELD + MORE
    assert CONTEXT + HELD <= found[(pid, "sampled")] <= CONTEXT + HELD + MORE
    # The baseline, before the program began.
    first = json.loads(ask("report", tmp_path / "s.vram", "--json", "--timeline", "1"))["timelines"][0]["nvml"][0]
    found = rows(tmp_path / "s.vram", "--at", f"@{first[0]}")
    assert set(found) == {(None, "other processes"), (None, "before the start")}
    assert found[(None, "other processes")] >= CONTEXT + HELD


def test_a_program_under_way_is_left_alone(machine, tmp_path):
    file = tmp_path / "p.vram"
    with steady(machine) as program:
        with subprocess.Popen(
            [VRAMSCOPE, "sample", "--pid", str(program.pid), "-i", "1ms", "-o", file], env=machine,
            stderr=subprocess.PIPE, text=True,
        ) as sampler:
            wait_until_listed(file, program.pid, CONTEXT + HELD)
            sampler.send_signal(signal.SIGINT)
            err = sampler.communicate()[1]
        assert sampler.returncode == 0 and f"process {program.pid} continues" in err, err
        assert program.poll() is None
        found = rows(file)
        assert CONTEXT + HELD <= found[(program.pid, "sampled")] <= CONTEXT + HELD + MORE
        assert (None, "other processes") not in found
        # It ends, and so does the sampling.
        with subprocess.Popen(
            [VRAMSCOPE, "sample", "--pid", str(program.pid), "--no-report", "-o", tmp_path / "end.vram"], env=machine,
            stderr=subprocess.PIPE, text=True,
        ) as sampler:
            wait_until_listed(tmp_path / "end.vram", program.pid, CONTEXT + HELD)
            program.stdin.close()
            err = sampler.communicate(timeout=30)[1]
            program.stdin = None
        assert sampler.returncode == 0 and "continues" not in err, err
    sample(machine, "--pid", str(program.pid), status=2)


def test_the_program_runs_as_without(machine, tmp_path):
    plain = subprocess.run(["env"], env=machine, capture_output=True, text=True, check=True).stdout
    assert sample(machine, "--no-report", "-o", tmp_path / "e.vram", "--", "env").stdout == plain
    sample(machine, "--no-report", "-o", tmp_path / "7.vram", "--", "sh", "-c", "exit 7", status=7)
    done = sample(
        machine, "--no-report", "-o", tmp_path / "k.vram", "--", "sh", "-c", "kill -TERM $$", status=128 + signal.SIGTERM
    )
    assert done.stderr.count("\n") == 1
    with subprocess.Popen(
        [VRAMSCOPE, "sample", "--no-report", "-o", tmp_path / "t.vram", "--", HOSTS / "driver_steady"], env=machine,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as sampler:
        assert sampler.stdout.readline() == "ready\n"
        wait_until_listed(tmp_path / "t.vram", child_of(sampler.pid), CONTEXT + HELD)
        sampler.send_signal(signal.SIGTERM)
        # Its input stays open, so that it does not end early.
        sampler.wait(timeout=30)
    assert sampler.returncode == 128 + signal.SIGTERM
    assert rows(tmp_path / "t.vram")


def test_one_command_after_the_other(machine, tmp_path):
    """Each process has its own, though NVML's lists come seldom."""
    file = tmp_path / "two.vram"
    inputs = ("first", "second")
    for name in inputs:
        os.mkfifo(tmp_path / name)
    script = "".join(f"{HOSTS / 'driver_steady'} <{name} >/dev/null; " for name in inputs) + "true"
    command = [VRAMSCOPE, "sample", "--no-report", "-o", file, "--", "sh", "-c", script]
    listed = []
    with subprocess.Popen(command, env=machine, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as sampler:
        # Whatever happens, both inputs end, and with them the programs.
        with contextlib.ExitStack() as ends:
            held = [ends.enter_context(open(tmp_path / name, "r+b", buffering=0)) for name in inputs]
            shell = child_of(sampler.pid)
            for end in held:
                pid = child_of(shell, but=[pid for pid, _ in listed])
                wait_until_listed(file, pid, CONTEXT + HELD)
                listed.append((pid, time.monotonic_ns()))
                # One process list before this instant contains it, and one after. Between two lists the owner is
                # uncertain.
                begun = process_lists(Path(machine["VRAMSCOPE_FAKE_BOOKS"]))
                while process_lists(Path(machine["VRAMSCOPE_FAKE_BOOKS"])) < begun + 2:
                    time.sleep(0.01)
                end.close()
        err = sampler.communicate(timeout=60)[1]
    assert sampler.returncode == 0, err
    for pid, at_ns in listed:
        assert [row[0] for row, size in rows(file, "--at", f"@{at_ns}").items() if size > CONTEXT] == [pid]


def test_what_a_killed_sampler_leaves_is_read(machine, tmp_path):
    file = tmp_path / "killed.vram"
    with subprocess.Popen(
        [VRAMSCOPE, "sample", "-o", file, "--", HOSTS / "driver_steady"], env=machine, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as sampler:
        assert sampler.stdout.readline() == "ready\n"
        wait_until_listed(file, child_of(sampler.pid), CONTEXT)
        sampler.kill()
        sampler.stdin.close()
    assert any(path == ("sampled",) for (_, *path), size in rows(file).items() for path in [tuple(path)])
    assert "sampled" in ask("info", file)
    export = subprocess.run([VRAMSCOPE, "export", file, "--to", "csv"], capture_output=True, text=True, timeout=60)
    assert (export.returncode, export.stdout) == (2, "") and "allocations are unknown" in export.stderr


def test_a_picture_of_both_has_the_peaks_that_the_sampler_missed(machine, tmp_path):
    sample_steady(machine, tmp_path / "sampled.vram", seconds=1, period="200ms")
    command = [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "probed.vram", "--", HOSTS / "driver_steady"]
    with subprocess.Popen(command, env=machine, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
        wait_until_listed(tmp_path / "probed.vram", child_of(process.pid), CONTEXT + HELD + 4 * MIB, at="peak")
        process.communicate(b"")
    peaks = [
        json.loads(ask("report", tmp_path / f"{name}.vram", "--json"))["devices"][0]["ledger_bytes"]
        for name in ("sampled", "probed")
    ]
    assert peaks[0] <= peaks[1], "of its many turns the sampler may have seen one"
    changed = ask("diff", tmp_path / "sampled.vram", str(tmp_path / "probed.vram"))
    assert "note: A is sampled, and has NVML's figures alone: only the totals compare" in changed
    assert changed.startswith("no difference") or changed.startswith("the peak grew by 4.00 MiB; of what"), changed
    done = subprocess.run(
        [VRAMSCOPE, "plot", "probed.vram", "sampled.vram", "--kind", "timeline", "--overlay", "--subtract-baseline", "-o",
         "both.svg"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    if "libcairo" in done.stderr:
        pytest.skip("no libcairo")
    assert done.returncode == 0 and (tmp_path / "both.svg").read_bytes().startswith(b"<?xml"), done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("-i", "fast", "--", "true"), "-i fast"),
        (("-i", "1ns", "--", "true"), "us, ms or s"),
        (("-i", "1us", "--", "true"), "100us to 60s"),
        (("--device", "7", "--", "true"), "--device 7"),
        (("--device", "-1", "--", "true"), "--device"),
        (("--pid", "4194304"), "the process does not exist"),
        (("--pid", "1", "--", "true"), "leave one out"),
        ((), "no command"),
        (("-o", "/nowhere/x.vram", "--", "true"), "/nowhere"),
        (("--html", "/nowhere/x.html", "--", "true"), "/nowhere"),
    ],
)
def test_bad_input_is_one_line(machine, tmp_path, arguments, said):
    done = sample(machine, *arguments, status=2, cwd=tmp_path)
    assert done.stderr.count("\n") == 1 and said in done.stderr, done.stderr
    assert not [path for path in tmp_path.iterdir() if path.name != "books"]


def test_without_nvml_nothing_is_started(tmp_path):
    environment = {**os.environ, "LD_LIBRARY_PATH": "/nowhere"}
    done = subprocess.run(
        [VRAMSCOPE, "sample", "--", "touch", "started"], env=environment, cwd=tmp_path, capture_output=True, text=True,
        timeout=60,
    )
    if "libnvidia-ml.so.1 is not installed" not in done.stderr:
        pytest.skip("this machine has NVML")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_of_one_reading_of_nothing_there_is_nothing_to_draw_or_compare(machine, tmp_path):
    sample(machine, "-i", "60s", "--no-report", "-o", tmp_path / "one.vram", "--", "true")
    for command in (
        ("diff", "one.vram", "one.vram"),
        *(("plot", "one.vram", "--kind", kind, "-o", "p.svg") for kind in ("timeline", "compare", "two-bar", "categories")),
    ):
        done = subprocess.run([VRAMSCOPE, *command], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, (command, done.stderr)
        assert "one.vram: " in done.stderr and ("no memory to draw" in done.stderr or "in use during sampling" in done.stderr)
    assert not (tmp_path / "p.svg").exists()


def test_a_command_that_is_not_there(machine, tmp_path):
    sample(machine, "-o", tmp_path / "x.vram", "--", "/nowhere/program", status=127)
    assert not (tmp_path / "x.vram").exists()
