# SPDX-License-Identifier: Apache-2.0
"""`vramscope yield` and `resume`, and `vramscope.yield_gpu()`, on the stand-in driver."""
from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import package
import pytest
from hosts import BUILD, HOSTS, PROBE, STAND_IN, VRAMSCOPE
from live_file import LiveFile

MIB = 1 << 20
# The stand-in's context, its 64 MiB, and the 4 MiB that come and go.
LEAST, MOST = 582, 586

pytestmark = pytest.mark.skipif(not (STAND_IN / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


class Machine:
    """One stand-in machine: its books, what `resume` keeps, and programs on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.books = directory / "books"
        self.state = directory / "runtime"
        self.state.mkdir()
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(STAND_IN),
            "VRAMSCOPE_FAKE_BOOKS": str(self.books),
            "VRAMSCOPE_FAKE_TOTAL_MIB": "4096",
            "XDG_RUNTIME_DIR": str(self.state),
        }
        self.programs: list[subprocess.Popen] = []

    def start(self, *words: str, record: bool = True) -> "Program":
        program = Program(self, words, record, {})
        self.programs.append(program.process)
        return program

    def start_busy(self) -> "Program":
        """One that is in a call of the driver nearly always, and is in one now and for a second and more."""
        program = Program(self, (), True, {"VRAMSCOPE_FAKE_DELAY_US": "cuMemAlloc_v2:2000000"}, turns=0)
        self.programs.append(program.process)
        time.sleep(0.1)
        return program

    def wait_until_locked(self, program: "Program") -> None:
        asking = [sys.executable, "-c", IS_LOCKED, str(program.pid)]
        wait_for(lambda: subprocess.run(asking, env=self.environment, timeout=60).returncode == 0)

    def vramscope(self, *words: object, **extra: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [str(VRAMSCOPE), *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**self.environment, **extra},
        )

    def refused(self, *words: object, **extra: str) -> str:
        """The one line that the command ends with."""
        done = self.vramscope(*words, **extra)
        assert done.returncode == 2 and done.stdout == "", done
        (line,) = done.stderr.splitlines()
        assert line.startswith("vramscope: ")
        return line.removeprefix("vramscope: ")

    def kept(self) -> list[str]:
        return [path.name for path in (self.state / "vramscope").glob("*")]

    def end(self) -> None:
        for process in self.programs:
            if process.poll() is None:
                # The launcher's program would stand in a call for ever, if the driver has given it up.
                for child in children(process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


class Program:
    """driver_steady, under `vramscope run` or not."""

    def __init__(
        self, machine: Machine, words: tuple[str, ...], record: bool, extra: dict[str, str], turns: int = 2
    ) -> None:
        self.live = machine.directory / "live.vram.d"
        self.trace = machine.directory / "live.vram"
        command = [str(HOSTS / "driver_steady"), *words]
        if record:
            command = [str(VRAMSCOPE), "run", "--no-report", "-o", str(self.trace), "--", *command]
        self.output = machine.directory / f"output-{len(machine.programs)}"
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=self.output.open("w"),
            stderr=subprocess.DEVNULL,
            env={**machine.environment, **extra},
        )
        wait_for(lambda: "ready" in self.output.read_text() and self.turns() >= turns)
        self.pid = self.process.pid
        if record:
            (self.pid,) = children(self.process.pid)

    def turns(self) -> int:
        return self.output.read_text().count("turn")

    def wait_for_samples(self) -> None:
        """Until the launcher has asked NVML anew: the first of two may have begun before."""
        def count() -> int:
            return LiveFile(self.live / "launcher.vrl").counts["DeviceSample"]

        before = count()
        wait_for(lambda: count() >= before + 2)

    def goes_on(self) -> bool:
        before = self.turns()
        wait_for(lambda: self.turns() > before)
        return True

    def stands(self) -> bool:
        before = self.turns()
        time.sleep(0.2)
        # It may still have had to say the turn whose calls had come back.
        return self.turns() <= before + 1

    def finish(self) -> None:
        """It ends as it would have ended."""
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
        assert self.output.read_text().splitlines()[-1] == "same addresses 1"


# Whether the stand-in's driver has locked the process, or is about to: it waits for its calls.
IS_LOCKED = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
state = ctypes.c_int()
assert cuda.cuInit(0) == 0
sys.exit(cuda.cuCheckpointProcessGetState(int(sys.argv[1]), ctypes.byref(state)) != 0 or state.value != 1)
"""


def children(pid: int) -> list[int]:
    return list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def wait_for(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture
def machine(tmp_path):
    machine = Machine(tmp_path)
    yield machine
    machine.end()


def said_mib(text: str) -> int:
    return int(re.search(r"(\d+) MiB of device memory, in ", text).group(1))


# ---- there and back --------------------------------------------------------------------------


def test_all_memory_is_given_back_and_comes_again(machine):
    program = machine.start()
    yielded = machine.vramscope("yield", program.pid)
    assert yielded.returncode == 0, yielded.stderr
    assert LEAST <= said_mib(yielded.stdout) <= MOST
    assert yielded.stderr == f"vramscope: `vramscope resume {program.pid}` continues it\n"
    assert program.stands()
    assert machine.kept() == [f"yield-{program.pid}"]
    assert machine.refused("yield", program.pid).startswith(
        f"process {program.pid} (driver_steady) has yielded already: `vramscope resume {program.pid}`"
    )

    # Another one takes the memory: there is no way back until it has gone.
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


HUNGRY = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
while cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)) == 0:
    pass
print("taken", flush=True)
sys.stdin.read()
"""


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
    worst = re.search(r"residual at most (\S+) (\S+) ", info)
    assert worst and (worst.group(2) == "B" or abs(float(worst.group(1))) <= 4), info
    name = rf"process {program.pid} \(driver_steady\)"
    assert re.search(name + r" gave back \d+ MiB of device memory, in ", info), info
    assert re.search(name + r" has back \d+ MiB of device memory, in ", info), info


def test_the_state_is_kept_for_this_user_alone(machine):
    program = machine.start()
    assert machine.vramscope("yield", program.pid).returncode == 0
    folder = machine.state / "vramscope"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / f"yield-{program.pid}").stat().st_mode & 0o777 == 0o600
    # Without it nothing says how much room is needed.
    shutil.rmtree(folder)
    assert "was checkpointed by another program" in machine.refused("resume", program.pid)
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
    assert "(it is not recorded); --unverified yields it all the same: nothing was changed" in line
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
        r"the host has no room for the memory of process \d+ \(driver_steady\): [\d.]+ TiB are needed, "
        r"\S+ \S+ are free within (the host|the memory limit of its cgroup .*): nothing was changed$",
        line,
    ), line
    assert program.goes_on()
    program.finish()


def test_processes_that_cannot_be_asked(machine):
    gone = subprocess.Popen(["true"])
    gone.wait()
    for command in ("yield", "resume"):
        assert machine.refused(command, gone.pid) == f"there is no process {gone.pid}"
        for number in ("0", "-5", "x", "1.5", "99999999999", ""):
            assert machine.refused(command, number) == (
                f"PID: '{number}' is no number of a process: see `vramscope {command} --help`"
            )
        assert machine.refused(command).endswith(f"see `vramscope {command} --help`")
        plain = subprocess.Popen(["sleep", "30"])
        machine.programs.append(plain)
        assert machine.refused(command, plain.pid) == (
            f"process {plain.pid} (sleep) does not use CUDA: it has not loaded libcuda"
        )
        assert "started this command and would wait for itself" in machine.refused(command, os.getpid())
    for limit in ("-1", "0", "nan", "inf", "x"):
        assert machine.refused("yield", gone.pid, "--timeout", limit) == (
            f"--timeout: '{limit}' is no number of seconds from 0.001 to 86400: see `vramscope yield --help`"
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
        assert "the driver cannot checkpoint: that came with 570" in machine.refused(
            command, program.pid, LD_LIBRARY_PATH=str(old)
        )
        (tmp_path / "none").mkdir(exist_ok=True)
        (tmp_path / "none" / "libcuda.so.1").write_text("no library\n")
        assert "there is no NVIDIA driver here" in machine.refused(
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
        f"process {program.pid} (driver_steady) did not finish its work within 0.2 s: it goes on, and nothing was "
        "changed; --timeout gives it longer"
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
    assert last == "vramscope: interrupted: the process was unlocked and goes on as it was"
    assert machine.kept() == []
    assert program.goes_on()


def test_a_checkpoint_that_fails_is_undone(machine):
    program = machine.start()
    line = machine.refused("yield", program.pid, VRAMSCOPE_FAKE_FAIL="cuCheckpointProcessCheckpoint:1")
    assert line == (
        f"the driver does not checkpoint process {program.pid} (driver_steady): CUDA_ERROR_OUT_OF_MEMORY (2): "
        "the process was unlocked and goes on as it was"
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
    assert line.startswith(said.format(program.pid) + "the driver has given process")
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
    assert line.startswith("restoring failed with CUDA_ERROR_UNKNOWN (999), and the driver has given process")
    assert machine.kept() == []


def test_an_unlock_that_fails(machine):
    program = machine.start()
    assert machine.vramscope("yield", program.pid).returncode == 0
    assert machine.refused("resume", program.pid, VRAMSCOPE_FAKE_FAIL="cuCheckpointProcessUnlock:1") == (
        f"its memory is back, but the driver does not unlock process {program.pid} (driver_steady): "
        f"CUDA_ERROR_OUT_OF_MEMORY (2): `vramscope resume {program.pid}` tries again"
    )
    line = machine.refused("resume", program.pid, VRAMSCOPE_FAKE_BREAK="cuCheckpointProcessUnlock")
    assert line.startswith("unlocking failed with CUDA_ERROR_UNKNOWN (999), and the driver has given process")
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
        env={**machine.environment, "VRAMSCOPE_FAKE_DELAY_US": f"cuCheckpointProcess{step}:1500000"},
    )
    if command == "yield":
        machine.wait_until_locked(program)
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 0 and "of device memory, in " in output, errors
    assert errors.splitlines()[0] == (
        f"vramscope: the memory of process {program.pid} (driver_steady) is on its way, and cannot be stopped there: "
        "this ends when it has arrived"
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
    (state,) = (machine.state / "vramscope").glob("*")
    assert re.search(r"^device \d{9} GPU-", state.read_text(), re.MULTILINE)
    assert "is locked by a checkpoint that was not finished" in machine.refused("yield", program.pid)
    done = machine.vramscope("resume", program.pid)
    assert done.returncode == 0
    assert done.stderr.endswith("was locked and had its memory: it goes on\n")
    assert program.goes_on()


# ---- vramscope.yield_gpu() -------------------------------------------------------------------

PROGRAM = """
import ctypes, gc, os, sys, threading, time
import vramscope
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)) == 0
MIB = 1 << 20
{body}
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print("ended")
"""


def run_python(machine, body: str, record: bool, **extra: str) -> subprocess.CompletedProcess:
    folder = machine.directory / f"package-{record}-{len(body)}"
    environment = {**package.make(folder), **machine.environment, "PYTHONPATH": str(folder), **extra}
    script = machine.directory / "program.py"
    script.write_text(PROGRAM.format(body=textwrap.dedent(body)))
    command = [sys.executable, str(script)]
    if record:
        command = [str(VRAMSCOPE), "run", "--no-report", "-o", str(machine.directory / "p.vram"), "--", *command]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)


def test_a_process_yields_itself(machine):
    done = run_python(
        machine,
        """
        counter = threading.Thread(target=lambda: [cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
                                                   for _ in range(3) if not time.sleep(0.2)])
        with vramscope.yield_gpu() as away:
            assert away.bytes == 582 * MIB, away.bytes
            assert away.seconds > 0 and not gc.isenabled()
            counter.start()   # its calls wait, and go on
            time.sleep(0.3)
            assert counter.is_alive()
        counter.join()
        assert gc.isenabled()
        seen = []
        again = vramscope.yield_gpu(until=lambda: seen.append(1), timeout=5)
        assert seen == [1] and again.bytes == away.bytes
        try:
            with vramscope.yield_gpu():
                raise KeyError("theirs")
        except KeyError:
            pass
        """,
        record=True,
    )
    assert done.returncode == 0 and done.stdout == "ended\n", done.stderr


def test_a_process_that_cannot_yield_itself_goes_on(machine):
    body = """
        try:
            with vramscope.yield_gpu({arguments}):
                print("inside")
        except RuntimeError as error:
            print(error)
        assert gc.isenabled()
        """
    done = run_python(machine, body.format(arguments=""), record=False)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    assert "(it is not recorded)" in first and first.endswith("nothing was changed") and last == "ended"
    done = run_python(machine, body.format(arguments="unverified=True"), record=False)
    assert done.stdout == "inside\nended\n", done.stderr


def test_memory_that_somebody_else_has_is_waited_for(machine):
    hungry = machine.directory / "hungry.py"
    hungry.write_text(HUNGRY)
    done = run_python(
        machine,
        f"""
        import subprocess, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with vramscope.yield_gpu():
                taker = subprocess.Popen(
                    [sys.executable, {str(hungry)!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
                assert taker.stdout.readline() == b"taken\\n"
                def end_it():
                    while not caught: time.sleep(0.01)
                    taker.communicate(b"")
                threading.Thread(target=end_it).start()
        (warning,) = caught
        assert "has no room for process" in str(warning.message), warning
        """,
        record=True,
    )
    assert done.returncode == 0 and done.stdout == "ended\n", done.stderr


def test_ctrl_c_while_it_waits_for_room(machine):
    """It is over then; what brings the memory back is said."""
    hungry = machine.directory / "hungry.py"
    hungry.write_text(HUNGRY)
    done = run_python(
        machine,
        f"""
        import signal, subprocess, warnings
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with vramscope.yield_gpu():
                    taker = subprocess.Popen(
                        [sys.executable, {str(hungry)!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                    )
                    assert taker.stdout.readline() == b"taken\\n"
                    def interrupt():
                        while not caught: time.sleep(0.01)
                        os.kill(os.getpid(), signal.SIGINT)
                    threading.Thread(target=interrupt).start()
            except KeyboardInterrupt:
                print(*(str(w.message) for w in caught[1:]))
        taker.communicate(b"")
        words = [{str(VRAMSCOPE)!r}, "resume", "--of-parent", str(os.getpid())]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
        """,
        record=True,
    )
    assert done.returncode == 0, done.stderr
    told, last = done.stdout.splitlines()
    assert re.match(r"vramscope: interrupted: .* still on the host, .*: `vramscope resume \d+` brings it back$", told)
    assert last == "ended"


def test_wrong_arguments_move_nothing(machine):
    done = run_python(
        machine,
        """
        for arguments in ({"timeout": 0}, {"timeout": float("nan")}, {"timeout": "x"}, {"until": 3}):
            try:
                vramscope.yield_gpu(**arguments)
            except (TypeError, ValueError) as error:
                print(error)
        """,
        record=True,
    )
    zero, nan, text, until, last = done.stdout.splitlines()
    assert zero == "vramscope: timeout is a number of seconds from 0.001 to 86400, not 0"
    assert nan.endswith("not nan") and text.endswith("not 'x'")
    assert until == "vramscope: until is a function to call while the memory is away, not 3"
    assert last == "ended"


def test_ctrl_c_in_a_process_that_yields_itself(machine):
    done = run_python(
        machine,
        """
        import signal
        busy = threading.Thread(target=lambda: cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20)))
        busy.start()
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            with vramscope.yield_gpu():
                print("inside")
        except KeyboardInterrupt:
            print("interrupted")
        busy.join()
        """,
        record=True,
        VRAMSCOPE_FAKE_DELAY_US="cuMemAlloc_v2:1000000",
    )
    assert done.returncode == 0 and done.stdout == "interrupted\nended\n", done.stderr
