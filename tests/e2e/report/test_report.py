# SPDX-License-Identifier: Apache-2.0
"""The answers of report, info and export on a real recording of CPU tensors: they parse, they add up, they agree."""
from __future__ import annotations

import contextlib
import csv
import fcntl
import io
import json
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from places import ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

KEPT_BYTES = 6 << 20
PASSING_BYTES = 16 << 20
PROGRAM = f"""\
import torch
kept = []
def keep():
    kept.append(torch.empty({KEPT_BYTES}, dtype=torch.uint8))
def churn():
    for _ in range(20):
        torch.empty({PASSING_BYTES}, dtype=torch.uint8)
def work():
    keep()
    churn()
    keep()
work()
"""


def vramscope(*arguments: str | Path, status: int = 0, environment: dict[str, str] | None = None) -> str:
    """What vramscope prints; the error line instead where `status` is not 0."""
    done = subprocess.run(
        [VRAMSCOPE, *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "LC_ALL": "C.UTF-8", **(environment or {})},
        check=False,
    )
    assert done.returncode == status, done.stderr
    if status == 0:
        return done.stdout
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.rstrip("\n")


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("report")
    (directory / "program.py").write_text(PROGRAM)
    path = directory / "program.vram"
    subprocess.run(
        [VRAMSCOPE, "run", "--cpu", "-o", path, "--", sys.executable, directory / "program.py"],
        check=True,
        capture_output=True,
        timeout=120,
    )
    return path


def load(trace: Path, *arguments: str) -> dict:
    return json.loads(vramscope("report", trace, "--json", *arguments))


def cpu(report: dict) -> dict:
    (device,) = [device for device in report["devices"] if device["kind"] == "cpu"]
    return device


def rows_by_device(report: dict) -> dict[int, int]:
    sums = {device["index"]: 0 for device in report["devices"]}
    for row in report["rows"]:
        sums[row["device"]] += row["bytes"]
    return sums


QUERIES = [
    [],
    ["--at", "end"],
    ["--at", "0"],
    ["--by", "line"],
    ["--by", "process,category,line"],
    ["--by", "python"],
    ["--top", "1"],
    ["--by", "line", "--top", "2"],
]


@pytest.mark.parametrize("query", QUERIES, ids=" ".join)
def test_rows_sum_to_the_ledger(trace, query):
    report = load(trace, *query)
    assert report["schema"] == "vramscope.report/1"
    assert rows_by_device(report) == {device["index"]: device["ledger_bytes"] for device in report["devices"]}
    assert all(invariant["holds"] for invariant in report["invariants"])
    device = cpu(report)
    assert device["index"] == -1
    assert device["nvml_bytes"] is None and device["residual_bytes"] is None
    for process in report["processes"]:
        rows = [r for r in report["rows"] if r["device"] == process["device"] and r["pid"] == process["pid"]]
        if "--top" not in query:
            assert sum(row["bytes"] for row in rows) == process["ledger_bytes"]
    if "--by" in query:
        dimensions = query[query.index("--by") + 1].split(",")
        assert all(len(row["path"]) == len(dimensions) for row in report["rows"] if row["path"] != ["(rest)"])


def test_the_headlines_instant_is_what_at_takes(trace):
    (said, seconds), = re.findall(r"peak (.+) at ([0-9.]+) s\n", vramscope("report", trace))
    peak, = json.loads(vramscope("report", trace, "--json"))["devices"]
    pasted, = json.loads(vramscope("report", trace, "--json", "--at", seconds))["devices"]
    assert pasted["at"]["time_ns"] == peak["at"]["time_ns"]
    assert pasted["ledger_bytes"] == peak["ledger_bytes"]
    assert f" {said} at {seconds} s\n" in vramscope("report", trace, "--at", seconds)


def test_the_peak_of_what_is_allocated_has_its_whole_time():
    gpt2 = ROOT / "examples" / "traces" / "gpt2.vram"
    said = vramscope("report", gpt2, "--at", "mark:last-forward")
    assert re.findall(r"highest allocated: 10,869.1 MiB at ([0-9.]+) s", said) == ["15.91610655"]


def test_the_peak_is_one_kept_and_one_passing_tensor_or_two_kept(trace):
    peak = cpu(load(trace))["ledger_bytes"]
    end = cpu(load(trace, "--at", "end"))["ledger_bytes"]
    assert KEPT_BYTES + PASSING_BYTES <= peak < KEPT_BYTES + PASSING_BYTES + (1 << 20)
    assert 2 * KEPT_BYTES <= end < 2 * KEPT_BYTES + (1 << 20)


