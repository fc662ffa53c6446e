# SPDX-License-Identifier: Apache-2.0
"""Programs whose disk, address space, descriptors or file sizes have come to an end."""
from __future__ import annotations

import errno
import json
import os
import resource
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hosts import losses, memory_group, probe_environment, run_both
from live_file import read_directory
from places import HOSTS, PROBE, VRAMSCOPE

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason="the probe is not built")


def marks(directory: Path) -> list[int]:
    return [int(os.readlink(path)) for path in directory.glob("*.unrecorded")]


@pytest.mark.parametrize("what, lost_at_least", [("no-space-at-first", 40000), ("no-space-later", 60000), ("no-data", 40000)])
def test_memory_at_its_limit_stops_only_the_recording(tmp_path, what, lost_at_least):
    files = run_both("limits", tmp_path, what)
    recorded = sum(f.counts["BlockAlloc"] + f.counts["BlockFree"] for f in files)
    lost = losses(tmp_path).get("FileFull", 0)
    assert lost >= lost_at_least, "what is missing is counted"
    assert recorded + lost >= {"no-space-later": 100020}.get(what, 40000)


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace, which holds a system call up")
@pytest.mark.parametrize("milliseconds", [50, 900])
def test_a_slow_disk_while_threads_begin_together(tmp_path, milliseconds):
    """The first thread makes the file; the others wait for it half a second, and count what they lose then."""
    delay = f"--inject=fallocate:delay_exit={milliseconds}ms:when=1"
    environment = probe_environment(tmp_path)
    probe = ["-E", f"LD_PRELOAD={environment.pop('LD_PRELOAD')}"]
    tracer = ["strace", "-f", "-qq", "-o", os.devnull, "--trace=fallocate", delay, *probe]
    environment["LD_PRELOAD"] = ""
    subprocess.run([*tracer, str(HOSTS / "thread_storm")], env=environment, check=True, timeout=120)
    (only,) = read_directory(tmp_path)
    lost = losses(tmp_path).get("FileFull", 0)
    assert only.counts["BlockAlloc"] + only.counts["BlockFree"] + lost == 2 * 12000
    assert (lost > 0) == (milliseconds > 500)


def test_a_process_without_descriptors_leaves_a_mark(tmp_path):
    assert run_both("limits", tmp_path, "no-descriptors-at-first") == []
    assert marks(tmp_path) == [errno.EMFILE]


def test_a_process_that_gets_descriptors_later_is_recorded_from_then_on(tmp_path):
    (only,) = run_both("limits", tmp_path, "descriptors-come")
    assert (only.counts["BlockAlloc"], only.counts["BlockFree"]) == (500, 500)
    assert losses(tmp_path) == {"FileFull": 2000}
    assert marks(tmp_path) == []


def test_descriptors_that_run_out_for_a_while_cost_that_while(tmp_path):
    (only,) = run_both("limits", tmp_path, "no-descriptors-later")
    lost = losses(tmp_path)["FileFull"]
    assert only.counts["BlockAlloc"] > 50000, "it goes on afterwards"
    assert only.counts["BlockAlloc"] + only.counts["BlockFree"] + lost >= 200020
    assert only.counts["Teardown"] == 1


def test_a_file_size_of_zero_leaves_a_mark_and_sends_no_signal(tmp_path):
    assert run_both("limits", tmp_path, "no-file") == []
    assert marks(tmp_path) == [errno.EFBIG]


def test_what_is_printed_to_closed_streams_still_fails(tmp_path):
    (only,) = run_both("limits", tmp_path, "closed-streams")
    assert only.counts["BlockAlloc"] == 50000
    assert b"x" * 100 not in next(tmp_path.glob("*.vrl")).read_bytes()


@pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
def test_the_launcher_names_a_process_that_could_not_make_its_file(tmp_path):
    host = HOSTS / "limits"
    result = subprocess.run(
        [str(VRAMSCOPE), "run", "--cpu", "--no-report", "-o", "x.vram", "--", str(host), "no-descriptors-at-first"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    assert (result.returncode, result.stdout) == (0, "still here\n"), result.stderr
    text = subprocess.run([str(VRAMSCOPE), "info", "x.vram"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "child processes not recorded: 1" in text
    assert "its file could not be made: Too many open files" in text
    assert not (tmp_path / "x.vram.d").exists()


# ---- full disks ----------------------------------------------------------------------------------------


def in_small_disk(script: str, size: str, directory: Path, **more) -> subprocess.CompletedProcess:
    """Runs a shell script with a tmpfs of that size mounted on directory/disk, in name spaces of its own."""
    (directory / "disk").mkdir(exist_ok=True)
    text = f"mount -t tmpfs -o size={size} none {shlex.quote(str(directory / 'disk'))} && echo mounted && {{ {script}\n}}"
    result = subprocess.run(
        ["unshare", "-rm", "sh", "-c", text], capture_output=True, text=True, timeout=120, cwd=directory, **more
    )
    if not result.stdout.startswith("mounted\n"):
        pytest.skip("no file system can be mounted here: " + result.stderr.strip())
    return result


def test_a_full_disk_stops_only_the_recording(tmp_path):
    """Every byte is allocated before it is mapped: were it not, this would be a SIGBUS in the program."""
    copy = tmp_path / "copy"
    host = HOSTS / "close_descriptors"
    environment = probe_environment(tmp_path / "disk")
    del environment["LD_PRELOAD"]
    result = in_small_disk(
        f"LD_PRELOAD={PROBE} {host}; echo status $?; cp -r disk copy", "600k", tmp_path, env=environment
    )
    plain = subprocess.run([str(host)], capture_output=True, text=True)
    assert result.stdout == f"mounted\n{plain.stdout}status 0\n", result.stderr
    (only,) = read_directory(copy)
    assert only.counts["BlockAlloc"] > 1000
    lost = losses(copy)["FileFull"]
    assert only.counts["BlockAlloc"] + only.counts["BlockFree"] + lost >= 400002


def test_a_disk_that_is_full_from_the_start_leaves_a_mark_or_nothing(tmp_path):
    host = HOSTS / "quick_exit"
    environment = probe_environment(tmp_path / "disk")
    del environment["LD_PRELOAD"]
    result = in_small_disk(
        f"cat /dev/zero > disk/filler 2> /dev/null; LD_PRELOAD={PROBE} {host}; echo status $?; "
        "rm disk/filler; cp -rP disk copy",
        "100k", tmp_path, env=environment,
    )
    assert result.stdout == "mounted\ngone\nstatus 3\n", result.stderr
    assert read_directory(tmp_path / "copy") == []
    assert set(marks(tmp_path / "copy")) <= {errno.ENOSPC}


@pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
def test_a_disk_that_fills_under_the_launcher_costs_the_recording_alone(tmp_path):
    host = HOSTS / "close_descriptors"
    result = in_small_disk(
        f"{VRAMSCOPE} run --cpu --no-report -o disk/x.vram -- {host}; echo status $?; {VRAMSCOPE} info disk/x.vram",
        "700k", tmp_path,
    )
    assert "status 0\n" in result.stdout, result.stderr
    assert "events dropped: no room for the trace" in result.stdout, result.stdout + result.stderr


@pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
def test_a_disk_without_inodes_is_a_loss_with_a_name(tmp_path):
    """The program's file needs one, and so does the mark that says why there is none: the launcher's file counts."""
    host = HOSTS / "close_descriptors"
    result = in_small_disk(
        f"{VRAMSCOPE} run --cpu --no-report -o disk/x.vram -- {host}; echo status $?; "
        f"{VRAMSCOPE} report disk/x.vram --json > report.json",
        "100m,nr_inodes=5", tmp_path,
    )
    assert "status 0\n" in result.stdout, result.stderr
    lost = {entry["name"]: entry["count"] for entry in json.loads((tmp_path / "report.json").read_text())["losses"]}
    assert lost["child processes not recorded"] == 1
    assert lost["events dropped: no room for the trace"] >= 400_000


@pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
def test_a_disk_without_room_for_the_session_falls_back(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    result = in_small_disk(
        f"cat /dev/zero > disk/filler 2> /dev/null; {VRAMSCOPE} run --cpu --no-report -o disk/x.vram -- sh -c 'exit 6'; echo status $?",
        "100k", tmp_path, env={**os.environ, "TMPDIR": str(elsewhere)},
    )
    assert result.stdout == "mounted\nstatus 6\n", result.stderr
    assert "cannot be written: the recording is" in result.stderr
    assert list(elsewhere.glob("vramscope-*/x.vram"))


@pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
@pytest.mark.parametrize("on_tmpfs", [True, False])
def test_a_memory_limit_of_the_group(tmp_path, on_tmpfs):
    """Files on a tmpfs count as the program's memory: beyond the limit it would be killed. Others make room."""
    host = HOSTS / "event_cost"
    with memory_group(64 << 20) as members:
        text = (
            f"echo $$ > {members}; {VRAMSCOPE} run --cpu --no-report -o disk/x.vram -- {host} 4; echo status $?; "
            "cp disk/x.vram ."
        )
        if on_tmpfs:
            result = in_small_disk(text, "1g", tmp_path)
        else:
            (tmp_path / "disk").mkdir()
            result = subprocess.run(["sh", "-c", text], capture_output=True, text=True, timeout=120, cwd=tmp_path)
    assert result.stdout.endswith("status 0\n"), result.stdout + result.stderr
    report = subprocess.run(
        [str(VRAMSCOPE), "report", "x.vram", "--json"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    lost = {entry["name"]: entry["count"] for entry in json.loads(report.stdout)["losses"]}
    assert ("events dropped: no room for the trace" in lost) == on_tmpfs, lost


def test_a_quota_of_file_size_is_asked_before_the_file_grows(tmp_path):
    """No quota can be had here: RLIMIT_FSIZE stands for it, which answers with a signal as well."""
    limit = 200 * 1024

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    (only,) = run_both("signal_in_hook", tmp_path, preexec_fn=limited)
    assert 0 < only.counts["BlockAlloc"] < 300000
    assert losses(tmp_path)["FileFull"] > 0
    assert next(tmp_path.glob("*.vrl")).stat().st_size <= limit
