# SPDX-License-Identifier: Apache-2.0
"""XLA's buffers and programs, by a fake PJRT plugin that counts what it has given out."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import vramscope
from driver_steps import Recording, check, record
from places import FAKE, HOSTS, MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the fake driver is not built")

PLUGIN, SECOND = str(HOSTS / "xla_fake_plugin.so"), str(HOSTS / "xla_fake_plugin_2.so")
POOL = 256 * MIB
# What the first plugin has in use beside its buffers, at marks (pjrt_buffers.cc).
BESIDE = {"beside-some": 12345, "beside-more": 3 * MIB}


def run(tmp_path: Path, *plugins: str, **environment: str) -> Recording:
    return record("pjrt_buffers", tmp_path, *plugins, VRAMSCOPE_FAKE_DEVICES="2", **environment)


def truth(tmp_path: Path) -> dict[str, list[tuple[int, int, int]]]:
    """By step: of each device the rounded bytes of buffers, their number, the temporary bytes."""
    found = {}
    for line in Path(f"{tmp_path / 'steps'}.xla").read_text().splitlines():
        name, *values = line.split()
        numbers = [int(value) for value in values]
        found[name] = [(numbers[i], numbers[i + 1], numbers[i + 2]) for i in (0, 3)]
    for name, size in BESIDE.items():
        found[name][0] = (found[name][0][0] + size, found[name][0][1] + 1, found[name][0][2])
    return found


def rows(recording: Recording, step: str, by: str = "owner,category,tag") -> list[dict]:
    said = recording.report(step, "--by", by, "--top", "0")
    return [row for row in said["rows"] if row["path"][0] == "XLA"]


def sums(found: list[dict]) -> list[tuple[int, int, int, int]]:
    """Of each device: bytes of buffers, their number, temporary bytes, cached bytes."""
    devices = []
    for device in (0, 1):
        mine = [row for row in found if row["device"] == device]
        buffers = [row for row in mine if row["path"][1] not in ("temporary", "cached")]
        devices.append((
            sum(row["bytes"] for row in buffers), sum(row["count"] for row in buffers),
            sum(row["bytes"] for row in mine if row["path"][1] == "temporary"),
            sum(row["bytes"] for row in mine if row["path"][1] == "cached"),
        ))
    return devices


def balance(tmp_path: Path, recording: Recording, pools: int) -> None:
    """At every step: the plugin's figures, and with what is cached the pool."""
    check(recording)
    wrong = []
    for step, devices in truth(tmp_path).items():
        found = sums(rows(recording, step))
        for device, (size, count, temporary) in enumerate(devices):
            expected = (size, count, temporary, pools * POOL - size - temporary)
            if found[device] != expected:
                wrong.append(f"{step}: device {device} has {expected}, the ledger {found[device]}")
    assert not wrong, "\n".join(wrong)


def info(recording: Recording) -> str:
    return subprocess.run([VRAMSCOPE, "info", recording.file], capture_output=True, text=True, check=True).stdout


def test_every_buffer_counts_from_its_first_to_its_last_instant(tmp_path):
    recording = run(tmp_path, PLUGIN)
    balance(tmp_path, recording, 1)
    assert f"xla.plugin              {PLUGIN}, PJRT 0.115\n" in info(recording)
    assert "losses      none" in info(recording)
    # The pool was there before its first block.
    opened = recording.report("opened")["rows"]
    assert {tuple(row["path"][:2]) for row in opened if row["path"][0] == "XLA"} == {("XLA", "no blocks seen")}


def test_two_plugins(tmp_path):
    recording = run(tmp_path, PLUGIN, SECOND)
    balance(tmp_path, recording, 2)


def test_a_client_ends_with_its_pool(tmp_path):
    recording = run(tmp_path, PLUGIN, VRAMSCOPE_TEST_CLIENT_ENDS="1")
    check(recording)
    assert sum(row["bytes"] for row in rows(recording, "in-use") if row["path"][2].startswith("in use by XLA")) == 3 * MIB
    assert rows(recording, "client-ended") == []


def test_what_a_program_gets_beyond_its_temporary_memory(tmp_path):
    recording = run(tmp_path, PLUGIN, FAKE_PJRT_SLACK=str(2 * MIB))
    check(recording)
    for step in ("running-0", "running-1", "running-4"):
        (row,) = (r for r in rows(recording, step) if r["path"][1] == "temporary" and r["device"] == 0)
        assert row["bytes"] == 9_000_192 + 2 * MIB, step


