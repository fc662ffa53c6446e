# SPDX-License-Identifier: Apache-2.0
"""Loaders and other tools: libraries that go away, name spaces, interposers before and after the probe."""
from __future__ import annotations

import glob
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hosts import losses, probe_environment, run_both
from live_file import read_directory
from places import FAKE, HOSTS, PROBE, ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason="the probe is not built")

INTERPOSER = HOSTS / "libinterposer.so"


def find_library(*patterns: str) -> Path | None:
    found = [path for pattern in patterns for path in sorted(glob.glob(pattern))]
    return Path(found[0]) if found else None


def test_a_library_that_is_unloaded(tmp_path):
    (only,) = run_both("plugins", tmp_path)
    assert (only.counts["BlockAlloc"], only.counts["BlockFree"]) == (101, 101)


def test_a_link_namespace_of_its_own_is_not_recorded_and_named(tmp_path, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(FAKE))
    monkeypatch.setenv("VRAMSCOPE_FAKE_BOOKS", str(tmp_path / "books"))
    session = tmp_path / "session"
    session.mkdir()
    (only,) = run_both("plugins", session, "apart")
    assert (only.counts["BlockAlloc"], only.counts["BlockFree"]) == (1, 1)
    assert only.counts["Alloc"] == 0
    assert losses(session)["DriverUnseen"] >= 1


def test_a_driver_of_another_time(tmp_path, monkeypatch):
    """A newer version, entry points that nobody knows, and most others missing: the program sees just that."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(HOSTS / "strange"))
    (only,) = run_both("strange_driver_user", tmp_path)
    assert only.counts["Alloc"] == 1, "what is known is recorded"


@pytest.mark.parametrize("probe_first", [True, False])
@pytest.mark.parametrize("host", ["frees_at_exit", "plugins", "thread_storm"])
def test_another_interposer_before_and_after_the_probe(tmp_path, host, probe_first):
    both = [str(PROBE), str(INTERPOSER)]
    preload = ":".join(both if probe_first else both[::-1])
    (only,) = run_both(host, tmp_path, preload=(str(INTERPOSER), preload))
    expected = {"frees_at_exit": 1, "plugins": 101, "thread_storm": 12000}[host]
    assert only.counts["BlockAlloc"] == expected
    assert only.counts["Teardown"] == 1


def test_a_tool_whose_dlopen_cannot_be_called_in_a_forked_child(tmp_path):
    """As the thread sanitizer's, where another thread held its lock at the fork. The child's own work needs no dlopen."""
    source = r"""
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <unistd.h>
        static pid_t owner;
        __attribute__((constructor)) static void Load(void) { owner = getpid(); }
        void* dlopen(const char* file, int mode) {
          while (getpid() != owner) pause();
          return ((void* (*)(const char*, int))dlsym(RTLD_NEXT, "dlopen"))(file, mode);
        }
    """
    tool = tmp_path / "libtool.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(tool)], input=source.encode(), check=True)
    session = tmp_path / "session"
    session.mkdir()
    children = run_both("fork_beside_loader", session, preload=(str(tool), f"{PROBE}:{tool}"))
    assert [file.counts["BlockAlloc"] for file in children] == [100] * 3


@pytest.mark.parametrize("probe_first", [True, False])
def test_jemalloc(tmp_path, probe_first):
    library = find_library("/usr/lib/*/libjemalloc.so.2")
    if library is None:
        pytest.skip("libjemalloc2 is not installed")
    both = [str(PROBE), str(library)]
    preload = ":".join(both if probe_first else both[::-1])
    (only,) = run_both("thread_storm", tmp_path, preload=(str(library), preload))
    assert only.counts["BlockAlloc"] == only.counts["BlockFree"] == 12000


@pytest.mark.parametrize("probe_first", [True, False])
def test_heaptrack(tmp_path, probe_first):
    library = find_library("/usr/lib/heaptrack/libheaptrack_preload.so", "/usr/lib/*/heaptrack/libheaptrack_preload.so")
    if library is None:
        pytest.skip("heaptrack is not installed")
    os.environ["DUMP_HEAPTRACK_OUTPUT"] = str(tmp_path / "heaptrack")
    try:
        session = tmp_path / "session"
        session.mkdir()
        both = [str(PROBE), str(library)]
        preload = ":".join(both if probe_first else both[::-1])
        (only,) = run_both("frees_at_exit", session, preload=(str(library), preload))
    finally:
        del os.environ["DUMP_HEAPTRACK_OUTPUT"]
    assert (only.counts["BlockAlloc"], only.counts["BlockFree"], only.counts["Teardown"]) == (1, 1, 1)
    assert (tmp_path / "heaptrack").stat().st_size > 0


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
@pytest.mark.parametrize("tool", [("helgrind", "--history-level=none"), ("drd",)], ids=lambda tool: tool[0])
def test_what_looks_for_races_finds_none_with_our_suppressions(tmp_path, tool):
    suppressions = ROOT / "share" / "valgrind" / "vramscope.supp"
    result = subprocess.run(
        ["valgrind", f"--tool={tool[0]}", *tool[1:], f"--suppressions={suppressions}", "--error-exitcode=9",
         str(HOSTS / "cancel_threads")],
        capture_output=True, text=True, timeout=300, env=probe_environment(tmp_path),
    )
    assert result.returncode == 0, result.stderr
    (only,) = read_directory(tmp_path)
    assert only.counts["BlockAlloc"] == only.counts["BlockFree"] >= 64


def test_a_program_built_with_address_sanitizer(tmp_path):
    """Its runtime comes first in LD_PRELOAD, as it demands; then the probe."""
    sources = Path(__file__).resolve().parents[2] / "hosts"
    built = subprocess.run(
        ["cc", "-fsanitize=address", f"-I{sources}", "-o", str(tmp_path / "host"), str(sources / "process/fork_without_exec.c"),
         f"-L{HOSTS}", "-lc10", f"-Wl,-rpath,{HOSTS}"],
        capture_output=True, text=True,
    )
    runtime = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True).stdout.strip()
    if built.returncode != 0 or not Path(runtime).exists():
        pytest.skip("no address sanitizer: " + built.stderr[-200:])
    listed = subprocess.run(["ldd", str(tmp_path / "host")], capture_output=True, text=True).stdout
    (runtime,) = [line.split()[2] for line in listed.splitlines() if "libasan" in line]
    session = tmp_path / "session"
    session.mkdir()
    environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"}
    if VRAMSCOPE.exists():
        # The launcher puts the probe first, and tells the runtime so.
        launched = subprocess.run(
            [str(VRAMSCOPE), "run", "--cpu", "--no-report", "-o", "x.vram", "--", "./host"],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, env=environment,
        )
        assert (launched.returncode, launched.stdout) == (0, "child 7\n"), launched.stderr
    plain = subprocess.run([str(tmp_path / "host")], capture_output=True, timeout=60, env=environment)
    recorded = subprocess.run(
        [str(tmp_path / "host")], capture_output=True, timeout=60,
        env={**probe_environment(session, preload=f"{runtime}:{PROBE}"), "ASAN_OPTIONS": "detect_leaks=0"},
    )
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert len(read_directory(session)) == 2
