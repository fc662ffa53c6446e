# SPDX-License-Identifier: Apache-2.0
"""A folder with the recordings of a program's ranks is one report."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import EXECUTABLE, Browser
from places import FAKE, MIB, VRAMSCOPE

RANK = """
import ctypes, os, subprocess, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def batch(mib):
    assert cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20)) == 0
batch(100 if os.environ["RANK"] != "3" else 1124)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("ranks")
    recordings = directory / "recordings"
    recordings.mkdir()
    for rank in ("0", "1", "3"):
        environment = {
            **os.environ, "LD_LIBRARY_PATH": str(FAKE),
            "VRAMSCOPE_FAKE_BOOKS": str(directory / f"books{rank}"), "RANK": rank,
        }
        command = [VRAMSCOPE, "run", "--no-report", "-o", recordings / f"r{rank}.vram", "--", sys.executable, "-c", RANK]
        subprocess.run(command, env=environment, check=True, timeout=60, stderr=subprocess.DEVNULL)
    (recordings / "notes.txt").write_text("not a recording")
    return recordings


def report(*words: str | Path) -> str:
    return subprocess.run([VRAMSCOPE, "report", *words], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_heavier_rank_and_the_missing_one_are_named_first(folder):
    lines = report(folder).splitlines()
    assert lines[0].startswith("3 ranks, ") and lines[1].startswith("  rank 3 holds "), lines
    assert ": 1.00 GiB of unknown" in lines[1], lines  # whatever NVML saw of each context
    assert "missing: rank 2" in lines[2]


def test_together_they_are_the_sum_of_each(folder):
    told = json.loads(report(folder, "--json"))
    assert [rank["name"] for rank in told["ranks"]] == ["rank 0", "rank 1", "rank 3"]
    assert told["bytes"] == sum(rank["bytes"] for rank in told["ranks"]) == sum(told["categories"].values())
    assert told["missing"] == [2] and told["uneven"] and told["heaviest"] == "rank 3"
    for rank in told["ranks"]:
        alone = json.loads(report(rank["file"], "--json"))
        (process,) = [p for p in alone["processes"] if p["device"] == 0]
        assert (process["ledger_bytes"], process["pid"]) == (rank["bytes"], rank["pid"])
    starts = [rank["peak_wall_ns"] for rank in told["ranks"]]
    assert starts == sorted(starts) and min(starts) > told["first_wall_ns"]


def test_files_named_one_by_one(folder):
    told = json.loads(report(folder / "r1.vram", folder / "r0.vram", "--ranks", "--json"))
    assert [rank["name"] for rank in told["ranks"]] == ["rank 0", "rank 1"]
    # Without --ranks each is a report of its own, as ever.
    assert len(json.loads(report(folder / "r1.vram", folder / "r0.vram", "--json"))) == 2


def test_a_file_that_was_cut_off_is_named_and_the_others_reported(folder, tmp_path):
    for path in folder.glob("*.vram"):
        (tmp_path / path.name).write_bytes(path.read_bytes()[: 500 if path.stem == "r1" else None])
    text = report(tmp_path)
    assert text.startswith("2 ranks, ") and "missing: rank 1-2" in text and f"not read: {tmp_path}/r1.vram" in text


LAUNCHERS = ["RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"]


def test_each_launchers_own_variable(tmp_path):
    """The first of them counts: torchrun's, which Slurm or MPI may have started on each node."""
    program = RANK.replace('os.environ["RANK"]', '"0"')
    clean = {name: value for name, value in os.environ.items() if name not in LAUNCHERS}
    for number, variable in enumerate(LAUNCHERS):
        others = dict.fromkeys(LAUNCHERS[number + 1 :], "99")
        environment = {
            **clean, **others, variable: str(number), "LD_LIBRARY_PATH": str(FAKE),
            "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        }
        command = [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / f"{number}.vram", "--", sys.executable, "-c", program]
        subprocess.run(command, env=environment, check=True, timeout=60, stderr=subprocess.DEVNULL)
    told = json.loads(report(tmp_path, "--json"))
    assert [rank["rank"] for rank in told["ranks"]] == list(range(len(LAUNCHERS)))


# Exact bytes of the rows as the page copies them.
COPIED = """
  let copied = "";
  Object.defineProperty(navigator, "clipboard", {value: {writeText: async (text) => { copied = text; }}, configurable: true});
  const table = (name) => { document.querySelector(`[aria-label="${name}"] .copy`).click(); return copied.trim().split("\\n").slice(1).map((line) => line.split("\\t")); };
"""


@pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")
def test_the_page_of_all_ranks_has_the_figures_of_the_json(folder, tmp_path):
    page = tmp_path / "ranks.html"
    text = report(folder, "--html", page)
    assert text == report(folder)
    told = json.loads(report(folder, "--json"))
    with Browser(1280, 1000) as browser:
        browser.open(page)
        # Of ranks 0 and 1 the one is the median of whose context NVML saw more.
        more = f"Excess of rank 3 over {told['median']}"
        shown = browser.act(COPIED + f"const more = table('{more}');" + """return {head: document.querySelector("h1").textContent,
          facts: document.querySelector(".facts").textContent, ranks: table("Ranks"), more, categories: table("Categories"),
          wide: document.documentElement.scrollWidth};""")
        # 1 GiB, less what NVML saw more of the median's context.
        said = text.splitlines()[1].strip()
        assert re.match(r"rank 3 holds (1\.00 GiB|10[12]\d MiB) more than the median", said), said
        assert shown["head"] == said[0].upper() + said[1:] and "no recording of rank 2" in shown["facts"]
        assert {row[0]: int(row[4]) for row in shown["ranks"]} == {rank["name"]: rank["bytes"] for rank in told["ranks"]}
        assert {row[0]: int(row[1]) for row in shown["categories"]} == told["categories"]
        assert sum(int(row[2]) for row in shown["more"]) == sum(row["bytes"] for row in told["excess"])
        assert shown["wide"] <= 1280
        # The lines of the axis: each rank's highest is its peak, and the pointer says so.
        data = json.loads(re.search(r'id="vramscope-data">(.*?)</script>', page.read_text(), re.DOTALL).group(1))
        assert [max(of["bytes"]) for of in data["histories"]] == [rank["bytes"] for rank in told["ranks"]]
        tip = browser.act("""const box = document.querySelector("canvas").getBoundingClientRect();
          document.querySelector("canvas").dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: box.right - 30, clientY: box.top + 99}));
          return document.querySelector(".tip.on").textContent;""")
        assert "rank 3" in tip and "rank 0" in tip
        browser.resize(390, 844, mobile=True)
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth") == 390
        assert not browser.complaints


def test_what_does_not_go_with_it(folder, tmp_path):
    for words in (["--by", "line"], ["--csv"], ["--at", "end"]):
        done = subprocess.run([VRAMSCOPE, "report", folder, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "only --json and --html can be used" in done.stderr
    (tmp_path / "x.txt").write_text("")
    done = subprocess.run([VRAMSCOPE, "report", tmp_path], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "contains no recording (*.vram)" in done.stderr


LAUNCHER = """
import os, subprocess, sys
program, heavy = sys.argv[1:]
for rank in range(4):
    environment = {**os.environ, "RANK": str(rank), "MIB": "4196" if heavy == str(rank) else "100"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
"""
LAUNCHED = RANK.replace("byref(context), 0)", "byref(context), int(os.environ['RANK']))").replace(
    'batch(100 if os.environ["RANK"] != "3" else 1124)', 'batch(int(os.environ["MIB"]))'
)


def diff(*words: str | Path) -> dict:
    return json.loads(
        subprocess.run([VRAMSCOPE, "diff", "--json", *words], capture_output=True, text=True, check=True, timeout=60).stdout
    )


def test_ranks_within_one_recording_are_compared_by_their_medians_and_the_outlier_is_named(tmp_path):
    """As `vramscope run -- torchrun ...` leaves them."""
    assert LAUNCHED.count("environ") == 2, LAUNCHED
    recordings = {}
    for name, heavy in (("a", "none"), ("same", "none"), ("odd", "2")):
        recordings[name] = tmp_path / f"{name}.vram"
        environment = {
            **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_DEVICES": "4",
            "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / f"books-{name}"),
        }
        command = [VRAMSCOPE, "run", "--no-report", "-o", recordings[name], "--", sys.executable, "-c", LAUNCHER, LAUNCHED, heavy]
        subprocess.run(command, env=environment, check=True, timeout=120, stderr=subprocess.DEVNULL)
    same = diff(recordings["a"], recordings["same"])
    assert [rank["rank"] for rank in same["ranks"]["b"]] == [0, 1, 2, 3]
    assert not any("memory of unknown use" in said for said in same["causes"] + same["notes"]), same
    odd = diff(recordings["a"], recordings["odd"])
    # A note where A has an outlier too: NVML may not have seen the end of a context.
    (said,) = [said for said in odd["causes"] + odd["notes"] if said.startswith("rank 2 of B is ")]
    assert said.split("above ")[1].startswith("the median of its 4 ranks: memory of unknown use grew by 4.00 GiB"), said
    assert [rank["outlier"] for rank in odd["ranks"]["b"]] == [False, False, True, False]
    # Rows are of the two ranks compared, not of all.
    assert odd["peak"]["b_bytes"] == sum(row["b_bytes"] for row in odd["rows"])
    assert odd["peak"]["b_bytes"] == next(rank["peak_bytes"] for rank in odd["ranks"]["b"] if rank["compared"])
    assert 100 * MIB < odd["peak"]["b_bytes"] < 4196 * MIB
    # Of several such recordings all ranks count.
    assert len(diff(tmp_path, recordings["odd"])["ranks"]["a"]) == 12


def test_of_ranks_that_share_a_gpu_the_page_has_the_history_of_the_one_that_is_compared(tmp_path):
    recording, page = tmp_path / "shared.vram", tmp_path / "diff.html"
    program = LAUNCHED.replace("int(os.environ['RANK'])", "0")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    command = [VRAMSCOPE, "run", "--no-report", "-o", recording, "--", sys.executable, "-c", LAUNCHER, program, "none"]
    subprocess.run(command, env=environment, check=True, timeout=120, stderr=subprocess.DEVNULL)
    told = diff(recording, recording, "--html", page)
    data = json.loads(re.search(r'id="vramscope-data">(.*?)</script>', page.read_text(), re.DOTALL).group(1))
    for side in "ab":
        (history,) = data["histories"][side]
        sums = [sum(band) for band in zip(*history["bytes"])]
        assert max(sums) == told["peak"][f"{side}_bytes"]
        # One after the other they have the GPU: while the other three have it, this one has nothing.
        assert sums.count(0) > len(sums) / 2
