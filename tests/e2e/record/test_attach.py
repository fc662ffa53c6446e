# SPDX-License-Identifier: Apache-2.0
"""`vramscope attach`, `detach` and `dump`: processes that already run."""
from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import package
import pytest
from places import FAKE, HOSTS, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

# Its result depends on every step.
COUNT = """
import hashlib, select, sys
digest = hashlib.sha256()
def work():
    for i in range(int(sys.argv[1])):
        digest.update(repr((i, i / 7, {i: str(i)})).encode())
print("ready", flush=True)
work()
while not select.select([sys.stdin], [], [], 0.01)[0]: pass
work()
print(digest.hexdigest(), flush=True)
"""

# Trains twice from the same start; the second time nobody looks on.
TRAIN = """
import hashlib, select, sys
import torch
torch.set_num_threads(1)
def train(steps, going):
    torch.manual_seed(0)
    global model, optimizer
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(128), torch.nn.Linear(128, 8))
    optimizer = torch.optim.Adam(model.parameters())
    data, wanted = torch.randn(64, 64), torch.randint(0, 8, (64,))
    digest, count = hashlib.sha256(), 0
    while count < steps or going():
        count += 1
        loss = torch.nn.functional.cross_entropy(model(data), wanted)
        loss.backward()
        optimizer.step()
        digest.update(repr(loss.item()).encode())
        optimizer.zero_grad(set_to_none=False)
        if count == 3: print("ready", flush=True)
    return count, digest.hexdigest()
count, digest = train(3, lambda: not select.select([sys.stdin], [], [], 0)[0])
size = lambda tensors: sum(t.untyped_storage().nbytes() for t in tensors)
parameters = list(model.parameters())
state = [t for s in optimizer.state.values() for t in s.values() if torch.is_tensor(t)]
print(size(parameters), size([p.grad for p in parameters]), size(state), size(model.buffers()), flush=True)
sys.stdout = sys.stderr
print("same" if train(count, lambda: False) == (count, digest) else "different")
"""


