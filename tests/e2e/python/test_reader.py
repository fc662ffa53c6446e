# SPDX-License-Identifier: Apache-2.0
"""Reading recordings from C and from Python: include/vramscope/read.h and vramscope.read()."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import package
import pytest
from places import BUILD, ROOT, VRAMSCOPE

BUILD, VRAMSCOPE = BUILD, VRAMSCOPE
LIBRARY = BUILD / "lib" / "libvramscope_read.so"
HEADER = ROOT / "include" / "vramscope" / "read.h"
GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"
GOLDEN = sorted((ROOT / "tests" / "golden").glob("v[2-9]*/*.vram*"))
PROGRAMS = [BUILD / "bin" / name for name in ("example_reader", "example_reader_cpp")]

pytestmark = pytest.mark.skipif(not LIBRARY.exists(), reason="vramscope is not built")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return package.make(tmp_path_factory.mktemp("package"))


PREAMBLE = """
import json, vramscope
trace = vramscope.read(FILE)
say = lambda x: print(json.dumps(x))
def error(do):
    try:
        do()
    except Exception as error:
        return [type(error).__name__, str(error)]
"""


@pytest.fixture
def python(environment):
    """Runs code with `vramscope` imported and FILE, `trace` open of it; what it printed as JSON."""

    def run(code: str, file: Path = GPT2, under: tuple = ()):
        head = f"FILE = {str(file)!r}\n{PREAMBLE}"
        done = subprocess.run([*under, sys.executable, "-c", head + code], capture_output=True, text=True, env=environment,
                              timeout=120)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def vramscope(*arguments: str | Path) -> str:
    return subprocess.run([VRAMSCOPE, *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


# ---- from C ----


def test_the_library_shows_its_functions_alone_and_needs_the_c_library_alone():
    shown = subprocess.run(["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True).stdout
    declared = set(re.findall(r"\b(vramscope_read_\w+)\(", re.sub(r"/\*.*?\*/", "", HEADER.read_text(), flags=re.DOTALL)))
    assert {line.split()[-1] for line in shown.splitlines()} == declared and len(declared) == 23
    needed = subprocess.run(["readelf", "-d", LIBRARY], capture_output=True, text=True, check=True).stdout
    # Another C++ library in the process is none of its business.
    libraries = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}
    assert set(re.findall(r"NEEDED.*\[(.*)\]", needed)) <= libraries


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.name)
@pytest.mark.parametrize("recording", [*GOLDEN, GPT2], ids=lambda path: path.name)
def test_c_and_cpp_programs_read(program, recording):
    for at in ("peak", "end"):
        done = subprocess.run([program, recording, at], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        report = json.loads(vramscope("report", recording, "--by", "category", "--json", "--at", at))
        rows = [f"{row['device']},{row['path'][0]},{row['bytes']}" for row in report["rows"]]
        residuals = [(device["index"], device["residual_bytes"]) for device in report["devices"]]
        rows += [f"{index},(residual),{size}" for index, size in residuals if size is not None]
        assert done.stdout.splitlines() == rows


def test_a_c_programs_errors_are_one_line(tmp_path):
    (tmp_path / "notes.txt").write_text("x" * 5000)
    for arguments, said in (
        ([tmp_path / "none.vram"], f"{tmp_path}/none.vram: cannot be opened: No such file or directory\n"),
        ([tmp_path / "notes.txt"], f"{tmp_path}/notes.txt: is not a vramscope recording\n"),
        ([GPT2, "noon"], "unknown instant 'noon'; use peak, allocated-peak, own-peak, end, SECONDS, @NANOSECONDS, iter:N or mark:NAME\n"),
    ):
        done = subprocess.run([PROGRAMS[0], *arguments], capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (1, said)


# ---- from Python ----


def test_a_report_is_the_command_lines(python):
    (said,) = python("""
