# SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that limits the GPU memory of a test::

    @pytest.mark.limit_vram("2 GiB")
    def test_training_step(): ...

The test body is recorded. The test fails if the peak of GPU memory exceeds the limit. Without an NVIDIA driver the
peak of CPU tensors counts. Options:

* ``--vram-keep DIRECTORY`` keeps the recordings, one for each test.
* ``--vram-baseline PATH`` compares with such a directory, or with one recording. A test fails if its peak exceeds the
  baseline's by more than ``--vram-fail-above`` (5 %). Every failure shows what changed. ``limit_vram()`` without a
  limit only compares.

Memory from before the test is part of the peak: on a GPU including CUDA contexts and libraries; on the CPU the tensors
that Python holds when the test begins.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
from typing import Any, Dict, Generator, List, Optional, Tuple

import pytest

from . import _files, _paths, _recording, _session, _tensors

_UNITS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("vramscope", "GPU memory of tests marked limit_vram")
    group.addoption(
        "--vram-baseline",
        metavar="PATH",
        help="compare each marked test with this recording, or with the recording of its name in this directory",
    )
    group.addoption(
        "--vram-fail-above",
        metavar="SIZE|PERCENT",
        default="5%",
        help="fail a test if its peak exceeds the baseline's peak by more than this (default: 5%%)",
    )
    group.addoption("--vram-keep", metavar="DIRECTORY", help="keep the recordings in this directory, one for each test")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "limit_vram(limit): fail the test if its peak GPU memory exceeds limit, such as '2 GiB' (vramscope)"
    )
    baseline = config.getoption("--vram-baseline")
    if baseline is not None and not pathlib.Path(baseline).exists():
        raise pytest.UsageError(f"--vram-baseline {baseline} does not exist")


def recording_name(nodeid: str) -> str:
    """The file name of a test's recording: the test's name, and a suffix that makes it unique."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", nodeid).strip("-")[-120:]
    return f"{readable}-{hashlib.sha256(nodeid.encode()).hexdigest()[:8]}.vram"


def parse_size(text: str) -> int:
    """Bytes of ``"2 GiB"``, ``"1.5G"``, ``"200MiB"`` or ``1500000``. K, M, G and T are powers of 1024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]?)(?:i?b)?\s*", str(text), re.IGNORECASE)
    if match is None:
        raise ValueError(f"limit_vram: {text!r} is not a size; use a size such as '2 GiB' or '200 MiB'")
    return int(float(match[1]) * 1024 ** _UNITS[match[2].lower()])


def _limit(item: pytest.Item) -> Tuple[bool, Optional[int]]:
    """Whether the test is marked, and its limit."""
    mark = item.get_closest_marker("limit_vram")
    if mark is None:
        return False, None
    if len(mark.args) > 1 or mark.kwargs:
        raise ValueError("limit_vram takes one size, as in limit_vram('2 GiB')")
    return True, parse_size(mark.args[0]) if mark.args else None


def _run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [str(_paths.program()), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_session.without_probe(),
        check=False,
    )


def _held(recording: str, at: str) -> Dict[str, int]:
    """Bytes at an instant by device type. At the peak, each device counts at its own peak."""
    done = _run("report", recording, "--json", "--top", "1", "--at", at)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip())
    held: Dict[str, int] = {}
    for device in json.loads(done.stdout)["devices"]:
        held[device["kind"]] = held.get(device["kind"], 0) + device["ledger_bytes"]
    return held


def _peak(recording: str, cpu_before: int) -> Tuple[int, int]:
    """The peak of the GPUs, or of CPU tensors, and its bytes from before the recording."""
    held = _held(recording, "peak")
    if held.get("gpu"):
        return held["gpu"], 0
    # Named tensors from before, such as parameters, are in the recording from its first instant on.
    before = max(0, cpu_before - _held(recording, "0").get("cpu", 0))
    return held.get("cpu", 0) + before, before


def _size_text(size: int) -> str:
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            break
        value /= 1024
    else:
        unit = "TiB"
    return f"{value:.4g} {unit}"


def _baseline(config: pytest.Config, nodeid: str) -> Optional[str]:
    option = config.getoption("--vram-baseline")
    if option is None:
        return None
    path = pathlib.Path(option)
    if path.is_dir() and path.suffix != ".d":
        path = path / recording_name(nodeid)
        if not path.exists():
            return None  # the test is new
    return str(path)


def _complaints(item: pytest.Item, recording: str, limit: Optional[int], cpu_before: int) -> List[str]:
    complaints = []
    if limit is not None:
        peak, before = _peak(recording, cpu_before)
        if peak > limit:
            part = f" ({_size_text(before)} of it in CPU tensors from before the test)" if before else ""
            complaints.append(
                f"vramscope: the peak of {_size_text(peak)}{part} exceeds the limit of {_size_text(limit)}"
            )
    baseline = _baseline(item.config, item.nodeid)
    if baseline is not None:
        fail_above = f"--fail-above={item.config.getoption('--vram-fail-above')}"
        done = _run("diff", baseline, recording, fail_above)
        if done.returncode != 0:
            complaints.append(done.stderr.strip())
        if complaints and done.stdout:
            complaints.append(f"against {baseline}:\n{done.stdout.rstrip()}")
    elif complaints:
        lines = _run("report", recording, "--top", "5").stdout.rstrip().splitlines()
        # The path of a temporary recording would not help the reader.
        complaints.append("\n".join(line for line in lines if not line.startswith("Trace: ")))
        advice = _run("report", recording, "--advice", "--json")
        for saving in json.loads(advice.stdout)["savings"] if advice.returncode == 0 else ():
            complaints.append(f"saves {_size_text(saving['saves_bytes'])}: {saving['change']}")
    return complaints


_COMPLAINTS = pytest.StashKey[List[str]]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    try:
        marked, limit = _limit(item)
    except ValueError as error:
        item.stash[_COMPLAINTS] = [str(error)]
        marked = False
    if not marked:
        yield
        return
    keep = item.config.getoption("--vram-keep")
    directory = pathlib.Path(keep) if keep else _files.temporary_directory()
    try:
        try:
            _files.make_directories(directory)
            recording = _recording.record(directory / recording_name(item.nodeid))
            cpu_before = _tensors.cpu_bytes()
            recording.__enter__()
        except (OSError, RuntimeError) as error:
            item.stash[_COMPLAINTS] = [f"vramscope: the test could not be recorded: {error}"]
            yield
            return
        yield
        recording.__exit__(None, None, None)
        # While a process of the test still runs, the recording is a directory, which can be read as well.
        path = recording.path or recording.unfinished
        if path is None:
            item.stash[_COMPLAINTS] = [
                "vramscope: limit_vram records each test itself: run pytest without `vramscope run`"
            ]
            return
        try:
            item.stash[_COMPLAINTS] = _complaints(item, str(path), limit, cpu_before)
        except RuntimeError as error:
            item.stash[_COMPLAINTS] = [str(error)]
    finally:
        if not keep:
            _files.remove_directory(directory)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: "pytest.CallInfo[None]") -> Generator[None, Any, None]:
    outcome = yield
    complaints = item.stash.get(_COMPLAINTS, [])
    if call.when != "call" or not complaints:
        return
    report = outcome.get_result()
    text = "\n\n".join(complaints)
    if report.passed:
        report.outcome = "failed"
        report.longrepr = text
    else:
        report.sections.append(("vramscope", text))
