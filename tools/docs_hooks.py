# SPDX-License-Identifier: Apache-2.0
"""What mkdocs needs beyond docs/: the references that are made of the program, the package and the headers.

They are made when the site is, so that they cannot be out of date. VRAMSCOPE_BUILD names the build directory.
"""

import os
import pathlib
import re
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import reference  # noqa: E402


def on_files(files, config):
    build = pathlib.Path(os.environ.get("VRAMSCOPE_BUILD", ROOT / "build"))
    pages = {
        "index.md": front_page((ROOT / "README.md").read_text(encoding="utf-8")),
        "CLI.md": reference.cli_page(build / "bin" / "vramscope"),
        "PYTHON.md": reference.python_page(),
        "ANNOTATE_H.md": header("annotate.h", "A description with examples is in [ANNOTATE.md](ANNOTATE.md)."),
        "READ_H.md": header("read.h", "A description with examples is in [READER.md](READER.md)."),
        "CHANGELOG.md": (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def front_page(readme):
    """README with links as from docs/."""
    return re.sub(r"\]\((?!https?:)(docs/|(?=CHANGELOG))?", lambda link: "](../" if link.group(1) is None else "](", readme)


def header(name, sentence):
    text = (ROOT / "include" / "vramscope" / name).read_text(encoding="utf-8")
    return f"# {name}\n\n{sentence} The header is its own reference:\n\n```c\n{text}```\n"


METRIC = re.compile(r'^VRAMSCOPE_METRIC\(\w+, "(\w+)", \w+, "([^"]*)", "([^"]*)"\)$', re.MULTILINE)


def metrics_table():
    """The metrics of `vramscope metrics`, from their list in the program."""
    rows = METRIC.findall((ROOT / "src" / "metrics" / "metrics.def").read_text(encoding="utf-8"))
    return "\n".join(["| metric | labels | meaning |", "|---|---|---|", *(f"| `{n}` | {ls} | {t} |" for n, ls, t in rows)])


def on_page_markdown(markdown, **_):
    """Links that leave docs/ lead somewhere in the source tree alone: here they are names of files."""
    markdown = markdown.replace("<!-- metrics -->", metrics_table())
    return re.sub(r"\[([^\]]+)\]\(((?:\.\./)+(?!docs/)[A-Za-z][\w/.-]*)\)", outside, markdown)


def outside(link):
    text, target = link.groups()
    name = target.lstrip("./")
    if not (ROOT / name).exists():
        return link.group(0)  # within docs/
    return f"{text} (`{name}`)"
