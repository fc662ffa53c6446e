# SPDX-License-Identifier: Apache-2.0
"""Programs that run out of memory, each for another reason: their tensors stand in the stand-in driver's memory,
which refuses them, and the first three lines of what is said of it name the reason."""
from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import FAKE, VRAMSCOPE

torch_at = importlib.util.find_spec("torch")
pytestmark = [
    pytest.mark.skipif(torch_at is None, reason="no PyTorch"),
    pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built"),
]
PROGRAMS = Path(__file__).parents[1] / "programs"
# The twelve causes, and one that continues. Another process has its own test.
CAUSES = [
    "batch", "kept_loss", "fragmentation", "graph_pool", "communicators", "eval_graph", "optimizer_state", "leak",
    "vocabulary", "kv_cache", "workspace", "caught",
]


def expected() -> dict[str, list[str]]:
    """For each cause, what the first three lines must match."""
    for part in ast.parse((PROGRAMS / "causes.py").read_text()).body:
        if isinstance(part, ast.Assign) and part.targets[0].id == "EXPECTED":
            return ast.literal_eval(part.value)
    raise AssertionError("causes.py has no EXPECTED")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory) -> Path:
    """PyTorch's CPU allocator over the driver, and libraries under the names of NVIDIA's."""
    folder = tmp_path_factory.mktemp("libraries")
    torch = Path(torch_at.origin).parent
    build = ["c++", "-std=c++20", "-fPIC", "-shared"]
    allocator = ["-O1", "-isystem", torch / "include", "-L", torch / "lib", PROGRAMS / "torch_in_driver.cc", "-lc10"]
    # What it does after the call keeps its frame in the stack.
    (folder / "taker.cc").write_text(
        """
        extern "C" int cuMemAlloc_v2(unsigned long long*, unsigned long);
        extern "C" int Take(unsigned long long* address, unsigned long size) {
          const int result = cuMemAlloc_v2(address, size);
          return result == 0 ? 0 : -1;
        }
        """
    )
    for name, sources in {"liballocator.so": allocator, "libnccl.so.2": [folder / "taker.cc"]}.items():
        words = [*build, *sources, "-o", folder / name, FAKE / "libcuda.so.1"]
        done = subprocess.run(words, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    shutil.copy(folder / "libnccl.so.2", folder / "libcublas.so.12")
    return folder


def report(file: Path, *words: str) -> str:
    done = subprocess.run([VRAMSCOPE, "report", file, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment_of(libraries: Path, total_mib: int) -> dict[str, str]:
    """Of that size a context takes 518, and what is held back 600."""
    return {
        **os.environ,
        "CAUSES_ALLOCATOR": str(libraries / "liballocator.so"),
        "LD_LIBRARY_PATH": f"{FAKE}:{libraries}",
        "VRAMSCOPE_FAKE_BOOKS": str(libraries / f"books-{total_mib}"),
        "VRAMSCOPE_FAKE_TOTAL_MIB": str(total_mib),
    }


@pytest.fixture(scope="module")
def said(libraries) -> dict[str, str]:
    """What is said of each."""
    file = libraries / "x.vram"
    environment = environment_of(libraries, 1400)
    program = [sys.executable, PROGRAMS / "causes.py", ",".join(CAUSES)]
    done = subprocess.run(
        [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", file, "--", *program],
        env=environment, capture_output=True, text=True, timeout=600,
    )
    assert done.returncode == 0, done.stderr
    # Each but the last ends with the error of PyTorch, and that one catches it.
    assert done.stdout.splitlines()[-1] == "caught 0" and done.stdout.count(" 3\n") == len(CAUSES) - 1, done.stdout
    assert (libraries / "x.oom-1").exists() and (libraries / "x.oom-2").exists()
    refusals = json.loads(report(file, "--oom", "--json"))["refusals"]
    numbers = [i + 1 for i, refusal in enumerate(refusals) if not refusal["served"]]
    assert len(numbers) == len(CAUSES), refusals
    return {cause: report(file, f"--oom={number}") for cause, number in zip(CAUSES, numbers)}


@pytest.mark.parametrize("cause", CAUSES)
def test_the_first_three_lines_name_the_cause(said, cause):
    head = "\n".join(said[cause].splitlines()[:3])
    for pattern in expected()[cause]:
        assert re.search(pattern, head), said[cause]


# What would have been enough.
TRIES = {
    "batch": "halve the batch: saves at most",
    "kept_loss": r"let go of what iterations keep at causes\.py:\d+ in kept_loss.*: saves at most \d+ MiB",
    "fragmentation": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: saves",
    "graph_pool": "capture CUDA graphs with one pool",
    "communicators": "fewer communicators",
    "leak": r"free what is allocated at causes\.py:\d+ in leak",
    "workspace": "smaller workspaces",
}


@pytest.mark.parametrize("cause", TRIES)
def test_the_fourth_line_is_what_would_save_enough(said, cause):
    line = said[cause].splitlines()[3]
    assert re.match("  try:   " + TRIES[cause], line), said[cause]


HOLDER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1000 << 20)) == 0
print("holds", flush=True)
sys.stdin.read()
"""


def test_another_process(libraries):
    """Nobody records it; it has more of the device than the training that does not fit beside it."""
    environment, file = environment_of(libraries, 3000), libraries / "beside.vram"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "holds\n"
        # Of what is left it would take more than all.
        program = [sys.executable, PROGRAMS / "causes.py", "another_process", "2"]
        done = subprocess.run(
            [VRAMSCOPE, "run", "--no-report", "-o", file, "--", *program],
            env=environment, capture_output=True, text=True, timeout=300,
        )
    finally:
        holder.stdin.close()
        holder.wait(timeout=60)
    assert done.returncode == 1 and "out of memory" in done.stderr.lower(), done.stderr
    text = report(file, "--oom")
    for pattern in expected()["another_process"]:
        assert re.search(pattern, "\n".join(text.splitlines()[:3])), text
