# SPDX-License-Identifier: Apache-2.0
"""`vramscope yield` and `resume` on the stand-in driver."""
from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import BUILD, FAKE, MIB, PROBE, VRAMSCOPE
from yield_machine import HUNGRY, LEAST, MOST, machine, said_mib, wait_for  # noqa: F401

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


# ---- there and back --------------------------------------------------------------------------


def test_all_memory_is_given_back_and_comes_again(machine):
    program = machine.start()
    yielded = machine.vramscope("yield", program.pid)
    assert yielded.returncode == 0, yielded.stderr
    assert LEAST <= said_mib(yielded.stdout) <= MOST
    assert yielded.stderr == f"vramscope: `vramscope resume {program.pid}` continues it\n"
    assert program.stands()
    assert [path.name for path in machine.kept()] == [f"yield-{program.pid}"]
    assert machine.refused("yield", program.pid).startswith(
        f"process {program.pid} (driver_steady) has already yielded: `vramscope resume {program.pid}`"
    )

    # Another program takes the memory: restoring is impossible until it has ended.
    other = machine.start(record=False)
    hungry = machine.directory / "hungry.py"
    hungry.write_text(HUNGRY)
    taker = subprocess.Popen(
        [sys.executable, str(hungry)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=machine.environment
    )
    machine.programs.append(taker)
    assert taker.stdout.readline() == b"taken\n"
    line = machine.refused("resume", program.pid)
    assert re.search(
        r"^GPU 0 \(Stand-in H200\) has no room for process \d+ \(driver_steady\): 61\d MiB are needed, "
        r"[\d.]+ MiB are free, \d+ MiB are missing: nothing was changed$",
        line,
    ), line
    assert program.stands() and other.goes_on()
    taker.communicate(b"")

    resumed = machine.vramscope("resume", program.pid)
    assert resumed.returncode == 0 and resumed.stderr == "", resumed.stderr
    assert LEAST <= said_mib(resumed.stdout) <= MOST
    assert program.goes_on()
    assert machine.kept() == []
    assert machine.refused("resume", program.pid).endswith("has not yielded: it is running")
    program.finish()
    other.finish()


def test_the_recording_says_so_and_balances(machine):
    program = machine.start()
    assert machine.vramscope("yield", program.pid).returncode == 0
    program.wait_for_samples()
    away_ns = time.monotonic_ns()
    # Another process of the recording has the memory meanwhile.
    probe = {"LD_PRELOAD": str(PROBE), "VRAMSCOPE_DIR": str(program.live), "VRAMSCOPE_OPTIONS": ""}
    hungry = [sys.executable, "-c", HUNGRY.replace("sys.stdin.read()", "import time; time.sleep(0.2)")]
    subprocess.run(hungry, env={**machine.environment, **probe}, check=True, stdout=subprocess.DEVNULL)
    assert machine.vramscope("resume", program.pid).returncode == 0
    assert program.goes_on()
    back_ns = time.monotonic_ns()
    program.wait_for_samples()
    program.finish()

    def gpu(at: str) -> dict:
        answer = json.loads(machine.vramscope("report", program.trace, "--json", "--at", at).stdout)
        assert all(invariant["holds"] for invariant in answer["invariants"]), answer["invariants"]
        (device,) = [device for device in answer["devices"] if device["kind"] == "gpu"]
        return device

    away, back = gpu(f"@{away_ns}"), gpu(f"@{back_ns}")
    assert away["ledger_bytes"] == away["nvml_bytes"] == 0, away
    assert LEAST <= back["ledger_bytes"] // MIB <= MOST + 9 and abs(back["residual_bytes"] or 0) < 4 * MIB, back
    # The driver of the commands themselves takes 3.25 MiB while they run.
    info = machine.vramscope("info", program.trace).stdout
    worst = re.search(r"unexplained: at most (\S+) (\S+) ", info)
    assert worst and (worst.group(2) == "B" or abs(float(worst.group(1))) <= 4), info
    name = rf"process {program.pid} \(driver_steady\)"
    assert re.search(name + r" gave back \d+ MiB of device memory, in ", info), info
    assert re.search(name + r" has back \d+ MiB of device memory, in ", info), info


NOBODY = 65534


@pytest.fixture
def taken_names():
    """What another user can put where `resume` looks, under any name that can be foreseen."""
    made = [Path(f"/tmp/{name}") for name in (f"vramscope-{os.geteuid()}", "vramscope-yield-0", "vramscope-yield-x")]
    made = [path for path in made if not path.exists()]
    for path in made:
        path.mkdir(mode=0o777)
        (path / "yield-1").write_text("theirs")
    for path in made if os.geteuid() == 0 else ():
        os.chown(path, NOBODY, NOBODY)
    yield
    for path in made:
        shutil.rmtree(path)


def test_the_state_is_kept_for_this_user_alone(machine, taken_names, tmp_path):
    program = machine.start()
    assert machine.vramscope("yield", program.pid, XDG_RUNTIME_DIR=str(tmp_path)).returncode == 0
    (state,) = machine.kept()
    assert state.stat().st_mode & 0o777 == 0o600
    assert state.parent.stat().st_mode & 0o777 == 0o700
    # A session with another environment finds it.
    assert "has already yielded" in machine.refused("yield", program.pid)
    # Without it nothing says how much room is needed.
    state.unlink()
    assert "another program than vramscope checkpointed" in machine.refused("resume", program.pid)
    assert machine.vramscope("resume", program.pid, "--unverified").returncode == 0
    program.finish()


# ---- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "what, said",
    [
        ("managed", "8.00 MiB of managed memory (1 allocation)"),
        ("export", "64.0 MiB of memory exported to other processes (1 allocation)"),
        ("multicast", "1 multicast object (NCCL makes none with NCCL_NVLS_ENABLE=0)"),
    ],
)
def test_what_the_driver_cannot_move_is_refused_before_it_is_locked(machine, what, said):
    program = machine.start(what)
    for flags in ([], ["--unverified"]):
        assert machine.refused("yield", program.pid, *flags) == (
            f"process {program.pid} (driver_steady) holds {said}, which the driver cannot move to the host and "
            "back: nothing was changed"
        )
    assert program.goes_on() and machine.kept() == []
    program.finish()


