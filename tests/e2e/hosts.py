# SPDX-License-Identifier: Apache-2.0
"""What the tests of misbehaving programs share: run one with and without the probe, and compare."""
from __future__ import annotations

import contextlib
import json
import os
import re
import struct
import subprocess
import time
from pathlib import Path
from typing import Iterator

import pytest
from live_file import LiveFile, read_directory
from places import HOSTS, PROBE, ROOT, VRAMSCOPE

_LOSSES = {
    int(number): name
    for name, number in re.findall(
        r"VRAMSCOPE_LOSS\((\w+), (\d+),", (ROOT / "src" / "format" / "losses.def").read_text()
    )
}


def probe_environment(directory: Path, options: str = "cpu", preload: str = "") -> dict[str, str]:
    """`preload`: what LD_PRELOAD names, with PROBE where the probe stands among others."""
    return {
        **os.environ,
        "LD_PRELOAD": preload or str(PROBE),
        "VRAMSCOPE_DIR": str(directory),
        "VRAMSCOPE_OPTIONS": options,
    }


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[Path]:
    """A control group with that memory limit, of either version; the file that takes its processes."""
    own = {controllers: path for _, controllers, path in
           (line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines())}  # fmt: skip
    for base, controllers, limit, members in (
        ("/sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes", "tasks"),
        ("/sys/fs/cgroup", "", "memory.max", "cgroup.procs"),
    ):
        group = Path(base + own.get(controllers, "")) / f"vramscope-test-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / limit).write_text(str(limit_bytes))
            yield group / members
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    pytest.skip("no memory limit can be set here")


@contextlib.contextmanager
def neighbour(machine: dict[str, str], seed: int) -> Iterator[None]:
    """Another program on the same stand-in device, recorded by nobody, that takes and gives back all the time."""
    command = [str(HOSTS / "driver_neighbour"), str(seed)]
    with subprocess.Popen(command, env=machine, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        yield
        assert process.poll() is None, "it goes on to the end"
        process.communicate("")
    assert process.returncode == 0


def wait_until_listed(trace: Path, pid: int, least_bytes: int, at: str = "end") -> None:
    """Until NVML's list, which is read now and then, has been seen to give the process that much."""
    deadline = time.monotonic() + 60
    while True:
        report = [str(VRAMSCOPE), "report", str(trace), "--json", "--at", at]
        done = subprocess.run(report, capture_output=True, text=True, timeout=60, check=False)
        rows = json.loads(done.stdout)["rows"] if done.returncode == 0 else []
        if sum(row["bytes"] for row in rows if row["pid"] == pid) >= least_bytes:
            return
        assert time.monotonic() < deadline, done.stdout + done.stderr
        time.sleep(0.05)


def run_both(
    name: str, directory: Path, *words: str, preload: tuple[str, str] = ("", ""), options: str = "cpu", **more
) -> list[LiveFile]:
    """The recording of a host whose output and status are the same without the probe.

    `preload` is LD_PRELOAD without and with the probe.
    """
    command = [str(HOSTS / name), *words]
    environment = {**os.environ, "LD_PRELOAD": preload[0]}
    plain = subprocess.run(command, capture_output=True, timeout=120, env=environment, **more)
    recorded = subprocess.run(
        command, capture_output=True, timeout=120, env=probe_environment(directory, options, preload[1]), **more
    )
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    return read_directory(directory)


def losses(directory: Path) -> dict[str, int]:
    """Losses that the files' headers count, by name, over all processes."""
    found: dict[str, int] = {}
    for path in directory.glob("*.vrl"):
        for number, count in enumerate(struct.unpack_from("<32Q", path.read_bytes(), 80)):
            if count:
                found[_LOSSES[number]] = found.get(_LOSSES[number], 0) + count
    return found
