# SPDX-License-Identifier: Apache-2.0
"""`vramscope fleet`, `run --summary` and `export --to parquet`: many ranks as one dataset (docs/DATASET.md)."""
from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

import pytest
from browser import EXECUTABLE, Browser
from places import MIB, ROOT, VRAMSCOPE

sys.path.insert(0, str(ROOT / "tests/fleet"))
import generate

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pyarrow = pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

needs_browser = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")
TRACES = ROOT / "examples/traces"
RANKS = 10_000
TABLES = ("ranks", "iterations", "parts", "growing", "failures", "settings", "allocations", "deltas", "samples", "stacks")
QUESTIONS = ("heaviest", "outliers", "imbalance", "growth", "failures", "versions")


def vramscope(*words: object, status: int = 0, **variables: str) -> subprocess.CompletedProcess:
    command = [str(word) for word in (VRAMSCOPE, *words)]
    environment = {**os.environ, "VRAMSCOPE_PYTHON": sys.executable, **variables}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


def ask(folder: Path, *words: object) -> List[Dict[str, Any]]:
    return json.loads(vramscope("fleet", folder, *words, "--json").stdout)["rows"]


@pytest.fixture(scope="module")
def base() -> Dict[str, Any]:
    """The summary of a real training, with its 40 largest layers."""
    summary = json.loads(vramscope("export", "--to", "summary", TRACES / "gpt2.vram").stdout)
    summary["parts"] = summary["parts"][:40]
    return summary


@pytest.fixture(scope="module")
def many(base, tmp_path_factory):
    """The summaries of RANKS ranks, compacted, and what is planted in them."""
    folder = tmp_path_factory.mktemp("many")
    plan = generate.write(base, folder, RANKS, seed=1)
    vramscope("fleet", folder, "compact")
    assert not list(folder.glob("*.json"))
    return folder, plan


def test_fleet_finds_what_is_planted_in_ten_thousand_ranks(many):
    folder, plan = many
    told = {}
    for question in ("heaviest", "outliers", "growth", "failures"):
        before = time.monotonic()
        told[question] = ask(folder, question)
        print(question, round(time.monotonic() - before, 2), "s")
    outliers = {row["rank"]: row for row in told["outliers"]}
    assert set(outliers) == set(plan.outliers), "and no other"
    for rank, planted in plan.outliers.items():
        row = outliers[rank]
        assert (row["layer"], row["category"]) == (planted["layer"], planted["category"])
        assert abs(row["layer_difference_bytes"] - planted["bytes"]) < 0.02 * abs(planted["bytes"])
        assert row["since_iteration"] == planted["since"]
    (growing,) = told["growth"]
    assert growing["rank"] == plan.growing and growing["place"] == plan.growth["place"]
    assert abs(growing["per_iteration_bytes"] - plan.growth["bytes"]) < 2000
    (failed,) = told["failures"]
    assert (failed["rank"], failed["place"], failed["iteration"]) == (plan.failing, plan.failure["place"], plan.failure["iteration"])
    assert failed["category"] == plan.failure["category"] and abs(failed["over_median_bytes"] - plan.failure["bytes"]) < 2 * MIB
    assert told["heaviest"][0]["rank"] in range(RANKS) and len(told["heaviest"]) == 10
    words = [str(VRAMSCOPE), "fleet", str(folder), "outliers"]
    with subprocess.Popen(words, env={**os.environ, "VRAMSCOPE_PYTHON": sys.executable}, stdout=subprocess.DEVNULL) as asked:
        _, status, used = os.wait4(asked.pid, 0)
        asked.returncode = os.waitstatus_to_exitcode(status)
    assert asked.returncode == 0 and used.ru_maxrss < 2 << 20  # KiB
    assert used.ru_utime + used.ru_stime < 6  # 3 s on two cores


