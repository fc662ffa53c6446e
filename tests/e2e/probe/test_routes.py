# SPDX-License-Identifier: Apache-2.0
"""Every way to the CUDA driver is recorded, or is a loss with a name; and none is changed by the probe."""
from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from places import DUMP, FAKE, HOSTS, MIB, PROBE, ROOT, VRAMSCOPE

DRIVER_UNSEEN = 20

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")


@dataclass
class Outcome:
    records: list[dict]
    unseen: int  # losses "CUDA driver calls not recorded"
    notes: dict[str, list[str]]
    output: str

    @property
    def sizes(self) -> list[int]:
        """MiB of each recorded allocation."""
        return [r["size"] // MIB for r in self.records if r["record"] == "Alloc"]


def run(
    command: list[str | Path],
    directory: Path,
    library_path: Path | None = FAKE,
    preload: tuple[str | Path, ...] = (PROBE,),
    probe_extra: dict[str, str] | None = None,
) -> Outcome:
    """Runs a command without and with the probe: the same output and status; returns what was recorded."""
    base = {k: v for k, v in os.environ.items() if k not in ("LD_LIBRARY_PATH", "LD_PRELOAD")}
    if library_path is not None:
        base["LD_LIBRARY_PATH"] = str(library_path)
    live = directory / "live"
    live.mkdir()
    others = [str(p) for p in preload if p != PROBE]
    plain_environment = {**base, "VRAMSCOPE_FAKE_BOOKS": str(directory / "plain.books")}
    if others:
        plain_environment["LD_PRELOAD"] = ":".join(others)
    environment = {
        **base,
        "VRAMSCOPE_FAKE_BOOKS": str(directory / "books"),
        "VRAMSCOPE_DIR": str(live),
        "VRAMSCOPE_OPTIONS": "",
        **(probe_extra or {}),
    }
    if preload:
        environment["LD_PRELOAD"] = ":".join(str(p) for p in preload)
    words = [str(word) for word in command]
    plain = subprocess.run(words, capture_output=True, timeout=120, env=plain_environment)
    recorded = subprocess.run(words, capture_output=True, timeout=120, env=environment)
    assert plain.returncode == 0, plain.stderr.decode()
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    records: list[dict] = []
    for path in sorted(live.glob("*.vrl")):
        dump = subprocess.run([str(DUMP), str(path)], capture_output=True, text=True, check=True)
        records += [json.loads(line) for line in dump.stdout.splitlines()]
    notes: dict[str, list[str]] = {}
    for record in records:
        if record["record"] == "Runtime":
            notes.setdefault(record["key"], []).append(record["value"])
    unseen = sum(struct.unpack_from("<32Q", path.read_bytes(), 80)[DRIVER_UNSEEN] for path in live.glob("*.vrl"))
    return Outcome(records, unseen, notes, plain.stdout.decode())


@pytest.fixture
def drivers(tmp_path) -> Path:
    """A folder with the driver under every name that it has on real machines."""
    folder = tmp_path / "drivers"
    folder.mkdir()
    shutil.copy(FAKE / "libcuda.so.1", folder / "libcuda.so.580.1")
    (folder / "libcuda.so.1").symlink_to("libcuda.so.580.1")
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "driver_of_this_machine.so").symlink_to("libcuda.so")
    return folder


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so", "libcuda.so.580.1"])
def test_by_name(tmp_path, drivers, name):
    outcome = run([HOSTS / "driver_route", "open", name], tmp_path, library_path=drivers)
    assert (outcome.sizes, outcome.unseen) == ([3, 5, 7], 0)
    assert outcome.notes["cuda.found"] == ["before the program opened it"]


@pytest.mark.parametrize("name", ["libcuda.so.1", "libcuda.so.580.1", "driver_of_this_machine.so"])
def test_by_path_and_by_a_link_of_another_name(tmp_path, drivers, name):
    outcome = run([HOSTS / "driver_route", "open", drivers / name], tmp_path, library_path=None)
    assert (outcome.sizes, outcome.unseen) == ([3, 5, 7], 0)
    assert outcome.notes["cuda.driver"][0].startswith(str(drivers))


def test_ctypes(tmp_path):
    program = (
        "import ctypes\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "context, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
        "assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
        "assert cuda.cuCtxSetCurrent(context) == 0\n"
        "for mib in (3, 5, 7):\n"
        "    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) == 0\n"
    )
    outcome = run([sys.executable, "-c", program], tmp_path)
    assert (outcome.sizes, outcome.unseen) == ([3, 5, 7], 0)


