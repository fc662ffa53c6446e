# SPDX-License-Identifier: Apache-2.0
"""Misbehaving programs: same output, status and result with the probe, and a whole trace."""
from __future__ import annotations

import os
import struct
import subprocess
import time

import pytest
from hosts import run_both
from places import HOSTS, PROBE, VRAMSCOPE

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason="the probe is not built")


def test_a_forked_child_has_its_own_file(tmp_path):
    parent, child = sorted(run_both("fork_without_exec", tmp_path), key=lambda f: f.counts["BlockAlloc"])
    assert (parent.counts["BlockAlloc"], parent.counts["BlockFree"]) == (11, 11)
    assert (child.counts["BlockAlloc"], child.counts["BlockFree"]) == (100, 101)
    assert parent.pid != child.pid


def test_exec_gives_two_files_of_one_process(tmp_path):
    first, second = run_both("exec_self", tmp_path)
    assert first.pid == second.pid
    assert first.counts["BlockAlloc"] == second.counts["BlockAlloc"] == 1


def test_quick_exit_loses_nothing(tmp_path):
    (only,) = run_both("quick_exit", tmp_path)
    assert only.counts["BlockAlloc"] == 50
    assert only.counts["Teardown"] == 0


def test_a_storm_of_threads_reuses_streams(tmp_path):
    (only,) = run_both("thread_storm", tmp_path)
    assert only.counts["BlockAlloc"] == only.counts["BlockFree"] == 2000 * 6
    assert len(only.by_stream) <= 64
    assert next(tmp_path.glob("*.vrl")).stat().st_size < 64 * 1024 * 1024


def test_nothing_lands_in_the_programs_descriptors(tmp_path):
    (only,) = run_both("close_descriptors", tmp_path)
    assert only.counts["BlockAlloc"] == 200001


def test_a_file_size_limit_stops_only_the_recording(tmp_path):
    (only,) = run_both("file_size_limit", tmp_path)
    assert 0 < only.counts["BlockAlloc"] < 200000
    lost = struct.unpack_from("<32Q", next(tmp_path.glob("*.vrl")).read_bytes(), 80)
    assert lost[1] > 0, "the loss is counted under its name"


def test_signals_inside_the_hooks(tmp_path):
    (only,) = run_both("signal_in_hook", tmp_path)
    assert only.counts["BlockAlloc"] == only.counts["BlockFree"] >= 300000


def test_frees_at_exit_come_after_the_teardown(tmp_path):
    (only,) = run_both("frees_at_exit", tmp_path)
    assert only.counts["Teardown"] == 1
    assert only.counts["BlockFree"] == 1


def test_an_unwritable_directory_records_nothing_and_harms_nothing(tmp_path):
    missing = tmp_path / "missing"
    assert run_both("quick_exit", missing) == []


def test_a_directory_of_another_recording_is_left_alone(tmp_path):
    (tmp_path / "0123456789abcdef.session").touch()
    assert run_both("quick_exit", tmp_path, options="cpu,session=fedcba9876543210") == []
    assert [entry.name for entry in tmp_path.iterdir()] == ["0123456789abcdef.session"]
    (own,) = run_both("quick_exit", tmp_path, options="cpu,session=0123456789abcdef")
    assert own.counts["BlockAlloc"] == 50


def test_sigkill_of_launcher_and_program_leaves_a_readable_session(tmp_path):
    trace = tmp_path / "killed.vram"
    truth = tmp_path / "pairs"
    process = subprocess.Popen(
        [str(VRAMSCOPE), "run", "--cpu", "-o", str(trace), "--", str(HOSTS / "steady_threads"), str(truth)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout.readline() == b"running\n"
    time.sleep(0.05)
    os.killpg(process.pid, 9)
    process.wait()
    assert not trace.exists()
    report = subprocess.run([str(VRAMSCOPE), "report", str(trace)], capture_output=True, text=True, timeout=120)
    assert report.returncode == 0, report.stderr
    finished = subprocess.run(
        [str(VRAMSCOPE), "finish", str(trace) + ".d"], capture_output=True, text=True, timeout=120
    )
    assert finished.returncode == 0, finished.stderr
    assert trace.exists()