report = trace.report(at="end", by=["owner", "category"], where={"device": "gpu0"}, top=3)
say({name: list(table) for name, table in report._asdict().items()})
""")
    expected = json.loads(vramscope("report", GPT2, "--json", "--at", "end", "--by", "owner,category", "--where", "device=gpu0", "--top", "3"))
    rows = [[row["index"], row["pid"], [row["owner"], row["category"]][: 2 if row["category"] else 1], row["bytes"], row["count"]]
            for row in said["rows"]]
    assert rows == [list(row.values()) for row in expected["rows"]] and rows[-1][2] == ["(rest)"]
    for device, other in zip(said["devices"], expected["devices"]):
        at = other.pop("at")
        assert {**other, "uuid": other["uuid"] or ""} == {name: device[name] for name in other}
        assert (device["at_kind"], device["at_ns"], device["at_iteration"]) == tuple(at.values())
    for name in ("processes", "residuals"):
        assert said[name] == [{"index": row.pop("device"), **row} for row in expected[name]]
    assert said["losses"] == expected["losses"]
    assert [{**row, "holds": bool(row["holds"])} for row in said["invariants"]] == expected["invariants"]
    assert [list(row.values()) for row in said["categories"]] == [list(row.values()) for row in expected["categories"]]
    assert [list(row.values()) for row in said["lines"]] == [list(row.values()) for row in expected["top_lines"]]
    assert [list(row.values()) for row in said["modules"]] == [list(row.values())[:5] for row in expected["modules"]]


def test_iterations_and_timelines_are_the_command_lines(python):
    iterations, parameters, timeline, nvml = python("""
found = trace.iterations()
say(list(found.iterations)); say(list(found.parameters))
found = trace.timeline(50)
say(list(found.timeline)); say(list(found.nvml))
""")
    expected = json.loads(vramscope("iterations", GPT2, "--json"))
    for row, other in zip(iterations, expected["iterations"]):
        other["index"] = other.pop("device")
        for when in ("peak", "end"):
            other |= {f"{name.replace(' ', '_')}_{when}": size for name, size in other.pop(f"categories_{when}").items()}
        assert row == other
    assert len(iterations) == len(expected["iterations"]) > 10
    assert parameters == [{"index": row.pop("device"), **row} for row in expected["parameters"]] and len(parameters) > 100
    expected = json.loads(vramscope("report", GPT2, "--json", "--timeline", "50"))["timelines"]
    bands = {(row["index"], row["begin_ns"], row["band"]): row["bytes"] for row in timeline}
    assert bands == {
        (line["device"], at, group): size
        for line in expected for group, sizes in zip(line["groups"], line["peak_bytes"]) for at, size in zip(line["time_ns"], sizes)
    }
    assert [[row["index"], row["time_ns"], row["bytes"]] for row in nvml] == [
        [line["device"], at, size] for line in expected for at, size in line["nvml"]
    ]


@pytest.mark.parametrize("recording", [*GOLDEN, GPT2], ids=lambda path: path.name)
def test_allocations_are_those_of_an_export(python, recording):
    said = python("""
for batch in trace.allocations(by=["line", "category", "module", "lifetime", "device"]):
    say(list(batch))
""", recording)
    found = [row for batch in said for row in batch]
    expected = [json.loads(line) for line in vramscope("export", recording, "--to", "json").splitlines()]
    assert len(found) == len(expected) > 5
    mark = {-1: "cpu", -2: "host"}
    key = lambda row: json.dumps(row, sort_keys=True)
    assert sorted(map(key, (
        {"device": mark.get(row["index"], f"gpu{row['index']}"), "address": hex(row["address"]),
         **{name: row[name] for name in ("free_ns", "pid", "bytes", "rounding_bytes", "alloc_ns", "begin_ns", "line", "category", "module", "lifetime")}}
        for row in found))) == sorted(map(key, (
            {name: row[name] for name in ("device", "address", "free_ns", "pid", "bytes", "rounding_bytes", "alloc_ns", "begin_ns",
                                          "line", "category", "module", "lifetime")} for row in expected)))


def test_the_allocations_of_an_instant_add_up_to_its_ledger(python):
    """By the rules of docs/TABLES.md, from tables alone: what lives and is no segment, and what segments have free."""
    said = python("""
