# SPDX-License-Identifier: Apache-2.0
"""Runs SQL on a dataset with DuckDB or Spark. Both have the same views and functions, so that a query is one text.

`open_engine` makes a view for each table, without the `run` folder's column types being guessed, and with one row a
rank: of a rank that was recorded twice the newer one. docs/DATASET.md lists the views.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import re
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Set

from .. import _files
from . import dataset, schema, summaries
from .errors import FleetError, need


#: Prints a line for the user.
Say = Callable[[str], None]


class Answer(NamedTuple):
    """The rows of a query."""

    columns: List[str]
    rows: List[List[Any]]


class Source(NamedTuple):
    """A run of a dataset: Parquet files by table."""

    root: pathlib.Path
    run: str
    files: Dict[str, List[pathlib.Path]]


@contextlib.contextmanager
def open_source(root: pathlib.Path, run: Optional[str], say: Say) -> Iterator[Source]:
    """The files of a run: `run`, or the newest of the dataset. Summaries that are not compacted are read, too."""
    if not root.is_dir():
        raise FleetError(f"{root}: no such folder")
    found = summaries.read_all(root)
    for problem in found.problems:
        say(problem)
    if found.files:
        say(f"{len(found.files)} summaries are not compacted: `vramscope fleet {root} compact`")
    names = sorted({*dataset.runs_of(root), *found.runs})
    if not names:
        raise FleetError(f"{root}: no dataset and no summaries; `vramscope run --summary DIR` and `vramscope export --to parquet` write them")
    chosen = dataset.name_of_run(run) if run is not None else _newest(root, names, found.runs)
    if chosen not in names:
        raise FleetError(f"{root}: there is no run {chosen}; it has {', '.join(names[:8])}")
    if run is None and len(names) > 1:
        say(f"run {chosen}, the newest of {len(names)} (--run NAME chooses)")
    folder = _files.temporary_directory()
    try:
        yield Source(root, chosen, _files_of(root, chosen, found.runs.get(chosen), folder))
    finally:
        _files.remove_directory(folder)


def _files_of(root: pathlib.Path, run: str, new: Optional[dataset.Tables], folder: pathlib.Path) -> Dict[str, List[pathlib.Path]]:
    """The files of a run by table. Summaries that are not compacted, or that an export has replaced, are merged in `folder`."""
    files = {table: dataset.files_of(root, table, run) for table in schema.TABLES}
    manifests = [one for one in dataset.manifests(root) if one.run == run]
    exported: Set[str] = set().union(*(one.ranks for one in manifests if one.kind == "export"))
    compacted = [one for one in manifests if one.kind == "summary"]
    if new is None and not any(one.ranks & exported for one in compacted):
        return files
    tables = summaries.merged(root, run, summaries.together([] if new is None else [new]))
    replaced = {root / name for one in compacted for name in one.files}
    with dataset.Commit(folder, run) as commit:
        dataset.write_tables(commit, tables)
        commit.commit("summary", summaries.ids_of(tables), [])
    for table in schema.SUMMARY:
        files[table] = [path for path in files[table] if path not in replaced] + dataset.files_of(folder, table)
    return files


def _newest(root: pathlib.Path, names: Sequence[str], loose: Dict[str, dataset.Tables]) -> str:
    """The run that began last."""
    import pyarrow.parquet

    begins = {}
    for name in names:
        found = loose[name]["ranks"].column("begin_wall_ns").to_pylist() if name in loose else []
        for path in dataset.files_of(root, "ranks", name):
            found += pyarrow.parquet.ParquetFile(path).read(["begin_wall_ns"]).column(0).to_pylist()
        begins[name] = max(found, default=0)
    return max(names, key=lambda name: (begins[name], name))


# Of a rank that is there twice, the newer one. Ranks without a number are processes.
_NEWEST_RANKS = """
CREATE OR REPLACE {temporary} VIEW ranks AS
SELECT {columns} FROM (
  SELECT *, row_number() OVER (
    PARTITION BY rank, CASE WHEN rank < 0 THEN host ELSE '' END, CASE WHEN rank < 0 THEN pid ELSE 0 END
    ORDER BY begin_wall_ns DESC, host, pid) AS newest
  FROM all_ranks)
WHERE newest = 1
"""

_TWICE = """
SELECT rank, count(*) AS times, min(host) AS first_host, max(host) AS last_host
FROM all_ranks WHERE rank >= 0 GROUP BY rank HAVING count(*) > 1 ORDER BY rank LIMIT 4
"""

# Ranks of one number at one time, by one clock; the clocks of hosts may differ by minutes.
_TWO_JOBS = """
SELECT a.rank, a.host, a.pid, b.host, b.pid FROM all_ranks AS a JOIN all_ranks AS b ON a.rank = b.rank
WHERE a.rank >= 0 AND a.begin_wall_ns <= b.begin_wall_ns AND (a.host <> b.host OR a.pid <> b.pid)
  AND least(a.end_wall_ns, b.end_wall_ns) - b.begin_wall_ns > CASE WHEN a.host = b.host THEN 0 ELSE 900000000000 END
