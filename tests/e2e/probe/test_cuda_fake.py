# SPDX-License-Identifier: Apache-2.0
"""The CUDA hooks on the stand-in driver: every way in, every kind of memory, and its own books."""
from __future__ import annotations

import itertools
import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from fake_books import last_process
from places import DUMP, FAKE, HOSTS, MIB, PROBE

PAGE = 2 * MIB
CONTEXT = 518 * MIB
# MemoryKind
DEVICE, PITCHED, ASYNC, MANAGED, ARRAY, HOST = 0, 1, 2, 3, 4, 5
# ImplicitKind
INIT, MODULE, FUNCTION, LAUNCH, LIMIT, STREAM, GRAPH = 0, 2, 3, 4, 5, 6, 7

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


@dataclass
class Recording:
    """What one run of a host left: the records of each process, and the stand-in's books."""

    processes: list[list[dict]] = field(default_factory=list)
    process_bytes: int = 0
    device_bytes: int = 0

    @property
    def records(self) -> list[dict]:
        (only,) = self.processes
        return only

    def all(self, *names: str, **values) -> list[dict]:
        return [
            r for r in self.records if r["record"] in names and all(r[key] == value for key, value in values.items())
        ]


def environment(books: Path, **extra: str) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(books), **extra}


def run(name: str, directory: Path, **extra: str) -> Recording:
    """Runs a host without and with the probe: the same outcome and the same bytes at its end."""
    command = [str(HOSTS / name)]
    plain_books, books, live = directory / "plain.books", directory / "books", directory / "live"
    live.mkdir()
    plain = subprocess.run(command, capture_output=True, timeout=120, env=environment(plain_books, **extra))
    probe = {"LD_PRELOAD": str(PROBE), "VRAMSCOPE_DIR": str(live), "VRAMSCOPE_OPTIONS": ""}
    recorded = subprocess.run(command, capture_output=True, timeout=120, env=environment(books, **probe, **extra))
    assert plain.returncode == 0, plain.stderr.decode()
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert last_process(books) == last_process(plain_books), "the probe takes no device memory"

    recording = Recording()
    recording.process_bytes, recording.device_bytes = last_process(books)
    for path in sorted(live.glob("*.vrl")):
        dump = subprocess.run([str(DUMP), str(path)], capture_output=True, text=True, check=True)
        recording.processes.append([json.loads(line) for line in dump.stdout.splitlines()])
    return recording


def stamp(record: dict) -> int:
    """When a record counts: an allocation after its call, a free before it."""
    if "time" in record:
        return record["time"]
    return record.get("end" if record["record"] in ("Alloc", "HandleCreate", "Map", "Reading") else "begin", 0)


