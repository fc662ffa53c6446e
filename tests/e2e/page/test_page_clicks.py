# SPDX-License-Identifier: Apache-2.0
"""Six questions are answered in a few clicks: made with a mouse, with what is then on the screen."""
from __future__ import annotations

import json
import re
import subprocess

import pytest
from browser import EXECUTABLE, Browser
from places import ROOT, VRAMSCOPE

RECORDING = ROOT / "examples" / "traces" / "gpt2.vram"

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")


def vramscope(*arguments):
    return subprocess.run([VRAMSCOPE, *arguments], capture_output=True, text=True, check=True).stdout


def sums(by: str, at: str = "peak") -> dict[str, int]:
    """Bytes of the GPU by the names of a dimension."""
    report = json.loads(vramscope("report", RECORDING, "--json", "--by", by, "--at", at))
    found: dict[str, int] = {}
    for row in report["rows"]:
        if row["device"] == 0:
            found[row["path"][0]] = found.get(row["path"][0], 0) + row["bytes"]
    return found


class Reader:
    """A reader with a mouse, who counts."""

    def __init__(self, browser: Browser):
        self.browser = browser
        self.clicks = 0

    def place(self, expression: str) -> tuple[float, float]:
        """The middle of an element, scrolled into sight."""
        return tuple(self.browser.act(f"""
          const element = {expression};
          element.scrollIntoView({{block: "center"}});
          await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
          const box = element.getBoundingClientRect();
          return [box.left + box.width / 2, box.top + box.height / 2];"""))

    def click(self, expression: str):
        self.browser.click(*self.place(expression))
        self.clicks += 1
        self.browser.settle()

    def drag_timeline(self, share_from: float, share_to: float):
        self.place("document.querySelector('.timeline')")
        left, top, width = self.browser.act("""const box = document.querySelector(".timeline").getBoundingClientRect();
          return [box.left + 74, box.top + 100, box.width - 84];""")
        self.browser.mouse("Pressed", left + share_from * width, top, button="left", buttons=1, clickCount=1)
        self.browser.mouse("Moved", left + (share_from + share_to) / 2 * width, top, button="left", buttons=1)
        self.browser.mouse("Moved", left + share_to * width, top, button="left", buttons=1)
        self.browser.mouse("Released", left + share_to * width, top, button="left", clickCount=1)
        self.clicks += 1
        self.browser.settle()

    def tab(self, name: str):
        self.click(f"document.querySelector('#tab-{name}')")