def own_folder(tmp_path: Path) -> Path:
    """A folder with the libraries whose RUNPATH is $ORIGIN/own, and a driver there."""
    folder = tmp_path / "program"
    (folder / "own").mkdir(parents=True)
    for name in ("libdriver_opener.so", "libdriver_plugin_own.so"):
        shutil.copy(HOSTS / name, folder)
    shutil.copy(FAKE / "libcuda.so.1", folder / "own")
    return folder


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_search_path_of_the_library_that_opens_it(tmp_path, elsewhere):
    """RUNPATH stands behind LD_LIBRARY_PATH and before the system's folders: the probe changes neither."""
    folder = own_folder(tmp_path)
    path = FAKE if elsewhere else None
    outcome = run(
        [HOSTS / "driver_route", "opener", folder / "libdriver_opener.so", "libcuda.so.1"], tmp_path, library_path=path
    )
    assert (outcome.sizes, outcome.unseen) == ([3, 5, 7], 0)
    assert outcome.output.splitlines()[0] == str((FAKE if elsewhere else folder / "own") / "libcuda.so.1")


@pytest.mark.parametrize("token", ["$ORIGIN", "${ORIGIN}"])
def test_origin_in_the_name(tmp_path, token):
    folder = own_folder(tmp_path)
    outcome = run(
        [HOSTS / "driver_route", "opener", folder / "libdriver_opener.so", f"{token}/own/libcuda.so.1"],
        tmp_path,
        library_path=None,
    )
    assert (outcome.sizes, outcome.unseen) == ([3, 5, 7], 0)


def test_a_deepbind_library_brings_the_driver(tmp_path):
    outcome = run([HOSTS / "driver_route", "plugin", HOSTS / "libdriver_plugin.so"], tmp_path)
    assert (outcome.sizes, outcome.unseen) == ([3, 5], 0)


def test_a_deepbind_library_with_a_driver_of_its_own_is_found_late(tmp_path):
    """Nothing says beforehand which driver that will be: its slots are changed at the next chance, and a loss says so."""
    folder = own_folder(tmp_path)
    command = [HOSTS / "driver_route", "plugin", folder / "libdriver_plugin_own.so"]
    outcome = run(command, tmp_path, library_path=None)
    assert (outcome.sizes, outcome.unseen) == ([5], 1)
    assert outcome.notes["cuda.unseen"] == [f"what was called before it was found: {folder}/own/libcuda.so.1"]
    assert outcome.notes["cuda.found"] == ["after it was loaded, as a part of something else"]


def test_a_namespace_of_its_own_is_a_loss(tmp_path):
    outcome = run([HOSTS / "driver_route", "namespace", FAKE / "libcuda.so.1"], tmp_path)
    assert (outcome.sizes, outcome.unseen) == ([], 1)
    assert outcome.notes["cuda.unseen"][0].startswith("opened in a link namespace of its own: ")


def test_a_second_driver_is_left_to_itself(tmp_path, drivers):
    command = [HOSTS / "driver_route", "copies", FAKE / "libcuda.so.1", drivers / "libcuda.so.1"]
    outcome = run(command, tmp_path)
    assert (outcome.sizes, outcome.unseen) == ([3, 5, 7], 1)
    assert outcome.notes["cuda.unseen"] == [f"another copy of the driver: {drivers}/libcuda.so.1"]


def test_a_constructor_before_ours(tmp_path):
    outcome = run([HOSTS / "driver_constructor"], tmp_path)
    assert (outcome.sizes, outcome.unseen) == ([3, 5], 0)
    assert all(r["begin"] < r["end"] for r in outcome.records if r["record"] == "Alloc")


def test_every_version_of_every_entry_point(tmp_path):
    """cuGetProcAddress gives the function that the driver chose, or that function's wrapper."""
    outcome = run([HOSTS / "driver_versions"], tmp_path)
    chosen = outcome.output.splitlines()
    assert len(chosen) > 5000
    assert "cuMemAlloc 3000 0: cuMemAlloc" in chosen and "cuMemAlloc 3020 0: cuMemAlloc_v2" in chosen
    assert "cuMemAllocAsync 11020 2: cuMemAllocAsync_ptsz" in chosen


def test_injected_by_the_driver(tmp_path):
    """Without a preload: what the program fetched before cuInit leads to the wrappers from cuInit on."""
    injection = {"CUDA_INJECTION64_PATH": str(PROBE)}
    outcome = run([HOSTS / "driver_route", "kept", "libcuda.so.1"], tmp_path, preload=(), probe_extra=injection)
    assert outcome.sizes == [3, 5, 7]
    assert outcome.notes["cuda.found"][0].startswith("in a program that used it already")


def test_preloaded_and_injected_is_recorded_once(tmp_path):
    injection = {"CUDA_INJECTION64_PATH": str(PROBE)}
    outcome = run([HOSTS / "driver_route", "kept", "libcuda.so.1"], tmp_path, probe_extra=injection)
    assert (outcome.sizes, outcome.unseen) == ([3, 5, 7], 0)


TOOLKIT = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
RUNTIMES = [*TOOLKIT.glob("lib*/libcudart.so"), *TOOLKIT.glob("lib*/libcudart_static.a")]


