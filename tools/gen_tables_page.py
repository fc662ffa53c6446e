#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/TABLES.md from src/tables/tables.def and the word lists in src/format/.

    tools/gen_tables_page.py           rewrites the text between the markers
    tools/gen_tables_page.py --check   checks that it is up to date, changes nothing
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "TABLES.md"
TYPES = {
    "uint32_t": "uint32",
    "uint64_t": "uint64",
    "int32_t": "int32",
    "int64_t": "int64",
    "StringId": "text",
}
# "0: unknown" behind a colon would read badly.
VALUE = re.compile(r"(^|; )(-?\d+|empty): ")
EQUALS = r"\1\2 = "
STRING = r'"((?:[^"\\]|\\.)*)"'


def calls(path, macro):
    """The arguments of every call of a macro, as text. Exits if a call has a different form."""
    text = path.read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "//")))
    found = re.findall(rf"{macro}\(((?:{STRING}|[^()\"])*)\)", code)
    if len(found) != code.count(f"{macro}("):
        sys.exit(f"gen_tables_page: a {macro} in {path.name} has a different form")
    return [call[0] for call in found]


def arguments(call):
    return [quoted if text.startswith('"') else text for text, quoted in re.findall(rf"({STRING}|[^,\s][^,]*)", call)]


def type_of(name, unit, field):
    if field.endswith("_ns") and name == "int64_t" or field.endswith("bytes") and name == "uint64_t":
        return ""  # the page says so once
    if name in TYPES or not name.endswith("Id"):
        return TYPES.get(name, "uint8")  # an enum
    if not unit:
        sys.exit(f"gen_tables_page: a column of type {name} lacks its table")
    return f"[{unit}](#{unit})"


def tables():
    definitions = ROOT / "src/tables/tables.def"
    columns = {}
    for call in calls(definitions, "VRAMSCOPE_COLUMN"):
        number, row, kind, field, unit, text = arguments(call)
        columns.setdefault(row, []).append((number, field, type_of(kind, unit, field), unit, text))
    lines = []
    for call in calls(definitions, "VRAMSCOPE_TABLE"):
        number, row, name, text = arguments(call)
        lines += ["", f"### {name}", "", f"Table {number}: {text}."]
        plain, rows = [], []
        for column, field, kind, unit, meaning in columns.pop(row):
            named = f"{column} `{field}` {kind}".rstrip() + (f" ({unit})" if unit in ("bytes", "ns") and unit not in field else "")
            if meaning:
                rows.append(f"* {named}: {VALUE.sub(EQUALS, meaning)}")
            else:
                plain.append(named)
        lines += ["Has " + ", ".join(plain) + "."] if plain else []
        lines += ["", *rows] if rows else []
    if columns:
        sys.exit(f"gen_tables_page: columns without a table: {', '.join(columns)}")
    return lines[1:]


def words(name, macro):
    numbered = [arguments(call)[:3] for call in calls(ROOT / "src/format" / name, macro)]
    return ["; ".join(f"{number} {word}" for number, _, word in numbered) + "."]


def filled(page):
    sections = {
        "tables": tables(),
        "parts": words("parts.def", "VRAMSCOPE_PART"),
        "categories": words("categories.def", "VRAMSCOPE_CATEGORY"),
    }
    for marker, lines in sections.items():
        begin, end = f"<!-- generated: {marker} -->", "<!-- end -->"
        pattern = re.compile(re.escape(begin) + r".*?" + re.escape(end), re.DOTALL)
        if not pattern.search(page):
            sys.exit(f"gen_tables_page: {PAGE} has no section {begin}")
        text = "\n".join([begin, *lines, end])
        page = pattern.sub(lambda _, text=text: text, page, count=1)
    return page


def main():
    page = PAGE.read_text(encoding="utf-8")
    new = filled(page)
    if sys.argv[1:] == ["--check"]:
        if new != page:
            sys.exit("docs/TABLES.md is out of date: run tools/gen_tables_page.py")
        print("gen_tables_page: docs/TABLES.md is up to date")
        return
    if sys.argv[1:]:
        sys.exit(__doc__)
    PAGE.write_text(new, encoding="utf-8")


main()