def test_lines_are_the_programs(trace):
    rows = load(trace, "--by", "line", "--at", "end")["rows"]
    (kept,) = [row for row in rows if row["path"][0].startswith("program.py:4")]
    assert kept["bytes"] == 2 * KEPT_BYTES
    assert kept["count"] == 2


def test_where_keeps_only_its_rows(trace):
    line = load(trace, "--by", "line")["rows"][0]["path"][0]
    report = load(trace, "--by", "line", "--where", f"line={line}")
    assert {row["path"][0] for row in report["rows"]} == {line}


def test_the_host_is_named(trace):
    host = socket.gethostname()
    assert [row["path"] for row in load(trace, "--by", "host")["rows"]] == [[host]]
    assert {row["path"][0] for row in load(trace, "--by", "line", "--where", f"host={host}")["rows"]}
    lives = map(json.loads, vramscope("export", trace, "--to", "json").splitlines())
    assert {life["host"] for life in lives} == {host}
    (rank,) = json.loads(vramscope("report", "--ranks", trace, "--json"))["ranks"]
    assert rank["host"] == host


@pytest.mark.parametrize("query", QUERIES, ids=" ".join)
def test_csv_has_the_rows_of_json(trace, query):
    rows = list(csv.DictReader(io.StringIO(vramscope("report", trace, "--csv", *query), newline="")))
    expected = load(trace, *query)["rows"]
    assert [(int(row["index"]), int(row["bytes"]), int(row["count"])) for row in rows] == [
        (row["device"], row["bytes"], row["count"]) for row in expected
    ]
    fixed = {"device", "index", "pid", "bytes", "count"}
    for row, wanted in zip(rows, expected):
        assert [value for name, value in row.items() if name not in fixed and value] == wanted["path"]


def test_several_files(trace):
    reports = json.loads(vramscope("report", trace, trace, "--json"))
    assert len(reports) == 2 and reports[0] == reports[1]
    rows = list(csv.DictReader(io.StringIO(vramscope("report", trace, trace, "--csv"), newline="")))
    assert {row["file"] for row in rows} == {str(trace)}
    assert len(rows) == 2 * len(reports[0]["rows"])


def test_text_fits_one_screen(trace):
    lines = vramscope("report", trace).splitlines()
    assert len(lines) <= 40
    # The trace's path is never cut: people copy it.
    assert max(len(line) for line in lines if str(trace) not in line) <= 80
    assert lines[0].startswith("Peak ") and lines[-1] == f"       vramscope open {trace}"
    text = "\n".join(lines)
    assert "\x1b" not in text
    assert "program.py:4 in keep" in text
    assert "kept.append(torch.empty" in text
    assert "BROKEN" not in text


def test_repeated_layers_are_one_row_whatever_they_are_grouped_with():
    recording = ROOT / "examples" / "traces" / "gpt2.vram"
    rows = [row for row in json.loads(vramscope("report", recording, "--json", "--by", "category,module"))["rows"] if row["device"] == 0]
    mib = {name: sum(row["bytes"] for row in rows if row["path"][0] == "activation" and re.match(name, row["path"][1])) / 2**20
           for name in (r"blocks\.\d+", r"blocks\.\d+\.attention(\.|$)")}
    lines = [line.split() for line in vramscope("report", recording, "--by", "category,module").splitlines()]
    at = lines.index(next(line for line in lines if line[:2] == ["blocks.[0-11]", "x12"]))
    assert lines[at - 1][0] == "activation" and lines[at][2] == f"{mib[next(iter(mib))]:,.1f}"
    attention = next(line for line in lines[at:] if line[0] == "attention")
    assert attention[1] == f"{list(mib.values())[1]:,.1f}"
    # The parameter adds what the layer above does not show.
    text = vramscope("report", recording, "--by", "module,parameter")
    assert re.search(r"^ +norm1 .*\n +\(none\) .*\n +(weight|bias) ", text, re.MULTILINE) and ".norm1.weight" not in text


def test_text_is_ascii_where_the_locale_is(trace):
    assert vramscope("report", trace, environment={"LC_ALL": "C"}).isascii()


def test_info(trace):
    facts = vramscope("info", trace)
    assert "program.py" in facts
    assert f"{trace.stat().st_size} bytes" in facts
    assert "bytes an event" in facts
    assert "BROKEN" not in facts