def test_categories_and_names(tmp_path):
    recording = run(tmp_path, PLUGIN)
    found = {
        step: {(*row["path"][1:],): (row["bytes"], row["count"]) for row in rows(recording, step) if row["device"] == 1}
        for step in ("running-4", "step-5")
    }
    for step in found.values():
        # The exact sums of the pytree; rounding is apart.
        assert step["parameter", "jit_train_step"] == (2_000_000, 10)
        assert step["optimizer state", "jit_train_step"] == (2_000_000, 10)
    assert found["running-4"]["input", "batch/x"] == (120_000, 1)
    assert found["running-4"]["activation", "jit_train_step"] == (200_000, 1)
    assert found["running-4"]["temporary", "jit_train_step"] == (9_000_192, 1)
    assert ("temporary", "jit_train_step") not in found["step-5"]
    names = {row["path"][1] for row in rows(recording, "step-5", "owner,parameter,module")}
    assert {f"params/Dense_{i}/kernel" for i in range(10)} < names
    assert {f"opt_state/0/mu/Dense_{i}/kernel" for i in range(10)} < names
    modules = {row["path"][1] for row in rows(recording, "step-5", "owner,module")}
    assert {"params/Dense_0", "opt_state/0/mu/Dense_0"} < modules


def test_executions_of_the_main_program_are_iterations(tmp_path):
    recording = run(tmp_path, PLUGIN)
    command = [VRAMSCOPE, "iterations", recording.file, "--json"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert said["source"] == "executions of XLA's main program"
    assert {row["number"] for row in said["iterations"]} - {-1} == set(range(6))


def test_executions_from_eight_threads_are_all_there(tmp_path):
    recording = run(tmp_path, PLUGIN, VRAMSCOPE_TEST_EXECUTIONS="10000")
    check(recording)
    assert "losses      none" in info(recording)
    assert sums(rows(recording, "executed"))[0] == (0, 0, 0, POOL)
    with vramscope.read(recording.file) as trace:
        tags = Counter(tag for part in trace.allocations(by=["tag"]) for tag in part["tag"])
    assert tags["jit_quick"] == 2 * 8 * 10_000, "a result and temporary memory"
    last = Path(f"{tmp_path / 'steps'}.xla").read_text().splitlines()[-1].split()
    assert last[0] == "rate" and float(last[1]) > 10_000


@pytest.mark.parametrize("entries", [93, 97, 70])
def test_a_smaller_table(tmp_path, entries):
    """Version 0.33 ended before asynchronous transfers; 70 entries lack copies to memories and events."""
    recording = run(tmp_path, PLUGIN, FAKE_PJRT_BYTES=str(8 * (5 + entries)))
    said = info(recording)
    assert "xla.plugin_without" in said and "Client_CreateUninitializedBuffer" in said, said
    assert ("Buffer_CopyToMemory" in said) == (entries == 70)
    check(recording)
    for step, devices in truth(tmp_path).items():
        if step in BESIDE or step.startswith(("running", "step", "no-results", "threads")):
            continue  # their programs have no known temporary memory
        assert [(size, count) for size, count, *_ in sums(rows(recording, step))] == [d[:2] for d in devices], step


@pytest.mark.parametrize("environment, why", [
    ({"FAKE_PJRT_MAJOR": "1"}, "PJRT 1.115: not recorded, this vramscope knows version 0"),
    ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, "PJRT 0.115: not recorded, its allocator has no pool"),
])  # fmt: skip
def test_what_is_not_recorded_says_so(tmp_path, environment, why):
    recording = run(tmp_path, PLUGIN, **environment)
    assert why in info(recording)
    check(recording)
    assert {row["path"][1] for row in rows(recording, "step-3", "owner,category")} == {"unknown"}


@pytest.mark.skipif("JAX_PACKAGES" not in os.environ, reason="JAX_PACKAGES names no site-packages with jax_plugins")
def test_the_cuda_plugin_of_jax(tmp_path):
    """A real table: without a GPU it can only be looked at."""
    (plugin,) = Path(os.environ["JAX_PACKAGES"]).glob("jax_plugins/xla_cuda*/xla_cuda_plugin.so")
    code = f"""
import ctypes
plugin = ctypes.CDLL({str(plugin)!r})
plugin.GetPjrtApi.restype = ctypes.POINTER(ctypes.c_uint64)
table = plugin.GetPjrtApi()
print(table[0], table[4] & 0xffffffff)
cuda = ctypes.CDLL("libcuda.so.1")
cuda.cuInit(0)
"""
    file = tmp_path / "x.vram"
    machine = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    done = subprocess.run(
        [VRAMSCOPE, "run", "--no-report", "-o", file, "--", sys.executable, "-c", code],
        env=machine, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    size, major = done.stdout.split()
    assert int(size) >= 1144 and major == "0"
    assert f"{plugin}, PJRT 0." in info(Recording(file, []))