@needs_browser
def test_the_page_shows_each_rank_beside_its_peers(many, tmp_path):
    folder, plan = many
    page = tmp_path / "fleet.html"
    vramscope("fleet", folder, "page", "-o", page)
    with Browser(1280, 800) as browser:
        browser.open(page)
        assert f"{RANKS:,} ranks of pretrain" in browser.run("document.querySelector('h1').textContent")
        side = "document.querySelector('.side').textContent"
        assert f"rank {plan.heavy} on" in browser.run(side) and "blocks.3.expand · activation" in browser.run(side)
        browser.call("Performance.enable", timeDomain="threadTicks")

        def cpu() -> float:
            return {row["name"]: row["value"] for row in browser.call("Performance.getMetrics")["metrics"]}["TaskDuration"]

        spent = {}
        for act in ("measure = MEASURES.growth; showScale(); paint(); draw()", f"choose({plan.late})"):
            before = cpu()
            browser.run(f"for (let i = 0; i < 10; ++i) {{ {act}; }} undefined")
            spent[act] = cpu() - before
        assert "blocks.5.attention.qkv · optimizer state" in browser.run(side)
        assert max(spent.values()) < 10 * 0.0167, spent
        # A click on the cell of a rank chooses it.
        browser.run(f"""
          const [row, column] = places[{plan.light}].map(Number), box = canvas.getBoundingClientRect();
          canvas.dispatchEvent(new MouseEvent("click", {{clientX: box.left + leftOf([row, column]) + 2, clientY: box.top + topOf([row]) + 2}})); undefined""")
        assert f"rank {plan.light} on" in browser.run(side)
        assert not browser.complaints


def test_summaries_that_are_not_compacted_give_the_same_answers(base, tmp_path):
    loose, compacted = tmp_path / "loose", tmp_path / "compacted"
    generate.write(base, loose, 64, seed=2)
    shutil.copytree(loose, compacted)
    vramscope("fleet", compacted, "compact")
    for question in QUESTIONS:
        assert ask(loose, question) == ask(compacted, question), question
    # A newer summary of ranks that are compacted replaces their rows, also before the next compaction.
    late = json.loads((loose / "pretrain-node0003.summary.json").read_text())
    for rank in late["ranks"]:
        rank["peak_bytes"] += 1
    for folder in (loose, compacted):
        (folder / "pretrain-node0003.summary.json").write_text(json.dumps(late))
    expected = {question: ask(loose, question) for question in QUESTIONS}
    assert {question: ask(compacted, question) for question in QUESTIONS} == expected
    vramscope("fleet", compacted, "compact")
    assert {question: ask(compacted, question) for question in QUESTIONS} == expected


COMPARE = """
import functools, json, pathlib, runpy, sys
python, folder, whole = sys.argv[1:]
sys.path.insert(0, python)
from vramscope.fleet import engines, questions, schema
with engines.open_source(pathlib.Path(folder), None, print) as source:
    made = [engines.open_engine(name, source, print) for name in ("duckdb", "spark")]
    for question in questions.QUESTIONS:
        for by in ("host", "mesh.pp") if question == "imbalance" else ("host",):
            text = questions.text_of(question, 20, by)
            print("ANSWERS", json.dumps([question, *[engine.query(text) for engine in made]]))
    spark = made[1]._session
    print("WORKERS", spark.sparkContext.master, spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() - 1)
    counts = [
        spark.read.parquet(str(path)).selectExpr(f"'{path.name}' AS table", "count(*) AS rows")
        for path in pathlib.Path(whole).iterdir() if path.name in schema.TABLES
    ]
    print("ROWS", json.dumps([list(row) for row in functools.reduce(lambda a, b: a.union(b), counts).collect()]))
# In the same session, because another one takes as long as all of the above.
sys.argv[1:] = [folder, "heaviest", "--json", "--top", "3"]
print("SUBMITTED")
runpy.run_path(python + "/vramscope/fleet/submit.py", run_name="__main__")
"""

