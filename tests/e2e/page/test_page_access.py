# SPDX-License-Identifier: Apache-2.0
"""The page for everybody: names on what can be pressed, contrast, the way of the keyboard, paper, a telephone."""
from __future__ import annotations

import html
import json
import sys
import time

import pytest
from browser import EXECUTABLE, SHIFT, Browser
from places import ROOT

sys.path.insert(0, str(ROOT / "viewer" / "dev"))
import make_sample  # noqa: E402

pytestmark = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")

TABS = ("lifetimes", "space", "changes", "iterations", "leaks", "devices")


@pytest.fixture(scope="module")
def browser():
    with Browser(1280, 1000) as started:
        yield started


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    page = tmp_path_factory.mktemp("page") / "sample.html"
    page.write_text(make_sample.page(make_sample.make(2000)), encoding="utf-8")
    return page


@pytest.mark.parametrize("tab", TABS)
def test_what_can_be_pressed_has_a_name(browser, page, tab):
    browser.resize(1280, 1000)
    browser.open(page, f"tab={tab}&base=0")
    nameless = browser.run("""[...document.querySelectorAll("button, a, input, select, canvas, [role=radio], [role=tab]")]
      .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.title || e.getAttribute("aria-hidden") || e.closest("label")?.textContent.trim()))
      .map((e) => e.outerHTML)""")
    assert nameless == []
    regions = browser.run("""[...document.querySelectorAll("section, [role=region], [role=toolbar], [role=radiogroup], [role=tablist]")]
      .filter((e) => e.tagName !== "SECTION" || e.className).filter((e) => !e.getAttribute("aria-label")).map((e) => e.outerHTML.slice(0, 80))""")
    assert regions == []
    assert browser.run("document.documentElement.lang") == "en"
    assert browser.run("""new Set([...document.querySelectorAll("[id]")].map((e) => e.id)).size === document.querySelectorAll("[id]").length""")


