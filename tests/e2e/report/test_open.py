# SPDX-License-Identifier: Apache-2.0
"""`vramscope open`: the page lies in the cache directory, and the browser that the user has opens it."""

import os
import pty
import stat
import subprocess

import pytest
from places import ROOT, VRAMSCOPE

RECORDING = ROOT / "examples" / "traces" / "gpt2.vram"


def vramscope(*arguments, **environment):
    bare = {name: value for name, value in os.environ.items()
            if name not in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "XDG_CACHE_HOME", "HOME")}
    return subprocess.run([VRAMSCOPE, *arguments], env={**bare, **environment}, capture_output=True, text=True, timeout=60)


@pytest.fixture
def browser(tmp_path):
    """A program that notes what it was given."""
    program = tmp_path / "browse"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{tmp_path}/opened"\n')
    program.chmod(0o755)
    return program


def test_the_page_is_private_and_the_browser_gets_its_address(tmp_path, browser):
    done = vramscope("open", RECORDING, XDG_CACHE_HOME=str(tmp_path / "a cache"), BROWSER=f"/no/such:{browser} --new %s")
    (page,) = (tmp_path / "a cache" / "vramscope").iterdir()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Page:  {page}\n", "")
    address = f"file://{page}".replace("a cache", "a%20cache")
    assert (tmp_path / "opened").read_text() == f"--new\n{address}\n"
    assert page.read_text().startswith("<!doctype html>") and page.name.startswith("gpt2-")
    assert stat.S_IMODE(page.parent.stat().st_mode) == 0o700 and stat.S_IMODE(page.stat().st_mode) == 0o600
    # Again: in the same place.
    assert vramscope("open", RECORDING, XDG_CACHE_HOME=str(tmp_path / "a cache"), BROWSER=str(browser)).stdout == done.stdout
    assert (tmp_path / "opened").read_text() == f"{address}\n"


def test_a_folder_is_the_page_of_its_ranks(tmp_path, browser):
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    for rank in ("a", "b"):
        (ranks / f"{rank}.vram").write_bytes(RECORDING.read_bytes())
    done = vramscope("open", ranks, XDG_CACHE_HOME=str(tmp_path), BROWSER=str(browser))
    (page,) = (tmp_path / "vramscope").iterdir()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"Page:  {page}\n", "")
    assert page.name.startswith("ranks-") and "<title>2 ranks" in page.read_text()
    empty = tmp_path / "empty"
    empty.mkdir()
    none = vramscope("open", empty, HOME=str(tmp_path))
    assert none.returncode == 2 and none.stderr.count("\n") == 1 and "contains no recording" in none.stderr
    assert not (tmp_path / ".cache").exists()


@pytest.mark.parametrize("browser_is", ["", "/no/such", "false"])
def test_without_a_browser_one_line_says_where_the_page_is(tmp_path, browser_is):
    done = vramscope("open", RECORDING, HOME=str(tmp_path), BROWSER=browser_is)
    (page,) = (tmp_path / ".cache" / "vramscope").iterdir()
    assert (done.returncode, done.stdout, done.stderr) == (0, f"No browser could be started here; the page is {page}\n", "")


def test_errors_are_one_line(tmp_path):
    nowhere = vramscope("open", RECORDING)
    assert nowhere.returncode == 2 and "XDG_CACHE_HOME" in nowhere.stderr and nowhere.stderr.count("\n") == 1
    missing = vramscope("open", tmp_path / "none.vram", HOME=str(tmp_path))
    assert missing.returncode == 2 and missing.stderr.count("\n") == 1 and not (tmp_path / ".cache").exists()
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "vramscope").symlink_to("/tmp")
    linked = vramscope("open", RECORDING, HOME=str(tmp_path))
    assert linked.returncode == 2 and linked.stderr.count("\n") == 1


def test_a_report_on_a_terminal_names_it_in_its_last_line(tmp_path):
    ours, theirs = pty.openpty()
    with subprocess.Popen([VRAMSCOPE, "report", RECORDING], stdout=theirs, stderr=theirs) as report:
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # the other end is closed
            pass
        os.close(ours)
    assert report.returncode == 0
    assert text.decode().splitlines()[-1] == f"       vramscope open {RECORDING}"
