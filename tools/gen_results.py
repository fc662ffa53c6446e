#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the answers' fields into docs, page and Python package from src/query/results.def.

    tools/gen_results.py           rewrites the text between the markers
    tools/gen_results.py --check   checks that it is up to date, changes nothing
"""

import importlib
import json
import pathlib
import re
import sys
import textwrap
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFINITIONS = ROOT / "src/query/results.def"
STRING = r'"((?:[^"\\]|\\.)*)"'
# The names that version 1 of the reader has for a few fields: read/report_answers.cc.
READER_NAMES = {"device": "index", "type": "class", "top_lines": "lines"}
NUMBERS = {
    "int32_t",
    "int64_t",
    "uint32_t",
    "uint64_t",
    "double",
    "tables::DeviceId",
    "tables::AccountId",
    "tables::ProcessId",
}
TEXTS = {"std::string", "tables::DeviceKind", "tables::StringId"}
WRAPPED = re.compile(r"(OrNull|IfAny|Spread|std::optional|std::vector)<(.*)>")


class Field(NamedTuple):
    form: str
    member: str
    name: str
    meaning: str

    @property
    def inner(self):
        """The form without OrNull, IfAny and so on."""
        return re.sub(r"^(OrNull|IfAny|Spread|std::optional)<(.*)>$", r"\2", self.form)

    @property
    def row(self):
        """The result of which it is a list, or None."""
        found = re.fullmatch(r"std::vector<(\w+)>", self.inner)
        return found[1] if found and found[1] in RESULTS else None


class Result(NamedTuple):
    text: str
    fields: list


def read():
    code = "\n".join(line for line in DEFINITIONS.read_text(encoding="utf-8").splitlines() if not line.startswith(("#", "//")))
    found = re.findall(rf"VRAMSCOPE_(\w+)\(((?:{STRING}|[^()\"])*)\)", code)
    if len(found) != code.count("VRAMSCOPE_"):
        sys.exit("gen_results: results.def has a line of a different form")
    results = {}
    for macro, call, _ in found:
        arguments = [quoted if text.startswith('"') else text for text, quoted in re.findall(rf"({STRING}|[^,\s][^,]*)", call)]
        row = arguments[0]
        if macro == "RESULT":  # other macros are not fields
            results[row] = Result(arguments[1], [])
        elif macro == "FIELD":
            _, form, member, _, meaning = arguments
            results[row].fields.append(Field(form, member, member, meaning))
        elif macro in ("NAMED", "COMPUTED"):
            _, form, member, name, _, meaning = arguments
            results[row].fields.append(Field(form, member, name, meaning))
    return results


RESULTS = read()


# ---- docs/REPORT_SCHEMA.md ----


def json_type(form):
    """In the words of REPORT_SCHEMA.md: `?` may be null, `[T]` is an array, `{T}` an object with values by name."""
    wrapped = WRAPPED.fullmatch(form)
    if wrapped and wrapped[1] in ("OrNull", "std::optional"):
        return json_type(wrapped[2]) + "?"
    if wrapped and wrapped[1] in ("IfAny", "Spread"):
        return json_type(wrapped[2])
    if wrapped:
        return f"[{json_type(wrapped[2])}]"
    if form == "double":
        return "number"
    if form in NUMBERS:
        return "int"
    if form in TEXTS:
        return "text"
    return {
        "bool": "bool",
        "RowPath": "[text]",
        "tables::StackId": "[text]",
        "Samples": "[[int]]",
        "ByCategory": "{int}",
        "BytesByName": "{int}",
        "BytesOfNames": "{int}",
    }[form]


def with_type(field):
    """A field without a type is an integer."""
    kind = json_type(field.form)
    return f"`{field.name}`" + (f" {kind}" if kind != "int" else "")


# "0: unknown" behind a colon would read badly.
VALUE = re.compile(r"(^|; )(-?\d+|null|false|negative): ")
EQUALS = r"\1\2 = "

# Meanings that need no row: empty, or explained once at the top of the page.
PLAIN = ("", "`index` of the device", "allocations", "B minus A")


def schema_of(result, prefix, known):
    """A sentence of the fields that explain themselves, a list of the others, and a section for each object below."""
    plain, rows, below = [], [], []
    for field in RESULTS[result].fields:
        optional = "?" if field.form.startswith("std::optional") else ""
        if field.inner == "PeakFigure":
            rows.append(f"* `{field.name}_bytes`, `{field.name}_ns` int?: {field.meaning}")
        elif field.row or field.inner in RESULTS:
            inner = field.row or field.inner
            name = prefix + field.name + ("[]" if field.row else "")
            where = known.setdefault(inner, name)
            if where == name:
                said, *lines = schema_of(inner, f"{name}.", known)
                meaning = field.meaning or RESULTS[inner].text
                below += ["", f"**`{name}`{optional}**: {meaning}.{said}", *lines]
            else:
                meaning = field.meaning + "; " if field.meaning else ""
                below += ["", f"**`{name}`{optional}**: {meaning}as `{where}`."]
        elif field.meaning in PLAIN:
            plain.append(with_type(field))
        else:
            rows.append(f"* {with_type(field)}: {VALUE.sub(EQUALS, field.meaning)}")
    listed = ["", *rows] if rows else []
    return [f" Has {', '.join(plain)}." if plain else "", *listed, *below]


def schema(result):
    said, *lines = schema_of(result, "", {})
    return [said.strip(), *lines] if said else lines[1:]


# ---- viewer/src/model/types.js ----


def js_type(form):
    wrapped = WRAPPED.fullmatch(form)
    if wrapped and wrapped[1] in ("OrNull", "std::optional"):
        return js_type(wrapped[2]) + "|null"
    if wrapped and wrapped[1] in ("IfAny", "Spread"):
        return js_type(wrapped[2])
    if wrapped:
        return js_type(wrapped[2]) + "[]"
    if form in RESULTS:
        return form
    if form in NUMBERS:
        return "number"
    if form in TEXTS:
        return "string"
    return {
        "bool": "boolean",
        "RowPath": "string[]",
        "tables::StackId": "string[]",
        "Samples": "[number, number][]",
        "ByCategory": "Record<string, number>",
        "BytesByName": "Record<string, number>",
    }[form]


def js_properties(row):
    objects = {}
    for field in RESULTS[row].fields:
        name = f"[{field.name}]" if field.form.startswith("IfAny") else field.name
        if field.inner == "PeakFigure":
            yield f" * @property {{number|null}} {name}_bytes"
            yield f" * @property {{number|null}} {name}_ns"
        elif "." in name:
            objects.setdefault(name.split(".")[0], []).append(f"{name.split('.')[1]}: {js_type(field.form)}")
        else:
            yield f" * @property {{{js_type(field.form)}}} {name}"
    for name, fields in objects.items():
        yield f" * @property {{{{{', '.join(fields)}}}}} {name}"


def reached(result):
    """The results that it contains, itself last."""
    found = []
    for field in RESULTS[result].fields:
        if field.row:
            found += [row for row in reached(field.row) if row not in found]
    return [*found, result]


def types(result):
    lines = []
    for row in reached(result):
        text = RESULTS[row].text
        lines += ["/**", f" * {text[0].upper()}{text[1:]}.", f" * @typedef {{object}} {row}", *js_properties(row), " */", ""]
    return lines[:-1]


# ---- python/vramscope/_reader.py ----


def tables_of(result):
    return [(READER_NAMES.get(field.name, field.name), field.row) for field in RESULTS[result].fields if field.row and field.row != "Timeline"]


def tuples(result):
    text = RESULTS[result].text
    fields = {READER_NAMES.get(field.name, field.name): field for field in RESULTS[result].fields if field.row}
    lines = [f"class {result}(NamedTuple):", f'    """{text[0].upper()}{text[1:]}. Tables have the columns of docs/READER.md."""', ""]
    for name, _ in tables_of(result):
        said = fields[name].meaning or RESULTS[fields[name].row].text
        lines += [f"    {line}" for line in textwrap.wrap(said, 110, initial_indent="#: ", subsequent_indent="#: ")]
        lines.append(f"    {name}: Table")
    return [*lines, "", "    def __repr__(self) -> str:", "        return _overview(self)"]


# ---- python/vramscope/fleet/schema.py ----


def dataset_columns(result):
    """The columns of each list of a result, for Arrow."""
    types = {"double": "double", "bool": "bool"}
    lines = []
    for field in RESULTS[result].fields:
        if not field.row:
            continue
        lines.append(f'    "{field.name}": [')
        for column in RESULTS[field.row].fields:
            kind = types.get(column.inner, "string" if column.inner in TEXTS else "int64")
            said = f", {json.dumps(column.meaning, ensure_ascii=False)}" if column.meaning else ""
            lines.append(f'        Column("{column.name}", "{kind}"{said}),')
        lines.append("    ],")
    return lines


def dataset_texts(result):
    return [f'    "{field.name}": {json.dumps(RESULTS[field.row].text)},' for field in RESULTS[result].fields if field.row]


# ---- all ----


def filled(path, sections, begin_mark, end_mark):
    text = path.read_text(encoding="utf-8")
    for name, lines in sections.items():
        begin = begin_mark.format(name)
        pattern = re.compile(re.escape(begin) + r"\n.*?" + re.escape(end_mark), re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"gen_results: {path} has no section {begin}")
        section = "\n".join([begin, *lines, end_mark])
        text = pattern.sub(lambda _, section=section: section, text, count=1)
    return text


def dataset_tables():
    """The tables of docs/DATASET.md, from the module that was just written."""
    sys.path.insert(0, str(ROOT / "python/vramscope/fleet"))
    return importlib.import_module("schema").document().splitlines()


def main():
    docs, code = ("<!-- generated: {} -->", "<!-- end -->"), ("// generated: {}", "// end")
    python = ("# generated: {}", "# end")
    answers = ("Report", "Iterations", "EnginePhases", "XlaPrograms", "Leaks", "Prediction", "WhatIf", "RankReport", "Refusals", "Savings")
    pages = [
        (ROOT / "docs/REPORT_SCHEMA.md", {result: schema(result) for result in answers}, *docs),
        (ROOT / "docs/DIFF.md", {"Diff": schema("Diff")}, *docs),
        (ROOT / "viewer/src/model/types.js", {result: types(result) for result in ("Report", "EnginePhases", "Savings")}, *code),
        (ROOT / "python/vramscope/_reader.py", {result: tuples(result) for result in ("Report", "Iterations", "EnginePhases")}, *python),
        (
            ROOT / "python/vramscope/fleet/schema.py",
            {"Summary": dataset_columns("Summary"), "SummaryText": dataset_texts("Summary")},
            "    # generated: {}",
            "    # end",
        ),
    ]
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    pages.append((ROOT / "docs/DATASET.md", {"tables": None}, *docs))
    for path, sections, begin, end in pages:
        sections = {name: dataset_tables() if lines is None else lines for name, lines in sections.items()}
        new = filled(path, sections, begin, end)
        if sys.argv[1:] and new != path.read_text(encoding="utf-8"):
            sys.exit(f"{path.relative_to(ROOT)} is out of date: run tools/gen_results.py")
        if not sys.argv[1:]:
            path.write_text(new, encoding="utf-8")
    if sys.argv[1:]:
        print(f"gen_results: {', '.join(page[0].name for page in pages)} are up to date")


main()