def test_export_lists_every_tensor(trace):
    lives = [json.loads(line) for line in vramscope("export", trace, "--to", "json").splitlines()]
    passing = [life for life in lives if life["bytes"] == PASSING_BYTES]
    assert len(passing) == 20
    assert all(life["alloc_ns"] <= life["free_ns"] for life in passing)
    assert all("program.py:7 in churn" in life["stack"] for life in passing)
    assert [life["alloc_ns"] for life in lives] == sorted(life["alloc_ns"] for life in lives)
    assert all(life["end_ns"] == life["free_ns"] for life in passing)

    rows = list(csv.DictReader(io.StringIO(vramscope("export", trace, "--to", "csv"), newline="")))
    assert len(rows) == len(lives)
    for row, life in zip(rows, lives):
        assert (row["address"], int(row["bytes"]), row["stack"], row["end_ns"]) == (
            life["address"],
            life["bytes"],
            ";".join(life["stack"]),
            str(life["end_ns"] or ""),
        )
    assert list(lives[0])[-1] == list(rows[0])[-1] == "end_ns"


def test_an_export_says_when_memory_went_with_its_process():
    gpt2 = ROOT / "examples" / "traces" / "gpt2.vram"
    lives = [json.loads(line) for line in vramscope("export", gpt2, "--to", "json").splitlines()]
    went = [life for life in lives if life["free_ns"] is None and life["pid"] is not None]
    last_ns = max(life["free_ns"] or 0 for life in lives)
    (exit_ns,) = {life["end_ns"] for life in went}
    assert len(went) > 10 and exit_ns > last_ns


def test_collapsed_stacks_sum_to_the_peak(trace, tmp_path):
    output = tmp_path / "folded.txt"
    assert vramscope("export", trace, "--to", "collapsed", "-o", output) == ""
    total = 0
    for line in output.read_text().splitlines():
        stack, _, number = line.rpartition(" ")
        assert stack
        total += int(number)
    assert total == sum(device["ledger_bytes"] for device in load(trace)["devices"])
    frames = "program.py:12 in <module>;program.py:9 in work;program.py:4 in keep"
    assert f"{frames} {KEPT_BYTES}" in output.read_text()


