#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""References made of what they describe: of `--help`, and of the Python package's docstrings.

    tools/reference.py man PROGRAM       a man page, of the program's --help
    tools/reference.py cli PROGRAM       the same as Markdown
    tools/reference.py python            the Python package, as Markdown
"""

import inspect
import pathlib
import re
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).resolve().parent.parent


def help_of(program, *words):
    done = subprocess.run(
        [program, *words, "--help"], check=True, capture_output=True, text=True, env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"}
    )
    return done.stdout


def commands(program):
    """The subcommands, in the order of --help."""
    names = re.findall(r"^  ([a-z]+)  ", help_of(program), re.MULTILINE)
    if not names:
        sys.exit(f"reference: {program} --help lists no subcommands")
    return names


# ---- the command line ----


def cli_page(program):
    parts = ["# The command line\n", "Every command, as `vramscope COMMAND --help` explains it.\n"]
    for words in ((), *((name,) for name in commands(program))):
        parts.append(f"## {' '.join(('vramscope', *words))}\n\n```text\n{help_of(program, *words).rstrip()}\n```\n")
    return "\n".join(parts)


def roff(text):
    lines = []
    for line in text.rstrip().splitlines():
        line = line.replace("\\", "\\e").replace("-", "\\-")
        lines.append("\\&" + line if line[:1] in (".", "'") else line)
    return "\n".join(lines)


def man_page(program):
    version = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
    parts = [
        '.\\" SPDX-License-Identifier: Apache-2.0',
        f'.TH VRAMSCOPE 1 "" "vramscope {version}" "User Commands"',
        ".SH NAME",
        "vramscope \\- where GPU memory goes: every byte, by name, at any instant",
        ".SH SYNOPSIS",
        ".B vramscope run \\-\\-",
        ".I COMMAND",
        ".RI [ ARG ...]",
        ".br",
        ".B vramscope",
        ".I SUBCOMMAND",
        ".RI [ OPTION ...]",
        ".SH DESCRIPTION",
        ".nf",
        roff(help_of(program)),
        ".fi",
        ".SH COMMANDS",
    ]
    for name in commands(program):
        parts += [f".SS {name}", ".nf", roff(help_of(program, name)), ".fi"]
    return "\n".join(parts) + "\n"


# ---- Python ----


def markdown(docstring):
    """Markdown of a docstring: `::` begins an indented example, and single backticks are names."""
    text = re.sub(r"^::\n\n", "", inspect.cleandoc(docstring), flags=re.MULTILINE)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE).replace("``", "`").strip(":\n") + "\n"


def signature(value):
    try:
        text = str(inspect.signature(value))
    except (TypeError, ValueError):
        return ""
    text = re.sub(r"(: |-> )'((?:[^'\\]|\\.)*)'", r"\1\2", text)  # of annotations; defaults keep theirs
    text = re.sub(r"\b(?:typing|pathlib|os|_?[a-z]+)\.(?=[A-Z])", "", text)
    return text.replace("(self, ", "(").replace("(self)", "()")


def python_page():
    sys.path.insert(0, str(ROOT / "python"))
    # Where torch is not there yet, importing some of the names would begin a recording.
    sys.modules.setdefault("torch", types.ModuleType("torch"))
    import vramscope

    parts = ["# The Python package\n", markdown(vramscope.__doc__)]
    for name in dir(vramscope):
        value = getattr(vramscope, name)
        if not getattr(value, "__doc__", None) or not callable(value):
            continue
        parts.append(f"## {name}\n\n```python\n{name}{signature(value)}\n```\n\n{markdown(value.__doc__)}")
        if not inspect.isclass(value):
            continue
        for member, what in vars(value).items():
            if member.startswith("_") or not getattr(what, "__doc__", None):
                continue
            if isinstance(what, property):
                parts.append(f"### {name}.{member}\n\n{markdown(what.__doc__)}")
            elif callable(what) or isinstance(what, (classmethod, staticmethod)):
                what = getattr(value, member)
                parts.append(f"### {name}.{member}{signature(what)}\n\n{markdown(what.__doc__)}")
    return "\n".join(parts)


def main(arguments):
    if len(arguments) == 2 and arguments[0] in ("man", "cli"):
        page = man_page if arguments[0] == "man" else cli_page
        print(page(arguments[1]), end="")
    elif arguments == ["python"]:
        print(python_page(), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