# They start in half of the time, for a program that ends soon.
SHORT_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData"


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A dataset with every table."""
    data = tmp_path_factory.mktemp("whole")
    vramscope("export", "--to", "parquet", TRACES / "gpt2.vram", TRACES / "oom.vram", "-o", data, "--run", "one")
    return data


def rows_of(data: Path) -> Dict[str, int]:
    counts = ", ".join(f"(SELECT count(*) FROM {table}) AS {table}" for table in TABLES)
    return ask(data, "sql", f"SELECT {counts}")[0]


def test_duckdb_and_spark_give_equal_rows(base, whole, tmp_path):
    """By spark-submit with two workers: a Spark session takes 10 s to start, so all of Spark is in this one."""
    pyspark = pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no Java")
    data = tmp_path / "data"
    generate.write(base, data, 128, seed=3)
    vramscope("fleet", data, "compact")
    (tmp_path / "compare.py").write_text(COMPARE)
    words = [Path(pyspark.__file__).parent / "bin/spark-submit", "--master", "local-cluster[2,1,1024]"]
    words += [tmp_path / "compare.py", ROOT / "python", data, whole]
    variables = {"JAVA_TOOL_OPTIONS": SHORT_JVM, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=280, check=False, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said, _, submitted = done.stdout.partition("SUBMITTED\n")
    told: Dict[str, List[Any]] = {}
    for line in said.splitlines():
        word, _, rest = line.partition(" ")
        told.setdefault(word, []).append(json.loads(rest) if word in ("ANSWERS", "ROWS") else rest)
    assert told["WORKERS"] == ["local-cluster[2,1,1024] 2"]
    assert len(told["ANSWERS"]) == len(QUESTIONS) + 1
    for question, ours, theirs in told["ANSWERS"]:
        assert ours == theirs, question
        assert ours[1] or question == "versions", question
    assert json.loads(submitted)["rows"] == ask(data, "heaviest", "--top", "3")
    # Spark reads the folder of each table without options.
    assert {**dict.fromkeys(TABLES, 0), **dict(told["ROWS"][0])} == rows_of(whole)


def test_a_spark_master_that_does_not_answer_is_one_line(small):
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no Java")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        master = f"spark://127.0.0.1:{closed.getsockname()[1]}"
        before = time.monotonic()
        done = vramscope("fleet", small, "heaviest", "--engine", "spark", "--master", master, status=2)
    assert time.monotonic() - before < 30
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"vramscope: Spark: the master {master} does not answer (127.0.0.1:") and last.endswith("; check --master")


# A master that accepts, but has no workers.
NO_WORKERS = """
import pathlib, sys
python, folder, master = sys.argv[1:]
sys.path.insert(0, python)
from vramscope.fleet import __main__, engines
engines._WORKER_SECONDS = 3
sys.exit(__main__.main(["fleet", folder, "heaviest", "--engine", "spark", "--master", master]))
"""


def test_a_spark_master_without_workers_is_one_line(small, tmp_path):
    pyspark = pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("no Java")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        port, page = (str(server.getsockname()[1]) for server in (one, other))
    home = Path(pyspark.__file__).parent
    variables = {**os.environ, "JAVA_TOOL_OPTIONS": SHORT_JVM, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_LOG_DIR": str(tmp_path)}
    words = [home / "bin/spark-class", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", page]
    master = subprocess.Popen([str(word) for word in words], env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert any("I have been elected leader" in line for line in master.stderr)
        url = f"spark://127.0.0.1:{port}"
        words = [sys.executable, "-c", NO_WORKERS, ROOT / "python", small, url]
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=280, check=False, env=variables)
    finally:
        master.kill()
        master.communicate()
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 2 and last.startswith(f"vramscope: Spark: no worker of {url} started in 3 s; "), done.stderr[-2000:]


def test_two_jobs_of_one_name_are_refused(base, tmp_path):
    """Another job's ranks of the same numbers, at the same time."""
    generate.write(base, tmp_path, 16, seed=9)
    other = json.loads((tmp_path / "pretrain-node0001.summary.json").read_text())
    for rows in other.values():
        for row in rows if isinstance(rows, list) else ():
            row["pid"] += 100_000
    (tmp_path / "pretrain-other.summary.json").write_text(json.dumps(other))
    said = vramscope("fleet", tmp_path, "heaviest", status=2).stderr.splitlines()[-1]
    assert said.startswith("vramscope: run pretrain: rank 8 is two processes at the same time (node0001, pid ")
    assert said.endswith("so two jobs have this name; give each its own: vramscope run --name")
    (tmp_path / "pretrain-other.summary.json").write_text(json.dumps({**other, "run": "eval"}))
    assert len(ask(tmp_path, "heaviest", "--run", "eval", "--top", "99")) == 8
    assert len(ask(tmp_path, "heaviest", "--run", "pretrain", "--top", "99")) == 16


