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
import sys
from typing import Any, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence

from .. import _files
from . import dataset, schema, summaries
from .errors import FleetError, need


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
def open_source(root: pathlib.Path, run: Optional[str], say: Any) -> Iterator[Source]:
    """The files of a run: `run`, or the newest of the dataset. Summaries that are not compacted are read, too."""
    if not root.is_dir():
        raise FleetError(f"{root}: no such folder")
    folder = _files.temporary_directory()
    try:
        loose, _, problems = summaries.read_all(root)
        for problem in problems:
            say(problem)
        if loose:
            say(f"{sum(len(rows['ranks']) for rows in loose.values())} summaries are not compacted: `vramscope fleet {root} compact`")
        names = sorted({*dataset.runs_of(root), *loose})
        if not names:
            raise FleetError(f"{root}: no dataset and no summaries; `vramscope run --summary DIR` and `vramscope export --to parquet` write them")
        chosen = run if run is not None else _newest(root, names, loose)
        if chosen not in names:
            raise FleetError(f"{root}: there is no run {chosen}; it has {', '.join(names[:8])}")
        if run is None and len(names) > 1:
            say(f"run {chosen}, the newest of {len(names)} (--run NAME chooses)")
        files = {table: dataset.files_of(root, table, chosen) for table in schema.TABLES}
        if chosen in loose:
            exported = set().union(*(one.ranks for one in dataset.manifests(root) if one.run == chosen and one.kind == "export"))
            rows = summaries.without(loose[chosen], exported)
            _leave_out(files, rows["ranks"], folder)
            with dataset.Commit(folder, chosen) as commit:
                for table, found in rows.items():
                    dataset.write_rows(commit, table, found)
                commit.commit("summary", {dataset.rank_id(rank) for rank in rows["ranks"]})
            for table in schema.SUMMARY:
                files[table] += dataset.files_of(folder, table)
        yield Source(root, chosen, files)
    finally:
        _files.remove_directory(folder)


def _leave_out(files: Dict[str, List[pathlib.Path]], ranks: List[Dict[str, Any]], folder: pathlib.Path) -> None:
    """Replaces the files that have rows of these ranks by copies without them: newer summaries have those rows."""
    import pyarrow.compute as compute
    import pyarrow.parquet as parquet

    newer = {dataset.rank_id(rank) for rank in ranks}
    old = [rank for path in files["ranks"] for rank in parquet.ParquetFile(path).read(["host", "pid", "begin_wall_ns"]).to_pylist()]
    gone = {(rank["host"], rank["pid"]) for rank in old if dataset.rank_id(rank) in newer}
    if not gone:
        return
    hosts = {host for host, _ in gone} - {rank["host"] for rank in old if (rank["host"], rank["pid"]) not in gone}
    for table in schema.SUMMARY:
        kept = []
        for number, path in enumerate(files[table]):
            rows = parquet.ParquetFile(path).read()
            host = rows.column("host").cast("string")
            if "pid" in rows.column_names:
                key = compute.binary_join_element_wise(host, rows.column("pid").cast("string"), "/")
                lost = compute.is_in(key, value_set=_strings(f"{host}/{pid}" for host, pid in gone))
            else:
                lost = compute.is_in(host, value_set=_strings(hosts))
            copy = folder / f"{table}-{number}.parquet"
            parquet.write_table(rows.filter(compute.invert(lost)), copy)
            kept.append(copy)
        files[table] = kept


def _strings(values: Iterable[str]) -> Any:
    import pyarrow

    return pyarrow.array(sorted(values), pyarrow.string())


def _newest(root: pathlib.Path, names: Sequence[str], loose: Dict[str, summaries.Rows]) -> str:
    """The run that began last."""
    import pyarrow.parquet

    begins = {}
    for name in names:
        found = [rank["begin_wall_ns"] for rank in loose.get(name, summaries.no_rows())["ranks"]]
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


