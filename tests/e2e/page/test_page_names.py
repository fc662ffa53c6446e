# SPDX-License-Identifier: Apache-2.0
"""Names that mean harm, or that nobody thought of, from the program to the screen; and what the page calls the bytes of a
recording that has NVML's figures alone."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from browser import EXECUTABLE, Browser
from hosts import wait_until_listed
from places import BUILD, FAKE, VRAMSCOPE

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")

MARKUP = "<img src=x onerror=\"window.harmed='markup'\">"
SCRIPT = "</script><script>window.harmed='script'</script>"
ESCAPES = "\x1b[2J\x1b]0;harmed\x07\u009b31m"
BACKWARDS = "\u202egnp.\u2066exe"
LONG = "x" * 10_000
HOSTILE = {"markup": MARKUP, "script": SCRIPT, "escapes": ESCAPES, "backwards": BACKWARDS, "long": LONG}

# Files and functions of those names, and one allocation in each.
PROGRAM = """
import sys, torch
kept = []
for number, name in enumerate(NAMES):
    space = {"torch": torch}
    exec(compile("def f(size):\\n    return torch.zeros(size, dtype=torch.uint8)\\n", f"/home/me/{name}.py", "exec"), space)
    more = {"co_qualname": name} if sys.version_info >= (3, 11) else {}
    space["f"].__code__ = space["f"].__code__.replace(co_name=name, **more)
    kept.append(space["f"]((number + 1) << 20))
"""


@pytest.fixture(scope="module")
def browser():
    with Browser(1280, 1000) as started:
        yield started


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> Path:
    pytest.importorskip("torch")
    place = tmp_path_factory.mktemp("hostile")
    (place / "program.py").write_text(f"NAMES = {list(HOSTILE.values())!r}\n{PROGRAM}")
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", place / "h.vram", "--html", place / "h.html"]
    subprocess.run([*command, "--", sys.executable, place / "program.py"], check=True, timeout=120, capture_output=True)
    return place


@pytest.mark.parametrize(("width", "mobile"), [(1280, False), (390, True)])
def test_hostile_names_are_text(browser, hostile, width, mobile):
    browser.resize(width, 844, mobile=mobile)
    for tab in ("lifetimes", "space"):
        browser.open(hostile / "h.html", f"tab={tab}")
        browser.act("""for (const button of document.querySelectorAll("[aria-expanded=false]")) button.click();""")
        browser.settle()
        told = browser.act("""return {
          harmed: window.harmed ?? null, made: document.querySelectorAll("img, body script[src]").length,
          wide: document.documentElement.scrollWidth, text: document.querySelector("#page").textContent,
          isolated: getComputedStyle(document.querySelector(".label")).unicodeBidi};""")
        assert told["harmed"] is None and told["made"] == 0
        assert told["wide"] <= width, "a name of 10,000 characters widens nothing"
        assert "<img src=x" in told["text"], "the name is there, as text"
        assert not set(told["text"]) & set("\u202e\u2066\x1b\x07\u009b"), "nothing turns the text around"
        assert browser.complaints == []
    browser.resize(1280, 1000)


def test_hostile_names_are_text_in_the_terminal(hostile):
    said = subprocess.run([VRAMSCOPE, "report", hostile / "h.vram", "--by", "line"], capture_output=True, text=True,
                          check=True, env={**os.environ, "LC_ALL": "C.UTF-8"}).stdout
    assert "<img src=x" in said
    assert not set(said) & set("\u202e\u2066\x1b\x07\u009b")
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.skipif(not (FAKE / "libnvidia-ml.so.1").exists(), reason="the stand-in NVML is not built")
def test_of_a_sampled_recording_the_page_says_whose_the_bytes_are(browser, tmp_path):
    driver = BUILD / "hosts" / "driver_steady"
    if not driver.exists():
        pytest.skip("the programs are not built")
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    command = [VRAMSCOPE, "sample", "-i", "2ms", "--no-report", "-o", tmp_path / "s.vram", "--", driver]
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        wait_until_listed(tmp_path / "s.vram", child, 64 << 20)
        process.communicate("")
    assert process.returncode == 0
    subprocess.run([VRAMSCOPE, "report", tmp_path / "s.vram", "--html", tmp_path / "s.html"], check=True, capture_output=True)
    browser.open(tmp_path / "s.html")
    shown = browser.run("""[...document.querySelectorAll('[aria-label="Summary"] .brief-row.key[data-category]')].map((row) => row.dataset.category)""")
    assert "sampled" in shown and "unknown" not in shown
