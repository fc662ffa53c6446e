#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the list of docs/TABLES.md from src/tables/tables.def.

    tools/gen_tables_page.py           rewrites the text between the markers
    tools/gen_tables_page.py --check   checks that it is up to date, changes nothing
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "TABLES.md"
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
    """The page says once that other columns are integers."""
    if name == "StringId":
        return "text"
    if unit in (f"{field}s", f"{field}es") or not name.endswith("Id"):
        return ""
    if not unit:
        sys.exit(f"gen_tables_page: a column of type {name} lacks its table")
    return f"[{unit}](#{unit})"


def tables():
    definitions = ROOT / "src/tables/tables.def"
    columns = {}
    for call in calls(definitions, "VRAMSCOPE_COLUMN"):
        _, row, kind, field, unit, text = arguments(call)
        columns.setdefault(row, []).append((field, type_of(kind, unit, field), unit, text))
    lines, explained = [], set()
    for call in calls(definitions, "VRAMSCOPE_TABLE"):
        _, row, name, text = arguments(call)
        lines += ["", f"### {name}", "", f"{text[0].upper()}{text[1:]}."]
        plain, rows = [], []
        for field, kind, unit, meaning in columns.pop(row):
            named = f"`{field}` {kind}".rstrip() + (f" ({unit})" if unit in ("bytes", "ns") and unit not in field else "")
            if meaning and (field, meaning) not in explained:
                explained.add((field, meaning))
                rows.append(f"* {named}: {VALUE.sub(EQUALS, meaning)}")
            else:
                plain.append(named)
        lines += ["Has " + ", ".join(plain) + "."] if plain else []
        lines += ["", *rows] if rows else []
    if columns:
        sys.exit(f"gen_tables_page: columns without a table: {', '.join(columns)}")
    return lines[1:]


def filled(page):
    begin, end = "<!-- generated: tables -->", "<!-- end -->"
    before, found, rest = page.partition(begin)
    if not found:
        sys.exit(f"gen_tables_page: {PAGE} has no section {begin}")
    return "\n".join([before + begin, *tables(), end]) + rest.partition(end)[2]


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
