# SPDX-License-Identifier: Apache-2.0
"""One truth: the page, `report --json`, `report --csv` and the Python package say the same of an instant, to the byte."""

import collections
import csv
import json
import random
import shutil
import subprocess
import sys

import package
import pytest
from browser import page_data
from test_cuda_ledger import FAKE, record

REPOSITORY = package.ROOT
BINARY = package.VRAMSCOPE
SUMS = REPOSITORY / "viewer" / "dev" / "sums.js"
RECORDINGS = sorted([*(REPOSITORY / "tests" / "golden").glob("v[2-9]*/*.vram*"), *(REPOSITORY / "examples" / "traces").glob("*.vram")])
INSTANTS = 200
#: "" is the ledger's levels, which a page calls `row`.
DIMENSIONS = ("category", "module", "line", "")
FIGURES = ("ledger_bytes", "nvml_bytes", "residual_bytes")

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")

# FILE, and instants on the standard input: a list for each, of what every dimension says.
READER = """
import json, sys, vramscope
with vramscope.read(sys.argv[1]) as trace:
    for instant in json.load(sys.stdin):
        answer = {}
        for by in ("category", "module", "line", ""):
            report = trace.report(at=instant, by=[by] if by else [])
            paths = [column for name, column in report.rows.columns.items() if name not in ("index", "pid", "bytes", "count")]
            answer[by] = {
                "devices": list(report.devices),
                "rows": list(zip(report.rows["index"], report.rows["pid"], zip(*paths), report.rows["bytes"], report.rows["count"])),
            }
        print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return package.make(tmp_path_factory.mktemp("package"))


def vramscope(*arguments):
    return subprocess.run([BINARY, *arguments], capture_output=True, text=True, check=True).stdout


def instants_of(data, how_many, seed):
    """Those around changes, random ones, the ends, the peaks, and when memory goes and comes back."""
    start, duration = int(data["start_ns"]), data["duration_ns"]
    begins, now = [], 0
    for delta in data["allocations"]["begin"]:
        now += delta
        begins.append(start + now)
    picked = random.Random(seed)
    instants = [start, start + duration, *(device["at"]["time_ns"] for device in data["report"]["devices"])]
    instants += [start + at for at in (*data["checkpointed"]["begin"], *data["checkpointed"]["end"])]
    instants += [picked.choice(begins) + picked.randint(-1, 1) for _ in range(how_many // 2) if begins]
    instants = set(instants)
    while len(instants) < how_many:
        instants.add(start + picked.randint(0, duration))
    if data["left_out"]["count"]:
        exact, now = [], 0
        for delta in data["left_out"]["instants"]:
            now += delta
            exact.append(start + now)
        instants = {min(exact, key=lambda at: abs(at - instant)) for instant in instants}
    return sorted(instant for instant in instants if start <= instant <= start + duration)


# ---- the same rows from each of them: (device, pid or 0, path): bytes and count ----


def of_json(recording, instants, by):
    options = [word for instant in instants for word in ("--at", f"@{instant}")]
    found = json.loads(vramscope("report", recording, "--json", *options, *(["--by", by] if by else [])))
    return found if isinstance(found, list) else [found]


def rows_of_json(report):
    return {(row["device"], row["pid"] or 0, *row["path"]): (row["bytes"], row["count"]) for row in report["rows"]}


def cell(text):
    """As spreadsheets must have it."""
    return f"'{text}" if text[:1] in "=+-@" else text


def rows_of_csv(recording, instants, by, reports):
    """For each of the reports as JSON has them: lines come in the same order."""
    options = [word for instant in instants for word in ("--at", f"@{instant}")]
    table = csv.reader(vramscope("report", recording, "--csv", *options, *(["--by", by] if by else [])).splitlines())
    head = next(table)
    several = head[0] == "at_ns"
    assert several == (len(instants) > 1)
    for report in reports:
        at = {device["index"]: device["at"]["time_ns"] for device in report["devices"]}
        rows = {}
        for _ in report["rows"]:
            line = next(table)
            if several:
                assert int(line.pop(0)) == at[int(line[1])]
            _, device, pid, *path, size, count = line
            rows[(int(device), int(pid or 0), *(text for text in path if text))] = (int(size), int(count))
        yield rows
    assert next(table, None) is None


def rows_of_reader(answer):
    return {
        (index, pid or 0, *(text for text in path if text is not None)): (size, count)
        for index, pid, path, size, count in answer["rows"]
    }


def ask_reader(recording, instants, environment):
    done = subprocess.run([sys.executable, "-c", READER, recording], input=json.dumps(instants), capture_output=True,
                          text=True, env=environment, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def sums_of_page(page, instants):
    return json.loads(subprocess.run(["node", SUMS, page, *map(str, instants)], capture_output=True, text=True, check=True).stdout)


def by_device(rows):
    """As a page has them: PID and path in one text, without what has no bytes."""
    found = collections.defaultdict(dict)
    for (device, pid, *path), (size, _) in rows.items():
        if size != 0:
            found[device]["\t".join([str(pid), *path])] = size
    return found


def compare_page(shown, report, rows, by, where):
    top = {(line["device"], line["line"], line["bytes"]) for line in report["top_lines"]}
    figures = {device["index"]: device for device in report["devices"]}
    for device in shown:
        index = device["index"]
        sums = {key: size for key, size in device[by or "row"].items() if size != 0}
        assert sums == by_device(rows)[index], where
        assert (device["total"], device["nvml"]) == (figures[index]["ledger_bytes"], figures[index]["nvml_bytes"]), where
        if by == "line":
            lines = {(index, line, size) for line, size in device["top_line"].items()}
            assert {line for line in top if line[0] == index} <= lines, where


def compare(recording, page, environment, how_many=INSTANTS, seed=1):
    data = page_data(page)
    instants = instants_of(data, how_many, seed)
    shown = sums_of_page(page, instants)
    read = ask_reader(recording, instants, environment)
    assert len(shown) == len(read) == len(instants)
    for by in DIMENSIONS:
        reports = of_json(recording, instants, by)
        tables = rows_of_csv(recording, instants, by, reports)
        for instant, report, table, page_sums, answers in zip(instants, reports, tables, shown, read):
            where = f"{recording.name}, @{instant}, by {by or 'row'}"
            rows = rows_of_json(report)
            assert len(rows) == len(report["rows"]), where
            assert rows_of_reader(answers[by]) == rows, where
            assert {(device, pid, *map(cell, path)): sums for (device, pid, *path), sums in rows.items()} == table, where
            assert [[device[name] for name in ("index", *FIGURES)] for device in answers[by]["devices"]] == [
                [device[name] for name in ("index", *FIGURES)] for device in report["devices"]
            ], where
            assert sum(size for size, _ in rows.values()) == sum(device["ledger_bytes"] for device in report["devices"]), where
            compare_page(page_sums, report, rows, by, where)
    return len(instants)


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_all_agree_at_every_instant(recording, environment, tmp_path):
    page = tmp_path / "page.html"
    vramscope("report", recording, "--html", page)
    assert compare(recording, page, environment) >= INSTANTS


# Memory that several processes hold, that goes to host memory and comes back, that pools keep.
PROGRAMS = [("driver_sharing", "ipc", "free"), ("driver_sharing", "descriptor", "die"), ("driver_checkpoint", "self"),
            ("driver_pool_kinds",), ("driver_handles",)]


@pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
@pytest.mark.parametrize("program", PROGRAMS, ids="-".join)
def test_all_agree_on_what_the_driver_gives(program, environment, tmp_path):
    recording = record(program[0], tmp_path, *program[1:], VRAMSCOPE_FAKE_DEVICES="2")
    page = tmp_path / "page.html"
    vramscope("report", recording.file, "--html", page)
    assert compare(recording.file, page, environment, 16) > 3


PASSING = """
import random, torch
kept = []
for i in range(305_000):
    made = torch.empty(random.randint(10, 5000)) + 1
    if i % 100 == 0:
        kept = [*kept[-50:], made]
"""


def test_sums_are_exact_where_allocations_are_left_out(environment, tmp_path):
    pytest.importorskip("torch")
    recording, page = tmp_path / "passing.vram", tmp_path / "page.html"
    (tmp_path / "passing.py").write_text(PASSING)
    vramscope("run", "--cpu", "--no-report", "-o", recording, "--html", page, "--", sys.executable, tmp_path / "passing.py")
    assert page_data(page)["left_out"]["count"] > 400_000
    assert compare(recording, page, environment, 16) > 8
