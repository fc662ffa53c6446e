# SPDX-License-Identifier: Apache-2.0
"""Recorded Python stacks beside what the interpreter says, frame by frame, in every Python that is at hand:
each version has a walk of its own, compiled with its offsets."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import losses, probe_environment, run_both
from places import DUMP, VRAMSCOPE

_HERE = filter(None, os.environ.get("VRAMSCOPE_TEST_PYTHONS", "").split(os.pathsep))
_PYENV = map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")))
PYTHONS = list(dict.fromkeys([sys.executable, *_HERE, *_PYENV]))
DEPTH_LIMIT = 256  # kMaxPythonDepth
SUPPORTED = (3, 9)

# Every block has a size of its own, by which its stack is found again.
PROGRAM = '''
import ctypes, functools, json, sys, threading
import _ctypes

try:
    _ctypes.dlopen("libtorch_lookalike.so", 1)  # there is none; the probe looks at the name
except OSError:
    pass
NAME = "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
reports = []
for library in (ctypes.PyDLL(None), ctypes.CDLL(None)):  # with the GIL, and without it
    report = library[NAME]
    report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16]
    reports.append(report)
expected = []


def block(*_):
    stack, frame = [], sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        stack.append([code.co_filename, name, code.co_firstlineno, frame.f_lasti])
        frame = frame.f_back
    for report in reports:
        expected.append(stack)
        size = len(expected)
        report(size << 20, size, 0, 0, 1)


def recursion(depth):
    return block() if depth == 0 else recursion(depth - 1)


def generator(levels):
    block()
    if levels:
        yield from generator(levels - 1)
    yield block()


class Callable:
    def __call__(self):
        block()

    @property
    def value(self):
        return block()

    def __lt__(self, other):
        return block()


async def coroutine(levels):
    block()
    if levels:
        await coroutine(levels - 1)
    block()


def two_lines_and_a_jump(n):
    for i in range(n):
        block()
        if i % 2:
            block(); block()


def c_functions_between():
    sorted([Callable(), Callable()])
    list(map(block, [1, 2]))
    functools.partial(functools.partial(recursion), 2)()
    [block() for _ in range(2)]
    max([1, 2], key=lambda _: block() or 0)
    Callable().value
    Callable()()


def code_objects_that_come_and_go():
    # Each is freed before the next is made, and mostly lies where that one lay.
    for i in range(60):
        source = "\\n" * (i % 7) + "def same(f):\\n" + " 0\\n" * (i % 5) + " f()\\n"
        names = {}
        exec(compile(source, "same.py", "exec"), names)
        names["same"](block)


def all_of_it():
    two_lines_and_a_jump(6)
    recursion(3)
    list(generator(2))
    try:
        coroutine(2).send(None)
    except StopIteration:
        pass
    c_functions_between()
    code_objects_that_come_and_go()


for _ in range(3):
    all_of_it()
thread = threading.Thread(target=all_of_it)
thread.start()
thread.join()
sys.setrecursionlimit(5000)
recursion(300)
print(json.dumps(expected))
'''


def version_of(python: str) -> tuple[int, ...]:
    command = [python, "-c", "import sys; print(*sys.version_info[:2])"]
    return tuple(map(int, subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()))


def name_of(python: str) -> str:
    return python.strip("/").replace("/", "_")


VERSIONS = {python: version_of(python) for python in PYTHONS}


@pytest.fixture(params=[python for python in PYTHONS if VERSIONS[python] >= SUPPORTED], ids=name_of)
def python(request) -> str:
    return request.param


def says_that_there_are_no_stacks(directory: Path) -> bool:
    info = subprocess.run([str(VRAMSCOPE), "info", str(directory)], capture_output=True, text=True, check=True).stdout
    return losses(directory)["PythonStacks"] == 1 and "off: this interpreter lacks" in info


def test_an_interpreter_without_what_the_walk_is_checked_with_is_a_named_loss(tmp_path):
    (recording,) = run_both("old_python", tmp_path)
    assert recording.counts["BlockAlloc"] == 1
    assert says_that_there_are_no_stacks(tmp_path)


@pytest.mark.parametrize("old", [p for p in PYTHONS if (3, 0) <= VERSIONS[p] < SUPPORTED], ids=name_of)
def test_an_older_python_is_a_named_loss(old, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run([old, str(file)], capture_output=True, text=True, env=probe_environment(tmp_path), check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert says_that_there_are_no_stacks(tmp_path)


def test_stacks_are_the_interpreters_own(python, tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    done = subprocess.run(
        [python, str(file)], capture_output=True, text=True, env=probe_environment(tmp_path, options=""), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = json.loads(done.stdout)
    (recording,) = tmp_path.glob("*.vrl")
    dump = subprocess.run([str(DUMP), str(recording)], capture_output=True, text=True, check=True)
    texts, codes, nodes, seen = {}, {}, {}, {}
    for record in map(json.loads, dump.stdout.splitlines()):
        key = (record.get("stream"), record.get("id"))
        kind = record.get("record")
        if kind == "String":
            texts[key] = record["text"]
        elif kind == "PyCode":
            codes[key] = record
        elif kind == "PyStack":
            nodes[key] = record
        elif kind == "BlockAlloc":
            seen[record["size"]] = (record["stream"], record["stack"])
    assert len(seen) == len(expected) > 500

    def stack_of(stream, node):
        while node != 0:
            record = nodes[stream, node]
            code = codes[stream, record["code"]]
            yield [texts[stream, code["file"]], texts[stream, code["name"]], code["first_line"], record["instruction"]]
            node = record["parent"]

    for number, stack in enumerate(expected, 1):
        recorded = list(stack_of(*seen[number]))
        assert recorded[0][1] == "block"
        assert recorded[1:] == stack[: DEPTH_LIMIT - 1], number