def priced_bytes(records: list[dict]) -> int:
    """Device bytes that the explicit records account for, as the driver prices them: small blocks share 2 MiB."""
    live = {}
    pools: dict[int, int] = {}
    handles: dict[int, list[int]] = {}  # size, references and mappings
    mapped: dict[int, int] = {}
    for record in records:
        kind = record["record"]
        if kind == "Alloc" and record["kind"] in (DEVICE, PITCHED, ARRAY):
            live[record["address"]] = record["actual"] or record["size"]
        elif kind == "Free":
            live.pop(record["address"], None)
        elif kind == "PoolReading":
            pools[record["pool"]] = record["reserved"]
        elif kind == "PoolDestroy":
            pools.pop(record["pool"])
        elif kind == "HandleCreate":
            handles[record["handle"]] = [record["size"], 1]
        elif kind == "HandleRetain":
            handles[record["handle"]][1] += 1
        elif kind == "HandleRelease":
            handles[record["handle"]][1] -= 1
        elif kind == "Map":
            handles[record["handle"]][1] += 1
            mapped[record["address"]] = record["handle"]
        elif kind == "Unmap":
            for address in [a for a in mapped if 0 <= a - record["address"] < record["size"]]:
                handles[mapped.pop(address)][1] -= 1
        elif kind == "ContextDestroy":
            live.clear()
    slabs = {address // PAGE for address, size in live.items() if size < PAGE}
    large = sum(-(-size // PAGE) * PAGE for size in live.values() if size >= PAGE)
    held = sum(size for size, count in handles.values() if count > 0)
    return len(slabs) * PAGE + large + sum(pools.values()) + held


def check_ledger(recording: Recording, ends_with_context: bool = True) -> None:
    """Between two readings, what the explicit records do not explain has an implicit call between them."""
    last_reading, implicit, unexplained = None, 0, 0
    records = sorted(recording.records, key=stamp)
    for index, record in enumerate(records):
        if record["record"] == "Reading":
            used = record["total"] - record["free"]
            rest = used - priced_bytes(records[: index + 1])
            if last_reading is not None and rest != last_reading:
                assert implicit > 0, f"{rest - last_reading} bytes moved without a record before {record}"
                unexplained += rest - last_reading
            elif last_reading is None:
                unexplained = rest
            last_reading, implicit = rest, 0
        elif record["record"] in ("Implicit", "ContextCreate", "ContextDestroy"):
            implicit += 1
    if ends_with_context:
        assert unexplained + priced_bytes(records) == recording.device_bytes


def sizes(records: list[dict]) -> list[int]:
    return [record["size"] for record in records]


def test_every_kind_of_allocation(tmp_path):
    recording = run("driver_basic", tmp_path)
    allocs = {(r["api"], r["kind"]): r for r in recording.all("Alloc")}
    assert allocs["cuMemAlloc_v2", DEVICE]["size"] == 64 * MIB
    assert allocs["cuMemAlloc", DEVICE]["size"] == 1000
    assert allocs["cuMemAllocPitch_v2", PITCHED]["size"] == 1000 * 2000
    assert allocs["cuMemAllocPitch_v2", PITCHED]["actual"] == 1024 * 2000
    assert allocs["cuMemAllocManaged", MANAGED]["device"] == 0
    assert allocs["cuMemHostAlloc", HOST]["device"] == -2
    assert allocs["cuArrayCreate_v2", ARRAY]["size"] == 16 * MIB  # what it really took, readings say
    assert all(r["begin"] < r["end"] and r["native"] != 0 for r in recording.all("Alloc"))
    (device,) = recording.all("Device")
    assert device["uuid"] == "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae00"
    assert device["name"] == "Stand-in H200"
    (failure,) = recording.all("Failure")
    assert (failure["result"], failure["size"]) == (2, 1 << 50)
    # All but one freed, at their addresses; that one went with its context.
    freed = {r["address"] for r in recording.all("Free")}
    assert {r["address"] for r in recording.all("Alloc")} - freed == {recording.all("Alloc", size=4096)[0]["address"]}
    (create,), (destroy,) = recording.all("ContextCreate"), recording.all("ContextDestroy")
    assert (create["api"], destroy["api"]) == ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2")
    assert create["context"] == destroy["context"]
    # What a new context takes stays after its release; what came on top is gone, and no reading says so.
    assert recording.process_bytes == CONTEXT
    check_ledger(recording, ends_with_context=False)


def test_implicit_memory_is_between_readings(tmp_path):
    recording = run("driver_basic", tmp_path)
    moved: dict[tuple, int] = {}
    free = None
    for record, after in zip(recording.records, recording.records[1:]):
        if record["record"] == "Reading":
            free = record["free"]
        if record["record"] == "Implicit" and record["kind"] != INIT and after["record"] == "Reading":
            moved[record["api"], record["name"]] = free - after["free"]
    assert moved["cuModuleLoadData", None] == 4 * MIB + 64 * MIB
    assert moved["cuLaunchKernel", "spill"] == 132 * 2048 * 65536 - 264 * MIB
    assert moved["cuLaunchKernel", "lazy"] == 4 * MIB
    assert moved["cuCtxSetLimit", "stack size"] == -moved["cuLaunchKernel", "spill"]
    assert moved["cuModuleUnload", None] == -(4 * MIB + 64 * MIB)
    assert moved["cuStreamCreate", None] == 2 * MIB
    # Launches that moved nothing left nothing, later ones cost nothing.
    assert len(recording.all("Implicit", kind=LAUNCH)) == 2
    assert len(recording.all("Implicit", kind=STREAM)) == 1


def test_threads(tmp_path):
    recording = run("driver_threads", tmp_path)
    assert len(recording.all("Alloc")) == len(recording.all("Free")) == 8 * 500 * 2
    # At one address, alloc and free alternate in the order of their stamps.
    by_address: dict[int, list] = {}
    for record in recording.all("Alloc", "Free"):
        by_address.setdefault(record["address"], []).append((stamp(record), record["record"]))
    disorder = sum(
        first[1] == second[1] for events in by_address.values() for first, second in zip(sorted(events), sorted(events)[1:])
    )
    assert disorder <= 80, "an alloc is stamped after its call, so a few may stand behind the next free"
    assert len(recording.all("ContextCreate")) == len(recording.all("Device")) == 1
    assert recording.process_bytes == CONTEXT


def test_a_program_linked_with_the_driver(tmp_path):
    recording = run("driver_needed", tmp_path)
    assert sizes(recording.all("Alloc")) == [3 * MIB, 5 * MIB, 7 * MIB]
    assert len(recording.all("Free")) == 1
    assert len(recording.all("ContextDestroy")) == 1


def test_other_names_of_the_driver_and_deepbind(tmp_path):
    assert sizes(run("driver_deepbind", tmp_path).all("Alloc")) == [3 * MIB, 5 * MIB, 7 * MIB]


def test_get_proc_address(tmp_path):
    recording = run("driver_procaddress", tmp_path)
    assert [(r["api"], r["size"]) for r in recording.all("Alloc")] == [
        ("cuMemAlloc", 3 * MIB),
        ("cuMemAlloc_v2", 5 * MIB),
        ("cuMemAllocAsync", 7 * MIB),
        ("cuMemAllocAsync_ptsz", 9 * MIB),
    ]
    check_ledger(recording)


def test_pools(tmp_path):
    recording = run("driver_pools", tmp_path)
    default, own = recording.all("PoolCreate")
    assert (default["kind"], own["kind"]) == (1, 0)
    readings = recording.all("PoolReading")

    def sizes_of(pool):
        return [reserved // MIB for reserved, _ in itertools.groupby(r["reserved"] for r in readings if r["pool"] == pool)]

    assert sizes_of(default["pool"]) == [32, 128, 32, 0]
    assert sizes_of(own["pool"]) == [64, 0], "read where it changed"
    assert sizes_of(0) == [64, 0], "graph memory"
    assert sizes(recording.all("Alloc")) == [1, 100 * MIB, 50 * MIB, 2 * MIB, 20 * MIB], "what is captured is no allocation"
    assert len(recording.all("Free")) == 5
    # The pool's memory of the last one was not seen; NVML may have shown it later.
    assert readings[-1]["pool"] == default["pool"] and readings[-1]["reserved"] == 0
    assert readings[-1]["time"] - readings[-1]["since"] <= recording.all("Alloc")[-1]["end"]
    check_ledger(recording)


def test_nothing_is_read_during_capture(tmp_path):
    """The stand-in invalidates a capture when it is asked for figures meanwhile, and the host checks its captures."""
    recording = run("driver_pools", tmp_path)
    # A stream made during the capture took memory: its record has no reading of its own, the next one closes it.
    (stream,) = recording.all("Implicit", kind=STREAM)
    following = min((r for r in recording.all("Reading") if r["begin"] > stream["end"]), key=lambda r: r["begin"])
    before = max((r for r in recording.all("Reading") if r["end"] < stream["begin"]), key=lambda r: r["end"])
    assert before["free"] - following["free"] == 2 * MIB


def test_vmm(tmp_path):
    recording = run("driver_vmm", tmp_path)
    assert sizes(recording.all("HandleCreate")) == [20 * MIB] * 3
    assert [r["size"] for r in recording.all("Reserve", "Unreserve")] == [1 << 40] * 2
    (retain,) = recording.all("HandleRetain")
    assert retain["handle"] == recording.all("HandleCreate")[1]["handle"]
    assert recording.process_bytes == CONTEXT + 20 * MIB
    check_ledger(recording)


def test_fork(tmp_path):
    recording = run("driver_fork", tmp_path)
    allocs = sorted([r["size"] for r in process if r["record"] == "Alloc"] for process in recording.processes)
    assert [a for a in allocs if a] == [[3 * MIB], [5 * MIB, 9 * MIB]]
    for process in recording.processes:
        devices = [r for r in process if r["record"] == "Device"]
        assert len(devices) == (1 if any(r["record"] == "Alloc" for r in process) else 0)


def test_no_driver(tmp_path):
    environment_without = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    for extra in ({}, {"LD_PRELOAD": str(PROBE), "VRAMSCOPE_DIR": str(tmp_path)}):
        done = subprocess.run([str(HOSTS / "driver_none")], env={**environment_without, **extra}, timeout=60)
        if done.returncode == 3 and not extra:
            pytest.skip("this machine has a driver")
        assert done.returncode == 0
    assert list(tmp_path.glob("*.vrl")) == []


@pytest.mark.parametrize("delay", ["0", "500"])
def test_injected_failures_reach_the_program(tmp_path, delay):
    """The third small allocation fails: the program sees it, the trace has it, nothing else changes."""
    name, directory = "driver_needed", tmp_path
    live = directory / "live"
    live.mkdir()
    extra = {"VRAMSCOPE_FAKE_FAIL": "cuMemAlloc_v2:2", "VRAMSCOPE_FAKE_DELAY_US": f"cuMemAlloc_v2:{delay}"}
    probe = {"LD_PRELOAD": str(PROBE), "VRAMSCOPE_DIR": str(live), "VRAMSCOPE_OPTIONS": ""}
    done = subprocess.run(
        [str(HOSTS / name)], capture_output=True, timeout=60, env=environment(directory / "books", **probe, **extra)
    )
    assert done.returncode == 3 and b"cuMemAlloc_v2" in done.stderr
    (path,) = live.glob("*.vrl")
    records = [json.loads(line) for line in subprocess.check_output([str(DUMP), str(path)], text=True).splitlines()]
    (failure,) = [r for r in records if r["record"] == "Failure"]
    assert (failure["api"], failure["size"], failure["result"]) == ("cuMemAlloc_v2", 5 * MIB, 2)
    assert [r["size"] for r in records if r["record"] == "Alloc"] == [3 * MIB]
