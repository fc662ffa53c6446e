# SPDX-License-Identifier: Apache-2.0
"""`run --overflow` on the stand-in driver: which requests the host's memory serves, how far, and what the report says."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from places import FAKE, HOSTS, MIB, VRAMSCOPE

# The context takes 518 MiB of it; the last 64th counts as full.
DEVICE_MIB = 1280

PRELUDE = f"""
import ctypes, os, sys
MIB = 1 << 20
cuda = ctypes.CDLL("libcuda.so.1", ctypes.RTLD_GLOBAL)
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def alloc(mib):
    address = ctypes.c_uint64()
    result = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(int(mib * MIB)))
    return address.value if result == 0 else -result
def free(address):
    return cuda.cuMemFree_v2(ctypes.c_uint64(address))
def free_mib():
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    return left.value / MIB
class Library:
    def __init__(self, name):
        self.library = ctypes.CDLL("{HOSTS}/asking/lib" + name + ".so")
    def ask(self, mib, release=lambda: None):
        address = ctypes.c_uint64()
        hook = ctypes.CFUNCTYPE(None)(release)
        asked = self.library.ask(ctypes.byref(address), ctypes.c_size_t(int(mib * MIB)), hook)
        return asked, address.value
program = ctypes.PyDLL(None)
say = getattr(program, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE")
say.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_ulong, ctypes.c_ulong, ctypes.c_uint16]
def block(address, mib):
    say(address, int(mib * MIB), 0, 0, 1)
"""


def run(
    tmp_path: Path, text: str, *options: str, total_mib: int = DEVICE_MIB, name: str = "x", **variables: str
) -> subprocess.CompletedProcess:
    program = tmp_path / "program.py"
    program.write_text("from allocator import *\n" + textwrap.dedent(text))
    packages = tmp_path / "site-packages"
    packages.mkdir(exist_ok=True)
    (packages / "allocator.py").write_text(PRELUDE)
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / f"books-{name}"),
        "PYTHONPATH": str(packages), "VRAMSCOPE_FAKE_TOTAL_MIB": str(total_mib + 616), **variables,
    }
    done = subprocess.run(
        [VRAMSCOPE, "run", "-o", tmp_path / f"{name}.vram", *options, "--", sys.executable, program],
        env=environment, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done


def told(tmp_path: Path, *words: str, name: str = "x") -> dict:
    done = subprocess.run(
        [VRAMSCOPE, "report", tmp_path / f"{name}.vram", "--json", *words], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PAST_THE_DEVICE = """
held = [alloc(100) for _ in range(10)]
print(sum(at > 0 for at in held), free_mib() >= 0)
print([free(at) for at in held].count(0))
print(alloc(100) > 0)
"""


def test_without_it_the_driver_s_answer_is_the_program_s(tmp_path):
    assert run(tmp_path, PAST_THE_DEVICE, "--no-report").stdout.startswith("7 True")


def test_a_program_that_wants_more_than_the_device_has(tmp_path):
    """Every request is served, every free gives its memory back, and the ledger of the device is NVML's."""
    done = run(tmp_path, PAST_THE_DEVICE, "--overflow")
    assert done.stdout == "10 True\n10\nTrue\n"
    assert "Out of memory" not in done.stderr
    assert "Overflow on gpu0" in done.stderr and "300 MiB of it in host memory" in done.stderr, done.stderr
    report = told(tmp_path)
    (overflow,) = report["overflow"]
    assert overflow["host_bytes"] == overflow["most_host_bytes"] == 300 * MIB
    # The context with what is beside the process's figure, and three page tables.
    assert abs(overflow["used_bytes"] - (1000 + 527 + 6) * MIB) < 8 * MIB
    host = {tuple(row["path"]): row["bytes"] for row in told(tmp_path, "--at", "peak")["rows"] if row["device"] == -2}
    assert host == {("application", "in place of gpu0", "allocated"): 300 * MIB}
    gpu = next(device for device in report["devices"] if device["index"] == 0)
    assert gpu["ledger_bytes"] <= DEVICE_MIB * MIB
    assert all(abs(residual["worst_bytes"]) < 4 * MIB for residual in report["residuals"])
    assert all(invariant["holds"] for invariant in report["invariants"])
    assert report["losses"] == []


