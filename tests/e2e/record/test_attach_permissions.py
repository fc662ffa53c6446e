# SPDX-License-Identifier: Apache-2.0
"""`vramscope attach`: whom it may attach to, and one line that says what to do where it may not."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import VRAMSCOPE
from test_attach import COUNT, recorded, result_of, running, vramscope

USER = 65534
PYTHON = os.path.realpath(sys.executable)
AS_USER = {"user": USER, "group": USER, "extra_groups": []}


def is_usable_by_others() -> bool:
    if os.geteuid() != 0:
        return False
    done = subprocess.run([str(VRAMSCOPE), "--version"], capture_output=True, check=False, **AS_USER)
    return done.returncode == 0


pytestmark = [
    pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built"),
    pytest.mark.skipif(not VRAMSCOPE.exists() or not is_usable_by_others(), reason="not root, or a private folder"),
]

BECOME = f"import os; os.setgroups([]); os.setgid({USER}); os.setuid({USER})\n"
DUMPABLE = "import ctypes; ctypes.CDLL(None).prctl(4, {})\n"


@pytest.fixture
def place(tmp_path):
    for folder in (tmp_path, *tmp_path.parents):
        if folder.owner() == "root" and folder != Path("/") and folder != Path("/tmp"):
            folder.chmod(0o755)
    own = tmp_path / "own"
    own.mkdir()
    os.chown(own, USER, USER)
    return own


@pytest.mark.parametrize("who", ["itself", "root"])
def test_a_process_of_an_unprivileged_user(place, who):
    """Its user may attach, and root, who gets a recording of that user."""
    trace = place / "x.vram"
    identity = AS_USER if who == "itself" else {}
    with running(BECOME + DUMPABLE.format(1) + COUNT, "20000", python=PYTHON) as process:
        for options in (("attach", process.pid, "--for", "100ms", "-o", trace, "--no-report"), ("dump", process.pid)):
            done = vramscope(*options, cwd=place, **identity)
            assert done.returncode == 0, done.stderr
        output = process.communicate("", timeout=60)[0]
    assert output == result_of(COUNT, "20000")
    assert [(path.name, path.stat().st_uid) for path in place.iterdir()] == [("x.vram", USER)]
    assert recorded(trace)["schema"] == "vramscope.report/1"


def test_root_detaches_from_a_process_of_another_user(place):
    with running(BECOME + DUMPABLE.format(1) + COUNT, "20000", python=PYTHON) as process:
        command = [str(VRAMSCOPE), "attach", str(process.pid), "-o", str(place / "x.vram"), "--no-report"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as attach:
            try:
                assert attach.stderr is not None and "recording process" in attach.stderr.readline()
                done = vramscope("detach", process.pid)
                assert done.returncode == 0, done.stderr
                assert attach.wait(60) == 0
            finally:
                attach.kill()
        assert process.communicate("", timeout=60)[0] == result_of(COUNT, "20000")


# Denies mmap with PROT_EXEC: a filter of seccomp(2), for x86-64.
NO_CODE = """
import ctypes, struct
def line(code, yes, no, value): return struct.pack("HBBI", code, yes, no, value)
filter = b"".join([line(0x20, 0, 0, 0), line(0x15, 0, 3, 9), line(0x20, 0, 0, 32), line(0x45, 0, 1, 4),
                   line(0x06, 0, 0, 0x00050001), line(0x06, 0, 0, 0x7fff0000)])
class Program(ctypes.Structure): _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]
library = ctypes.CDLL(None)
assert library.prctl(38, 1, 0, 0, 0) == 0
program = Program(6, filter)
assert library.prctl(22, 2, ctypes.byref(program)) == 0
"""
MUSL = """
import mmap
with open("ld-musl-x86_64.so.1", "wb+") as file:
    file.truncate(4096)
    library = mmap.mmap(file.fileno(), 4096)
"""
REFUSED = {
    "another user's": (DUMPABLE.format(1), True, "belongs to another user (0): run `sudo vramscope attach"),
    "not dumpable": (BECOME + DUMPABLE.format(0), True, "is set-uid or not dumpable, so only root may trace it: run"),
    "seccomp": (NO_CODE, False, "may not load code, by seccomp or a noexec mount: start it with `vramscope run`"),
    "musl": (MUSL, False, "uses musl, and the probe is for glibc: use an image with glibc"),
}


@pytest.mark.parametrize("case", list(REFUSED))
def test_one_line_says_why_not(place, case):
    begin, as_user, text = REFUSED[case]
    with running(f"import os; os.chdir({str(place.parent)!r})\n" + begin + COUNT, "10", python=PYTHON) as process:
        done = vramscope("attach", process.pid, cwd=place, **(AS_USER if as_user else {}))
        assert done.returncode == 2 and text in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1 and list(place.iterdir()) == []
        assert process.communicate("", timeout=60) == (result_of(COUNT, "10"), "")


def test_a_process_in_a_debugger_is_left_to_it(place):
    tracer = (
        "import ctypes, os, sys; pid = int(sys.argv[1]); library = ctypes.CDLL(None, use_errno=True)\n"
        "assert library.ptrace(0x4206, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())\n"
        "print('ready', flush=True); sys.stdin.read()\n"
    )
    with running(COUNT, "10") as process, running(tracer, str(process.pid)) as debugger:
        done = vramscope("attach", process.pid, cwd=place)
        assert done.returncode == 2 and f"is traced by process {debugger.pid} (python" in done.stderr
        assert "end that first" in done.stderr and len(done.stderr.splitlines()) == 1
        debugger.communicate("", timeout=60)
        assert process.communicate("", timeout=60)[0] == result_of(COUNT, "10")
