# SPDX-License-Identifier: Apache-2.0
"""A machine with the stand-in driver, and processes on it that give their memory back."""
from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from live_file import LiveFile
from places import FAKE, HOSTS, VRAMSCOPE

# The fake driver's context, its 64 MiB, and the 4 MiB that are allocated and freed.
LEAST, MOST = 582, 586


class Machine:
    """One stand-in machine: its books, and programs on it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.books = directory / "books"
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(FAKE),
            "VRAMSCOPE_FAKE_BOOKS": str(self.books),
            "VRAMSCOPE_FAKE_TOTAL_MIB": "4096",
        }
        self.programs: list[subprocess.Popen] = []
        self.pids: list[int] = []

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

    def kept(self) -> list[Path]:
        """What `resume` would need: files in a directory of a random name that only this user can have made."""
        files = [Path("/tmp").glob(f"vramscope-yield-*/yield-{pid}") for pid in self.pids]
        return [path for found in files for path in found if path.parent.stat().st_uid == os.geteuid()]

    def end(self) -> None:
        for process in self.programs:
            if process.poll() is None:
                # The launcher's program would wait in a call for ever if the driver has lost it.
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
        machine.pids.append(self.pid)

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


# Whether the fake driver has locked the process, or is about to: it waits for its calls.
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


# Takes all that is free until its input ends.
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