def test_a_process_without_a_recording_needs_a_word(machine):
    program = machine.start(record=False)
    line = machine.refused("yield", program.pid)
    assert "(it is not recorded); --unverified yields it anyway: nothing was changed" in line
    assert program.goes_on()
    done = machine.vramscope("yield", program.pid, "--unverified")
    assert done.returncode == 0
    first, _ = done.stderr.splitlines()
    assert first.startswith("vramscope: not checked: managed memory, memory shared with other processes")
    assert machine.vramscope("resume", program.pid).returncode == 0
    program.finish()


def test_a_host_without_room(machine):
    machine.environment["VRAMSCOPE_FAKE_TOTAL_MIB"] = str(100 << 20)
    program = machine.start("huge")
    line = machine.refused("yield", program.pid)
    assert re.match(
        r"the host has not enough memory for process \d+ \(driver_steady\): [\d.]+ TiB are needed, "
        r"\S+ \S+ are free within (the host|the memory limit of its cgroup .*): nothing was changed$",
        line,
    ), line
    assert program.goes_on()
    program.finish()


def test_processes_that_cannot_be_asked(machine):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for command in ("yield", "resume"):
        assert machine.refused(command, gone.pid) == f"process {gone.pid} does not exist"
        for number in ("0", "-5", "x", "1.5", "99999999999", ""):
            assert machine.refused(command, number) == (
                f"PID: '{number}' is not a process ID: see `vramscope {command} --help`"
            )
        assert machine.refused(command).endswith(f"see `vramscope {command} --help`")
        plain = subprocess.Popen(["sleep", "30"])
        machine.programs.append(plain)
        assert machine.refused(command, plain.pid) == (
            f"process {plain.pid} (sleep) does not use CUDA: libcuda is not loaded"
        )
        assert "started this command and would wait for itself" in machine.refused(command, os.getpid())
    for limit in ("-1", "0", "nan", "inf", "x"):
        assert machine.refused("yield", gone.pid, "--timeout", limit) == (
            f"--timeout: '{limit}' is not a number of seconds from 0.001 to 86400: see `vramscope yield --help`"
        )
    zombie = subprocess.Popen(["true"])
    wait_for(lambda: Path(f"/proc/{zombie.pid}/stat").read_text().split()[2] == "Z")
    assert machine.refused("yield", zombie.pid) == f"process {zombie.pid} (true) has ended"
    zombie.wait()


