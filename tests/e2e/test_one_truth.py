# SPDX-License-Identifier: Apache-2.0
"""What the page shows at an instant is what `report --at` says there, to the byte."""

import json
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest
from test_cuda_ledger import FAKE, record

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BINARY = REPOSITORY / "build" / "bin" / "vramscope"
SUMS = REPOSITORY / "viewer" / "dev" / "sums.js"
RECORDINGS = sorted([*(REPOSITORY / "tests" / "golden").glob("v[2-9]*/*.vram*"), *(REPOSITORY / "examples" / "traces").glob("*.vram")])
INSTANTS = 12

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def vramscope(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, check=True).stdout


def page_data(page):
    return json.loads(re.search(r'id="vramscope-data">(.*?)</script>', page.read_text(), re.DOTALL).group(1))


def instants_of(data, how_many, seed):
    """Random ones, those around changes, the ends, the peaks, and when memory goes and comes back."""
    start, duration = data["start_ns"], data["duration_ns"]
    begins, now = [], 0
    for delta in data["allocations"]["begin"]:
        now += delta
        begins.append(start + now)
    picked = random.Random(seed)
    instants = [start, start + duration, *(device["at"]["time_ns"] for device in data["report"]["devices"])]
    instants += [start + at for at in (*data["checkpointed"]["begin"], *data["checkpointed"]["end"])]
    instants += [picked.choice(begins) + picked.randint(-1, 1) for _ in range(how_many // 2) if begins]
    instants += [start + picked.randint(0, duration) for _ in range(how_many // 2)]
    if data["left_out"]["count"]:
        exact, now = [], 0
        for delta in data["left_out"]["instants"]:
            now += delta
            exact.append(start + now)
        instants = [min(exact, key=lambda at: abs(at - instant)) for instant in instants]
    return sorted(instant for instant in set(instants) if start <= instant <= start + duration)


def grouped(recording, instant, by):
    report = json.loads(vramscope("report", recording, "--at", f"@{instant}", "--json", *(["--by", by] if by else [])))
    devices = {device["index"]: {} for device in report["devices"]}
    for row in report["rows"]:
        key = row["path"][0] if by else "\t".join([str(row["pid"] or 0), *row["path"]])
        devices[row["device"]][key] = devices[row["device"]].get(key, 0) + row["bytes"]
    totals = {device["index"]: (device["ledger_bytes"], device["nvml_bytes"]) for device in report["devices"]}
    lines = [(entry["device"], entry["line"], entry["bytes"]) for entry in report["top_lines"]]
    return devices, totals, lines


def without_nothing(sums):
    return {key: size for key, size in sums.items() if size != 0}


def compare(recording, page, how_many=INSTANTS, seed=1):
    data = page_data(page)
    instants = instants_of(data, how_many, seed)
    shown = json.loads(subprocess.run(["node", SUMS, page, *map(str, instants)], capture_output=True, text=True, check=True).stdout)
    cut = data["left_out"]["count"] > 0
    for instant, devices in zip(instants, shown):
        for by in ("category", "") if cut else ("category", "module", "line", ""):
            expected, totals, lines = grouped(recording, instant, by)
            for device in devices:
                where = f"{recording.name}, device {device['index']}, @{instant}, by {by or 'row'}"
                assert without_nothing(device[by or "row"]) == without_nothing(expected[device["index"]]), where
                assert device["total"] == totals[device["index"]][0], where
                if by == "line":
                    shown_lines = {(device["index"], line, size) for line, size in device["top_line"].items()}
                    assert {line for line in lines if line[0] == device["index"]} <= shown_lines, where
                assert (device["nvml"], where) == (totals[device["index"]][1], where)
    return len(instants)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_page_and_report_agree_at_every_instant(recording, tmp_path):
    page = tmp_path / "page.html"
    vramscope("report", recording, "--html", page)
    assert compare(recording, page) > 3


# Memory that several processes hold, that goes to host memory and comes back, that pools keep.
PROGRAMS = [("driver_sharing", "ipc", "free"), ("driver_sharing", "descriptor", "die"), ("driver_checkpoint", "self"),
            ("driver_pool_kinds",), ("driver_handles",)]


@pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
@pytest.mark.parametrize("program", PROGRAMS, ids="-".join)
def test_page_and_report_agree_on_what_the_driver_gives(program, tmp_path):
    recording = record(program[0], tmp_path, *program[1:], VRAMSCOPE_FAKE_DEVICES="2")
    page = tmp_path / "page.html"
    vramscope("report", recording.file, "--html", page)
    assert compare(recording.file, page, 16) > 3


PASSING = """
import random, torch
kept = []
for i in range(60_000):
    made = torch.empty(random.randint(10, 5000)) + 1
    if i % 100 == 0:
        kept = [*kept[-50:], made]
"""


def test_sums_are_exact_where_allocations_are_left_out(tmp_path):
    pytest.importorskip("torch")
    recording, page = tmp_path / "passing.vram", tmp_path / "page.html"
    (tmp_path / "passing.py").write_text(PASSING)
    vramscope("run", "--cpu", "--no-report", "-o", recording, "--html", page, "--", sys.executable, tmp_path / "passing.py")
    assert page_data(page)["left_out"]["count"] > 10_000
    assert compare(recording, page, 16) > 8
