# SPDX-License-Identifier: Apache-2.0
"""Programs that make processes in every way: each has its own file, or is named as not recorded."""
from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import losses, run_both
from places import FAKE, HOSTS, PROBE, VRAMSCOPE

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason="the probe is not built")


def pairs(files):
    return sorted((f.counts["BlockAlloc"], f.counts["BlockFree"]) for f in files)


@pytest.mark.parametrize("words", [(), ("first",)])
def test_a_vfork_child_makes_no_file_and_ends_no_recording(tmp_path, words):
    files = run_both("vfork_exec", tmp_path, *words)
    assert len({f.pid for f in files}) == 3, "the parent, and the two that were executed"
    parent = max(files, key=lambda f: f.counts["BlockFree"])
    # Allocations of a child before the file exists are unowned; later ones belong to the shared memory.
    expected = 5 + 4 if words else 1 + 5 + 5
    assert (parent.counts["BlockAlloc"], parent.counts["BlockFree"]) == (expected, expected)
    assert parent.counts["Teardown"] == 1
    assert [f.counts["BlockAlloc"] for f in files if f is not parent] == [3, 3]


def test_spawned_children_have_their_own_files(tmp_path):
    files = run_both("spawn", tmp_path)
    parent = max(files, key=lambda f: f.counts["BlockAlloc"])
    assert parent.counts["BlockAlloc"] == parent.counts["BlockFree"]
    assert [f.counts["BlockAlloc"] for f in files if f is not parent] == [7] * 8


@pytest.mark.parametrize("options", ["cpu", "cpu,native"])
@pytest.mark.parametrize("words", [(), ("later",)])
def test_a_fork_while_another_thread_holds_the_loaders_list(tmp_path, words, options):
    """Whether the first tensor is the child's or its parent's: no child waits for a lock that nobody gives back."""
    if "native" in options and not (platform.machine() == "x86_64" and hasattr(ctypes.CDLL(None), "_dl_find_object")):
        pytest.skip("before glibc 2.35 binaries are found in the loader's list alone")
    files = run_both("fork_beside_loader", tmp_path, *words, options=options)
    children = [f for f in files if f.counts["BlockAlloc"] > 1]
    assert [(f.counts["BlockAlloc"], f.counts["BlockFree"]) for f in children] == [(100, 100)] * 3
    assert len(files) == 3 + len(words)


def test_a_fork_past_the_c_library_has_its_own_file(tmp_path):
    assert pairs(run_both("bare_fork", tmp_path)) == [(20000, 20001), (30001, 30001)]
    assert losses(tmp_path) == {}


def test_exec_while_threads_record(tmp_path):
    first, second = sorted(run_both("exec_threads", tmp_path), key=lambda f: -f.counts["BlockAlloc"])
    assert first.pid == second.pid
    for counts in first.by_stream.values():
        assert 0 <= counts["BlockAlloc"] - counts["BlockFree"] <= 1
    assert second.counts["BlockAlloc"] == 1


def test_libraries_that_come_before_the_probe(tmp_path):
    child, parent = run_both_sorted("early", tmp_path)
    assert (parent.counts["BlockAlloc"], parent.counts["BlockFree"]) == (21, 20)
    assert (child.counts["BlockAlloc"], child.counts["BlockFree"]) == (11, 11)


def run_both_sorted(name: str, directory: Path):
    files = sorted(run_both(name, directory), key=lambda f: f.counts["BlockAlloc"])
    assert len(files) == 2, "one file a process"
    return files


# ---- what the launcher says --------------------------------------------------------------------------


def launch(*command: str, cwd: Path, env: dict[str, str] | None = None, prefix: tuple[str, ...] = ()):
    return subprocess.run(
        [*prefix, str(VRAMSCOPE), "run", "--cpu", "--no-report", "-o", "x.vram", "--", *command],
        cwd=cwd, capture_output=True, text=True, timeout=120, env=env, stdin=subprocess.DEVNULL,
    )


def info(path: Path) -> str:
    return subprocess.run([str(VRAMSCOPE), "info", str(path)], capture_output=True, text=True, check=True).stdout


launcher = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


@launcher
def test_a_child_with_a_cleared_environment_is_named_and_not_forced(tmp_path):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    result = launch(str(HOSTS / "clear_environment"), cwd=tmp_path, env=environment)
    assert (result.returncode, result.stdout) == (4, "cleared\n")
    assert "is not recorded: clear_environme was started without the probe's environment, and uses a GPU" in result.stderr
    text = info(tmp_path / "x.vram")
    assert "child processes not recorded: 1" in text
    assert "not recorded: clear_environme was started without the probe's environment" in text


@launcher
def test_vramscope_itself_is_not_named(tmp_path):
    """As what reads a recording under way for the program in it: it runs without the probe on purpose."""
    inner = f"env -u LD_PRELOAD -u VRAMSCOPE_DIR {VRAMSCOPE} run --no-report -o inner.vram -- sleep 1.2; exit 3"
    result = launch("sh", "-c", inner, cwd=tmp_path)
    assert result.returncode == 3 and (tmp_path / "inner.vram").exists()
    assert "vramscope was started" not in result.stderr + info(tmp_path / "x.vram")


@launcher
def test_a_child_that_keeps_the_environment_is_not_named(tmp_path):
    result = launch("sh", "-c", "sleep 0.7; exit 2", cwd=tmp_path)
    assert result.returncode == 2
    assert "not recorded" not in result.stderr
    assert "child processes not recorded" not in info(tmp_path / "x.vram")