def test_several_instants_are_several_reports(trace):
    instants = ("--at", "peak", "--at", "end", "--at", "peak")
    found = json.loads(vramscope("report", trace, "--json", *instants))
    assert found == [json.loads(vramscope("report", trace, "--json", "--at", at)) for at in instants[1::2]]
    assert found[0] != found[1]
    rows = list(csv.DictReader(io.StringIO(vramscope("report", trace, "--csv", *instants))))
    assert [(int(row["at_ns"]), int(row["bytes"])) for row in rows] == [
        (report["devices"][0]["at"]["time_ns"], row["bytes"]) for report in found for row in report["rows"]
    ]
    assert vramscope("report", trace, *instants) == "\n".join(vramscope("report", trace, "--at", at) for at in instants[1::2])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["report", "{trace}", "--by", "colour"], ["colour", "category", "size_class"]),
        (["report", "{trace}", "--where", "colour=red"], ["colour", "category"]),
        (["report", "{trace}", "--where", "category"], ["category", "DIM=VALUE"]),
        (["report", "{trace}", "--by", "line,line"], ["line", "twice"]),
        (["report", "{trace}", "--by", "line,"], ["category"]),
        (["report", "{trace}", "--at", "noon"], ["noon", "peak", "iter:N", "mark:NAME"]),
        (["report", "{trace}", "--at", "mark:nowhere"], ["nowhere"]),
        (["report", "{trace}", "--json", "--csv"], ["--csv", "--json"]),
        (["report", "{trace}", "{trace}", "--html", "{tmp}/page.html"], ["--html"]),
        (["report", "{trace}", "--html", "{trace}"], ["{trace}"]),
        (["report", "{trace}", "--html", "{tmp}/missing/page.html"], ["missing/page.html"]),
        (["report", "{trace}", "--by", "layers"], ["layers", "did you mean 'layer'"]),
        (["report", "{trace}", "--json", "--timeline", "0"], ["--timeline", "1 to 1,000,000", "not 0"]),
        (["report", "{trace}", "--json", "--timeline", "1000001"], ["--timeline", "1 to 1,000,000", "not 1,000,001"]),
        (["report", "{trace}", "--json", "--timeline", "18446744073709551615"], ["--timeline", "1 to 1,000,000"]),
        (["report", "{tmp}/missing.vram"], ["missing.vram: does not exist, and neither does {tmp}/missing.vram.d: check the name"]),
        (["report", "{tmp}/missing.vram.d"], ["missing.vram.d: does not exist, and neither does {tmp}/missing.vram: check the name"]),
        (["report", "{trace}.d/"], ["{trace}.d/: does not exist: the recording is finished: use {trace}"]),
        (["report", "{tmp}"], ["{tmp}"]),
        (["report", __file__], ["test_report.py"]),
        (["report"], ["FILE"]),
        (["report", "{trace}", "--keywords", "words.toml"], ["words.toml", "cannot be opened"]),
        (["report", "{trace}", "--expected-sum", "1G"], ["--expected-sum"]),
        (["report", "{trace}", "--keywords", "layers", "--at", "end", "--at", "peak"], ["--keywords", "--at"]),
        (["report", "{trace}", "--top", "some"], ["--top"]),
        (["info", "{tmp}/missing.vram"], ["missing.vram"]),
        (["export", "{trace}", "--to", "orc"], ["orc", "csv", "json", "collapsed", "parquet"]),
        (["export", "{trace}", "--to", "parquet"], ["parquet", "-o DIR"]),
        (["export", "{trace}"], ["--to"]),
        (["export", "{trace}", "--to", "csv", "-o", "{tmp}/missing/out.csv"], ["missing/out.csv"]),
        (["export", "{trace}", "--to", "csv", "-o", "{trace}"], ["{trace}"]),
    ],
)
def test_bad_input_is_one_line(trace, tmp_path, arguments, says):
    places = {"trace": trace, "tmp": tmp_path}
    error = vramscope(*[argument.format(**places) for argument in arguments], status=2)
    for words in says:
        assert words.format(**places) in error
    assert trace.stat().st_size > 0


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_an_error_drives_no_terminal(trace, tmp_path, locale):
    harm = "mark:n\x1b[2J\x07\x7f\u009b31m\r\nope \u00fc"
    error = vramscope("report", trace, "--at", harm, status=2, environment={"LC_ALL": locale})
    # A pipe receives the name unchanged, in any locale.
    assert "n?[2J???31m  ope \u00fc" in error and not set(error) & set("\x1b\x07\x7f\u009b\r")


def on_a_terminal(*arguments: str | Path, folder: Path, columns: int = 80) -> list[str]:
    """The lines that a terminal of so many columns gets."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(VRAMSCOPE, [str(VRAMSCOPE), *map(str, arguments)], {**os.environ, "LC_ALL": "C.UTF-8", "TERM": "dumb"})
    said = b""
    with contextlib.suppress(OSError):  # it ends with one
        while piece := os.read(terminal, 1 << 16):
            said += piece
    os.waitpid(pid, 0)
    os.close(terminal)
    return said.decode().replace("\r", "").splitlines()


@pytest.mark.parametrize(
    "arguments",
    [
        ["report", "gpt2.vram", "--by", "colour"],
        ["report", "gpt2.vram", "--keywords", "layers"],
        ["diff", "gpt2.vram", "{trace}"],
        ["info", "gpt2.vram"],
    ],
    ids=" ".join,
)
def test_sentences_go_on_below_on_a_terminal(trace, arguments):
    folder = ROOT / "examples" / "traces"
    arguments = [argument.format(trace=trace) for argument in arguments]
    lines = on_a_terminal(*arguments, folder=folder)
    # A word that no line has room for stays whole.
    assert [line for line in lines if len(line) > 80 and " " in line[30:].strip()] == []
    done = subprocess.run(
        [VRAMSCOPE, *arguments], cwd=folder, capture_output=True, text=True, timeout=60, env={**os.environ, "LC_ALL": "C.UTF-8"}
    )
    # Elsewhere each is one line, for who greps.
    assert len((done.stdout + done.stderr).splitlines()) < len(lines)


def test_a_full_disk_is_an_error(trace):
    with open("/dev/full", "w", encoding="utf-8") as full:
        for command in (["report", trace], ["report", trace, "--json"], ["info", trace], ["export", trace, "--to", "csv"]):
            done = subprocess.run([VRAMSCOPE, *command], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
            assert done.returncode == 2
            assert "standard output" in done.stderr