for at in (trace.table("peaks")["time_ns"][0], trace.table("session")["end_ns"][0] - 10**9):
    held, used, alone = {}, {}, 0
    segments, counters = trace.table("segments"), trace.table("counters")
    steps = [0] * len(counters)
    for step in trace.table("steps"):
        steps[step["counter"]] += step["bytes"] if step["time_ns"] <= at else 0
    device = trace.table("accounts")["device"]
    sites = trace.table("sites")
    gpu = [trace.table("devices")["kind"][device[account]] == 0 for account in sites["account"]]
    for counter, size in zip(counters, steps):
        if counter["segment"]:
            held[counter["segment"]] = held.get(counter["segment"], 0) + size
        elif size > 0 and gpu[counter["site"]]:
            alone += size
    for batch in trace.allocations(between=(at, at)):
        for row in batch:
            if row["backing"]:
                held[row["segment"]] = held.get(row["segment"], 0) + row["bytes"] - row["rounding_bytes"]
                alone += row["rounding_bytes"]
            elif gpu[row["site"]]:
                alone += row["bytes"]
                used[row["segment"]] = used.get(row["segment"], 0) + row["bytes"]
    free = sum(max(0, size - used.get(segment, 0)) for segment, size in held.items())
    report = trace.report(at=at)
    transit = sum(row["bytes"] for row in report.rows if row.get("level2") == "in transit")
    say([alone + free + transit, report.devices["ledger_bytes"][0]])
""")
    assert len(said) == 2
    for total, ledger in said:
        assert total == ledger > 1 << 30


def test_errors(python):
    said = python("""
say([
    error(lambda: vramscope.read("/none.vram")), error(lambda: vramscope.read("/tmp")), error(lambda: trace.table("none")),
    error(lambda: trace.report(by=["moduel"])), error(lambda: trace.report(by="module")), error(lambda: trace.report(at="mark:x")),
    error(lambda: list(trace.allocations(by=["x y"]))), error(lambda: trace.close() or trace.report()),
    error(lambda: trace.close()), repr(trace),
])
""")[0]
    assert re.fullmatch(r"<vramscope\.Trace /.*\.vram, closed>", said.pop())
    assert said == [
        ["ReadError", "/none.vram: cannot be opened: No such file or directory"],
        ["ReadError", "/tmp: contains no recording (no *.vrl file): the program did not start or did not load the probe; "
                      "see `vramscope doctor`"],
        ["ReadError", "no table is named 'none': the table 'tables' lists all names"],
        ["ReadError", "unknown dimension 'moduel'; did you mean 'module'?"],
        ["TypeError", "'module' is a string, not a list of names: use ['module']"],
        ["ReadError", said[5][1]],
        ["ReadError", said[6][1]],
        ["ValueError", "this recording is closed"],
        None,
    ]
    assert "mark" in said[5][1] and said[6][1].startswith("unknown dimension 'x y'")


def test_numbers_out_of_range_are_refused(python):
    said = python("""
say([
    *(error(lambda: trace.timeline(buckets)) for buckets in (-1, 0, 1_000_001, 2**64, 2**70)),
    *(error(lambda: trace.report(top=top)) for top in (-1, 2**64, 2**70)), error(lambda: trace.live(top=-1)),
    *(error(lambda: list(trace.allocations(between=span))) for span in ((2**70, 2**71), (0, 2**63), (-(2**63) - 1, 0))),
    error(lambda: trace.timeline(1.5)), error(lambda: trace.report(top=1.5)), error(lambda: trace.report(at=None)),
    error(lambda: trace.report(at=float("nan"))), error(lambda: trace.report(at=2**70)),
])
""")[0]
    assert [kind for kind, _ in said] == ["ValueError"] * 12 + ["TypeError"] * 3 + ["ReadError"] * 2
    assert said[0][1] == "buckets=-1: use a number from 1 to 1000000"
    assert said[5][1] == f"top=-1: use a number from 0 to {2**64 - 1}"
    assert said[9][1] == f"between={2**70}: use a number from {-(2**63)} to {2**63 - 1}"
    assert "at=None" in said[14][1] and "nan" in said[15][1]


def test_an_instant_is_seconds_as_the_command_line_has_them(python):
    for at in (1.5, 0.25, 1e-05):
        said, rows = python(f"""
report = trace.report(at={at})
say(report.devices["at_ns"]); say(list(report.rows))
""")
        expected = json.loads(vramscope("report", GPT2, "--json", "--at", f"{at:f}"))
        assert said == [device["at"]["time_ns"] for device in expected["devices"]]
        assert [row["bytes"] for row in rows] == [row["bytes"] for row in expected["rows"]]


RECORDED = """
import json, os, signal, torch, vramscope
kept = [torch.zeros(1000 + i, dtype=torch.uint8) for i in range(50)]
def children():
    return open(f"/proc/self/task/{os.getpid()}/children").read()
