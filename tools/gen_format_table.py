#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the lists of docs/FORMAT.md from src/format/records.def and losses.def.

    tools/gen_format_table.py           rewrites the text between the markers
    tools/gen_format_table.py --check   checks that it is up to date, changes nothing
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "FORMAT.md"
# How a field is written, if it is not a uint.
KINDS = {"TIME": "time", "ADDRESS": "address", "SINT": "sint", "DEVICE": "sint", "BYTES": "bytes"}
# Fields whose name gives the kind: the page lists them once.
BY_NAME = {"time": "time", "begin": "time", "end": "time", "address": "address", "device": "sint"}

# Fields that many records have: the page names them once.
SHARED = {"begin, end, api": "*call*", "stack, native": "*stacks*"}


def without_preprocessor(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith(("#", "//")))


def records():
    text = without_preprocessor(ROOT / "src/format/records.def")
    rows = []
    pattern = re.compile(r'VRAMSCOPE_RECORD\((\w+), (0x[0-9a-f]+), "([^"]*)"\)(.*?)VRAMSCOPE_END', re.DOTALL)
    found = pattern.findall(text)
    if len(found) != text.count("VRAMSCOPE_RECORD("):
        sys.exit("gen_format_table: a record in records.def has a different form")
    for name, number, doc, body in sorted(found, key=lambda record: int(record[1], 16)):
        fields = ", ".join(field_of(kind, field) for kind, field in re.findall(r"VRAMSCOPE_((?!TAIL)[A-Z_]+)\((?:\w+, )?(\w+)\)", body))
        for shared, short in SHARED.items():
            fields = fields.replace(shared, short)
        rows.append(f"* `{number}` {name} ({fields}): {doc}")
    return rows


def field_of(kind, field):
    written = KINDS.get(kind, "uint")
    return field if written == BY_NAME.get(field, "uint") else f"{field} *{written}*"


def losses():
    text = without_preprocessor(ROOT / "src/format/losses.def")
    found = re.findall(r'VRAMSCOPE_LOSS\((\w+), (\d+), "([^"]*)", "[^"]*"\)', text)
    return ["; ".join(f"{number} *{name}*" for _, number, name in found) + "."]


def filled(page):
    for marker, rows in (("records", records()), ("losses", losses())):
        begin, end = f"<!-- generated: {marker} -->", "<!-- end -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(page):
            sys.exit(f"gen_format_table: {PAGE} has no section {begin}")
        table = "\n".join([begin, *rows, end])
        page = pattern.sub(lambda _: table, page, count=1)
    return page


def main():
    page = PAGE.read_text(encoding="utf-8")
    new = filled(page)
    if sys.argv[1:] == ["--check"]:
        if new != page:
            sys.exit("docs/FORMAT.md is out of date: run tools/gen_format_table.py")
        print("gen_format_table: docs/FORMAT.md is up to date")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    PAGE.write_text(new, encoding="utf-8")


main()