# WCAG 1.4.3: 4.5 to 1 for text of this size; each text against the nearest ground that is painted.
CONTRAST = """
  const channels = (text) => text.match(/[0-9.]+/g).map(Number);
  const linear = (v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
  const groundOf = (element) => {
    for (let at = element; at; at = at.parentElement) {
      const ground = channels(getComputedStyle(at).backgroundColor);
      if (ground.length === 3 || ground[3] === 1) return ground;
    }
    return [255, 255, 255];
  };
  const low = [];
  for (const element of document.querySelectorAll("#page *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.disabled || !element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
    const [a, b] = [luminance(channels(getComputedStyle(element).color)), luminance(groundOf(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push(`${element.className} ${element.textContent.trim().slice(0, 30)}: ${ratio.toFixed(2)}`);
  }
  return [...new Set(low)];
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_contrast(browser, page, scheme):
    browser.resize(1280, 1000)
    browser.media(prefers_color_scheme=scheme)
    browser.open(page, "tab=iterations")
    low = browser.act(CONTRAST)
    browser.media()
    assert low == []


def test_the_way_of_the_keyboard_is_short(browser, page):
    browser.resize(1280, 1000)
    browser.open(page)
    where = """(() => { const e = document.activeElement; return [e.textContent.slice(0, 40), e.closest(".card")?.getAttribute("aria-label") ?? ""]; })()"""
    browser.key("Tab")
    assert browser.run(where)[0] == "Skip to the ledger"
    browser.key("Enter")
    assert browser.run(where)[1] == "Ledger"
    browser.open(page)
    stops = []
    while len(stops) < 30 and (not stops or stops[-1] != "Ledger"):
        browser.key("Tab")
        stops.append(browser.run(where)[1])
        focus = browser.run("""(() => { const s = getComputedStyle(document.activeElement); return s.outlineStyle + s.outlineWidth + s.borderColor; })()""")
        assert "none" not in focus.split("px")[0] or "rgb" in focus, "what has the focus shows it"
    # The link that skips is one of them, and the two devices are another.
    assert browser.run("document.querySelectorAll('.device').length") == 2
    assert stops.index("Modules") < 9 and stops.index("Ledger") < 9, stops
    before = browser.run("document.activeElement.outerHTML")
    browser.key("Tab", SHIFT)
    assert browser.run("document.activeElement.outerHTML") != before, "the keyboard is caught nowhere"


def test_the_sizes_are_reached_and_chosen_by_arrows(browser, page):
    browser.resize(1280, 1000)
    browser.open(page)
    browser.run("document.querySelector('.controls .copy').focus()")
    for _ in range(2):
        browser.key("ArrowRight")
    assert browser.run("document.activeElement.className") == "size"
    browser.key("ArrowDown")
    browser.settle()
    assert "min=4096" in browser.run("location.hash")
    browser.key("ArrowLeft")
    assert browser.run("document.activeElement.getAttribute('aria-label')").startswith("Help")


def test_lists_and_heads_of_tables_are_walked_by_arrows(browser, page):
    browser.resize(1280, 1000)
    browser.open(page)
    where = "document.activeElement.textContent.trim()"
    browser.run("document.querySelector('[aria-label=Modules] .rows .row').focus()")
    browser.key("ArrowUp")
    assert browser.run("document.activeElement.className").startswith("head-cell name")
    browser.key("ArrowRight")
    browser.key("Enter")
    assert browser.run("document.activeElement.getAttribute('aria-pressed')") == "true"
    browser.key("ArrowDown")
    assert browser.run("document.activeElement.className") == "row"
    # All lists of the summary are one stop: the arrows go from one to the next, and past what is hidden.
    browser.run("document.querySelector('[aria-label=Summary] .brief-row').focus()")
    walked = []
    while len(walked) < 80 and browser.run(where) not in walked:
        walked.append(browser.run(where))
        browser.key("ArrowDown")
    shown = browser.run("""[...document.querySelectorAll('[aria-label=Summary] .briefs button')].filter((e) => e.checkVisibility()).map((e) => e.textContent.trim())""")
    assert walked == shown


def test_the_sheet_of_keys_opens_and_closes(browser, page):
    browser.open(page)
    browser.key("?")
    assert browser.run("document.querySelector('dialog.help').open")
    browser.key("Escape")
    assert not browser.run("document.querySelector('dialog.help').open")


def test_without_scripts_a_line_says_what_is_needed(browser, page):
    browser.resize(1280, 1000)
    browser.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        browser.call("Page.navigate", url=f"file://{page}")
        deadline = time.monotonic() + 30
        # The browser still evaluates expressions of the test, but not the page's scripts.
        while not (said := browser.run("document.readyState === 'complete' && document.body.innerText")) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        browser.call("Emulation.setScriptExecutionDisabled", value=False)
    assert said.startswith("This page needs JavaScript, which is switched off.")


def test_it_opens_where_a_mail_shows_it(browser, page, tmp_path):
    """In a frame that has no address of its own and may do nothing but run scripts."""
    mail = tmp_path / "mail.html"
    mail.write_text(f'<iframe sandbox="allow-scripts" width="1200" height="900" srcdoc="{html.escape(page.read_text(encoding="utf-8"))}"></iframe>'
                    "<script>addEventListener('message', (event) => { window.told = event.data; })</script>", encoding="utf-8")
    # The frame says what it has drawn, once a colour was chosen in it.
    inside = mail.read_text(encoding="utf-8").replace("&lt;/body&gt;", html.escape("""<script>setTimeout(() => {
      document.querySelector('[data-category=activation]').click();
      setTimeout(() => parent.postMessage([document.querySelector('h1').textContent, document.querySelector('.matching').textContent,
        document.documentElement.dataset.error ?? ''], '*'), 500); }, 500)</script></body>"""))
    mail.write_text(inside, encoding="utf-8")
    browser.open(mail, ready="window.told")
    title, matching, error = browser.run("window.told")
    assert title.startswith("train_gpt2") and matching.endswith(" shown") and error == "" and not browser.complaints


@pytest.mark.parametrize("tab", TABS)
def test_a_telephone_shows_all_of_it(browser, page, tab):
    browser.resize(390, 844, mobile=True)
    browser.open(page, f"tab={tab}&base=0")
    told = browser.run("[innerWidth, document.documentElement.scrollWidth]")
    browser.resize(1280, 1000)
    assert told == [390, 390]


def test_the_controls_fit_with_filters_at_another_instant(browser, page):
    browser.resize(1041, 1000)
    browser.open(page, "cat=activation&q=h.&at=3000000000&min=4096")
    wide = browser.run("document.documentElement.scrollWidth")
    browser.resize(1280, 1000)
    assert wide <= 1041


def test_a_telephone_shows_what_changed(browser, page):
    browser.resize(390, 844, mobile=True)
    browser.open(page, "tab=changes&base=0")
    wide, shown, heads = browser.act("""const area = document.querySelector(".data-scroll");
      return [area.scrollWidth, area.clientWidth, [...area.querySelectorAll("thead th")].filter((e) => e.checkVisibility()).map((e) => e.textContent)];""")
    browser.resize(1280, 1000)
    assert heads == ["Name", "After", "Change"] and wide == shown


def test_paper_is_light_and_nothing_is_cut(browser, page):
    browser.resize(1280, 1000)
    browser.media("print", prefers_color_scheme="dark")
    browser.open(page)
    told = browser.act("""
      const cut = [...document.querySelectorAll(".rows, .icicle-scroll, .top-scroll")].filter((e) => e.scrollHeight > e.clientHeight + 1).map((e) => e.className);
      const shown = [...document.querySelectorAll(".search, .copy, .only, .quiet")].filter((e) => e.checkVisibility()).map((e) => e.className);
      return [getComputedStyle(document.documentElement).backgroundColor, getComputedStyle(document.querySelector(".segment")).printColorAdjust, cut, shown];
    """)
    browser.media()
    assert told == ["rgb(255, 255, 255)", "exact", [], []]


# The layout of the page: the order of the parts and the margins, which do not depend on fonts. They never overlap.
LAYOUT = """[...document.querySelectorAll("#page > header, #page > section, #page > footer")].map((part) => {
  const box = part.getBoundingClientRect();
  return [part.getAttribute("aria-label") ?? part.className, box.left, document.documentElement.clientWidth - box.right, box.top, box.bottom]; })"""


@pytest.mark.parametrize("kind", ["telephone", "paper"])
def test_the_parts_stand_where_they_stood(browser, page, kind):
    stored = json.loads((ROOT / "tests" / "data" / "page_layout.json").read_text(encoding="utf-8"))[kind]
    browser.resize(*((390, 844) if kind == "telephone" else (794, 1123)), mobile=kind == "telephone")
    if kind == "paper":
        browser.media("print")
    browser.open(page)
    parts = browser.run(LAYOUT)
    browser.media()
    browser.resize(1280, 1000)
    assert [name for name, *_ in parts] == [name for name, *_ in stored]
    for (name, left, right, *_), (_, stored_left, stored_right) in zip(parts, stored):
        assert abs(left - stored_left) <= 2, name
        # On paper a window's scroll bar may take of the width, by the browser's version.
        assert abs(right - stored_right) <= (20 if kind == "paper" else 2), name
    for above, below in zip(parts, parts[1:]):
        assert above[3] < above[4] <= below[3] + 1, (above, below)