@contextlib.contextmanager
def running(
    code: str, *arguments: str, env: dict[str, str] | None = None, python: str = sys.executable
) -> Iterator[subprocess.Popen]:
    """A Python program that has printed "ready"."""
    command = [python, "-c", code, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def vramscope(*words: object, **options: object) -> subprocess.CompletedProcess:
    command = [str(VRAMSCOPE), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, **options)  # type: ignore[call-overload]


def recorded(path: Path, *arguments: str) -> dict:
    done = vramscope("report", path, "--json", *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def result_of(code: str, *arguments: str) -> str:
    with running(code, *arguments) as process:
        return process.communicate("", timeout=120)[0]


def test_a_training_that_runs_already(tmp_path):
    """What it held before has its names; `dump` shows the same and leaves nothing; the losses are the same."""
    pytest.importorskip("torch")
    trace, temporary = tmp_path / "train.vram", tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    with running(TRAIN) as process:
        dumped = vramscope("dump", process.pid, "--json", env=environment, cwd=tmp_path)
        files = [os.readlink(f"/proc/{process.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{process.pid}/fd")]
        attached = vramscope("attach", process.pid, "--for", "500ms", "-o", trace, env=environment)
        # The training steps go on while a recording begins, also one after another.
        for number in range(8):
            again = tmp_path / "tmp" / f"{number}.vram"
            vramscope("attach", process.pid, "--for", "50ms", "-o", again, "--no-report")
        output, errors = process.communicate("", timeout=120)
    assert dumped.returncode == 0, dumped.stderr
    assert attached.returncode == 0, attached.stderr
    assert f"process {process.pid} (" in attached.stderr and "continues" in attached.stderr
    assert process.returncode == 0 and errors == "ready\nsame\n"
    assert not [name for name in files if ".vrl" in name]
    later = sorted(temporary.iterdir())
    assert [path.name for path in later] == [f"{number}.vram" for number in range(8)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tmp", "train.vram"]

    exact = dict(zip(("parameter", "gradient", "optimizer state", "buffer"), map(int, output.split())))
    held = ("--at", "end", "--by", "category,parameter")
    for found in [recorded(path, *held) for path in (trace, *later)]:
        for category, size in exact.items():
            # A recording can end within a step, with memory of that step alone, which has no name.
            rows = [row["bytes"] for row in found["rows"] if row["path"][0] == category and row["path"][1] != "(none)"]
            assert sum(rows) == size, category
        assert all(invariant["holds"] for invariant in found["invariants"])
    dump = json.loads(dumped.stdout)
    assert sum(row["bytes"] for row in dump["rows"] if "parameter" in row["path"]) == exact["parameter"]
    during = recorded(trace, "--at", "peak", "--by", "line")
    assert any("in train" in row["path"][-1] for row in during["rows"]), "what it allocates meanwhile has lines"


@pytest.mark.parametrize("how", ["detach", "interrupt", "end"])
def test_a_recording_ends(tmp_path, how):
    trace = tmp_path / "x.vram"
    with running(COUNT, "200000") as process:
        command = [str(VRAMSCOPE), "attach", str(process.pid), "-o", str(trace), "--no-report"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as attach:
            assert attach.stderr is not None and "recording process" in attach.stderr.readline()
            again = vramscope("attach", process.pid, "-o", tmp_path / "y.vram")
            assert again.returncode == 2 and "is recorded already" in again.stderr
            if how == "detach":
                assert vramscope("detach", process.pid).returncode == 0
            elif how == "interrupt":
                attach.send_signal(signal.SIGINT)
            else:
                process.communicate("", timeout=60)
            said = attach.communicate(timeout=60)[1]
        assert attach.returncode == 0 and trace.exists(), said
        assert ("continues" in said) == (how != "end")
        assert (", detached at " in vramscope("info", trace).stdout) == (how != "end")
        output = "" if how == "end" else process.communicate("", timeout=60)[0]
    assert how == "end" or output == result_of(COUNT, "200000")
    assert [path.name for path in tmp_path.iterdir()] == ["x.vram"]


def test_many_attaches_leave_no_trace_in_the_process(tmp_path):
    with running(COUNT, "1000") as process:
        def state() -> tuple[int, int, int]:
            status = Path(f"/proc/{process.pid}/status").read_text()
            resident = int(status.split("VmRSS:")[1].split()[0])
            return resident, len(os.listdir(f"/proc/{process.pid}/fd")), len(os.listdir(f"/proc/{process.pid}/task"))

        states = []
        for _ in range(12):
            with subprocess.Popen(
                [str(VRAMSCOPE), "attach", str(process.pid), "--for", "1ms", "-o", str(tmp_path / "x.vram"), "--no-report"],
                stderr=subprocess.PIPE,
                text=True,
            ) as attach:
                said = attach.communicate(timeout=60)[1]
            assert attach.returncode == 0, said
            states.append(state())
        output = process.communicate("", timeout=60)[0]
    assert output == result_of(COUNT, "1000")
    assert {(files, threads) for _, files, threads in states} == {states[0][1:]}
    assert states[-1][0] - states[3][0] <= 256, "KiB of resident memory"


# Makes, moves and frees objects that the garbage collector knows, while another thread looks through them.
CHURN = """
import gc, select, sys, threading, time
import torch
torch.set_num_threads(1)
models = [torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(4)]) for _ in range(40)]
gc.freeze()
models += [torch.nn.Linear(16, 16) for _ in range(40)]
print(sum(p.untyped_storage().nbytes() for model in models for p in model.parameters()), file=sys.stderr, flush=True)
going = True
def churn():
    while going:
        kept = [[(i,), {i: [i]}] for i in range(1000)]
        for entry in kept: entry.append(entry)
        time.sleep(0.001)
        models[-1].other = torch.nn.Identity(); del models[-1].other
threads = [threading.Thread(target=churn) for _ in range(2)]
for thread in threads: thread.start()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.001)[0]:
    if sys.argv[1] == "collects": gc.collect()
    if sys.argv[1] == "freezes": gc.freeze()
going = False
for thread in threads: thread.join()
while threading.active_count() > 1: time.sleep(0.001)
print(gc.isenabled(), gc.get_threshold(), sys.getswitchinterval())
"""


@pytest.mark.parametrize("main", ["waits", "collects", "freezes"])
def test_models_are_found_while_objects_come_and_go(tmp_path, main):
    """Also those that gc.freeze() keeps from the collector."""
    pytest.importorskip("torch")
    with running(CHURN, main) as process:
        for n in range(2):
            done = vramscope("attach", process.pid, "--for", "10ms", "-o", tmp_path / f"{n}.vram", "--no-report")
            assert done.returncode == 0, done.stderr
        output, errors = process.communicate("", timeout=120)
    assert output == f"True {gc.get_threshold()} {sys.getswitchinterval()}\n"
    for n in range(2):
        found = recorded(tmp_path / f"{n}.vram", "--by", "category")
        assert sum(row["bytes"] for row in found["rows"] if row["path"] == ["parameter"]) == int(errors)


MARKS = """
import select, sys, time
import torch
import vramscope
print("ready", flush=True)
step = 0
while not select.select([sys.stdin], [], [], 0.002)[0]:
    work = [torch.zeros(64, 64) for _ in range(8)]
    step += 1
    vramscope.mark(f"iteration {step}")
print("ended", flush=True)
"""


def test_the_programs_own_marks_count_and_options_hold(tmp_path):
    """The program imports the package; the recording is a ring, has native stacks and a page, and ends by its steps."""
    pytest.importorskip("torch")
    place = tmp_path / "package"
    place.mkdir()
    trace, page = tmp_path / "x.vram", tmp_path / "x.html"
    with running(MARKS, env=package.make(place)) as process:
        options = ("--steps", "30", "--ring", "16M", "--native", "--html", page, "-o", trace)
        attached = vramscope("attach", process.pid, *options)
        assert process.communicate("", timeout=60) == ("ended\n", "")
    assert attached.returncode == 0, attached.stderr
    counted = json.loads(vramscope("iterations", trace, "--json").stdout)["iterations"]
    assert 30 <= len(counted) < 3000, attached.stderr
    assert "</html>" in page.read_text()
    info = vramscope("info", trace).stdout
    assert "ring=16777216" in info and "native" in info
    assert recorded(trace, "--at", "peak", "--by", "line")["rows"]


def test_python_that_begins_or_ends(tmp_path):
    """At any moment of its life, the process does what it would have done."""
    for delay_ms in range(0, 60, 3):
        command = [sys.executable, "-c", "import json, time; time.sleep(0.02); print(json.dumps([1, 2]))"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            time.sleep(delay_ms / 1000)
            vramscope("attach", process.pid, "--for", "1ms", "--timeout", "1s", "--no-report", cwd=tmp_path)
            output, errors = process.communicate(timeout=60)
        assert (process.returncode, output, errors) == (0, "[1, 2]\n", ""), delay_ms


REFUSED = {
    "no process": ("999999999", "process 999999999 does not exist"),
    "not a number": ("x", "PID"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_a_wrong_number_is_refused(tmp_path, case):
    word, text = REFUSED[case]
    done = vramscope("attach", word, cwd=tmp_path)
    assert done.returncode == 2 and text in done.stderr
    assert len(done.stderr.splitlines()) == 1 and list(tmp_path.iterdir()) == []


def test_processes_that_cannot_be_attached_to_are_refused(tmp_path):
    def refused(pid: int) -> str:
        done = vramscope("attach", pid, "--timeout", "300ms", cwd=tmp_path)
        assert done.returncode == 2 and list(tmp_path.iterdir()) == []
        return done.stderr

    with subprocess.Popen(["sleep", "60"]) as other:
        assert f"process {other.pid} (sleep) runs no Python and has not loaded the CUDA driver" in refused(other.pid)
        other.kill()
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        assert "has ended" in refused(other.pid)
    with running(COUNT, "10") as process:
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
        assert f"is stopped: continue it with `kill -CONT {process.pid}`" in refused(process.pid)
        process.send_signal(signal.SIGCONT)
        assert process.communicate("", timeout=60)[0] == result_of(COUNT, "10")


def interpreters() -> list[str]:
    """One of each version of CPython at hand."""
    found = {}
    others = [*map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python"))), shutil.which("python3.14")]
    for python in [sys.executable, *filter(None, others)]:
        asked = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True, timeout=60)
        if asked.returncode == 0:
            found[int(asked.stdout)] = python
    return [found[minor] for minor in sorted(found)]


@pytest.mark.parametrize("python", interpreters())
@pytest.mark.parametrize("main", ["busy", "waiting"])
def test_every_python(tmp_path, python, main):
    """It is recorded, or its version is refused at once, and it does what it would have done."""
    rest = ("import threading\n" if main == "waiting" else "") + COUNT
    number = "200" if main == "waiting" else "400000"
    minor = int(subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True).stdout)
    with running(rest, number, python=python) as process:
        for words in (("attach", process.pid, "--for", "20ms", "-o", tmp_path / "x.vram"), ("dump", process.pid, "--holders")):
            began = time.monotonic()
            done = vramscope(*words)
            if minor >= 9:
                assert done.returncode == 0, done.stderr
            else:
                assert done.returncode == 2 and "runs Python older than 3.9" in done.stderr
                assert time.monotonic() - began < 10
        output, errors = process.communicate("", timeout=60)
    with running(rest, number, python=python) as process:
        assert (output, errors) == (process.communicate("", timeout=60)[0], "")


IDLE = {
    "sleep": "time.sleep(4)",
    "input": "print(input())",
    "join": "t = threading.Thread(target=time.sleep, args=(4,)); t.start(); t.join()",
    "queue": "q = queue.Queue(); threading.Timer(4, q.put, (5,)).start(); print(q.get())",
    "poll": "print(select.select([], [], [], 4))",
    "events": "asyncio.run(asyncio.sleep(4))",
    "child": "print(subprocess.run(['sleep', '4']).returncode)",
    "signal": "threading.Timer(4, os.kill, (os.getpid(), 10)).start(); print(signal.sigwait([10]))",
}


def test_a_process_whose_main_thread_waits(tmp_path):
    """It is recorded at once, its calls return what they would have returned, and it waits no longer."""
    program = """
import asyncio, os, queue, select, signal, subprocess, sys, threading, time
signal.pthread_sigmask(signal.SIG_BLOCK, [10])
print("ready", flush=True)
began = time.monotonic()
CALL
print(time.monotonic() - began < 5.5, flush=True)
"""
    with contextlib.ExitStack() as stack:
        programs = {name: stack.enter_context(running(program.replace("CALL", call))) for name, call in IDLE.items()}
        attaches = {}
        for name, process in programs.items():
            trace = str(tmp_path / f"{name}.vram")
            command = [str(VRAMSCOPE), "attach", str(process.pid), "--for", "2s", "--no-report", "-o", trace]
            attaches[name] = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        for name, attach in attaches.items():
            errors = attach.communicate(timeout=60)[1]
            assert attach.returncode == 0 and "recording process" in errors, (name, errors)
        said = {name: process.communicate("text\n", timeout=60) for name, process in programs.items()}
    assert {path.name for path in tmp_path.iterdir()} == {f"{name}.vram" for name in IDLE}
    results = {"input": "text\n", "queue": "5\n", "poll": "([], [], [])\n", "child": "0\n", "signal": "10\n"}
    assert said == {name: (results.get(name, "") + "True\n", "") for name in IDLE}


@pytest.mark.parametrize("call", ["time.sleep(3.5)", "import ctypes, threading; ctypes.PyDLL(None).usleep(3500000)"])
def test_a_process_that_executes_no_python_is_waited_for(tmp_path, call):
    """Without `threading`, or while it holds the interpreter's lock, no thread can do the work."""
    code = f"import time, sys\nprint('ready', flush=True)\n{call}\nprint('done', flush=True)\n"
    with running(code) as process:
        began = time.monotonic()
        done = vramscope("attach", process.pid, "--timeout", "1500ms", "-o", tmp_path / "x.vram", cwd=tmp_path)
        assert time.monotonic() - began < 3
        assert done.returncode == 2 and "executes no Python at the moment" in done.stderr
        assert "is busy in a call outside of Python for 1500ms" in done.stderr and list(tmp_path.iterdir()) == []
        assert process.communicate(timeout=60) == ("done\n", "")
        assert process.returncode == 0


def test_a_program_without_python(tmp_path):
    """Its driver's allocations count from then on, those of before are one row, and it does the same as ever."""
    machine = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    trace, whole = tmp_path / "x.vram", tmp_path / "whole.vram"
    with subprocess.Popen(
        [str(HOSTS / "driver_steady")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=machine
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        try:
            dumped = vramscope("dump", process.pid, "--json", env=machine)
            for _ in range(3):
                attached = vramscope("attach", process.pid, "--for", "300ms", "-o", trace, "--no-report", env=machine)
                assert attached.returncode == 0 and "continues" in attached.stderr
            threads = len(os.listdir(f"/proc/{process.pid}/task"))
            command = [str(VRAMSCOPE), "attach", str(process.pid), "--no-report", "-o", str(whole)]
            with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=machine) as attach:
                assert attach.stderr is not None and "recording process" in attach.stderr.readline()
                time.sleep(0.5)  # NVML's figure
                output = process.communicate("", timeout=60)[0]
                assert attach.wait(60) == 0
        finally:
            process.kill()
    assert process.returncode == 0 and "same addresses" in output and threads == 1
    assert dumped.returncode == 0, dumped.stderr
    before = [row["bytes"] for row in json.loads(dumped.stdout)["rows"] if "before recording" in row["path"]]
    assert sum(before) > 64 << 20, "what it holds, and its context"
    # It frees 64 MiB from before at its end.
    ended = recorded(whole, "--timeline", "400")
    assert not ended["losses"] and all(invariant["holds"] for invariant in ended["invariants"])
    for at, expected in (("peak", 4 << 20), ("end", None)):
        found = recorded(trace, "--at", at, "--by", "line")
        assert all(invariant["holds"] for invariant in found["invariants"]) and not found["losses"]
        lines = {row["path"][-1]: row["bytes"] for row in found["rows"]}
        assert expected is None or [size for line, size in lines.items() if "driver_steady.cc" in line] == [expected]