def test_sums_at_the_peak_are_those_of_the_report(tmp_path):
    vramscope("export", "--to", "parquet", TRACES / "gpt2.vram", "-o", tmp_path / "data")
    (told,) = json.loads(vramscope("report", "--ranks", TRACES / "gpt2.vram", "--json").stdout)["ranks"]
    sums = ask(tmp_path / "data", "sql", "SELECT category, CAST(sum(bytes) AS BIGINT) AS bytes FROM parts GROUP BY category")
    assert {row["category"]: row["bytes"] for row in sums} == told["categories"]
    # The rows of `allocations` and `deltas` add up to the same bytes at that instant.
    peak = json.loads(vramscope("report", TRACES / "gpt2.vram", "--json").stdout)["devices"][0]
    at = peak["at"]["time_ns"]
    query = f"""
      SELECT CAST(sum(bytes) AS BIGINT) AS bytes FROM (
        SELECT bytes FROM allocations WHERE begin_ns <= {at} AND (end_ns IS NULL OR end_ns > {at}) AND device = 0
          AND NOT unbacked AND (backing OR segment_id IS NULL)
        UNION ALL SELECT bytes FROM deltas WHERE time_ns <= {at} AND device = 0)"""
    assert ask(tmp_path / "data", "sql", query) == [{"bytes": peak["ledger_bytes"]}]


