# SPDX-License-Identifier: Apache-2.0
"""Whatever interrupts a thread inside the recorder: nothing is lost but what was interrupted."""
from __future__ import annotations

import os
import random
import struct
import subprocess
import time

import pytest
from hosts import losses, probe_environment, run_both
from live_file import read_directory
from places import HOSTS, PROBE

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason="the probe is not built")


def recorded_and_true(tmp_path, mode: str):
    session = tmp_path / "session"
    session.mkdir()
    truth = tmp_path / "pairs"
    files = run_both("signal_jumps", session, mode, str(truth))
    assert losses(session) == {}
    return files, int(truth.read_text())


def test_handlers_on_a_stack_of_their_own_are_recorded_too(tmp_path):
    (only,), count = recorded_and_true(tmp_path, "own-stack")
    assert (only.counts["BlockAlloc"], only.counts["BlockFree"]) == (count, count)
    assert only.counts["Name"] >= 300, "each handler names something"


@pytest.mark.parametrize("mode", ["jump", "jump-in"])
def test_a_handler_that_jumps_out_of_the_recorder_ends_no_recording(tmp_path, mode):
    (only,), count = recorded_and_true(tmp_path, mode)
    assert (only.counts["BlockAlloc"], only.counts["BlockFree"]) == (count, count)
    assert only.counts["Teardown"] == 1


def test_a_handler_that_forks_leaves_the_parents_file_alone(tmp_path):
    files, count = recorded_and_true(tmp_path, "fork")
    parent = max(files, key=lambda f: f.counts["Teardown"])
    assert (parent.counts["BlockAlloc"], parent.counts["BlockFree"]) == (count, count)
    assert len(files) == 21
    for child in files:
        if child is not parent:
            # The pair that was interrupted, or a part of it, is before the child's own.
            assert 100 <= child.counts["BlockAlloc"] <= child.counts["BlockFree"] <= 101


@pytest.mark.parametrize("words", [(), ("at-once",)])
def test_cancelled_threads_free_what_they_have(tmp_path, words):
    (only,) = run_both("cancel_threads", tmp_path, *words)
    assert only.counts["BlockAlloc"] == only.counts["BlockFree"] >= 64
    assert losses(tmp_path) == {}
    assert len(only.by_stream) <= 16


def test_exceptions_and_thread_ends_pass_through_the_hooks(tmp_path):
    (only,) = run_both("exceptions", tmp_path)
    assert only.counts["BlockAlloc"] == only.counts["BlockFree"] == 1000 + 1000 + 10


def check_killed(directory, truth) -> None:
    pairs = struct.unpack_from("<4Q", truth.read_bytes())
    (recorded,) = read_directory(directory)
    found = sorted(
        (counts["BlockAlloc"], counts["BlockFree"]) for counts in recorded.by_stream.values() if counts["BlockAlloc"]
    )
    expected = sorted(count for count in pairs if count)
    # A thread killed in its first pair may or may not have an event.
    assert len(found) >= len(expected), "a thread that completed a pair has no events"
    found = found[len(found) - len(expected) :]
    for (allocations, frees), completed in zip(found, expected):
        assert completed <= allocations <= completed + 1
        assert completed <= frees <= completed + 1
    assert losses(directory) == {}


@pytest.mark.parametrize("batch", range(10))
def test_sigkill_loses_at_most_one_record_a_thread(tmp_path, batch):
    """100 kills in all, ten programs at once."""
    programs = []
    for number in range(10):
        directory = tmp_path / f"session{number}"
        directory.mkdir()
        truth = tmp_path / f"pairs{number}"
        process = subprocess.Popen(
            [str(HOSTS / "steady_threads"), str(truth)], stdout=subprocess.PIPE, env=probe_environment(directory)
        )
        programs.append((process, directory, truth))
    rng = random.Random(batch)
    for process, directory, truth in programs:
        assert process.stdout.readline() == b"running\n"
    for process, directory, truth in programs:
        time.sleep(rng.uniform(0.0, 0.001))
        process.kill()
    for process, directory, truth in programs:
        process.wait()
        process.stdout.close()
        check_killed(directory, truth)
        for path in directory.iterdir():
            os.unlink(path)


def test_a_jump_out_of_a_driver_call(tmp_path, monkeypatch):
    """What the thread does with the driver afterwards is recorded as before."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(HOSTS / "strange"))
    (only,) = run_both("driver_jump", tmp_path)
    assert (only.counts["Alloc"], only.counts["Free"]) == (3, 3)


def test_memory_that_is_refused_inside_a_handler(tmp_path):
    """Each refusal is recorded and counted, whatever the thread was at, and none of the thread's own events is lost."""
    session = tmp_path / "session"
    session.mkdir()
    (only,) = run_both("refused_in_signal", session, str(tmp_path / "refused"))
    refused = int((tmp_path / "refused").read_text())
    assert refused >= 50 and only.counts["OutOfMemory"] == refused
    assert only.counts["BlockAlloc"] == only.counts["BlockFree"] >= 200000
    assert losses(session) == {}