ORDER BY a.rank, a.host, a.pid, b.host, b.pid LIMIT 1
"""


class Engine:
    """A SQL engine with the views of a run."""

    def __init__(self, source: Source, say: Say) -> None:
        self.source = source
        for table, columns in schema.TABLES.items():
            self._add_table("all_ranks" if table == "ranks" else f"all_{table}", table)
            names = ", ".join(column.name for column in columns)
            if table == "ranks":
                self._run(_NEWEST_RANKS.format(columns=names, temporary=self._temporary))
                self._keep("ranks")
        twice = self.query(_TWICE).rows
        if twice:
            self._check_one_job()
            number, times, first, last = twice[0]
            say(f"rank {number} is there {times} times (hosts {first} and {last}); the newest of each rank is used")
        for table, columns in schema.TABLES.items():
            if table == "ranks":
                continue
            listed = [column.name for column in columns]
            text = f"CREATE OR REPLACE {self._temporary} VIEW {table} AS SELECT {', '.join(listed)} FROM all_{table}"
            if twice and table in schema.SUMMARY:
                text += " AS t WHERE EXISTS (SELECT 1 FROM ranks AS r WHERE r.host = t.host AND r.pid = t.pid)"
            self._run(text)

    def _check_one_job(self) -> None:
        """Raises FleetError if the run has ranks of several jobs: of a rank that was restarted, one ends before the other."""
        for number, host, pid, other, other_pid in self.query(_TWO_JOBS).rows:
            raise FleetError(
                f"run {self.source.run}: rank {number} is two processes at the same time ({host}, pid {pid}, and {other}, pid "
                f"{other_pid}), so two jobs have this name; give each its own: vramscope run --name"
            )

    #: A word of CREATE VIEW.
    _temporary = ""

    def _add_table(self, view: str, table: str) -> None:
        raise NotImplementedError

    def _run(self, text: str) -> None:
        raise NotImplementedError

    def _keep(self, view: str) -> None:
        """Makes an engine evaluate a view once, if it would do so for each use."""

    def query(self, text: str) -> Answer:
        """The rows of a query. Raises FleetError with the engine's message."""
        raise NotImplementedError

    def close(self) -> None:
        """Frees the engine."""


class DuckDb(Engine):
    """DuckDB in this process: the default."""

    def __init__(self, source: Source, say: Say) -> None:
        duckdb = need("duckdb", "duckdb", "a question about a fleet")
        self._error = duckdb.Error
        self._connection = duckdb.connect()
        # No extension is fetched from the network.
        self._connection.execute("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false; SET timezone='UTC'")
        super().__init__(source, say)

    def _add_table(self, view: str, table: str) -> None:
        files = [os.fspath(path) for path in self.source.files[table]]
        types = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "VARCHAR"}
        nulls = ", ".join(f"CAST(NULL AS {types[column.type]}) AS {column.name}" for column in schema.TABLES[table])
        text = f"SELECT {nulls} WHERE false"
        if files:
            listed = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
            # Files of an earlier version have fewer columns.
            text += f" UNION ALL BY NAME SELECT * FROM read_parquet([{listed}], hive_partitioning=false, union_by_name=true)"
        self._run(f"CREATE OR REPLACE VIEW {view} AS {text}")

    def _run(self, text: str) -> None:
        try:
            self._connection.execute(text)
        except self._error as error:
            raise FleetError(f"DuckDB: {error}") from error

    def query(self, text: str) -> Answer:
        self._run(text)
        columns = [entry[0] for entry in self._connection.description or []]
        return Answer(columns, [[_plain(value) for value in row] for row in self._connection.fetchall()])

    def close(self) -> None:
        self._connection.close()


# Compressed bytes of a summary's table in one partition. Tables of one partition are joined without a shuffle.
_PARTITION_BYTES = 16 << 20


def _partitions(files: Sequence[pathlib.Path]) -> int:
    return 1 + sum(path.stat().st_size for path in files) // _PARTITION_BYTES


# How long a cluster may take until a worker starts. Spark itself waits for ever.
_WORKER_SECONDS = 120


class _Watch:
    """Cancels the jobs of a session that has no worker for too long. Used as a context while a job runs."""

    def __init__(self, session: Any) -> None:
        self._context = session.sparkContext
        # In this process the driver does the work.
        self._has_worker: bool = self._context.master.startswith("local") and not self._context.master.startswith("local-cluster")
        self._ended = threading.Event()
        self.expired = False

    def __enter__(self) -> None:
        self._ended.clear()
        self._thread = threading.Thread(target=self._wait, daemon=True)
        if not self._has_worker:
            self._thread.start()

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _wait(self) -> None:
        deadline = time.monotonic() + _WORKER_SECONDS
        while not self._ended.wait(0.5):
            # The driver is one of them.
            if self._context._jsc.sc().getExecutorMemoryStatus().size() > 1:
                self._has_worker = True
                return
            if time.monotonic() > deadline:
                # A job that is not submitted yet is cancelled the next time.
                self.expired = True
                self._context.cancelAllJobs()


