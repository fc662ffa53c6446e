# SPDX-License-Identifier: Apache-2.0
"""Runs the blocks marked `<!-- run -->` of README, tutorial and how-to guides, in order, page by page, in a directory where
the tutorial was followed. A ```text block after one is its output: figures are masked, `...` stands for any lines. The other
blocks are checked for their syntax, and all for commands and options that exist.

VRAMSCOPE_UPDATE_DOCS=1 writes outputs that differ into the pages."""
from __future__ import annotations

import difflib
import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import textwrap

import package
import pytest
from places import ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

DOCS = ROOT / "docs"
START = DOCS / "START.md"
README = ROOT / "README.md"
PAGES = [README, START, *sorted((DOCS / "howto").glob("*.md"))]
TRACES = ROOT / "examples" / "traces"
HAS_GPU = os.path.exists("/dev/nvidia0")  # the outputs shown are of a machine without one
FENCE = re.compile(
    r'^(?P<indent> *)(?:<!-- (?P<run>run) -->\n *)?```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^ *```$',
    re.MULTILINE | re.DOTALL,
)
FIGURE = re.compile(r"[<-]?\d[\d,]*(?:\.\d+)?(?: ?(?:[KMGT]iB|[nmu]?s|min|B|%)(?![\w]))*")


def masked(line):
    """A line without what may differ from run to run: paths, bars, figures with their units, spaces."""
    line = re.sub(r"(?<![\w.])(?:/[\w.+-]+){2,}", "PATH", line)
    line = FIGURE.sub("#", re.sub("[█▉▊▋▌▍▎▏]+", " ", line))
    return " ".join(re.sub(r"#(?: #)+", "#", line).split())


def segments(shown):
    """The runs of lines between the `...` of an output, and whether each has to follow the one before it at once."""
    found, anywhere = [], False
    for line in shown.splitlines():
        if line.strip() == "...":
            anywhere = True
        elif anywhere or not found:
            found.append((anywhere, [line]))
            anywhere = False
        else:
            found[-1][1].append(line)
    return found, anywhere


def located(shown, output):
    """Where the segments of `shown` are most alike to `output`: a list of (first line, likeness from 0 to 1)."""
    lines, first, found = [masked(line) for line in output.splitlines()], 0, []
    parts, _ = segments(shown)
    for anywhere, part in parts:
        wanted = "\n".join(map(masked, part))
        starts = range(first, max(first, len(lines) - len(part)) + 1) if anywhere else [first]
        likeness = [difflib.SequenceMatcher(None, wanted, "\n".join(lines[at : at + len(part)])).ratio() for at in starts]
        best = max(range(len(likeness)), key=likeness.__getitem__)
        found.append((starts[best], likeness[best]))
        first = starts[best] + len(part)
    return found


def as_cut_as(wanted, line):
    """`wanted` if both lines are cut and differ only in how much of them fits beside their figures."""
    fits = min(len(wanted), len(line)) - 1
    return wanted if wanted.endswith("…") and line.endswith("…") and wanted[:fits] == line[:fits] else line


def difference(shown, output):
    """Empty if `output` has the lines of `shown`, else both, as a diff."""
    lines, wanted, actual = output.splitlines(), [], []
    parts, open_end = segments(shown)
    last = 0
    for (_, part), (first, _) in zip(parts, located(shown, output)):
        wanted += map(masked, part)
        actual += [as_cut_as(masked(line), masked(made)) for line, made in zip(part, lines[first : first + len(part)])]
        last = first + len(part)
    if not open_end:
        actual += map(masked, lines[last:])
    return "\n".join(difflib.unified_diff(wanted, actual, "the page", "the program", lineterm="", n=1))


def updated(shown, output):
    lines, made = output.splitlines(), []
    parts, open_end = segments(shown)
    for (anywhere, part), (first, _) in zip(parts, located(shown, output)):
        made += (["..."] if anywhere else []) + lines[first : first + len(part)]
    return "\n".join(made + (["..."] if open_end else [])) + "\n"