EXACT = """const exact = (text) => Number(/(-?[0-9,]+) bytes/.exec(text)[1].replaceAll(",", ""));"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page = tmp_path_factory.mktemp("clicks") / "page.html"
    vramscope("report", RECORDING, "--html", page)
    return page


@pytest.fixture(scope="module")
def started():
    with Browser(1280, 1000) as browser:
        yield browser


@pytest.fixture
def reader(started, page):
    started.open(page)
    return Reader(started)


def test_who_holds_the_peak(reader):
    shown = reader.browser.act(EXACT + """return Object.fromEntries(
      [...document.querySelectorAll('[aria-label="Summary"] .brief-row.key[data-category]')].map((row) => [row.dataset.category, exact(row.title)]));""")
    assert shown == {name: size for name, size in sums("category").items() if size}
    assert reader.clicks == 0  # who holds the peak?


def test_which_line_holds_most(reader):
    text = reader.browser.run("""document.querySelector('[aria-label="Summary"]').textContent""")
    lines = {name: size for name, size in sums("line").items() if name.startswith("train_gpt2.py:")}
    heaviest = max(lines, key=lambda name: lines[name])
    assert text.split("Heaviest lines", 1)[1].split("train_gpt2.py", 2)[1].startswith(heaviest.removeprefix("train_gpt2.py"))
    assert reader.clicks == 0  # which line holds most?


def test_which_line_allocated_most(reader):
    shown = reader.browser.act(EXACT + """return [...document.querySelectorAll('.brief[aria-label^="Most bytes allocated"] .brief-row')]
      .map((row) => [row.querySelector(".brief-name").textContent, exact(row.title)]);""")
    report = json.loads(vramscope("report", RECORDING, "--json"))["top_churn"]
    assert shown == [[row["line"], row["bytes"]] for row in report if row["device"] == 0][:len(shown)] != []
    assert reader.clicks == 0  # which line allocated most?


def test_who_pins_this_segment(reader):
    reader.tab("space")
    told = reader.browser.act("""
      const canvas = document.querySelector("canvas.space");
      canvas.scrollIntoView({block: "center"});
      const box = canvas.getBoundingClientRect();
      const said = new Set();
      for (let x = 260; x < box.width; x += 3) {
        canvas.dispatchEvent(new PointerEvent("pointermove", {bubbles: true, clientX: box.left + x, clientY: box.top + 13}));
        if (document.querySelector(".tip.on")) said.add(document.querySelector(".tip").textContent);
      }
      return {said: [...said], table: document.querySelector(".tab-panel .data").textContent};""")
    assert any("train_gpt2.py:" in each for each in told["said"]), "the pointer tells whose a block of the strip is"
    assert any(re.match("hole: (fragmentation|cached|graph pool)", each) for each in told["said"]), "and what a hole is"
    assert "Kept alone" in told["table"] and "blocks." in told["table"]
    assert reader.clicks == 1  # who pins this segment?


def test_what_grew_between_these_instants(reader, page):
    start_ns = json.loads(re.search(r'"start_ns":"(\d+)"', page.read_text(encoding="utf-8")).group(1))
    reader.drag_timeline(0.80, 0.97)
    reader.tab("changes")
    window = re.search(r"zoom=(\d+)-(\d+)", reader.browser.run("location.hash"))
    before, after = (sums("category", f"@{start_ns + int(at)}") for at in window.groups())
    reader.browser.run("""[...document.querySelectorAll(".tab-panel [role=radio]")].find((each) => each.textContent === "Category").click()""")
    shown = reader.browser.run("""[...document.querySelectorAll(".tab-panel tbody tr")].map((row) => row.firstElementChild.textContent)""")
    grown = {name: after.get(name, 0) - before.get(name, 0) for name in {*before, *after}}
    changed = [name for name in sorted(grown, key=lambda name: -grown[name]) if grown[name]]
    assert grown[changed[0]] > 0 and shown[0] == changed[0]
    assert set(changed) <= set(shown)
    assert reader.clicks == 2  # what grew between these instants?


def test_what_layer_7_held_in_iteration_3(reader):
    reader.tab("iterations")
    reader.click("""[...document.querySelectorAll(".tab-panel tbody tr")].find((row) => row.firstElementChild.textContent === "3")""")
    reader.click("""[...document.querySelectorAll('[aria-label="Modules"] .rows .row')].find((row) => {
      const folded = /^\\[([0-9,-]+)\\]/.exec(row.querySelector(".label").textContent);
      return folded && folded[1].split(",").some((range) => range.split("-")[0] <= 7 && 7 <= range.split("-").at(-1)); })""")
    shown = reader.browser.act(EXACT + """return exact([...document.querySelectorAll('[aria-label="Modules"] .rows .row')]
      .find((row) => /^7(Block)?$/.test(row.querySelector(".label").textContent.replace(/ /g, ""))).title);""")
    at = json.loads(vramscope("iterations", RECORDING, "--json"))["iterations"]
    peak_ns = next(row["peak_ns"] for row in at if row["number"] == 3 and row["device"] == 0)
    layers = sums("module", f"@{peak_ns}")
    assert shown == sum(size for name, size in layers.items() if name == "blocks.7" or name.startswith("blocks.7."))
    assert reader.clicks == 3  # what did layer 7 hold in iteration 3?
