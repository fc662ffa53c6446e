# SPDX-License-Identifier: Apache-2.0
"""One truth: the page, `report --json`, `report --csv` and the Python package say the same of an instant, to the byte.

So do the text, cut or not, the data of plots, `iterations`, `info`, ranks, and the named instants. `make soak` asks at
50 instants of each recording (VRAMSCOPE_VIEWS_AT), `make test` at a few.
"""

import collections
import csv
import json
import os
import random
import re
import shutil
import subprocess
import sys

import package
import pytest
from browser import page_data
from driver_steps import record
from places import FAKE, ROOT, VRAMSCOPE

REPOSITORY = ROOT
BINARY = VRAMSCOPE
SUMS = REPOSITORY / "viewer" / "dev" / "sums.js"
RECORDINGS = sorted([*(REPOSITORY / "tests" / "golden").glob("v[2-9]*/*.vram*"), *(REPOSITORY / "examples" / "traces").glob("*.vram")])
INSTANTS = 200
VIEWS_AT = int(os.environ.get("VRAMSCOPE_VIEWS_AT", "3"))
#: "" is the ledger's levels, which a page calls `row`.
DIMENSIONS = ("category", "module", "line", "")
FIGURES = ("ledger_bytes", "nvml_bytes", "residual_bytes", "unbacked_bytes")

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")

# FILE, and instants on standard input: prints a list of the values of all dimensions for each.
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
        if by == "category":
            unbacked = {(row["device"], row["pid"] or 0, *row["path"]): (row["bytes"], row["count"]) for row in report["unbacked"]}
            assert device["unbacked"] == by_device(unbacked)[index], where
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


# ---- text, plots, iterations, info ----


def in_unit(size, whole):
    """As a table of the text report prints it, whose largest figure is `whole`."""
    unit = next(unit for unit in (1 << 20, 1 << 10, 1) if unit == 1 or whole >= (4 << 20 if unit == 1 << 20 else 1 << 10))
    return f"{size:,}" if unit == 1 else f"{(size * 10 + unit // 2) // unit / 10:,.1f}"


def human(size):
    """Three digits, as sentences have it."""
    unit = next(unit for unit in range(5) if size < 1024 ** (unit + 1) or unit == 4)
    if unit == 0:
        return f"{size} B"
    digits = next((digits for digits in (2, 1) if round(size / 1024**unit, digits) < 10 ** (3 - digits)), 0)
    return f"{size / 1024**unit:.{digits}f} {' KMGT'[unit]}iB"


def seconds(ns):
    whole, rest = divmod(ns, 10**9)
    return f"{whole}.{rest:09}".rstrip("0").rstrip(".")


def report_of(recording, *options):
    return json.loads(vramscope("report", recording, "--json", *options))


def sums_of(rows, key):
    sums = collections.Counter()
    for row in rows:
        sums[row["device"], key(row)] += row["bytes"]
    return +sums


def lines_of_text(recording, *options):
    """The outermost names of each device's table: [(name, figure)]."""
    tables, now = [], None
    for line in vramscope("report", recording, *options).splitlines():
        if re.match(r"  by category +(MiB|KiB|B) +share +count$", line):
            tables.append(now := [])
        elif now is not None and (found := re.match(r"  (\S.*?)  +([\d,.]+) +<?[\d.]+ %", line)):
            now.append((found[1], found[2]))
        else:
            now = None
    return tables


def check_categories(recording, at):
    """One quantity, bytes by category at an instant, in all that prints it."""
    tree, by = report_of(recording, "--at", at), report_of(recording, "--at", at, "--by", "category")
    sums = sums_of(by["rows"], lambda row: row["path"][0])
    totals = {device["index"]: device["ledger_bytes"] for device in by["devices"]}
    assert sums == sums_of(by["categories"], lambda row: row["category"])
    assert [device["ledger_bytes"] for device in tree["devices"]] == list(totals.values())
    owned = sums_of((row for row in tree["rows"] if row["path"][0] == "driver-owned"), lambda _: "driver")
    assert owned == {key: size for key, size in sums.items() if key[1] == "driver"}
    free = sum(size for (_, name), size in sums.items() if name in ("cached", "fragmentation", "graph pool"))
    lines = report_of(recording, "--at", at, "--by", "line")
    assert sum(row["bytes"] for row in lines["rows"] if row["path"][0].startswith("(free in ")) == free
    assert sum(line["bytes"] for line in by["free_lines"]) <= free
    for cached in by.get("cached", []):
        parts = ("freed_since_bytes", "too_small_bytes", "elsewhere_bytes", "graph_bytes")
        assert sum(cached[part] for part in parts) == cached["free_bytes"] <= free
    for top in by["top_lines"]:
        assert sums_of(lines["rows"], lambda row: row["path"][0])[top["device"], top["line"]] == top["bytes"], top["line"]
    for device in by["devices"]:
        assert device["reserved_bytes"] == 0 or device["allocated_bytes"] <= device["reserved_bytes"] <= device["ledger_bytes"] or \
            device["allocated_bytes"] <= device["allocated_peak_bytes"]
    shown = lines_of_text(recording, "--at", at, "--by", "category")
    used = [index for index, total in totals.items() if total > 0]
    assert len(shown) == len(used)
    for index, table in zip(used, shown):
        assert dict(table) == {name: in_unit(size, totals[index]) for (device, name), size in sums.items() if device == index}
    # A cut changes no sum: what is left is whole, and the rest is one row.
    cut = report_of(recording, "--at", at, "--by", "category", "--top", "2")
    kept = sums_of(cut["rows"], lambda row: row["path"][0])
    assert {key: size for key, size in kept.items() if key[1] != "(rest)"}.items() <= sums.items()
    assert sums_of(cut["rows"], lambda _: 0) == sums_of(by["rows"], lambda _: 0)
    for index, table in zip(used, lines_of_text(recording, "--at", at, "--by", "category", "--top", "2")):
        largest = sorted((size for (device, _), size in sums.items() if device == index), reverse=True)
        named = [line for line in table if not re.match(r"\(\d+ more\)", line[0])]
        assert [figure for _, figure in named] == [in_unit(size, totals[index]) for size in largest[:2]]
        assert len(table) == min(3, len(largest))


