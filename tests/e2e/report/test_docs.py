# SPDX-License-Identifier: Apache-2.0
"""What the documentation tells people to type: the blocks marked `<!-- run -->` are run, in order, page by page, in a
directory where the first page was followed; the others are checked for their syntax, and all for commands and options
that there are."""
from __future__ import annotations

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
PAGES = [START, *sorted((DOCS / "howto").glob("*.md"))]
FENCE = re.compile(
    r'^(?P<indent> *)(?:<!-- (?P<run>run) -->\n *)?```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^ *```$',
    re.MULTILINE | re.DOTALL,
)


def blocks(page):
    for found in FENCE.finditer(page.read_text()):
        yield found["language"], found["title"], found["run"], textwrap.dedent(found["text"])


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
    for language, title, run, text in blocks(page):
        if title:
            (directory / title).write_text(text)
        if not run:
            continue
        command = ["bash", "-euo", "pipefail", "-c", text] if language == "sh" else [sys.executable, "-c", text]
        done = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
        )
        assert done.returncode == 0, f"{page}:\n{text}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        yield text, done.stdout + done.stderr


@pytest.fixture(scope="module")
def started(environment, tmp_path_factory):
    """A directory in which somebody has followed the first page."""
    pytest.importorskip("torch")
    directory = tmp_path_factory.mktemp("start")
    return directory, list(follow(START, directory, environment))


def test_getting_started(started):
    directory, said = started
    assert {"train.py", "train.vram", "train.html", "named.vram"} <= {path.name for path in directory.iterdir()}
    (recorded, asked, named, read) = [text for _, text in said]
    assert "parameter" in recorded and "train.vram" in recorded
    assert re.search("lookup table", named) and "load" in named
    assert re.search(r"^\d+ parameter \d+$", read, re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if page != START and "<!-- run -->" in page.read_text()], ids=lambda page: page.stem)
def test_a_how_to(page, started, environment, tmp_path):
    if page.stem == "cmake" and not (shutil.which("cmake") and shutil.which("g++")):
        pytest.skip("needs cmake and g++")
    shutil.copy(started[0] / "train.py", tmp_path)
    for name in ("train.vram", "before.vram", "after.vram"):  # recording is run on the first page, and dear
        shutil.copy(started[0] / "train.vram", tmp_path / name)
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


SHOWN = [*PAGES, ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


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
