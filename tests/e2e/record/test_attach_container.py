# SPDX-License-Identifier: Apache-2.0
"""`vramscope attach`, `detach` and `dump`: processes with another root directory, other mounts and other numbers."""
from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest
from places import FAKE, HOSTS, VRAMSCOPE
from test_attach import COUNT, TRAIN, recorded, result_of, vramscope

IN_NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
# A directory that a container does not see, or no longer.
HIDE = "if [ -d {hidden} ]; then mount -t tmpfs none {hidden}; fi"
# /tmp is another one, and nothing of this repository is visible. /mnt has the packages.
PRIVATE = f'mount --bind {{site}} /mnt && mount -t tmpfs none /tmp && {HIDE} && exec "$@"'
# Its root is a new file system with some directories of this one.
CHROOT = (
    "mount -t tmpfs none {root} && cd {root} && mkdir tmp proc dev mnt && mount --rbind /dev dev && mount -t proc none proc &&"
    " mount --bind {site} mnt && for d in /usr /lib /lib64 /etc {python}; do mkdir -p .$d && mount --bind $d .$d; done &&"
    ' exec chroot . "$@"'
)
TORCH = importlib.util.find_spec("torch")
SITE = Path(TORCH.origin).parents[1] if TORCH and TORCH.origin else Path("/usr")


def can_unshare() -> bool:
    return shutil.which("unshare") is not None and not subprocess.run(
        [*IN_NAMESPACES, "true"], capture_output=True, check=False
    ).returncode


pytestmark = [
    pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built"),
    pytest.mark.skipif(not can_unshare(), reason="namespaces cannot be made"),
]


def inner(pid: int) -> int:
    """The process that unshare or a shell started."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


@contextlib.contextmanager
def contained(script: str, *command: str, env: dict[str, str] | None = None) -> Iterator[tuple[subprocess.Popen, int]]:
    """A program that has printed "ready" in a container, and its number here."""
    words = [*IN_NAMESPACES, "sh", "-c", script, "sh", *command]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            assert process.stdout is not None and process.stderr is not None
            line = process.stdout.readline()
            assert line == "ready\n", process.stderr.read()
            yield process, inner(process.pid)
        finally:
            process.kill()


def left_in(pid: int) -> list[str]:
    return [name for name in os.listdir(f"/proc/{pid}/root/tmp") if "vramscope" in name]


@pytest.fixture
def hidden():
    """A directory in which the probe and the package are, and that a container hides."""
    return Path(__file__).resolve().parents[3]


@pytest.fixture(params=["mounts", "root"])
def script(request, hidden, tmp_path):
    python = str(Path(sys.base_prefix).resolve())
    if request.param == "mounts":
        return PRIVATE.format(hidden=hidden, site=SITE)
    root = tmp_path / "root"
    root.mkdir()
    return CHROOT.format(root=root, python=python, site=SITE)


PYTHON = os.path.realpath(sys.executable)


def test_a_training_in_a_container(tmp_path, script):
    pytest.importorskip("torch")
    environment = {**os.environ, "PYTHONPATH": "/mnt"}
    trace = tmp_path / "train.vram"
    with contained(script, PYTHON, "-c", TRAIN, env=environment) as (process, pid):
        dumped = vramscope("dump", pid, "--json", "--holders", "3", cwd=tmp_path)
        assert dumped.returncode == 0, dumped.stderr
        assert left_in(pid) == []
        attached = vramscope("attach", pid, "--for", "500ms", "-o", trace)
        assert attached.returncode == 0, attached.stderr
        assert left_in(pid) == []
        output, errors = process.communicate("", timeout=120)
    assert errors == "ready\nsame\n"
    exact = dict(zip(("parameter", "gradient", "optimizer state", "buffer"), map(int, output.split())))
    found = recorded(trace, "--at", "end", "--by", "category,parameter")
    for category, size in exact.items():
        rows = [row["bytes"] for row in found["rows"] if row["path"][0] == category and row["path"][1] != "(none)"]
        assert sum(rows) == size, category
    assert f"pid {pid}" in vramscope("info", trace).stdout
    dump = json.loads(dumped.stdout)
    assert sum(row["bytes"] for row in dump["rows"] if "parameter" in row["path"]) == exact["parameter"]
    assert dump["holders"]["groups"] and all(group["way"] for group in dump["holders"]["groups"])


@pytest.mark.parametrize("how", ["detach", "killed", "end"])
def test_a_recording_in_a_container_ends_on_this_side(tmp_path, script, how):
    trace = tmp_path / "x.vram"
    with contained(script, PYTHON, "-c", COUNT, "200000") as (process, pid):
        command = [str(VRAMSCOPE), "attach", str(pid), "-o", str(trace), "--no-report"]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as attach:
            try:
                assert attach.stderr is not None
                live = attach.stderr.readline().split(" into ")[1].split(": ")[0]
                assert live.startswith(f"/proc/{pid}/root/tmp/")
                assert recorded(Path(live))["rows"] == []
                assert "is recorded already" in vramscope("attach", pid).stderr
                if how == "end":
                    process.communicate("", timeout=60)
                elif how == "killed":
                    attach.kill()
                    attach.wait()
                if how != "end":
                    done = vramscope("detach", pid, cwd=tmp_path)
                    assert done.returncode == 0, done.stderr
                said = attach.communicate(timeout=60)[1]
            finally:
                attach.kill()
        assert attach.returncode == (-signal.SIGKILL if how == "killed" else 0), said
        assert [path.name for path in tmp_path.iterdir() if path.name != "root"] == ["x.vram"]
        if how != "end":
            assert left_in(pid) == []
            assert process.communicate("", timeout=60)[0] == result_of(COUNT, "200000")
    assert vramscope("report", trace, "--json").returncode == 0


def test_a_program_without_python_in_a_container(tmp_path, script):
    place = Path(f"/dev/shm/vramscope-test-{os.getpid()}")
    place.mkdir()
    try:
        for file in [HOSTS / "driver_steady", *FAKE.iterdir()]:
            shutil.copy(file, place)
        environment = {**os.environ, "LD_LIBRARY_PATH": str(place)}
        trace = tmp_path / "x.vram"
        with contained(script, str(place / "driver_steady"), env=environment) as (process, pid):
            for _ in range(3):
                done = vramscope("attach", pid, "--for", "300ms", "-o", trace, "--no-report")
                assert done.returncode == 0, done.stderr
            assert left_in(pid) == []
            probes = Path(f"/proc/{pid}/maps").read_text().count("libvramscope_probe.so (deleted)\n")
            output = process.communicate("", timeout=60)[0]
    finally:
        shutil.rmtree(place)
    assert "same addresses" in output and probes < 8
    assert recorded(trace, "--at", "peak")["rows"]


def test_a_container_in_which_nothing_can_be_written_is_refused(tmp_path, hidden):
    script = (
        "for d in /tmp /var/tmp /dev/shm; do mount -t tmpfs -o ro none $d || exit 1; done;"
        f' {HIDE.format(hidden=hidden)} && exec "$@"'
    )
    with contained(script, PYTHON, "-c", COUNT, "10") as (process, pid):
        done = vramscope("attach", pid, cwd=tmp_path)
        assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
        assert "is in a container without a writable /tmp that permits execution: mount one there" in done.stderr
        assert process.communicate("", timeout=60)[0] == result_of(COUNT, "10")
    assert list(tmp_path.iterdir()) == []