def test_a_process_that_is_stopped(machine):
    """The driver asks a thread of the process itself, and would wait for it."""
    program = machine.start()
    for command in ("yield", "resume"):
        os.kill(program.pid, signal.SIGSTOP)
        wait_for(lambda: Path(f"/proc/{program.pid}/stat").read_text().split()[2] == "T")
        assert machine.refused(command, program.pid) == (
            f"process {program.pid} (driver_steady) is stopped, so it cannot move its memory: "
            f"`kill -CONT {program.pid}` first"
        )
        os.kill(program.pid, signal.SIGCONT)
        if command == "yield":
            assert program.goes_on()
            assert machine.vramscope("yield", program.pid).returncode == 0
    assert machine.vramscope("resume", program.pid).returncode == 0
    program.finish()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_a_process_of_another_user(machine):
    program = machine.start(record=False)
    shown = BUILD / "bin" / "vramscope"
    done = subprocess.run(
        [str(shown), "yield", str(program.pid)],
        capture_output=True,
        text=True,
        env=machine.environment,
        user=65534,
        group=65534,
        extra_groups=[],
    )
    assert done.returncode == 2
    assert done.stderr == f"vramscope: process {program.pid} (driver_steady) is not yours: it belongs to user 0\n"
    program.finish()


def test_drivers_that_cannot(machine, tmp_path):
    program = machine.start()
    old = tmp_path / "old"
    old.mkdir()
    source = old / "driver.c"
    source.write_text("int cuInit(unsigned flags) { return (int)flags; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(old / "libcuda.so.1"), str(source)], check=True)
    for command in ("yield", "resume"):
        assert "the driver cannot checkpoint: install driver 570 or newer" in machine.refused(
            command, program.pid, LD_LIBRARY_PATH=str(old)
        )
        (tmp_path / "none").mkdir(exist_ok=True)
        (tmp_path / "none" / "libcuda.so.1").write_text("no library\n")
        assert "the NVIDIA driver is missing" in machine.refused(
            command, program.pid, LD_LIBRARY_PATH=str(tmp_path / "none")
        )
        assert "does not start: CUDA_ERROR_OUT_OF_MEMORY (2)" in machine.refused(
            command, program.pid, VRAMSCOPE_FAKE_FAIL="cuInit:*"
        )
    assert program.goes_on()
    program.finish()


# ---- what goes wrong half way ----------------------------------------------------------------


def test_work_that_does_not_end(machine):
    program = machine.start_busy()
    assert machine.refused("yield", program.pid, "--timeout", "0.2") == (
        f"process {program.pid} (driver_steady) did not finish its work within 0.2 s: it continues unchanged; --timeout "
        "allows more time"
    )
    assert machine.kept() == []
    assert program.goes_on()


def test_ctrl_c_while_it_is_locked(machine):
    program = machine.start_busy()
    command = subprocess.Popen(
        [str(VRAMSCOPE), "yield", str(program.pid)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=machine.environment,
    )
    machine.wait_until_locked(program)
    command.send_signal(signal.SIGINT)
    output, errors = command.communicate(timeout=60)
    assert command.returncode == 2 and output == ""
    first, last = errors.splitlines()
    assert first.startswith("vramscope: interrupted: ") and "within 30 s" in first
    assert last == "vramscope: interrupted: the process was unlocked and continues unchanged"
    assert machine.kept() == []
    assert program.goes_on()


def test_a_checkpoint_that_fails_is_undone(machine):
    program = machine.start()
    line = machine.refused("yield", program.pid, VRAMSCOPE_FAKE_FAIL="cuCheckpointProcessCheckpoint:1")
    assert line == (
        f"the driver does not checkpoint process {program.pid} (driver_steady): CUDA_ERROR_OUT_OF_MEMORY (2): "
        "the process was unlocked and continues unchanged"
    )
    assert program.goes_on() and machine.kept() == []
    line = machine.refused("yield", program.pid, VRAMSCOPE_FAKE_FAIL="cuCheckpointProcessLock:1")
    assert "the driver does not lock process" in line and line.endswith("nothing was changed")
    assert program.goes_on() and machine.kept() == []
    program.finish()


@pytest.mark.parametrize(
    "broken, fails, said",
    [
        ("Lock", "", "locking failed with CUDA_ERROR_UNKNOWN (999), and "),
        ("Checkpoint", "", "the checkpoint failed with CUDA_ERROR_UNKNOWN (999), and "),
        (
            "Unlock",
            "cuCheckpointProcessCheckpoint:1",
            "the driver does not checkpoint process {} (driver_steady): CUDA_ERROR_OUT_OF_MEMORY (2); then unlocking "
            "failed with CUDA_ERROR_UNKNOWN (999), and ",
        ),
    ],
)
def test_a_process_that_the_driver_gave_up(machine, broken, fails, said):
    program = machine.start()
    line = machine.refused(
        "yield", program.pid, VRAMSCOPE_FAKE_BREAK="cuCheckpointProcess" + broken, VRAMSCOPE_FAKE_FAIL=fails
    )
    assert line.startswith(said.format(program.pid) + "the driver reports process")
    assert line.endswith(f"end it with `kill -9 {program.pid}` and start it again")
    assert machine.kept() == []
    for command in ("yield", "resume"):
        assert "neither yield nor resume can help it" in machine.refused(command, program.pid)


def test_a_restore_that_fails(machine):
    program = machine.start()
    assert machine.vramscope("yield", program.pid).returncode == 0
    line = machine.refused("resume", program.pid, VRAMSCOPE_FAKE_FAIL="cuCheckpointProcessRestore:1")
    assert line.endswith("its memory is still on the host, and `resume` can be tried again")
    assert machine.vramscope("resume", program.pid).returncode == 0
    assert program.goes_on()
    assert machine.vramscope("yield", program.pid).returncode == 0
    line = machine.refused("resume", program.pid, VRAMSCOPE_FAKE_BREAK="cuCheckpointProcessRestore")
    assert line.startswith("restoring failed with CUDA_ERROR_UNKNOWN (999), and the driver reports process")
    assert machine.kept() == []


def test_an_unlock_that_fails(machine):
    program = machine.start()
    assert machine.vramscope("yield", program.pid).returncode == 0
    assert machine.refused("resume", program.pid, VRAMSCOPE_FAKE_FAIL="cuCheckpointProcessUnlock:1") == (
        f"its memory is back, but the driver does not unlock process {program.pid} (driver_steady): "
        f"CUDA_ERROR_OUT_OF_MEMORY (2): `vramscope resume {program.pid}` tries again"
    )
    line = machine.refused("resume", program.pid, VRAMSCOPE_FAKE_BREAK="cuCheckpointProcessUnlock")
    assert line.startswith("unlocking failed with CUDA_ERROR_UNKNOWN (999), and the driver reports process")
    assert machine.kept() == []


@pytest.mark.parametrize("command", ["yield", "resume"])
def test_ctrl_c_while_memory_moves(machine, command):
    """Nothing is left half way: it is waited for, and said."""
    program = machine.start()
    step = "Checkpoint" if command == "yield" else "Restore"
    if command == "resume":
        assert machine.vramscope("yield", program.pid).returncode == 0
    process = subprocess.Popen(
        [str(VRAMSCOPE), command, str(program.pid)],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**machine.environment, "VRAMSCOPE_FAKE_DELAY_US": f"cuCheckpointProcess{step}:3500000"},
    )
    if command == "yield":
        machine.wait_until_locked(program)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "of device memory, in " in output, errors
    assert errors.splitlines()[0] == (
        f"vramscope: the driver is moving the memory of process {program.pid} (driver_steady) and cannot be interrupted: "
        "the command ends when the move is complete"
    )
    if command == "yield":
        assert machine.vramscope("resume", program.pid).returncode == 0
    program.finish()


def test_a_process_that_ends_meanwhile(machine):
    program = machine.start_busy()
    command = subprocess.Popen(
        [str(VRAMSCOPE), "yield", str(program.pid)],
        stderr=subprocess.PIPE,
        text=True,
        env=machine.environment,
    )
    machine.wait_until_locked(program)
    os.kill(program.pid, signal.SIGKILL)
    _, errors = command.communicate(timeout=60)
    assert command.returncode == 2
    assert errors == f"vramscope: process {program.pid} (driver_steady) ended meanwhile\n"
    assert machine.kept() == []


def test_a_yield_that_was_killed_is_undone_by_resume(machine):
    program = machine.start_busy()
    command = subprocess.Popen([str(VRAMSCOPE), "yield", str(program.pid)], env=machine.environment)
    machine.wait_until_locked(program)
    command.kill()
    command.wait()
    # Should it have come to the moving, a `resume` knows what it needs.
    (state,) = machine.kept()
    assert re.search(r"^device \d{9} GPU-", state.read_text(), re.MULTILINE)
    assert "is locked by an unfinished checkpoint" in machine.refused("yield", program.pid)
    done = machine.vramscope("resume", program.pid)
    assert done.returncode == 0
    assert done.stderr.endswith("was locked and had its memory: it continues\n")
    assert program.goes_on()