def blocks(page):
    for found in FENCE.finditer(page.read_text()):
        yield found["language"], found["title"], found["run"], textwrap.dedent(found["text"])


def test_outputs_are_compared():
    output = "head\n  a    1.5 MiB  50.0 %  █████▏  2\n  b    2 KiB\nfile /tmp/x/y.vram\ntail"
    assert difference("head\n  a   99 GiB   3 %  ▎   7\n...\ntail", output) == ""
    assert difference("...\nfile /home/me/y.vram\n...", output) == ""
    assert difference("at 10 s: of a (Net…", "at 1 min 10 s: of a…") == ""
    assert difference("at 10 s: of a (Net…", "at 10 s: of b…")
    assert difference("head\n  c    1.5 MiB  50.0 %  2\n...", output)
    assert difference("head\n...\n  b    2 KiB", output)  # ends too early
    assert difference("head\n  b    2 KiB\n...", output)  # leaves a line out without a word
    assert updated("head\n...\nfile /a/b\n...", output) == "head\n...\nfile /tmp/x/y.vram\n...\n"


def test_every_block_is_found():
    for page in PAGES:
        assert 2 * len(list(blocks(page))) == page.read_text().count("```"), page


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    found = package.make(folder)
    (folder / "bin").mkdir()
    # A link would lead out of the virtual environment.
    (folder / "bin" / "python").write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} \"$@\"\n")
    (folder / "bin" / "python").chmod(0o755)
    (folder / "bin" / "vramscope").symlink_to(VRAMSCOPE)
    return {**found, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(folder)}