@pytest.mark.skipif(not RUNTIMES, reason="no CUDA toolkit")
@pytest.mark.parametrize("kind", ["libcudart.so", "libcudart_static.a"])
@pytest.mark.parametrize("route", ["preloaded", "injected", "nobody"])
def test_the_cuda_runtime(tmp_path, monkeypatch, kind, route):
    """NVIDIA's own runtime keeps its pointers in its data: all of them lead to the wrappers."""
    (runtime, *_) = [path for path in RUNTIMES if path.name == kind]
    program = tmp_path / "program"
    words = ["cc", ROOT / "tests/hosts/driver_loading/cudart_pointers.c", runtime, f"-Wl,-rpath,{runtime.parent}", "-o", program]
    subprocess.run([*words, "-ldl", "-lpthread", "-lrt", "-lstdc++", "-lm"], check=True)
    monkeypatch.setenv("POINTERS_FILE", str(tmp_path / "pointers"))
    preload = (PROBE,) if route == "preloaded" else ()
    injection = {"CUDA_INJECTION64_PATH": str(PROBE)} if route == "injected" else {}
    run([program], tmp_path, preload=preload, probe_extra=injection)
    left = int((tmp_path / "pointers").read_text())
    assert left > 0 if route == "nobody" else left == 0


def library(tmp_path: Path, name: str, source: str) -> Path:
    path = tmp_path / name
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)], input=source.encode(), check=True)
    return path


def test_nothing_is_redirected_under_a_sanitizer(tmp_path):
    tool = library(tmp_path, "libTreeLauncherTargetInjection.so", "int tool;")
    outcome = run([HOSTS / "driver_route", "open", "libcuda.so.1"], tmp_path, preload=(PROBE, tool))
    assert (outcome.sizes, outcome.unseen) == ([], 1)
    assert outcome.notes["cuda.unseen"][0].startswith("left to another tool: compute-sanitizer")


def test_a_tool_that_interposes_dlsym_stays_in_front(tmp_path):
    """As HAMi does: the program gets the tool's function, the tool the probe's wrapper, and that one the driver's."""
    source = r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <string.h>
        static int (*next)(unsigned long long*, unsigned long);
        static int limited(unsigned long long* address, unsigned long bytes) {
          return bytes > (6ul << 20) ? 2 : next(address, bytes);
        }
        void* dlsym(void* handle, const char* name) {
          static void* (*real)(void*, const char*);
          if (!real) real = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
          void* found = real(handle, name);
          if (found && !strcmp(name, "cuMemAlloc_v2")) { next = found; return limited; }
          return found;
        }
    """
    tool = library(tmp_path, "libvgpu.so", source)
    program = (
        "import ctypes\n"
        "cuda = ctypes.CDLL('libcuda.so.1')\n"
        "context, address = ctypes.c_void_p(), ctypes.c_uint64()\n"
        "assert cuda.cuInit(0) == 0\n"
        "assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0\n"
        "assert cuda.cuCtxSetCurrent(context) == 0\n"
        "for mib in (3, 5, 7):\n"
        "    print(cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)))\n"
    )
    outcome = run([sys.executable, "-c", program], tmp_path, preload=(PROBE, tool))
    assert outcome.output.split() == ["0", "0", "2"]
    assert (outcome.sizes, outcome.unseen) == ([3, 5], 0)
    assert outcome.notes["cuda.other_tools"] == ["HAMi"]


def test_a_tool_that_has_the_names_of_the_driver_stays_in_front_of_linked_programs(tmp_path):
    """A limit that it sets holds with the probe as well, and what it lets through is recorded."""
    source = r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        int cuMemAlloc_v2(unsigned long long* address, unsigned long bytes) {
          static int (*next)(unsigned long long*, unsigned long);
          if (!next) next = dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuMemAlloc_v2");
          return bytes > (2ul << 20) ? next(address, 1 << 20) : next(address, bytes);
        }
    """
    tool = library(tmp_path, "libvgpu.so", source)
    outcome = run([HOSTS / "driver_needed"], tmp_path, preload=(PROBE, tool))
    assert (outcome.sizes, outcome.unseen) == ([1, 1, 7], 0)


def test_env_for_where_nothing_can_be_preloaded(tmp_path):
    """`vramscope env --injection`: the driver opens the probe; `finish` makes the recording of it."""
    base = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
    base |= {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    words = [VRAMSCOPE, "env", "--injection", "-o", "job.vram.d"]
    exports = subprocess.run(words, cwd=tmp_path, env=base, capture_output=True, text=True, check=True).stdout
    assert "export CUDA_INJECTION64_PATH=" in exports
    assert "LD_PRELOAD" not in exports and "NVTX" not in exports
    program = f"{exports}\n{HOSTS}/driver_route kept libcuda.so.1"
    subprocess.run(["sh", "-c", program], cwd=tmp_path, env=base, check=True, capture_output=True)
    subprocess.run([VRAMSCOPE, "finish", "job.vram.d"], cwd=tmp_path, env=base, check=True, capture_output=True)
    info = subprocess.run([VRAMSCOPE, "info", "job.vram"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "in a program that used it already" in info.stdout
    assert max(map(len, info.stdout.splitlines())) <= 200
