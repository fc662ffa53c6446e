# SPDX-License-Identifier: Apache-2.0
"""`vramscope.yield_gpu()` on the stand-in driver."""
from __future__ import annotations

import re
import subprocess
import sys
import textwrap

import package
import pytest
from places import FAKE, VRAMSCOPE
from yield_machine import HUNGRY, machine  # noqa: F401

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


PROGRAM = """
import ctypes, gc, os, signal, subprocess, sys, threading, time, warnings
import vramscope
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
free, total = ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(64 << 20)) == 0
MIB = 1 << 20
def take_all():
    # Another program, which holds all free memory until its input ends.
    taker = subprocess.Popen([sys.executable, "-c", {hungry!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert taker.stdout.readline() == b"taken\\n"
    return taker
{body}
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print("ended")
"""


def run_python(machine, body: str, record: bool, **extra: str) -> subprocess.CompletedProcess:
    folder = machine.directory / f"package-{record}-{len(body)}"
    environment = {**package.make(folder), **machine.environment, "PYTHONPATH": str(folder), **extra}
    script = machine.directory / "program.py"
    script.write_text(PROGRAM.format(hungry=HUNGRY, body=textwrap.dedent(body)))
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
            counter.start()   # its calls wait and then continue
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
    done = run_python(
        machine,
        """
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with vramscope.yield_gpu():
                taker = take_all()
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
    done = run_python(
        machine,
        f"""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                with vramscope.yield_gpu():
                    taker = take_all()
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
    assert zero == "vramscope: timeout is 0: use seconds from 0.001 to 86400"
    assert nan.startswith("vramscope: timeout is nan: ") and text.startswith("vramscope: timeout is 'x': ")
    assert until == "vramscope: until is 3: use a function; it is called while the memory is away"
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