def check_peaks(recording, start):
    """Named instants, plots' data, iterations and info say what the report says there."""
    peak = report_of(recording, "--timeline", "50")
    categories = {(entry["device"], entry["category"]): entry["bytes"] for entry in peak["categories"]}
    for timeline in peak["timelines"]:
        device = next(device for device in peak["devices"] if device["index"] == timeline["device"])
        if device["ledger_bytes"] == 0 or device["at"]["time_ns"] < timeline["time_ns"][0]:
            continue
        bucket = max(i for i, begin in enumerate(timeline["time_ns"]) if begin <= device["at"]["time_ns"])
        then = {name: of[bucket] for name, of in zip(timeline["groups"], timeline["peak_bytes"]) if of[bucket] > 0}
        assert sum(then.values()) == device["ledger_bytes"] - device["in_transit_bytes"]
        if device["in_transit_bytes"] == 0:
            assert {name: size for name, size in then.items() if (timeline["device"], name) in categories} == {
                name: size for (index, name), size in categories.items() if index == timeline["device"] and name in then}
    allocated = report_of(recording, "--at", "allocated-peak")
    for device, other in zip(peak["devices"], allocated["devices"]):
        assert other["allocated_bytes"] == other["allocated_peak_bytes"] == device["allocated_peak_bytes"]
        assert other["at"]["time_ns"] == device["allocated_peak_ns"]
        assert device["allocated_bytes"] <= device["allocated_peak_bytes"]
    said = re.findall(r"; peak (.+) at ([\d.]+) s$", vramscope("info", recording), re.MULTILINE)
    assert said == [(human(device["ledger_bytes"]), seconds(device["at"]["time_ns"] - start)) for device in peak["devices"]]
    ranks = json.loads(vramscope("report", recording, "--ranks", "--json"))
    for rank in ranks["ranks"]:
        then = report_of(recording, "--at", f"@{start + rank['peak_wall_ns'] - ranks['first_wall_ns']}", "--by", "category")
        rows = collections.Counter()
        for row in then["rows"]:
            if (row["device"], row["pid"]) == (rank["device"], rank["pid"]):
                rows[row["path"][0]] += row["bytes"]
        assert (dict(+rows), sum(rows.values())) == (rank["categories"], rank["bytes"]), rank["name"]
    for category in {name for _, name in categories}:
        here = report_of(recording, "--where", f"category={category}")
        own = report_of(recording, "--where", f"category={category}", "--at", "own-peak")
        assert sums_of(here["rows"], lambda _: 0) == {
            (index, 0): size for (index, name), size in categories.items() if name == category and size > 0}
        for device, other in zip(here["devices"], own["devices"]):
            assert other["ledger_bytes"] == (device["own_peak_bytes"] or 0) or device["in_transit_bytes"] > 0
            assert device["ledger_bytes"] <= other["ledger_bytes"] or device["in_transit_bytes"] > 0
    done = subprocess.run([BINARY, "iterations", recording, "--json"], capture_output=True, text=True, check=False)
    for row in json.loads(done.stdout)["iterations"][:VIEWS_AT] if done.returncode == 0 else []:
        then = report_of(recording, "--at", f"@{row['peak_ns']}")
        assert row["peak_bytes"] == sum(line["bytes"] for line in then["rows"]
                                        if (line["device"], line["pid"]) == (row["device"], row["pid"]))
        assert row["peak_allocated"] <= row["peak_bytes"]
        if row["peak_reserved"] > 0 and len(then["processes"]) == 1:
            assert next(device for device in then["devices"] if device["index"] == row["device"])["reserved_bytes"] <= row["peak_reserved"]


def check_views(recording, data):
    picked = random.Random(2).sample(instants_of(data, 60, 2), min(VIEWS_AT, 50))
    for at in ["peak", "end", *(f"@{instant}" for instant in picked)]:
        check_categories(recording, at)
    check_peaks(recording, int(data["start_ns"]))


@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda path: path.stem)
def test_all_agree_at_every_instant(recording, environment, tmp_path):
    page = tmp_path / "page.html"
    vramscope("report", recording, "--html", page)
    assert compare(recording, page, environment) >= INSTANTS
    check_views(recording, page_data(page))


# Memory that several processes hold, that goes to host memory and comes back, that pools keep.
PROGRAMS = [("driver_sharing", "ipc", "free"), ("driver_sharing", "descriptor", "die"), ("driver_checkpoint", "self"),
            ("driver_pool_kinds",), ("driver_handles",), ("driver_sleep",)]


@pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
@pytest.mark.parametrize("program", PROGRAMS, ids="-".join)
def test_all_agree_on_what_the_driver_gives(program, environment, tmp_path):
    recording = record(program[0], tmp_path, *program[1:], VRAMSCOPE_FAKE_DEVICES="2")
    page = tmp_path / "page.html"
    vramscope("report", recording.file, "--html", page)
    assert compare(recording.file, page, environment, 16) > 3
    check_views(recording.file, page_data(page))


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