@launcher
def test_a_program_that_writes_over_its_environment_is_not_named(tmp_path):
    # As setproctitle does: the process's environment, seen from outside, is a title.
    program = (
        "import ctypes, time\n"
        "fields = open('/proc/self/stat').read().rpartition(')')[2].split()\n"
        "begin, end = int(fields[47]), int(fields[48])\n"
        "ctypes.memset(begin, ord('x'), end - begin)\n"
        "assert b'VRAMSCOPE' not in open('/proc/self/environ', 'rb').read()\n"
        "time.sleep(0.7)\n"
    )
    result = launch(sys.executable, "-c", program, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "not recorded" not in result.stderr


@launcher
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("change", ["another-user", "another-root", "other-mounts"])
def test_a_process_that_cannot_reach_the_recording_any_more_is_named(tmp_path, change):
    """As images do that start as root and go on as somebody else: the probe can leave no word itself."""
    program = {
        "another-user": "os.setgid(65534); os.setuid(65534)",
        "another-root": f"os.chroot({str(tmp_path / 'root')!r})",
        "other-mounts": (
            "c = ctypes.CDLL(None, use_errno=True)\n"
            "if c.unshare(0x20000) or c.mount(b'none', b'/', None, 0x44000, None): os._exit(77)\n"
            f"if c.mount(b'none', {os.fsencode(tmp_path)!r}, b'tmpfs', 0, None): os._exit(77)"
        ),
    }[change]
    (tmp_path / "root").mkdir()
    result = launch(sys.executable, "-c", f"import ctypes, os, time\n{program}\ntime.sleep(5)\nos._exit(6)", cwd=tmp_path)
    if result.returncode == 77:
        pytest.skip("no file system can be mounted here")
    assert result.returncode == 6, result.stderr
    reason = {
        "another-user": "runs as a user who cannot write the recording",
        "another-root": "has another file system, without the recording",
        "other-mounts": "has another file system, without the recording",
    }[change]
    (line,) = [line for line in result.stderr.splitlines() if "is not recorded" in line]
    assert reason in line
    text = info(tmp_path / "x.vram")
    assert "child processes not recorded: 1" in text and reason in text


@launcher
def test_a_setuid_program_of_root_run_by_somebody_else_is_named(open_path):
    setpriv = shutil.which("setpriv")
    if os.geteuid() != 0 or setpriv is None:
        pytest.skip("only root can make such a program and be somebody else: needs root and setpriv")
    program = open_path / "id"
    shutil.copy(shutil.which("id"), program)
    program.chmod(0o4755)
    work = open_path / "work"
    work.mkdir()
    work.chmod(0o777)
    somebody = (setpriv, "--reuid=65534", "--regid=65534", "--clear-groups")
    plain = subprocess.run([*somebody, str(program), "-u"], capture_output=True, text=True)
    if plain.stdout != "0\n":
        pytest.skip("set-user-id programs are not honoured in the temporary directory")
    result = launch(str(program), "-u", cwd=work, prefix=somebody)
    assert (result.returncode, result.stdout) == (0, "0\n"), result.stderr
    assert "is a setuid program: it cannot be recorded" in result.stderr


@launcher
def test_a_program_for_another_processor_is_126_in_one_line(tmp_path):
    program = bytearray(Path("/bin/true").read_bytes())
    program[18:20] = (243).to_bytes(2, "little")  # e_machine: RISC-V
    (tmp_path / "foreign").write_bytes(program)
    (tmp_path / "foreign").chmod(0o755)
    result = launch("./foreign", cwd=tmp_path)
    assert result.returncode == 126
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "foreign" in line
    assert not (tmp_path / "x.vram").exists() and not (tmp_path / "x.vram.d").exists()


@launcher
def test_closed_standard_streams_stay_closed(tmp_path):
    program = "import os\nfor fd in 0, 1, 2:\n    try:\n        os.fstat(fd)\n    except OSError:\n        pass\n    else:\n        os._exit(10 + fd)\nos._exit(5)"

    def close() -> None:
        for fd in 0, 1, 2:
            os.close(fd)

    process = subprocess.Popen(
        [str(VRAMSCOPE), "run", "--cpu", "-o", "x.vram", "--", sys.executable, "-S", "-c", program],
        cwd=tmp_path, preexec_fn=close,
    )
    assert process.wait(timeout=60) == 5
    report = subprocess.run(
        [str(VRAMSCOPE), "report", "x.vram", "--json"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert json.loads(report.stdout)


@launcher
def test_a_read_only_place_falls_back_to_the_temporary_directory(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    run = f"mount -t tmpfs -o ro none {place} && exec {VRAMSCOPE} run --cpu --no-report -o {place}/x.vram -- sh -c 'exit 3'"
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", run], capture_output=True, text=True, timeout=60,
        env={**os.environ, "TMPDIR": str(elsewhere)}, cwd=tmp_path,
    )
    if "unshare" in result.stderr or "mount" in result.stderr:
        pytest.skip("no file system can be mounted here: " + result.stderr.strip())
    assert result.returncode == 3
    (recording,) = elsewhere.glob("vramscope-*/x.vram")
    assert f"{place} cannot be written: the recording is {recording}" in result.stderr
