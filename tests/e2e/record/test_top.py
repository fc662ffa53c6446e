# SPDX-License-Identifier: Apache-2.0
"""`vramscope top`: the screen in a pseudo terminal, its keys, and what --once and --json print."""
from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Sequence

import pytest
from places import FAKE, MIB, ROOT, VRAMSCOPE

PROGRAMS = ROOT / "tests" / "e2e" / "programs"
ESCAPE = re.compile(r"\x1b\[\??([\d;]*)([A-Za-z])")

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the fake driver is not built")


@pytest.fixture(scope="module")
def machine(tmp_path_factory) -> Dict[str, str]:
    books = tmp_path_factory.mktemp("machine") / "books"
    fake = {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(books), "LANG": "C.UTF-8", "TERM": "xterm"}
    return {**os.environ, **fake}


@contextlib.contextmanager
def holder(machine: Dict[str, str], *command: object) -> Iterator[subprocess.Popen]:
    """A program with 64 MiB on the GPU, under `command`."""
    line = [str(word) for word in (*command, sys.executable, PROGRAMS / "gpu_holder.py")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(line, env=machine, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.communicate("", timeout=60)


def recorded(machine: Dict[str, str], file: Path):
    return holder(machine, VRAMSCOPE, "run", "--no-report", "-o", file, "--")


def run(machine: Dict[str, str], *words: object, status: int = 0) -> subprocess.CompletedProcess:
    command = [str(word) for word in (VRAMSCOPE, *words)]
    done = subprocess.run(command, env=machine, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == status, (done.stdout, done.stderr)
    return done


class Screen:
    """`vramscope top` in a terminal, and what the terminal shows."""

    def __init__(self, machine: Dict[str, str], words: Sequence[object], columns: int, rows: int, folder: Path = ROOT):
        self.master, slave = pty.openpty()
        self.lines: List[str] = []
        self.rows = rows
        self.raw = ""
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [str(word) for word in (VRAMSCOPE, "top", *words)], env=machine, cwd=folder,
            stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def read(self, seconds: float = 0.1) -> None:
        while select.select([self.master], [], [], seconds)[0]:
            self.raw += os.read(self.master, 65536).decode()
        text = self.raw[self.raw.rfind("\x1b[2J") + 1:]
        shown: Dict[int, str] = {}
        for row, line in re.findall(r"\x1b\[(\d+);1H\x1b\[2K((?:(?!\x1b\[\d+;1H|\x1b\[\?).)*)", text, re.DOTALL):
            shown[int(row)] = ESCAPE.sub("", line)
        self.lines = [shown.get(row + 1, "") for row in range(max(shown, default=0))]

    def until(self, condition: Callable[[str], object], seconds: float = 20) -> str:
        deadline = time.monotonic() + seconds
        while True:
            self.read()
            text = "\n".join(self.lines)
            if condition(text):
                return text
            assert time.monotonic() < deadline, text
            assert self.process.poll() is None, self.raw

    def close(self) -> int:
        """The exit status; the terminal is as it was."""
        try:
            status = self.process.wait(20)
            self.read()
            assert termios.tcgetattr(self.slave) == self.modes
            assert self.raw.rfind("\x1b[?1049l") > self.raw.rfind("\x1b[?1049h")
            return status
        finally:
            os.close(self.slave)
            os.close(self.master)


@contextlib.contextmanager
def top(machine: Dict[str, str], *words: object, end: str = "q", folder: Path = ROOT) -> Iterator[Screen]:
    screen = Screen(machine, words, 80, 24, folder)
    try:
        yield screen
        screen.type(end)
        assert screen.close() == 0
    finally:
        screen.process.kill()
        screen.process.wait()


def test_json_has_the_figures_of_the_report_and_of_nvml(machine, tmp_path):
    live = tmp_path / "x.vram.d"
    with recorded(machine, tmp_path / "x.vram"), holder(machine) as other:
        # NVML's figure of the process, which splits the context's cost, is read now and then.
        deadline = time.monotonic() + 30
        while "RM-internal" not in run(machine, "report", live, "--at", "end", "--json").stdout:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        shown = json.loads(run(machine, "top", "--json").stdout)
        (row,) = [process for process in shown["processes"] if process.get("recording") == str(live)]
        words = ("report", live, "--at", "end", "--where", f"process={row['pid']}", "--json")
        report = json.loads(run(machine, *words).stdout)
        only = json.loads(run(machine, "top", live, "--json", "--once").stdout)
        of_pid = json.loads(run(machine, "top", other.pid, "--json").stdout)
    (gpu,) = [gpu for gpu in shown["gpus"] if gpu["used_bytes"]]
    mine = {process["pid"]: process for process in shown["processes"]}
    assert row["device"] == str(gpu["index"]) and row["nvml_bytes"] == row["bytes"]
    # NVML counts what the kernel module keeps for a process in the GPU's figure alone.
    of_module = sum(part["bytes"] for part in report["rows"] if "RM-internal" in part["path"])
    assert row["ledger_bytes"] == row["nvml_bytes"] + of_module
    categories = {one["category"]: one["bytes"] for one in report["categories"]}
    assert {one["category"]: one["bytes"] for one in row["categories"]} == categories
    assert sum(categories.values()) == row["ledger_bytes"]
    assert [(one["line"], one["bytes"], one["count"]) for one in row["lines"]] == [
        (one["line"], one["bytes"], one["count"]) for one in report["top_lines"]
    ]
    assert not mine[other.pid]["recorded"] and mine[other.pid]["nvml_bytes"] >= 64 * MIB
    assert [process["pid"] for process in only["processes"]] == [row["pid"]]
    assert [process["pid"] for process in of_pid["processes"]] == [other.pid]
    assert of_pid["notes"] == []


def test_once_is_plain_text(machine, tmp_path):
    with recorded(machine, tmp_path / "x.vram"):
        # Without a terminal --once is the default.
        for words in (["--once"], []):
            text = run(machine, "top", *words).stdout
            assert "\x1b" not in text and "q quit" not in text
            assert max(len(line) for line in text.splitlines()) <= 80
            assert re.search(r"GPU 0 .* MiB / .* GiB", text)
            assert re.search(r"\d+ \S+ +0 +\d+ MiB +- yes python", text)
            assert re.search(r"64\.0 MiB  gpu_holder.py:19 in allocate", text)


def test_a_live_screen_sorts_selects_resizes_and_quits(machine, tmp_path):
    with recorded(machine, tmp_path / "x.vram"), holder(machine) as other, top(machine) as screen:
        text = screen.until(lambda text: "gpu_holder.py:19" in text)
        assert len(screen.lines) == 24 and "MEMORY*" in text
        pids = [int(pid) for pid in re.findall(r"^[> ] +(\d+) \S+ +0 ", text, re.MULTILINE)]
        assert other.pid in pids and len(pids) >= 2
        screen.type("p")
        text = screen.until(lambda text: "PID*" in text)
        listed = [int(pid) for pid in re.findall(r"^[> ] +(\d+) \S+ +0 ", text, re.MULTILINE)]
        assert listed == sorted(pids)
        for key, heading in (("g", "GROWTH/MIN*"), ("n", "COMMAND*"), ("b", "MEMORY*")):
            screen.type(key)
            screen.until(lambda text, heading=heading: heading in text)
        # To the process that is not recorded, and alone. Other recordings of this machine may be there, too.
        screen.type("\x1b[A" * 50)
        screen.until(lambda text: re.search(r"\*[^\n]*COMMAND *\n>", text))
        while f"> {other.pid:>7}" not in screen.until(lambda text: "MEMORY*" in text):
            screen.type("\x1b[B")
        screen.until(lambda text: f"{other.pid} python" in text and "Not recorded" in text)
        screen.type("\r")
        screen.until(lambda text: "Esc back" in text and "USER" not in text)
        screen.type("\x1b")
        screen.until(lambda text: "USER" in text)
        screen.type("?")
        screen.until(lambda text: "select a process" in text)
        screen.type("x")
        screen.until(lambda text: "select a process" not in text)
        screen.resize(160, 40)
        text = screen.until(lambda text: len(screen.lines) == 40)
        assert max(len(line) for line in screen.lines) > 100


@pytest.mark.parametrize("end", ["\x03", "q"])
def test_a_terminal_is_as_it_was(machine, end):
    with top(machine, end=end) as screen:
        screen.until(lambda text: "vramscope top" in text)


def test_a_terminal_that_goes_away_ends_it(machine):
    screen = Screen(machine, [], 80, 24)
    screen.until(lambda text: "vramscope top" in text)
    os.close(screen.slave)
    os.close(screen.master)
    assert screen.process.wait(20) == 0


def test_a_suspended_screen_gives_the_terminal_back(machine):
    with top(machine) as screen:
        screen.until(lambda text: "vramscope top" in text)
        screen.type("\x1a")
        _, status = os.waitpid(screen.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status) and termios.tcgetattr(screen.slave) == screen.modes
        screen.read()
        assert screen.raw.endswith("\x1b[?1049l")
        screen.raw = ""
        screen.process.send_signal(signal.SIGCONT)
        screen.until(lambda text: "vramscope top" in text)


def test_a_process_that_ends_is_shown_for_some_seconds(machine):
    with contextlib.ExitStack() as stack:
        with holder(machine) as process:
            screen = stack.enter_context(top(machine, process.pid, "--interval", "200ms"))
            screen.until(lambda text: f"> {process.pid:>7}" in text)
        screen.until(lambda text: re.search(rf"> {process.pid:>7} .* ended ", text))
        screen.until(lambda text: f"> {process.pid:>7}" not in text and "has ended" in text)


def test_without_nvml_recordings_are_shown(machine, tmp_path):
    live = tmp_path / "x.vram.d"
    with recorded(machine, tmp_path / "x.vram"):
        text = run({**machine, "VRAMSCOPE_FAKE_NVML_ERROR": "9"}, "top", live).stdout
    assert "No NVML: NVML does not start: Driver Not Loaded" in text
    assert re.search(r"64\.0 MiB  gpu_holder.py:19", text)


def test_a_key_attaches_and_detaches(machine, tmp_path):
    wait = "import sys, time\nprint('ready', flush=True)\nwhile not time.sleep(0.01): pass"
    environment = {**machine, "PYTHONPATH": str(ROOT / "python")}
    with subprocess.Popen([sys.executable, "-c", wait], stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout and process.stdout.readline() == "ready\n"
            with top(environment, process.pid, folder=tmp_path) as screen:
                screen.until(lambda text: "Not recorded" in text)
                screen.type("a")
                screen.until(lambda text: f"recording process {process.pid}" in text, 60)
                (live,) = tmp_path.glob("*.vram.d")
                screen.until(lambda text: f"{live.name}: no memory yet" in text)
                screen.type("a")
                screen.until(lambda text: f"\npython-{process.pid}.vram (" in text, 60)
                file = tmp_path / f"python-{process.pid}.vram"
                assert file.exists() and not live.exists()
                file.unlink()
                while not live.exists():  # until the first `vramscope attach` is over, the key ends that one
                    screen.type("a")
                    time.sleep(1)
                    screen.read()
                screen.until(lambda text: f"recording process {process.pid}" in text, 60)
            # The end of the screen ends the recording, too.
            assert file.exists() and not live.exists() and f"python-{process.pid}.vram" in screen.raw
            assert process.poll() is None
        finally:
            process.kill()


def test_colours_only_where_they_are_wanted(machine):
    with top(machine) as screen:
        screen.until(lambda text: "vramscope top" in text)
        assert "\x1b[1m" in screen.raw
    with top({**machine, "NO_COLOR": "1"}) as screen:
        screen.until(lambda text: "vramscope top" in text)
        assert not re.search(r"\x1b\[[\d;]*m", screen.raw)


@pytest.mark.parametrize(
    "words, message",
    [
        (["99999999"], "process 99999999 does not exist"),
        (["no-such"], "no live recording is named no-such"),
        (["{folder}"], "contains no live recording"),
        (["--interval", "1us"], "--interval 1us: use a time from"),
    ],
)
def test_bad_input_is_one_line(machine, tmp_path, words, message):
    done = run(machine, "top", *[word.format(folder=tmp_path) for word in words], status=2)
    assert done.stderr.count("\n") == 1 and message in done.stderr, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_a_recording_of_another_user_is_one_line(machine):
    with tempfile.TemporaryDirectory() as folder, recorded(machine, Path(folder) / "x.vram"):
        live = Path(folder) / "x.vram.d"
        os.chmod(folder, 0o755)
        (pid,) = [row["pid"] for row in json.loads(run(machine, "top", live, "--json").stdout)["processes"]]
        as_nobody = ["setpriv", "--reuid=65534", "--clear-groups", str(VRAMSCOPE), "top", "--once"]
        for what, message in ((str(live), "belongs to another user"), (str(pid), f"process {pid} (python")):
            done = subprocess.run([*as_nobody, what], env=machine, capture_output=True, text=True, timeout=60)
            (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "another user" in line]
            assert message in line


def test_growth_is_by_iteration(machine, tmp_path):
    pytest.importorskip("torch")
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**machine, "PYTHONPATH": str(ROOT / "python")}
    line = [str(word) for word in (*command, PROGRAMS / "cpu_training.py")]
    with subprocess.Popen(line, env=environment, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "ready\n"
        shown = json.loads(run(machine, "top", tmp_path / "x.vram.d", "--json").stdout)
        process.communicate("", timeout=60)
    (row,) = shown["processes"]
    growth = {one["category"]: one["growth_bytes_per_minute"] for one in row["categories"]}
    assert row["device"] == "cpu" and growth["parameter"] == 0
    # 1 MiB in each of its ten iterations, which were all in the last minute.
    assert MIB < growth["input"] == row["growth_bytes_per_minute"]


# Allocates and frees on three threads, in steps that a line of the input asks for.
STEPS = """
import ctypes, random, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
cuda.cuMemFree_v2.argtypes = [ctypes.c_uint64]
def allocate(size):
    address = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size)) == 0
    return address.value
def some(number, step):
    assert cuda.cuCtxSetCurrent(context) == 0
    dice = random.Random(100 * step + number)
    for _ in range(3000):
        held = all_held[number]
        if len(held) > 50 and dice.random() < 0.6:
            cuda.cuMemFree_v2(held.pop(dice.randrange(len(held))))
        elif number == 0: held.append(allocate(dice.randrange(1, 1 << 20)))
        else: held.append(allocate(dice.randrange(1, 1 << 14)))
all_held = [[], [], []]
for step, _ in enumerate(sys.stdin):
    threads = [threading.Thread(target=some, args=(number, step)) for number in range(3)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print("ready", flush=True)
"""


def test_a_followed_recording_has_the_figures_of_the_report(machine, tmp_path):
    """What `vramscope follow` gives `top` while a recording grows, to the byte."""
    live, tables = tmp_path / "x.vram.d", tmp_path / "followed.vram"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    run_it = [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, "-c", STEPS]
    with subprocess.Popen([str(word) for word in run_it], env=machine, **pipes) as program:  # type: ignore[call-overload]
        program.stdin.write(b"\n")
        assert program.stdout.readline() == b"ready\n"
        with tables.open("w+b") as file, subprocess.Popen(
            [str(VRAMSCOPE), "follow", str(live)], env=machine, stderr=file, **pipes  # type: ignore[call-overload]
        ) as follower:
            for step in range(6):
                (spent_ns,) = struct.unpack("q", follower.stdout.read(8))
                assert spent_ns > 0
                words = ("--at", "end", "--by", "process,category,line", "--where", "category=unknown", "--json")
                followed, whole = (
                    [(row["path"], row["bytes"], row["count"]) for row in json.loads(done.stdout)["rows"]]
                    for done in (run(machine, "report", path, *words) for path in (tables, live))
                )
                assert followed == whole and sum(count for _, _, count in whole) > 100, step
                if step == 3:
                    follower.stdin.write(b"?")  # nothing new
                    follower.stdout.read(8)
                program.stdin.write(b"\n")
                assert program.stdout.readline() == b"ready\n"
                follower.stdin.write(b"?")
            follower.stdin.close()
        program.stdin.close()
        assert program.wait(60) == 0