def test_an_export_is_repeated_without_rows_twice(tmp_path):
    data, recordings = tmp_path / "data", tmp_path / "recordings"
    recordings.mkdir()
    for name in ("gpt2", "oom"):
        shutil.copy(TRACES / f"{name}.vram", recordings)
    count = "SELECT (SELECT count(*) FROM allocations) AS allocations, (SELECT count(*) FROM ranks) AS ranks"
    vramscope("export", "--to", "parquet", recordings, "-o", data, "--run", "one")
    first = ask(data, "sql", count)
    assert first[0]["ranks"] == 2 and first[0]["allocations"] > 8000
    files = sorted(data.rglob("*.parquet"))
    vramscope("export", "--to", "parquet", recordings, "-o", data, "--run", "one")
    assert ask(data, "sql", count) == first and sorted(data.rglob("*.parquet")) == files
    # A damaged recording is named, and the others are written.
    whole = (recordings / "gpt2.vram").read_bytes()
    (recordings / "torn.vram").write_bytes(whole[: len(whole) // 2])
    said = vramscope("export", "--to", "parquet", recordings, "-o", tmp_path / "other", status=1).stderr
    assert "left out:" in said and "torn.vram" in said and said.count("\n") == 2
    assert ask(tmp_path / "other", "sql", count, "--run", "train")[0]["ranks"] == 1
    # A part of an export would delete the rest.
    said = vramscope("export", "--to", "parquet", recordings / "oom.vram", "-o", data, "--run", "one", status=2).stderr
    assert "export all of its recordings at once" in said
    assert ask(data, "sql", count) == first
    assert not [path for path in data.rglob("*") if path.name.endswith(".tmp")]


def test_an_export_takes_the_place_of_its_ranks_summaries(base, tmp_path):
    """`--record-ranks`: summaries of all, recordings of some, in one dataset."""
    generate.write(base, tmp_path, 16, seed=5)
    own = json.loads(vramscope("export", "--to", "summary", TRACES / "gpt2.vram").stdout)
    (tmp_path / "own.summary.json").write_text(json.dumps({**own, "run": "pretrain"}))
    rows = "SELECT (SELECT count(*) FROM ranks) AS ranks, (SELECT count(*) FROM parts) AS parts, (SELECT count(*) FROM settings) AS settings"
    before = ask(tmp_path, "sql", rows)
    assert before[0]["ranks"] == 17
    vramscope("export", "--to", "parquet", TRACES / "gpt2.vram", "-o", tmp_path, "--run", "pretrain")
    assert ask(tmp_path, "sql", rows) == before, "beside loose summaries"
    vramscope("fleet", tmp_path, "compact")
    assert ask(tmp_path, "sql", rows) == before, "after a compaction"
    # The other order: the summary is compacted before its recording is exported.
    for path in [*(tmp_path / "_vramscope").glob("*-export.json"), *tmp_path.glob("*/run=pretrain/*.parquet")]:
        path.unlink()
    for path in (tmp_path / "_vramscope").glob("*"):
        path.unlink()
    generate.write(base, tmp_path, 16, seed=5)
    (tmp_path / "own.summary.json").write_text(json.dumps({**own, "run": "pretrain"}))
    vramscope("fleet", tmp_path, "compact")
    assert ask(tmp_path, "sql", rows) == before
    vramscope("export", "--to", "parquet", TRACES / "gpt2.vram", "-o", tmp_path, "--run", "pretrain")
    assert ask(tmp_path, "sql", rows) == before
    assert ask(tmp_path, "sql", "SELECT count(*) > 8000 AS detail FROM allocations") == [{"detail": True}]
    # A run whose name reads as a number.
    vramscope("export", "--to", "parquet", TRACES / "oom.vram", "-o", tmp_path, "--run", "007")
    assert len(ask(tmp_path, "heaviest", "--run", "007")) == 1


def test_a_newer_summary_stays_when_a_compaction_deletes(base, tmp_path):
    """A rank that still runs replaces its summary while the folder is compacted."""
    generate.write(base, tmp_path, 8, seed=6)
    (path,) = tmp_path.glob("*.json")
    program = f"""
import pathlib, sys
sys.path.insert(0, {str(ROOT / "python")!r})
from vramscope.fleet import dataset, summaries
path = pathlib.Path({str(path)!r})
real = dataset.write_tables
def write_tables(commit, tables):
    real(commit, tables)
    newer = path.with_name("newer"); newer.write_bytes(path.read_bytes()); newer.replace(path)
dataset.write_tables = write_tables
print(summaries.compact(path.parent))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "(8, [])\n" and path.exists()


def test_other_readers_need_no_options(whole):
    """DuckDB, Arrow, pandas and Polars by folders alone; Spark is in `test_duckdb_and_spark_give_equal_rows`."""
    import duckdb
    import pyarrow.dataset

    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    counted = {}
    for table in TABLES:
        folder = whole / table
        if not folder.exists():
            counted[table] = [0]
            continue
        found = duckdb.sql(f"SELECT count(*) AS rows, min(run) AS run FROM read_parquet('{folder}/**/*.parquet')").fetchall()
        assert found[0][1] in ("one", None), table
        arrow = pyarrow.dataset.dataset(folder, partitioning="hive").to_table()
        counted[table] = [found[0][0], arrow.num_rows, len(pandas.read_parquet(folder)), polars.read_parquet(folder).height]
        assert set(arrow["run"].to_pylist()) <= {"one"}
    assert counted == {table: [rows] * len(counted[table]) for table, rows in rows_of(whole).items()}
    assert counted["allocations"][0] > 8000 and counted["deltas"][0] and counted["stacks"][0] and counted["samples"][0]
    frame = pandas.read_parquet(whole / "ranks")
    assert set(frame["run"]) == {"one"} and sorted(frame["peak_bytes"]) == sorted(row["peak_bytes"] for row in ask(whole, "heaviest"))


BAD = {
    "no folder": (("nothing", "heaviest"), "no such folder"),
    "no run": (("DIR", "heaviest", "--run", "other"), "there is no run other; it has pretrain"),
    "no question": (("DIR", "lightest"), "invalid choice"),
    "no words": ((), "the following arguments are required: DIR, QUESTION; see `vramscope fleet --help`"),
    "no query": (("DIR", "sql"), "takes a query"),
    "wrong query": (("DIR", "sql", "SELECT nothing FROM ranks"), "nothing"),
    "wrong axis": (("DIR", "imbalance", "--by", "rack"), "--by rack"),
    "no rows": (("DIR", "heaviest", "--top", "0"), "--top 0"),
}


@pytest.fixture(scope="module")
def small(base, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    generate.write(base, folder, 32, seed=4)
    return folder


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(small, case):
    words, said = BAD[case]
    done = vramscope("fleet", *[small if word == "DIR" else word for word in words], status=2)
    lines = [line for line in done.stderr.splitlines() if "not compacted" not in line]
    assert said in lines[0] and lines[0].startswith("vramscope: ") and "Traceback" not in done.stderr
    assert len(lines) == 1 or case == "wrong query"  # DuckDB shows the place below its message


def test_a_dataset_of_an_earlier_version_has_fewer_columns(base, tmp_path):
    import pyarrow.parquet

    generate.write(base, tmp_path, 16, seed=7)
    vramscope("fleet", tmp_path, "compact")
    (path,) = tmp_path.glob("ranks/*/*.parquet")
    rows = pyarrow.parquet.ParquetFile(path).read()
    pyarrow.parquet.write_table(rows.drop_columns(["node", "local_rank"]), path)
    query = "SELECT count(*) AS ranks, count(node) AS nodes FROM all_ranks"
    assert ask(tmp_path, "sql", query) == [{"ranks": 16, "nodes": 0}]
    generate.write(base, tmp_path, 8, seed=8)
    vramscope("fleet", tmp_path, "compact")
    assert ask(tmp_path, "sql", query) == [{"ranks": 24, "nodes": 8}]


def test_damaged_summaries_are_named_and_the_others_used(small, tmp_path):
    folder = tmp_path / "summaries"
    shutil.copytree(small, folder)
    files = sorted(folder.glob("*.json"))
    half = files[0].read_bytes()
    files[0].write_bytes(half[: len(half) // 2])
    later = json.loads(files[1].read_text())
    files[1].write_text(json.dumps({**later, "schema": "vramscope.summary/2"}))
    again = json.loads(files[2].read_text())
    for rank in again["ranks"]:
        rank["begin_wall_ns"] += 3600 * 10**9
        rank["peak_bytes"] += MIB
    for rows in again.values():
        for row in rows if isinstance(rows, list) else ():
            row["host"] = "restarted"
    (folder / "pretrain-restarted.summary.json").write_text(json.dumps(again))
    for name, rows in (("text", [{"rank": "three"}]), ("huge", [{"rank": 1 << 70}]), ("keys", [{"rank": 1}]), ("list", [1])):
        wrong = {**later, "schema": "vramscope.summary/1", "parts": rows}
        (folder / f"wrong-{name}.summary.json").write_text(json.dumps(wrong))
    (folder / "wrong-deep.summary.json").write_text("[" * 100_000)
    done = vramscope("fleet", folder, "sql", "SELECT count(*) AS n, max(host) AS host FROM ranks", "--json")
    assert json.loads(done.stdout)["rows"] == [{"n": 16, "host": "restarted"}]
    assert f"left out: {files[0]}: damaged or incomplete" in done.stderr
    assert "another version, vramscope.summary/2" in done.stderr
    assert sum("left out: " in line and "wrong-" in line and "damaged" in line for line in done.stderr.splitlines()) == 5
    assert "Traceback" not in done.stderr
    assert "is there 2 times (hosts node0002 and restarted)" in done.stderr
    # Damage stays where it is, for a person to look at.
    vramscope("fleet", folder, "compact")
    assert files[0].exists() and files[1].exists() and not files[2].exists()


def test_missing_libraries_are_named_with_the_command(small, tmp_path):
    (tmp_path / "duckdb.py").write_text("raise ImportError('blocked')")
    done = vramscope("fleet", small, "heaviest", status=2, PYTHONPATH=str(tmp_path))
    assert done.stderr.splitlines()[-1] == "vramscope: a question about a fleet needs duckdb: python -m pip install duckdb"


def test_a_closed_pipe_is_no_error(small):
    shell = f"{VRAMSCOPE} fleet {small} sql 'SELECT * FROM iterations' | head -n 1"
    done = subprocess.run(
        shell, shell=True, capture_output=True, text=True, timeout=60, env={**os.environ, "VRAMSCOPE_PYTHON": sys.executable, "COLUMNS": "400"}
    )
    assert done.stdout.startswith("rank") and [line for line in done.stderr.splitlines() if "not compacted" not in line] == []


MESH = """
import sys, time, types, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
torch.set_num_threads(1)
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2, 2, 2), mesh_dim_names=("dp", "pp", "tp"))
sys.stdout.write(f"MESH {dist.get_rank()} {mesh.get_coordinate()[0]} {mesh.get_coordinate()[1]} {mesh.get_coordinate()[2]}\\n"); sys.stdout.flush()
# Megatron's module, with a group of its own.
states = types.ModuleType("megatron.core.parallel_state")
groups = [dist.new_group([rank, rank + 1]) for rank in range(0, 8, 2)]
states._CONTEXT_PARALLEL_GROUP = groups[dist.get_rank() // 2]
states._DATA_PARALLEL_GROUP = ["not a group"]
sys.modules["megatron.core.parallel_state"] = states
model = torch.nn.Linear(256, 256 * (1 + mesh.get_coordinate()[1]))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(6):
    model(torch.randn(8, 256)).sum().backward()
    optimizer.step(); optimizer.zero_grad()
    time.sleep(0.05)
dist.barrier()
dist.destroy_process_group()
"""


def test_coordinates_are_those_of_the_device_mesh(tmp_path):
    """Two machines' worth of ranks: two launchers with four ranks each."""
    pytest.importorskip("torch")
    (tmp_path / "mesh.py").write_text(MESH)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    variables = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "8", "OMP_NUM_THREADS": "1"}
    launchers = []
    for node in range(2):
        ranks = [
            f"RANK={rank} LOCAL_RANK={rank % 4} GROUP_RANK={node} NODE_NAME=gpu-{node} POD_NAME=trainer-{node} {sys.executable} mesh.py &"
            for rank in range(4 * node, 4 * node + 4)
        ]
        words = [VRAMSCOPE, "run", "--cpu", "--no-report", "--summary", tmp_path / "fleet", "--name", "job", "-o", tmp_path / f"{node}.vram"]
        words += ["--", "sh", "-c", f"{' '.join(ranks)} wait"]
        launchers.append(
            subprocess.Popen([str(word) for word in words], cwd=tmp_path, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
    out = [launcher.communicate(timeout=240) for launcher in launchers]
    told = {int(words[1]): tuple(map(int, words[2:5])) for text, _ in out for words in map(str.split, text.splitlines()) if words[:1] == ["MESH"]}
    assert set(told) == set(range(8)), out
    for summary in (tmp_path / "fleet").glob("*.summary.json"):
        assert summary.stat().st_size < 4 * 64 << 10
    rows = ask(tmp_path / "fleet", "sql", "SELECT rank, mesh_dp, mesh_pp, mesh_tp, mesh_cp, peers, iterations FROM ranks WHERE rank >= 0 ORDER BY rank")
    assert {row["rank"]: (row["mesh_dp"], row["mesh_pp"], row["mesh_tp"]) for row in rows} == told
    assert all(row["peers"] == f"cp={row['rank'] % 2},pp={row['mesh_pp']},tp={row['mesh_tp']}" and row["iterations"] == 6 for row in rows)
    assert all(row["mesh_cp"] == row["rank"] % 2 for row in rows)
    by_stage = ask(tmp_path / "fleet", "imbalance", "--by", "mesh.pp")
    assert [(row["mesh_pp"], row["ranks"]) for row in sorted(by_stage, key=lambda row: row["mesh_pp"])] == [(0, 4), (1, 4)]
    # The launchers' and Kubernetes' names.
    places = ask(tmp_path / "fleet", "sql", "SELECT rank, local_rank, group_rank, node, pod FROM ranks WHERE rank >= 0 ORDER BY rank")
    for rank, row in enumerate(places):
        node = rank // 4
        assert row == {"rank": rank, "local_rank": rank % 4, "group_rank": node, "node": f"gpu-{node}", "pod": f"trainer-{node}"}
    by_node = ask(tmp_path / "fleet", "imbalance", "--by", "node")
    assert sorted((row["node"], row["ranks"]) for row in by_node) == [("gpu-0", 4), ("gpu-1", 4)]
    # They are no settings that differ.
    assert not [row for row in ask(tmp_path / "fleet", "versions", "--top", "99") if "place" in row["name"] or "rank" in row["name"]]


SPAWN = """
import sys, time, types, torch, torch.distributed as dist, torch.multiprocessing
class PipelineParallelGrid: pass
PipelineParallelGrid.__module__ = "deepspeed.runtime.pipe.topology"

def work(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    pair, alone = dist.new_group([0, 1]), [dist.new_group([0]), dist.new_group([1])][rank]
    # DeepSpeed's module: groups of experts by their size, and the grid of a pipeline.
    groups = types.ModuleType("deepspeed.utils.groups")
    groups._EXPERT_PARALLEL_GROUP, groups._DATA_PARALLEL_GROUP, groups.mpu = {"ep_size_2": pair}, None, None
    sys.modules["deepspeed.utils.groups"] = groups
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grid = PipelineParallelGrid()
    grid.pp_proc_group, grid.slice_proc_group, grid.dp_proc_group = pair, alone, "not a group"
    groups.mpu = grid
    for step in range(6):
        model(torch.randn(8, 256)).sum().backward()
        optimizer.step(); optimizer.zero_grad()
        time.sleep(0.05)
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(work, (int(sys.argv[1]),), nprocs=2)
"""


def test_spawned_ranks_have_the_numbers_of_torch_distributed(tmp_path):
    """With DeepSpeed's coordinates. Its launcher needs GPUs, so a module of its name stands for it."""
    pytest.importorskip("torch")
    (tmp_path / "spawn.py").write_text(SPAWN)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["run", "--cpu", "--no-report", "--summary", tmp_path / "fleet", "-o", tmp_path / "t.vram", "--", sys.executable, tmp_path / "spawn.py", port]
    # The node's number, which its processes inherit.
    vramscope(*words, SLURM_PROCID="7", OMP_NUM_THREADS="1")
    query = "SELECT rank, mesh, node = host AS is_host FROM ranks WHERE iterations > 0 ORDER BY rank"
    assert ask(tmp_path / "fleet", "sql", query) == [{"rank": rank, "mesh": f"ep={rank},pp={rank}", "is_host": True} for rank in range(2)]


def test_summaries_are_written_while_the_program_runs(tmp_path):
    program = "import time, torch; kept = [torch.zeros(1 << 20) for _ in range(4)]; print('ready', flush=True); input()"
    pytest.importorskip("torch")
    words = ["run", "--cpu", "--no-report", "--summary", tmp_path / "fleet", "--summary-every", "200ms", "-o", tmp_path / "t.vram"]
    words += ["--record-ranks", "0,per-node", "--", sys.executable, "-c", program]
    variables = {**os.environ, "RANK": "5", "LOCAL_RANK": "1"}
    running = subprocess.Popen(
        [str(word) for word in (VRAMSCOPE, *words)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables
    )
    assert running.stdout.readline() == "ready\n"
    deadline = time.monotonic() + 60
    while not (written := list((tmp_path / "fleet").glob("*.summary.json"))) and time.monotonic() < deadline:
        time.sleep(0.1)
    summary = json.loads(written[0].read_text())
    assert summary["finished"] is False
    _, said = running.communicate("\n", timeout=60)
    summary = json.loads(written[0].read_text())
    (rank,) = summary["ranks"]
    assert summary["finished"] is True and rank["rank"] == 5 and rank["peak_bytes"] >= 16 * MIB and rank["exit_status"] == 0
    # The rank is not one of those whose recordings are kept.
    assert not (tmp_path / "t.vram").exists() and "t.vram is deleted: --record-ranks 0,per-node" in said
    assert list((tmp_path / "fleet").iterdir()) == written
