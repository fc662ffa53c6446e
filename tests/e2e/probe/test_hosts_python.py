# SPDX-License-Identifier: Apache-2.0
"""PyTorch programs with processes, threads and a profiler of their own: same output, a whole trace."""
from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hosts import losses, probe_environment
from live_file import read_directory
from places import PROBE

pytestmark = pytest.mark.skipif(
    not PROBE.exists() or importlib.util.find_spec("torch") is None, reason="the probe or torch is missing"
)

PROGRAM = Path(__file__).resolve().parents[2] / "hosts" / "python" / "torch_processes.py"


# A DataLoader does not join the threads that feed its workers' queues. One of them may drop the last reference to a
# semaphore while the interpreter ends: it has unlinked the name, but Python's resource tracker is not notified yet.
# This was seen once and confirmed in CPython's source, but could not be reproduced.
UNTOLD = re.compile(
    r".*resource_tracker: There appear to be 1 leaked semaphore objects.*\n  warnings\.warn\(.*\n"
    r".*resource_tracker: '/mp-\w+': \[Errno 2\] No such file or directory\n  warnings\.warn\(.*\n"
)


def what_counts(errors: str) -> list[str]:
    """Without the profiler's stamps, and without Python's own complaint about a semaphore that is gone."""
    return [line for line in UNTOLD.sub("", errors).splitlines() if not line.startswith("USDT:")]


def run_both(directory: Path, *ways: str):
    command = [sys.executable, str(PROGRAM), *ways]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    plain, recorded = (
        subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
        for env in (environment, {**probe_environment(directory), "OMP_NUM_THREADS": "1"})
    )
    assert (recorded.returncode, recorded.stdout) == (plain.returncode, plain.stdout)
    assert what_counts(recorded.stderr) == what_counts(plain.stderr)
    assert plain.returncode == 0, plain.stderr
    files = read_directory(directory)
    for file in files:
        assert file.counts["BlockAlloc"] + file.counts["BlockFree"] > 0, "a file is made at the first event"
    # What is lost is what PyTorch's own shared or mapped memory has no allocation for.
    assert set(losses(directory)) <= {"NamesWithoutMemory"}
    return files


def test_processes_by_fork(tmp_path):
    files = run_both(tmp_path, "loader-fork", "shared", "fork-in-thread", "terminated-pool")
    # The program, two workers, the one that shares, four by threads; the pool's workers as they get work.
    assert len({file.pid for file in files}) == len(files) >= 1 + 2 + 4


@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_processes_by_spawn_and_forkserver(tmp_path, way):
    files = run_both(tmp_path, f"loader-{way}")
    assert len(files) >= 2


def test_finalisation_with_daemon_threads(tmp_path):
    (only,) = run_both(tmp_path, "daemon-threads")
    assert only.counts["Teardown"] == 1
    assert only.counts["BlockAlloc"] >= 300


def test_the_profilers_figures_are_the_same(tmp_path):
    (only,) = run_both(tmp_path, "profiled")
    assert only.counts["BlockAlloc"] >= 4