def test_pytorch_s_allocator_gives_its_cache_back_first(tmp_path):
    """Its first refusal is its own affair; the second one for the same request would raise, and is served."""
    done = run(
        tmp_path,
        """
        torch = Library("c10_cuda")
        asked, cached = torch.ask(500)
        print("first", asked, cached > 0)
        # Its cache answers: no memory of the host's is used.
        asked, at = torch.ask(600, release=lambda: free(cached))
        print("cached", asked, at < 1 << 40)
        # Nothing is cached any more.
        asked, more = torch.ask(400)
        print("full", asked, more > 0)
        print("again", *(torch.ask(400)[0] for _ in range(2)))
        print(free(more), free(at))
        """,
        "--overflow",
    )
    assert done.stdout.splitlines() == ["first 1 True", "cached 2 True", "full 2 True", "again 2 2", "0 0"]
    assert "Out of memory" not in done.stderr and not list(tmp_path.glob("*.oom-*"))
    refusals = told(tmp_path, "--oom")["refusals"]
    assert refusals and all(refusal["served"] for refusal in refusals)
    assert told(tmp_path)["overflow"][0]["most_host_bytes"] == 1200 * MIB


def test_blocks_in_the_host_s_memory_have_their_names(tmp_path):
    """The peak is that of a device which is large enough, byte for byte, by line; what was in the host is told."""
    text = """
    torch = Library("c10_cuda")
    def layer(mib):
        asked, at = torch.ask(mib)
        block(at, mib - 10)
        return at
    kept = [layer(200) for _ in range(6)]
    for at in kept[3:]:
        block(at, -190)
    last = layer(20)
    """
    run(tmp_path, text, "--overflow", "--no-report")
    (overflow,) = told(tmp_path)["overflow"]
    run(tmp_path, text, "--no-report", total_mib=8192, name="large")
    large = told(tmp_path, name="large")
    assert "overflow" not in large
    most = overflow["categories"]
    assert {name: size for name, size in most.items() if name != "driver"} == {
        "unknown": 6 * 190 * MIB, "fragmentation": 6 * 10 * MIB
    }
    assert sum(most.values()) == overflow["held_bytes"]
    # Page tables of the host's memory come to it; what is the device's own may count for the process or not.
    undisturbed = sum(row["bytes"] for row in large["categories"] if row["device"] == 0 and row["category"] == "driver")
    assert abs(most["driver"] - undisturbed) < 16 * MIB
    assert overflow["host_bytes"] == 600 * MIB
    assert overflow["host_lines"] == {"program.py:6 in layer": 570 * MIB, "(free in PyTorch's segments)": 30 * MIB}
    assert overflow["host_categories"]["fragmentation"] == 30 * MIB
    report = told(tmp_path, "--by", "line")
    rows = {row["path"][0]: row["bytes"] for row in report["rows"] if row["device"] == -2}
    assert rows["program.py:6 in layer"] == 570 * MIB
    assert all(invariant["holds"] for invariant in report["invariants"]) and report["losses"] == []


@pytest.mark.parametrize(("bound", "served"), [("150M", 8), ("99M", 7), ("1G", 10)])
def test_no_more_than_was_allowed(tmp_path, bound, served):
    done = run(tmp_path, PAST_THE_DEVICE, f"--overflow={bound}", "--no-report")
    assert done.stdout.startswith(f"{served} True"), done.stdout
    assert ("--overflow served no more: the bound that --overflow sets was reached" in done.stderr) == (served < 10)
    # The recording contains the driver's failure as without --overflow.
    assert len(told(tmp_path, "--oom")["refusals"]) == min(1, 10 - served)


def test_a_driver_that_cannot(tmp_path):
    """One line says so, and the program gets the error that it would have got."""
    done = run(tmp_path, PAST_THE_DEVICE, "--overflow", "--no-report", VRAMSCOPE_FAKE_NO_HOST_NUMA="1")
    assert done.stdout.startswith("7 True")
    lines = [line for line in done.stderr.splitlines() if "--overflow" in line]
    assert lines == ["vramscope: --overflow could not serve a request: cuMemCreate of host memory said 801: "
                     "it got the driver's own answer"]


@pytest.mark.parametrize("call", ["cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"])
def test_what_fails_half_way_is_undone(tmp_path, call):
    done = run(tmp_path, PAST_THE_DEVICE, "--overflow=350M", "--no-report", VRAMSCOPE_FAKE_FAIL=f"{call}:1")
    assert done.stdout == "9 True\n9\nTrue\n"
    assert f"{call} of host memory said 2" in done.stderr
    assert told(tmp_path)["overflow"][0]["most_host_bytes"] == 200 * MIB