class Engine:
    """A SQL engine with the views of a run."""

    def __init__(self, source: Source, say: Any) -> None:
        self.source = source
        for table, columns in schema.TABLES.items():
            self._add_table("all_ranks" if table == "ranks" else f"all_{table}", table)
            names = ", ".join(column.name for column in columns)
            if table == "ranks":
                self._run(_NEWEST_RANKS.format(columns=names, temporary=self._temporary))
        twice = self.query(_TWICE).rows
        if twice:
            number, times, first, last = twice[0]
            say(f"rank {number} is there {times} times (hosts {first} and {last}); the newest of each rank is used")
        for table, columns in schema.TABLES.items():
            if table == "ranks":
                continue
            listed = [column.name for column in columns]
            text = f"CREATE OR REPLACE {self._temporary} VIEW {table} AS SELECT {', '.join(listed)} FROM all_{table}"
            if twice and {"rank", "host", "pid"} <= set(listed):
                text += " AS t WHERE EXISTS (SELECT 1 FROM ranks AS r WHERE r.rank = t.rank AND r.host = t.host AND r.pid = t.pid)"
            self._run(text)

    #: A word of CREATE VIEW.
    _temporary = ""

    def _add_table(self, view: str, table: str) -> None:
        raise NotImplementedError

    def _run(self, text: str) -> None:
        raise NotImplementedError

    def query(self, text: str) -> Answer:
        """The rows of a query. Raises FleetError with the engine's message."""
        raise NotImplementedError

    def close(self) -> None:
        """Frees the engine."""


class DuckDb(Engine):
    """DuckDB in this process: the default."""

    def __init__(self, source: Source, say: Any) -> None:
        duckdb = need("duckdb", "duckdb", "a question about a fleet")
        self._error = duckdb.Error
        self._connection = duckdb.connect()
        # No extension is fetched from the network.
        self._connection.execute("SET autoinstall_known_extensions=false; SET autoload_known_extensions=false; SET timezone='UTC'")
        for macro in ("idiv(a, b) AS a // b", "starts_with_text(a, b) AS starts_with(a, b)"):
            self._connection.execute(f"CREATE OR REPLACE MACRO {macro}")
        super().__init__(source, say)

    def _add_table(self, view: str, table: str) -> None:
        files = [os.fspath(path) for path in self.source.files[table]]
        if files:
            listed = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
            text = f"SELECT * FROM read_parquet([{listed}], hive_partitioning=false, union_by_name=true)"
        else:
            types = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "VARCHAR"}
            nulls = ", ".join(f"CAST(NULL AS {types[column.type]}) AS {column.name}" for column in schema.TABLES[table])
            text = f"SELECT {nulls} WHERE false"
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


class Spark(Engine):
    """Spark: in this process (`local[*]`), or a cluster's master."""

    _temporary = "TEMPORARY"

    def __init__(self, source: Source, say: Any, master: Optional[str] = None) -> None:
        self._session = _spark_session(master)
        for function in (
            "idiv(a BIGINT, b BIGINT) RETURNS BIGINT RETURN a div b",
            "starts_with_text(a STRING, b STRING) RETURNS BOOLEAN RETURN startswith(a, b)",
        ):
            self._session.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {function}")
        super().__init__(source, say)

    def _add_table(self, view: str, table: str) -> None:
        types = {"int64": "BIGINT", "double": "DOUBLE", "bool": "BOOLEAN", "string": "STRING"}
        columns = ", ".join(f"{column.name} {types[column.type]}" for column in schema.TABLES[table])
        files = [os.fspath(path) for path in self.source.files[table]]
        # An explicit schema: Spark would read a footer for it, and drops columns that the first file lacks.
        frame = self._session.read.schema(columns).parquet(*files) if files else self._session.createDataFrame([], columns)
        # Each question reads the tables of summaries many times, and Spark would read the files each time.
        if table in schema.SUMMARY:
            frame = frame.cache()
        frame.createOrReplaceTempView(view)

    def _run(self, text: str) -> None:
        self.query(text)

    def query(self, text: str) -> Answer:
        try:
            frame = self._session.sql(text)
            return Answer(list(frame.columns), [[_plain(value) for value in row] for row in frame.collect()])
        except Exception as error:  # pyspark's and py4j's errors have no common base
            # The other lines are Spark's plan.
            raise FleetError(f"Spark: {str(error).strip().splitlines()[0].rstrip(';')}") from error

    def close(self) -> None:
        self._session.stop()


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
    if master is not None:
        builder = builder.master(master)
    elif "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master("local[*]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.files.openCostInBytes": "65536",
    }.items():
        builder = builder.config(key, value)
    if master is None or master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    for logger in ("py4j", "SQLQueryContextLogger"):
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        with _quiet_children():
            session = builder.getOrCreate()
    except Exception as error:  # py4j's errors have no common base
        where = master or "local[*]"
        raise FleetError(f"Spark: no session on {where}: {str(error).splitlines()[0]}") from error
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


def open_engine(name: str, source: Source, say: Any, master: Optional[str] = None) -> Engine:
    """``duckdb`` or ``spark``."""
    return Spark(source, say, master) if name == "spark" else DuckDb(source, say)
