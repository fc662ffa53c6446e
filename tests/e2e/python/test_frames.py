# SPDX-License-Identifier: Apache-2.0
"""Tables as the frames of other libraries: the Arrow C data interface, pyarrow, pandas, Polars, DuckDB, Parquet."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import package
import pytest
from places import ROOT, VRAMSCOPE

GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"
GOLDEN = sorted((ROOT / "tests" / "golden").glob("v[2-9]*/*.vram*"))

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return package.make(tmp_path_factory.mktemp("package"))


@pytest.fixture
def python(environment):
    """Runs code with `vramscope` imported and FILE, `trace` open of it; what it printed as JSON."""

    def run(code: str, file: Path = GPT2):
        head = f"import json, vramscope\nFILE = {str(file)!r}\ntrace = vramscope.read(FILE)\nsay = lambda x: print(json.dumps(x))\n"
        done = subprocess.run([sys.executable, "-c", head + code], capture_output=True, text=True, env=environment, timeout=120)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run


def test_arrow_has_every_row_of_every_table(python):
    said = python(f"""
for trace in map(vramscope.read, {[str(path) for path in [*GOLDEN, GPT2]]!r}):
    names, rows = [*dict.fromkeys(trace.table("tables")["table"]), "session", "tables", "words"], {{}}
    for name in names:
        table = trace.table(name)
        arrow = table.arrow()
        arrow.validate(full=True)
        assert arrow.to_pylist() == list(table) and arrow.column_names == list(table.units) and arrow.num_rows == len(table)
        assert {{f.name: (f.metadata or {{}}).get(b"unit", b"").decode() for f in arrow.schema}} == table.units
        if arrow.num_rows:
            assert arrow.to_pydict() == table.columns
        rows[name] = arrow.num_rows
    report = trace.report()
    for table in [*report, *trace.timeline(20), trace.live("end", by=["category", "module"])]:
        assert table.arrow().to_pylist() == list(table), table
    batches = 0
    for batch in trace.allocations(by=["category", "line"]):
        assert batch.arrow().to_pylist() == list(batch)
        batches += 1
    assert batches
    say(rows)
""")
    assert len(said) == len(GOLDEN) + 1
    for rows in said:
        assert len(rows) >= 27 and rows["allocations"] > 5 and rows["sites"] > 2


def test_numbers_are_not_copied_and_outlive_everything(python):
    said = python("""
import gc, pyarrow, weakref
sites = trace.table("sites")
address = sites._found["allocated_bytes"].values
arrow = sites.arrow()
say(arrow.column("allocated_bytes").chunk(0).buffers()[1].address == address)
rows = list(sites)
column = arrow.column("module")  # alone, without its table
reader = pyarrow.RecordBatchReader.from_stream(trace.table("allocations"))
batches = [reader.read_next_batch()]
trace.close()
del sites, trace
gc.collect()
say(arrow.to_pylist() == rows)
del arrow
gc.collect()
say(column.to_pylist() == [row["module"] for row in rows])
batches += list(reader)
say([len(batches) > 1, sum(len(batch) for batch in batches)])
other = vramscope.read(FILE)
kept = other.table("sites").__arrow_c_stream__()  # never consumed
gone = weakref.ref(other.table("sites")._held)
del kept
gc.collect()
say(gone() is None)
""")
    assert said == [True, True, True, [True, 8453], True]


def test_frames_of_others(python):
    said = python("""
import duckdb, pandas, polars
table = trace.peak(by=["category"])
rows = list(table)
frame = table.pandas()
say([str(kind) for kind in frame.dtypes])
none = lambda value: None if value is pandas.NA else value
say([{name: none(value) for name, value in row.items()} for row in frame.astype(object).to_dict("records")] == rows)
say(table.polars().to_dicts() == rows and polars.DataFrame(table).to_dicts() == rows)
relation = table.duckdb()
say([dict(zip(relation.columns, row)) for row in relation.fetchall()] == rows)
say(sum(rows[i]["bytes"] for i in range(len(rows)) if rows[i]["index"] == 0))
say([trace.live(at=trace.report().devices["at_ns"][0], by=["category"], where={"device": "gpu0"}).arrow().to_pylist()
     == [row for row in rows if row["index"] == 0]])
