#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the words of the page's "?" (viewer/src/dom/words.js) from the lists of docs/WORDS.md.

    tools/gen_words.py           writes the file
    tools/gen_words.py --check   checks that it is up to date, changes nothing
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GLOSSARY = ROOT / "docs" / "WORDS.md"
WORDS = ROOT / "viewer" / "src" / "dom" / "words.js"
HEAD = """// SPDX-License-Identifier: Apache-2.0
// The words of docs/WORDS.md, by section. tools/gen_words.py writes this file.

/** @type {[string, [string, string][]][]} */
export const WORDS = [
"""


def plain(markdown):
    return " ".join(re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown).replace("`", "").split())


def made(page):
    lines = [HEAD]
    for section in page.split("\n## ")[1:]:
        title = section.splitlines()[0]
        entries = re.findall(r"^\* \*\*(.+?)\*\*: (.+(?:\n  .+)*)", section, re.MULTILINE)
        if entries:
            lines.append(f"  [{json.dumps(title)}, [\n")
            lines += [f"    {json.dumps([plain(word), plain(meaning)], ensure_ascii=False)},\n" for word, meaning in entries]
            lines.append("  ]],\n")
    return "".join([*lines, "];\n"])


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    new = made(GLOSSARY.read_text(encoding="utf-8"))
    if not sys.argv[1:]:
        WORDS.write_text(new, encoding="utf-8")
    elif new != WORDS.read_text(encoding="utf-8"):
        sys.exit("viewer/src/dom/words.js is out of date: run tools/gen_words.py")
    else:
        print("gen_words: viewer/src/dom/words.js is up to date")


main()