class Spark(Engine):
    """Spark: in this process (`local[*]`), or a cluster's master."""

    _temporary = "TEMPORARY"

    def __init__(self, source: Source, say: Say, master: Optional[str] = None) -> None:
        self._session = _spark_session(master)
        self._watch = _Watch(self._session)
        if max(_partitions(source.files[table]) for table in schema.SUMMARY) == 1:
            # To plan again after each stage costs more than the stages of small tables.
            self._session.conf.set("spark.sql.adaptive.enabled", "false")
        super().__init__(source, say)

    def _add_table(self, view: str, table: str) -> None:
        types = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "STRING"}
        columns = ", ".join(f"{column.name} {types[column.type]}" for column in schema.TABLES[table])
        files = [os.fspath(path) for path in self.source.files[table]]
        if files:
            # An explicit schema: Spark would read a footer for it, and drops columns that the first file lacks.
            frame = self._session.read.schema(columns).parquet(*files)
        else:
            nulls = ", ".join(f"CAST(NULL AS {types[column.type]}) AS {column.name}" for column in schema.TABLES[table])
            frame = self._session.sql(f"SELECT {nulls} WHERE false")
        # Each question reads the tables of summaries many times, and Spark would read the files each time.
        if table in schema.SUMMARY and files:
            frame = frame.coalesce(_partitions(self.source.files[table])).cache()
        frame.createOrReplaceTempView(view)

    def _run(self, text: str) -> None:
        self.query(text)

    def _keep(self, view: str) -> None:
        self._session.table(view).cache().createOrReplaceTempView(view)

    def query(self, text: str) -> Answer:
        try:
            frame = self._session.sql(text)
            with self._watch:
                rows = frame.collect()
            return Answer(list(frame.columns), [[_plain(value) for value in row] for row in rows])
        except Exception as error:  # pyspark's and py4j's errors have no common base
            if self._watch.expired:
                master = self._session.sparkContext.master
                raise FleetError(f"Spark: no worker of {master} started in {_WORKER_SECONDS} s; check that it has workers with free cores and memory") from error
            # The other lines are Spark's plan.
            raise FleetError(f"Spark: {str(error).strip().splitlines()[0].rstrip(';')}") from error

    def close(self) -> None:
        self._session.stop()


# Spark itself waits for a minute.
_MASTER_SECONDS = 5


def _check_master(master: str) -> None:
    """Raises FleetError if nothing answers at the address of `spark://HOST:PORT,HOST:PORT` or `k8s://https://HOST:PORT`."""
    found = re.fullmatch(r"(?:spark://|k8s://(?:https?://)?)(.+)", master)
    if found is None:
        return
    problems = []
    for address in found[1].split(","):
        host, _, port = address.rstrip("/").rpartition(":")
        if not host or not port.isdigit():
            host, port = address.rstrip("/"), "7077" if master.startswith("spark") else "443"
        try:
            socket.create_connection((host.strip("[]"), int(port)), _MASTER_SECONDS).close()
            return
        except (OSError, OverflowError) as error:
            problems.append(f"{host}:{port}: {getattr(error, 'strerror', None) or error}")
    raise FleetError(f"Spark: the master {master} does not answer ({'; '.join(problems)}); check --master")


def _spark_session(master: Optional[str]) -> Any:
    sql = need("pyspark.sql", "pyspark", "--engine spark")
    if not os.environ.get("JAVA_HOME") and not any(
        os.access(os.path.join(folder, "java"), os.X_OK) for folder in os.environ.get("PATH", "").split(os.pathsep)
    ):
        raise FleetError("--engine spark needs Java 17 or newer: apt-get install openjdk-17-jre-headless")
    # Without it workers take another Python from PATH.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = sql.SparkSession.builder.appName("vramscope fleet")
    # Under spark-submit the master and its settings come from outside.
    if master is None and "SPARK_ENV_LOADED" not in os.environ:
        master = "local[*]"
    if master is not None:
        _check_master(master)
        builder = builder.master(master)
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.files.openCostInBytes": "65536",
    }.items():
        builder = builder.config(key, value)
    if master is not None and master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for logger in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        with _quiet_children():
            session = builder.getOrCreate()
    except Exception as error:  # py4j's errors have no common base
        raise FleetError(f"Spark: no session on {master or 'the master of spark-submit'}: {str(error).splitlines()[0]}") from error
    session.sparkContext.setLogLevel("ERROR")
    return session


@contextlib.contextmanager
def _quiet_children() -> Iterator[None]:
    """Child processes that are started meanwhile have no standard error: the JVM prints how to configure its log."""
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def _plain(value: Any) -> Any:
    """A value of JSON: DuckDB's HUGEINT and Spark's decimal are int or float."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return None if value != value else value
    if hasattr(value, "as_tuple"):
        return int(value) if value == value.to_integral_value() else float(value)
    return str(value)


def open_engine(name: str, source: Source, say: Say, master: Optional[str] = None) -> Engine:
    """``duckdb`` or ``spark``."""
    return Spark(source, say, master) if name == "spark" else DuckDb(source, say)