def test_memory_that_is_freed_in_a_capture_goes_when_that_is_over(tmp_path):
    """Nobody may wait for the device then: the capture stays whole, and the memory comes back afterwards."""
    done = run(
        tmp_path,
        """
        held = [alloc(100) for _ in range(9)]
        stream, graph = ctypes.c_void_p(), ctypes.c_void_p()
        assert cuda.cuStreamCreate(ctypes.byref(stream), 1) == 0
        assert cuda.cuStreamBeginCapture_v2(stream, 0) == 0
        print(free(held.pop()), free(held.pop()), alloc(100))
        assert cuda.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
        print(alloc(100) > 0, alloc(100) > 0, alloc(100))
        """,
        "--overflow=200M", "--no-report",
    )
    assert done.stdout == "0 0 -2\nTrue True -2\n"


def test_pytorch_s_own_pools_are_answered_as_without_it(tmp_path):
    """Where it does not ask again, a refusal is the driver's and no other: what fits is given."""
    done = run(
        tmp_path,
        """
        pool = Library("c10_cuda").library
        def ask_once(mib):
            address = ctypes.c_uint64()
            return pool.ask_once(ctypes.byref(address), ctypes.c_size_t(mib * MIB))
        print(*(ask_once(250) for _ in range(3)), free_mib() < 20)
        print(ask_once(9), ask_once(500), ask_once(499))
        """,
        "--overflow", "--no-report",
    )
    assert done.stdout == "0 0 0 False\n0 2 2\n"
    report = told(tmp_path)
    assert report["overflow"][0]["host_bytes"] == 250 * MIB
    assert all(abs(residual["worst_bytes"]) < 4 * MIB for residual in report["residuals"])


def test_expandable_segments_are_not_covered_and_run_says_so(tmp_path):
    done = run(tmp_path, "", "--overflow", "--no-report", PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert "--overflow does not serve expandable segments" in done.stderr


def test_a_size_that_is_none(tmp_path):
    done = subprocess.run([VRAMSCOPE, "run", "--overflow=much", "--", "true"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "--overflow: 'much' is not a size" in done.stderr


def test_memory_that_is_passed_on_is_never_served(tmp_path):
    done = run(
        tmp_path,
        """
        held = [alloc(100) for _ in range(7)]
        print(Library("nccl").ask(100)[0])
        print(alloc(100) > 0)
        """,
        "--overflow", "--no-report",
    )
    assert done.stdout == "-2\nTrue\n"


def test_a_forked_child_has_none_of_it(tmp_path):
    done = run(
        tmp_path,
        """
        held = [alloc(100) for _ in range(9)]
        child = os.fork()
        if child == 0:
            os._exit(free(held[-1]))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        print([free(at) for at in held].count(0))
        """,
        "--overflow", "--no-report",
    )
    assert done.stdout == "3\n9\n"  # CUDA_ERROR_NOT_INITIALIZED


def test_it_goes_with_its_context(tmp_path):
    done = run(
        tmp_path,
        """
        for _ in range(3):
            print(sum(alloc(100) > 0 for _ in range(9)))
            assert cuda.cuDevicePrimaryCtxReset_v2(0) == 0
            assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
            assert cuda.cuCtxSetCurrent(context) == 0
        """,
        "--overflow=250M", "--no-report",
    )
    assert done.stdout == "9\n9\n9\n"
    assert told(tmp_path)["overflow"][0]["most_host_bytes"] == 200 * MIB


def test_what_the_driver_says_of_such_an_address(tmp_path):
    """It is no other than one of cuMemAlloc's, but for what cannot be: it is not passed on to other processes."""
    done = run(
        tmp_path,
        """
        held = [alloc(100) for _ in range(9)]
        at = held[-1]
        device = ctypes.c_int(-1)
        print(cuda.cuPointerGetAttribute(ctypes.byref(device), 9, ctypes.c_uint64(at + MIB)), device.value)
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        print(cuda.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(at)),
              base.value == at, size.value // MIB)
        print(cuda.cuIpcGetMemHandle(ctypes.create_string_buffer(64), ctypes.c_uint64(at)) != 0)
        print(free(at + MIB) != 0, free(at), free(at) != 0)
        """,
        "--overflow", "--no-report",
    )
    assert done.stdout == "0 0\n0 True 100\nTrue\nTrue 0 True\n"