def follow(page, directory, environment):
    """Runs a page and compares the outputs that it shows. Yields each block's text and output."""
    text, found = page.read_text(), list(FENCE.finditer(page.read_text()))
    changes = []
    for block, after in zip(found, [*found[1:], None]):
        code = textwrap.dedent(block["text"])
        if block["title"]:
            (directory / block["title"]).write_text(code)
        if not block["run"]:
            continue
        command = ["bash", "-euo", "pipefail", "-c", code] if block["language"] == "sh" else [sys.executable, "-c", code]
        done = subprocess.run(
            command, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{page}:\n{code}\n{done.stdout[-4000:]}"
        if after and after["language"] == "text" and not after["title"] and not HAS_GPU:
            shown = textwrap.dedent(after["text"])
            differs = difference(shown, done.stdout)
            if differs and os.environ.get("VRAMSCOPE_UPDATE_DOCS"):
                changes.append((after.span("text"), textwrap.indent(updated(shown, done.stdout), after["indent"])))
            else:
                assert not differs, f"{page}:\n{code}\n{differs}\nVRAMSCOPE_UPDATE_DOCS=1 corrects the page"
        yield code, done.stdout
    for (first, last), output in reversed(changes):
        text = text[:first] + output + text[last:]
    if changes:
        page.write_text(text)


@pytest.fixture(scope="module")
def started(environment, tmp_path_factory):
    """A directory in which somebody has followed the tutorial."""
    pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("start")
    return directory, list(follow(START, directory, environment))


def test_getting_started(started):
    directory, _ = started
    assert {"train.py", "train.vram", "fixed.vram", "train.html"} <= {path.name for path in directory.iterdir()}


@pytest.mark.parametrize("page", [page for page in PAGES if page != START and "<!-- run -->" in page.read_text()], ids=lambda page: page.stem)
def test_a_how_to(page, started, environment, tmp_path):
    if page.stem == "cmake" and not (shutil.which("cmake") and shutil.which("g++")):
        pytest.skip("needs cmake and g++")
    given = {name: started[0] / name for name in ("train.py", "train.vram", "fixed.vram")}  # recording them takes long
    given |= {name: started[0] / "fixed.vram" for name in ("before.vram", "after.vram")}
    if page.stem == "out-of-memory":
        given |= {"train.vram": TRACES / "oom.vram", "whole.vram": TRACES / "overflow.vram"}
    for name, path in given.items():
        shutil.copy(path, tmp_path / name)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    assert list(follow(page, tmp_path, environment))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_syntax_of_all_blocks(page):
    for language, _, _, text in blocks(page):
        if language == "python":
            compile(text, str(page), "exec")
        elif language == "sh":
            done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr


@functools.lru_cache(maxsize=None)
def help_of(*words):
    done = subprocess.run([VRAMSCOPE, *words, "--help"], capture_output=True, text=True, timeout=60)
    return done.stdout if done.returncode == 0 else None


def commands_in(text):
    """The words of each `vramscope ...` that stands at the beginning of a line, or behind `$(`, `srun` and the like."""
    for line in text.replace("\\\n", " ").splitlines():
        for found in re.finditer(r"(?:^|[\s(\"'`])vramscope ((?:[a-z]+|--[a-z-]+)(?: .*)?)$", line.split("  #")[0].rstrip(" )`\"'")):
            yield found.group(1)


SHOWN = [*PAGES, *sorted(DOCS.glob("*.md"))]


def test_all_commands_and_options_exist():
    seen = 0
    for page in dict.fromkeys(SHOWN):
        text = page.read_text()
        shell = "\n".join(found for language, _, _, found in blocks(page) if language == "sh")
        shell += "\n" + "\n".join(re.findall(r"^    (?:\$ )?(vramscope .*)$", text, re.MULTILINE))
        for command in commands_in(shell):
            words = command.split(" -- ")[0].removesuffix(" --").split()
            if words[0].startswith("--"):
                assert words[0] in help_of(), f"{page.name}: vramscope {command}"
                continue
            known = help_of(words[0])
            assert known is not None, f"{page.name}: there is no `vramscope {words[0]}`"
            for word in words[1:]:
                option = re.match(r"--?[a-z][a-z-]*", word)
                if option:
                    assert re.search(rf"(?<![\w-]){re.escape(option.group())}(?![\w-])", known), (
                        f"{page.name}: vramscope {command}: no option {option.group()}"
                    )
            seen += 1
    assert seen > 60


def test_the_references_have_every_command_and_name(environment):
    script = ROOT / "tools" / "reference.py"

    def made(*words):
        done = subprocess.run([sys.executable, script, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout

    names = re.findall("^  ([a-z]+)  ", help_of(), re.MULTILINE)
    assert "run" in names and "doctor" in names
    line = made("cli", str(VRAMSCOPE))
    page = made("man", str(VRAMSCOPE))
    for name in names:
        assert f"## vramscope {name}\n" in line and f"\n.SS {name}\n" in page
        assert help_of(name).strip() in line
    if shutil.which("man"):
        done = subprocess.run(["man", "-l", "-Tutf8", "-"], input=page, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stderr == "", done.stderr
    listed = subprocess.run(
        [sys.executable, "-c", "import vramscope; print(*dir(vramscope))"], env=environment, capture_output=True, text=True
    ).stdout.split()
    python = made("python")
    assert "\nCourtesy(partial: bool = False, device_type: str = 'cuda') -> None\n" in python
    for name in listed:
        assert name == "__version__" or f"\n## {name}\n" in python, name


def test_completion_knows_commands_and_options(environment):
    script = ROOT / "share" / "completions" / "vramscope.bash"

    def completed(line):
        words = shlex.split(line) + ([""] if line.endswith(" ") else [])
        code = (
            f"source {shlex.quote(str(script))}; COMP_WORDS=({shlex.join(words)}); COMP_CWORD={len(words) - 1}; "
            "_vramscope; printf '%s\\n' \"${COMPREPLY[@]}\""
        )
        done = subprocess.run(["bash", "-c", code], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stderr == "", done.stderr
        return done.stdout.split()

    assert completed("vramscope it") == ["iterations"]
    assert {"run", "report", "doctor"} <= set(completed("vramscope "))
    assert completed("vramscope report --wh") == ["--where"]
    assert {"--cpu", "--help", "-o"} <= set(completed("vramscope run -"))
    assert "compare" in completed("vramscope plot x.vram --kind ")
    assert completed("vramscope keywords show la") == ["layers"]
