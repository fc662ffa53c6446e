# SPDX-License-Identifier: Apache-2.0
"""The history of all measurements: one line a measured case in bench/results/history.csv.

    python3 bench/history.py add FILE.json...       what tests/gpu/run.py or a script of bench/ wrote with --json
    python3 bench/history.py show [BENCH [CASE]]    the latest figures of each machine (or their names' beginnings)

JSON files carry everything that was seen and stay out of the tree; the history keeps their numbers as
`name=value;...`: of rounds the median, of a list of instants the last three, each under what names it.
"""

import argparse
import csv
import json
import pathlib
import re
import statistics
import sys

HISTORY = pathlib.Path(__file__).resolve().parent / "results" / "history.csv"
COLUMNS = ("date", "machine", "bench", "case", "figures")
LAST = 3
# Fields that are not measurements, or that another figure contains.
LEFT_OUT = {"machine", "shape", "pairs", "blocks", "outside", "memtracker", "oracle", "unnamed_rounding", "device",
            "index", "round"}
ROUNDS = ("_ns", "_us")
LABELS = ("mark", "device", "probe", "round")


def number_of(value):
    """Four digits are more than any of these repeats to; whole numbers are bytes and counts."""
    return str(int(value)) if isinstance(value, (bool, int)) else f"{value:.4g}"


def is_number(value):
    return isinstance(value, (bool, int, float))


def figures(value, path=()):
    """Every (path, number) below a value of a JSON file."""
    if is_number(value):
        yield path, number_of(value)
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key == "problems":
                yield (*path, "problems"), number_of(len(inner))
            elif key not in LEFT_OUT:
                yield from figures(inner, (*path, str(key)))
    elif isinstance(value, list) and value:
        if all(is_number(one) for one in value) and path[-1].endswith(ROUNDS):
            yield path, number_of(statistics.median(value))
        elif all(isinstance(one, (dict, int, float)) for one in value):
            kept = value[-LAST:] if isinstance(value[0], dict) and "mark" in value[0] else value
            for number, one in enumerate(kept):
                labels = [str(one[label]) for label in LABELS if isinstance(one, dict) and label in one]
                alone = [] if len(kept) == 1 else [str(number)]
                yield from figures(one, (*path, *(labels or alone)))


def machine_of(facts):
    """In few words, as people tell machines apart: "NVIDIA H200, 580.159.04, 16 cores"."""
    gpu = re.sub(r", \d+ MiB$", "", (facts.get("gpu") or facts["cpu"]).splitlines()[0])
    return f"{gpu}, {facts['cores']} cores"


def rows_of(content):
    """The rows of one JSON file."""
    machine = machine_of(content["machine"])
    body = {key: value for key, value in content.items() if key not in ("date", "bench", "machine")}
    if "results" in body:  # tests/gpu/run.py: groups of cases
        groups = body["results"]
    elif "arms" in body:
        groups = {content["bench"]: body["arms"]}
    else:
        groups = {content["bench"].split(",")[0]: body}
    for bench, cases in groups.items():
        for case, result in cases.items():
            text = ";".join(f"{'/'.join(path) or case}={value}" for path, value in figures(result))
            if text:
                yield (content["date"], machine, bench, case, text)


def read():
    if not HISTORY.exists():
        return []
    with HISTORY.open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        if tuple(next(lines, ())) != COLUMNS:
            sys.exit(f"history: {HISTORY} does not begin with {','.join(COLUMNS)}; restore it from git")
        return [tuple(line) for line in lines]


def write(rows):
    with HISTORY.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(COLUMNS)
        out.writerows(sorted(rows))


def add(paths):
    rows = read()
    for path in paths:
        try:
            new = list(rows_of(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, KeyError, AttributeError) as error:
            sys.exit(f"history: {path} is no result of tests/gpu/run.py or of a script of bench/: {error!r}")
        replaced = {row[:4] for row in new}
        rows = [row for row in rows if row[:4] not in replaced] + new
        print(f"history: {len(new)} cases of {path}")
    write(rows)


def show(bench, case):
    latest = {}
    for row in read():
        if row[2].startswith(bench) and row[3].startswith(case):
            key = row[1:4]
            latest[key] = max(latest.get(key, row), row)
    for (machine, name, of), row in sorted(latest.items()):
        print(f"{name} {of}: {machine}, {row[0]}")
        for figure in row[4].split(";"):
            key, _, value = figure.rpartition("=")
            print(f"    {key:50s} {value}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("add").add_argument("files", nargs="+", type=pathlib.Path)
    shown = commands.add_parser("show")
    shown.add_argument("bench", nargs="?", default="")
    shown.add_argument("case", nargs="?", default="")
    args = parser.parse_args()
    if args.command == "add":
        add(args.files)
    else:
        show(args.bench, args.case)


if __name__ == "__main__":
    main()