before = children()
for setting in (
    lambda: None,
    lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),  # other code waits for our child
    lambda: signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32)),
    lambda: [os.close(0), os.close(2)],
):
    setting()
    for native_names in (True, False):
        with vramscope._reader.Trace(vramscope.live_directory(), native_names=native_names) as trace:
            report = trace.report(at="end", by=["line"])
            sizes = [size for size, line in zip(report.rows["bytes"], report.rows["line"]) if line.startswith("recorded.py:3 ")]
            print(json.dumps([sum(sizes), len(report.processes), trace.table("session")["finished"]]), flush=True)
        assert children() == before, "nobody is left"
"""


def test_a_program_reads_its_own_recording_under_way(environment, tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "recorded.py").write_text(RECORDED)
    done = subprocess.run(
        [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, "recorded.py"],
        cwd=tmp_path, capture_output=True, text=True, env=environment, timeout=120,
    )
    assert done.returncode == 0, done.stderr
    total = sum(range(1000, 1050))
    assert [json.loads(line) for line in done.stdout.splitlines()] == [[total, 1, [0]]] * 8
    processes = json.loads(vramscope("report", tmp_path / "x.vram", "--json"))["processes"]
    assert len(processes) == 1, "the program that reads is not recorded"


def test_what_takes_too_long_is_given_up(environment, tmp_path):
    live = next(path for path in GOLDEN if path.is_dir())
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o700)
    code = f"""
import os, time, vramscope
from vramscope import _paths, _reader
_paths.program = lambda: {str(slow)!r}
begin = time.monotonic()
try:
    _reader.Trace({str(live)!r}, limit_seconds=0.2)
except vramscope.ReadError as error:
    print(error)
assert time.monotonic() - begin < 20
print(open(f"/proc/self/task/{{os.getpid()}}/children").read() == "")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout.splitlines() == [f"{live}: reading it took more than 0.2 s", "True"], done.stderr


def test_threads_and_a_child_read_at_once(python):
    said = python("""
import os, threading
answers = []
def ask():
    answers.append(list(trace.report(by=["module"]).rows))
threads = [threading.Thread(target=ask) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0:
    ask()
    os._exit(0 if answers[-1] == answers[0] else 1)
assert os.waitpid(child, 0)[1] == 0
say([all(answer == answers[0] for answer in answers), len(answers)])
""")
    assert said == [[True, 4]]


def test_without_memory_there_is_an_error_and_no_crash(python):
    """Threads of a question too: their exceptions are the question's."""
    said = python("""
import resource
used = int(open("/proc/self/statm").read().split()[0]) * 4096
outcomes = {"answered": 0, "refused": 0}
for quarters in [*range(0, 24), 48, 96, 256, 1024]:
    resource.setrlimit(resource.RLIMIT_AS, (used + (quarters << 18), resource.RLIM_INFINITY))
    try:
        with vramscope.read(FILE) as other:
            other.report()
            other.timeline(100)
        outcomes["answered"] += 1
    except (vramscope.ReadError, MemoryError):
        outcomes["refused"] += 1
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
say(outcomes)
""")
    assert said[0]["answered"] > 0 and said[0]["refused"] > 0, said


def test_damaged_files_are_errors_or_answers(python, tmp_path):
    damaged = tmp_path / "damaged.vram"
    said = python(f"""
import random
whole, random = open(FILE, "rb").read(), random.Random(3)
outcomes = {{"opened": 0, "refused": 0}}
for i in range(120):
    data = bytearray(whole)
    for _ in range(random.randint(0, 2)):
        data[random.randrange(len(data))] = random.randrange(256)
    if i % 3 == 0:
        del data[random.randrange(len(data)):]
    open({str(damaged)!r}, "wb").write(data)
    try:
        with vramscope.read({str(damaged)!r}) as other:
            outcomes["opened"] += 1
            other.report(by=["line"])
            sum(len(batch) for batch in other.allocations(by=["python"]))
    except vramscope.ReadError as error:
        assert str(error) and "\\n" not in str(error)
        outcomes["refused"] += 1
say(outcomes)
""")
    assert said[0]["refused"] > 10 and said[0]["opened"] > 10, said