""")
    assert said[0][:2] == ["int64", "UInt64"] and said[0][-2:] == ["uint64", "uint64"]
    devices = json.loads(subprocess.run([VRAMSCOPE, "report", GPT2, "--json"], capture_output=True, check=True).stdout)["devices"]
    assert said[1:] == [True, True, True, devices[0]["ledger_bytes"], [True]]


def test_the_questions_have_their_answers(python):
    text = (ROOT / "examples" / "questions.sql").read_text()
    asked = re.findall(r"^-- \d+\. [^\n]*\n(.*?;)\n((?:--   [^\n]*\n)+)", text, flags=re.DOTALL | re.MULTILINE)
    assert len(asked) == 10
    said = python(f"""
database = trace.duckdb()
for question in {[question for question, _ in asked]!r}:
    found = database.sql(question)
    say("".join("--   " + " | ".join(map(str, row)) + "\\n" for row in [found.columns, *found.fetchall()]))
""")
    assert said == [answer for _, answer in asked]
    page = (ROOT / "docs" / "TABLES.md").read_text()
    [(question, answer)] = re.findall(r"```sql\n(.*?)\n```\n\n```text\n(.*?)```", page, flags=re.DOTALL)
    assert (question, "".join(f"--   {line}\n" for line in answer.splitlines())) in asked


def test_parquet_has_the_tables(python, tmp_path):
    directory = tmp_path / "tables"
    said = python(f"""
import duckdb, pyarrow.parquet
trace.to_parquet({str(directory)!r})
found = duckdb.sql("SELECT host, rank, count(*), sum(bytes)::BIGINT, sum(site)::BIGINT FROM read_parquet("
                   "'{directory}/allocations/**/*.parquet', hive_partitioning = true) GROUP BY ALL").fetchall()
allocations = trace.table("allocations")
say([found, [len(allocations), sum(allocations["bytes"]), sum(allocations["site"])]])
for name in ("sites", "frames", "words"):
    rows = pyarrow.parquet.read_table(f"{directory}/{{name}}.parquet").to_pylist()
    assert rows == [{{"id": i, **row}} for i, row in enumerate(trace.table(name))], name
host = trace.table("hosts")["name"][1]
say([host])
try:
    trace.to_parquet({str(directory)!r})
except FileExistsError as error:
    say(["refused"])
""")
    assert said[0][0] == [[said[1][0] or None, -1, *said[0][1]]] or said[0][0] == [[said[1][0], -1, *said[0][1]]]
    assert said[2] == ["refused"]
    assert directory.stat().st_mode & 0o777 == 0o700


def test_damaged_recordings_have_fewer_rows_and_closed_ones_are_errors(python, tmp_path):
    said = python(f"""
whole = open(FILE, "rb").read()
fewer = []
for at in range(1, 16):
    data = bytearray(whole)
    for i in range(64):
        data[at * len(data) // 30 + i] ^= 0x5a
    open({str(tmp_path / "damaged.vram")!r}, "wb").write(data)
    try:
        damaged = vramscope.read({str(tmp_path / "damaged.vram")!r})
    except vramscope.ReadError:
        continue
    lost = sum(row["count"] for row in damaged.table("losses"))
    fewer.append([damaged.table("allocations").arrow().num_rows, 8453 - lost, len(damaged.table("allocations"))])
say(fewer)
trace.close()
for table in (lambda: trace.table("sites"), lambda: trace.table("allocations"), lambda: trace.duckdb()):
    try:
        table()
    except ValueError as error:
        say(str(error))
""")
    assert len(said[0]) > 5 and all(rows == expected == length < 8453 for rows, expected, length in said[0]), said[0]
    assert said[1:] == ["this recording is closed"] * 3
