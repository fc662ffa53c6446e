# SPDX-License-Identifier: Apache-2.0
"""``vramscope fleet`` and ``vramscope export --to parquet``: python -m vramscope.fleet."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import json
import os
import pathlib
import shutil
import sys
from typing import Any, List, NoReturn, Optional

from .. import _files
from . import engines, export, page, questions, summaries
from .errors import FleetError, need, without_pandas

_MIB = 1 << 20


def _say(text: str) -> None:
    print(f"vramscope: {text}", file=sys.stderr)


def _bytes(value: int) -> str:
    for unit, size in (("GiB", 1 << 30), ("MiB", _MIB), ("KiB", 1 << 10)):
        if abs(value) >= size:
            number = value / size
            return f"{number:.{max(0, 3 - len(str(int(abs(number)))))}f} {unit}"
    return f"{value} B"


def _cell(column: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if column.endswith("_bytes") and isinstance(value, (int, float)):
        return _bytes(int(value))
    if column.endswith("wall_ns"):
        return datetime.datetime.fromtimestamp(value / 1e9, datetime.timezone.utc).strftime("%m-%d %H:%M:%S")
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def table_text(answer: engines.Answer, width: int) -> str:
    """Rows as text of `width` columns. Of texts that do not fit, the longest column is cut first."""
    heads = [questions.title_of(name) for name in answer.columns]
    cells = [[_cell(name, value) for name, value in zip(answer.columns, row)] for row in answer.rows]
    right = [all(isinstance(row[i], (int, float, type(None))) for row in answer.rows) for i in range(len(heads))]
    widths = [max([len(head), *(len(row[i]) for row in cells)]) for i, head in enumerate(heads)]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        longest = max((i for i in range(len(widths)) if not right[i]), key=lambda i: widths[i], default=None)
        if longest is None or widths[longest] <= 8:
            break
        widths[longest] -= 1
    lines = []
    for row in [heads, *cells]:
        parts = [
            (_cut(text, size).rjust(size) if flush else _cut(text, size).ljust(size)) for text, size, flush in zip(row, widths, right)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    """An error is one line, and help begins as that of the other commands."""

    def format_help(self) -> str:
        return super().format_help().replace("usage:", "Usage:", 1)

    def error(self, message: str) -> NoReturn:
        raise FleetError(f"{message}; see `{self.prog} --help`")


def _parser() -> argparse.ArgumentParser:
    asked = "\n".join(f"  {name:<10} {text}" for name, text in questions.QUESTIONS.items())
    parser = _Parser(
        prog="vramscope fleet",
        description="Compare the memory of many ranks, from summaries or from exported recordings.",
        epilog=f"questions:\n{asked}\n  page       Write a page: a heat map of the ranks (-o FILE)\n  sql        Run a query of your own: docs/DATASET.md has the tables\n  compact    Merge the summaries of a folder into a few files",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("DIR", type=pathlib.Path, help="folder of `run --summary` or `export --to parquet`")
    parser.add_argument("QUESTION", choices=[*questions.QUESTIONS, "page", "sql", "compact"], metavar="QUESTION", help="one of those below")
    parser.add_argument("SQL", nargs="?", help="the query, for the question sql")
    parser.add_argument("-o", dest="output", type=pathlib.Path, metavar="FILE", help="for page: the file (default: fleet.html)")
    parser.add_argument("--run", metavar="NAME", help="the run (default: the newest)")
    parser.add_argument("--by", default="host", metavar="COLUMN", help=f"for imbalance: {', '.join(questions.BY)}")
    parser.add_argument("--top", type=int, default=10, metavar="N", help="rows (default: 10)")
    parser.add_argument("--engine", choices=["duckdb", "spark"], default="duckdb", help="default: duckdb")
    parser.add_argument("--master", metavar="URL", help="Spark's master: spark://HOST:PORT, yarn, k8s://... (default: local[*])")
    parser.add_argument("--json", action="store_true", help="rows as JSON, exact bytes")
    parser.add_argument("--show-sql", action="store_true", help="print the query instead of running it")
    return parser


def _ask(options: argparse.Namespace) -> None:
    if options.QUESTION == "compact":
        need("pyarrow", "pyarrow", "compact")
        count, problems = summaries.compact(options.DIR)
        for problem in problems:
            _say(problem)
        _say(f"{options.DIR}: {count} ranks compacted")
        return
    if (options.SQL is not None) != (options.QUESTION == "sql"):
        raise FleetError("the question sql takes a query: vramscope fleet DIR sql \"SELECT count(*) FROM ranks\"")
    if options.top < 1:
        raise FleetError(f"--top {options.top}: not a number of rows")
    if options.QUESTION == "page":
        _write_page(options)
        return
    text = options.SQL if options.QUESTION == "sql" else questions.text_of(options.QUESTION, options.top, options.by)
    if options.show_sql:
        print(text)
        return
    need("pyarrow", "pyarrow", "a question about a fleet")
    with engines.open_source(options.DIR, options.run, _say) as source:
        engine = engines.open_engine(options.engine, source, _say, options.master)
        try:
            answer = engine.query(text)
        finally:
            engine.close()
    if options.json:
        entry = {"schema": "vramscope.fleet/1", "run": source.run, "question": options.QUESTION}
        print(json.dumps({**entry, "rows": [dict(zip(answer.columns, row)) for row in answer.rows]}, indent=1))
    elif answer.rows:
        print(table_text(answer, shutil.get_terminal_size((120, 24)).columns))
    else:
        print(f"run {source.run}: none")


def _write_page(options: argparse.Namespace) -> None:
    need("pyarrow", "pyarrow", "a page of a fleet")
    with engines.open_source(options.DIR, options.run, _say) as source:
        engine = engines.open_engine(options.engine, source, _say, options.master)
        try:
            text = page.text_of(engine)
        finally:
            engine.close()
    output = options.output or pathlib.Path("fleet.html")
    _files.write_whole(output, text)
    _say(f"{output}: {len(text) / _MIB:.1f} MiB")


def _export_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="vramscope export --to parquet", description="Write recordings as a Parquet dataset, for SQL engines and data frames."
    )
    parser.add_argument("FILE", nargs="+", help="recordings, or folders with recordings")
    parser.add_argument("-o", dest="DIR", type=pathlib.Path, required=True, metavar="DIR", help="the dataset, new or existing")
    parser.add_argument("--run", metavar="NAME", help="name of the run (default: the recordings' own)")
    parser.add_argument("--to", choices=["parquet"], help=argparse.SUPPRESS)
    return parser


def _keep_freed_memory() -> None:
    """Makes the C library reuse freed memory. Each recording needs the same again, and the kernel clears what it returns."""
    with contextlib.suppress(AttributeError, OSError):
        adjust = ctypes.CDLL(None).mallopt
        trim_threshold, map_threshold = -1, -3
        adjust(trim_threshold, 256 * _MIB)
        adjust(map_threshold, 32 * _MIB)


def _export(options: argparse.Namespace) -> int:
    _keep_freed_memory()
    progress = _say if sys.stderr.isatty() else lambda text: None
    ranks, rows, problems = export.export(options.FILE, options.DIR, options.run, progress)
    for problem in problems:
        _say(problem)
    if not ranks:
        raise FleetError(f"{options.DIR}: nothing was written: " + ("see above" if problems else "no recording has memory of a GPU or tensors"))
    _say(f"{options.DIR}: {ranks:,} ranks, {rows:,} allocations")
    return 1 if problems else 0


def main(words: Optional[List[str]] = None) -> int:
    """Runs a command: ``fleet ...`` or ``export ...``. Returns the exit status."""
    command, *rest = words if words is not None else sys.argv[1:]
    without_pandas()
    try:
        if command == "export":
            return _export(_export_parser().parse_args(rest))
        _ask(_parser().parse_args(rest))
        sys.stdout.flush()
    except FleetError as error:
        _say(str(error))
        return 2
    except BrokenPipeError:
        os._exit(0)  # the interpreter's end would flush the closed pipe once more
    except OSError as error:
        _say(f"{error.filename}: {error.strerror}" if error.filename else str(error))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
