# SPDX-License-Identifier: Apache-2.0
"""Counters of bytes that programs publish through NVTX."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import vramscope
from browser import EXECUTABLE, Browser, page_data
from places import FAKE, HOSTS, VRAMSCOPE

HOST = HOSTS / "nvtx_counters"

# A thousand turns, and one for each millisecond or so that 100,000 samples take.
MOST_OFTEN = 5000

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
needs_host = pytest.mark.skipif(
    not (HOST.exists() and (FAKE / "libcuda.so.1").exists()),
    reason="NVTX's headers have no counters, or the stand-in driver is not built",
)


def environment(directory: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "books"), **more}


def record(directory: Path, command: list[str], *options: str, **more: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [VRAMSCOPE, "run", "--no-report", *options, "-o", "x.vram", "--", *command],
        cwd=directory, capture_output=True, text=True, timeout=120, check=True, env=environment(directory, **more),
    )


def series(directory: Path) -> dict[tuple[int, str], list[int]]:
    """The values of each counter, by the process's number in the tables and the counter's name."""
    with vramscope.read(directory / "x.vram") as recording:
        counters = recording.table("nvtx_counters")
        named = list(zip(counters["process"], counters["name"]))
        values: dict[tuple[int, str], list[int]] = {}
        samples = recording.table("nvtx_samples")
        assert list(samples["time_ns"]) == sorted(samples["time_ns"])
        for counter, value in zip(samples["counter"], samples["bytes"]):
            values.setdefault(named[counter], []).append(value)
    return values


def report(directory: Path) -> dict:
    done = subprocess.run(
        [VRAMSCOPE, "report", "x.vram", "--json"], cwd=directory, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


@needs_host
def test_counters_of_bytes_are_series(tmp_path: Path) -> None:
    printed = record(tmp_path, [str(HOST)]).stdout
    assert dict(line.split(": ") for line in printed.splitlines()) == {
        **dict.fromkeys(["overall live", "in KiB", "not a number", "scaled", "deltas", "bytes in use"], "dynamic"),
        **{"op3 CudfFilter d0 #7": "dynamic", "pool": "dynamic", "cache": "static"},
        **dict.fromkeys(["temperature", "traffic", "bytes per second", "steps"], "none"),
        **dict.fromkeys(["short", "short semantics", "other version", "scope"], "none"),
    }
    assert series(tmp_path) == {
        (1, "overall live"): [0, 3_000_000_000, 100, 0],
        (1, "in KiB"): [1536],
        (1, "scaled"): [768],
        (1, "deltas"): [100, 150, 120],
        (1, "bytes in use"): [7],
        (1, "Velox GPU memory/query 1/op3 CudfFilter d0 #7"): [4096],
        (1, "Velox GPU memory/query 1/GPU[CUDAID:0]/pool"): [8192],
        (1, "mine/cache"): [50],
    }
    counters = report(tmp_path)["nvtx_counters"]
    assert [counter["peak_bytes"] for counter in counters] == [3_000_000_000, 8192, 4096, 1536, 768, 150, 50, 7]
    assert {counter["name"]: counter["device"] for counter in counters if counter["device"] is not None} == {
        "Velox GPU memory/query 1/GPU[CUDAID:0]/pool": 0
    }
    (overall, *_) = counters
    assert (overall["samples"], overall["last_bytes"]) == (4, 0)


@needs_host
def test_without_the_probe_or_with_another_tool_no_counter_has_an_id(tmp_path: Path) -> None:
    plain = subprocess.run([HOST], capture_output=True, text=True, timeout=60, env=environment(tmp_path))
    assert plain.returncode == 0, plain.stderr
    assert {line.split(": ")[1] for line in plain.stdout.splitlines()} == {"none"}
    assert record(tmp_path, [str(HOST)], NVTX_INJECTION64_PATH="/no/such/tool.so").stdout == plain.stdout
    assert series(tmp_path) == {}
    assert "nvtx_counters" not in report(tmp_path)


@needs_host
def test_a_counter_that_changes_without_end(tmp_path: Path) -> None:
    record(tmp_path, [str(HOST), "often"])
    (values,) = series(tmp_path).values()
    assert values[:1000] == list(range(1, 1001))
    assert values == sorted(values) and len(values) < MOST_OFTEN
    assert values[-1] == 100_000


@needs_host
def test_counters_beyond_the_table_are_counted(tmp_path: Path) -> None:
    record(tmp_path, [str(HOST), "many"])
    values = series(tmp_path)
    assert values == {(1, f"counter {i}"): [i + 1] for i in range(6144)}
    losses = {loss["name"]: loss["count"] for loss in report(tmp_path)["losses"]}
    assert losses["NVTX counters not recorded"] == 7000 - 6144


@needs_host
def test_a_child_has_values_of_its_own(tmp_path: Path) -> None:
    record(tmp_path, [str(HOST), "fork"])
    assert series(tmp_path) == {(1, "forked"): [11], (2, "forked"): [11]}


def test_counters_of_pythons_nvtx_package(tmp_path: Path) -> None:
    nvtx = pytest.importorskip("nvtx")
    if not hasattr(nvtx, "CounterSemantics"):
        pytest.skip("this nvtx package has no counters")
    program = """
import nvtx
domain = nvtx.get_domain("engine")
live = domain.get_counter("live", int, semantics=nvtx.CounterSemantics(unit="bytes", min=0))
loss = domain.get_counter("loss", float)
for i in range(3):
    live.sample(1000 * i)
    loss.sample(0.5)
"""
    record(tmp_path, [sys.executable, "-c", program])
    assert series(tmp_path) == {(1, "engine/live"): [0, 1000, 2000]}


@needs_host
@pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")
def test_counters_are_lines_of_the_page(tmp_path: Path) -> None:
    record(tmp_path, [str(HOST)], "--html", "x.html")
    written = {counter["name"]: counter for counter in page_data(tmp_path / "x.html")["lines"]}
    assert [value for _, value in written["overall live"]["samples"]] == [0, 3_000_000_000, 100, 0]
    with Browser() as browser:
        browser.open(tmp_path / "x.html")
        chips = """[...document.querySelectorAll("button.legend-chip:has(.dashed)")]"""
        shown = f"{chips}.filter((chip) => chip.ariaPressed === 'true').map((chip) => chip.textContent)"
        names = [name.rsplit("/", 1)[-1] for name in written]
        assert browser.run(f"{chips}.map((chip) => chip.textContent)") == names
        assert browser.run(shown) == ["overall live"]
        picture = """document.querySelector("canvas.timeline").toDataURL()"""
        before = browser.run(picture)
        browser.act(f"{chips}[1].click();")
        browser.settle()
        assert browser.run(shown) == ["overall live", "pool"]
        browser.act(f"{chips}[0].click();")
        browser.settle()
        assert browser.run(shown) == ["pool"]
        assert browser.run(picture) != before
