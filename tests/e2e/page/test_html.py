# SPDX-License-Identifier: Apache-2.0
"""The HTML page in a real browser: it renders, reacts, and needs no network."""
from __future__ import annotations

import atexit
import functools
import html
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import EXECUTABLE, Browser, BrowserError
from places import ROOT, VRAMSCOPE

sys.path.insert(0, str(ROOT / "viewer" / "dev"))
import make_sample  # noqa: E402

needs_browser = pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine")
needs_program = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


@functools.cache
def browser() -> Browser:
    """One for all tests here: starting it is what takes long."""
    started = Browser()
    atexit.register(started.close)
    return started


def browse(page: Path, fragment: str = "", width: int = 1280) -> str:
    """The page's document after it has drawn itself."""
    shown = browser()
    shown.resize(width, 1600, mobile=width < 600)
    shown.open(page, fragment)
    assert not shown.complaints
    return shown.run("document.documentElement.outerHTML")


def text_of(document: str, cls: str) -> list[str]:
    """Texts of the elements whose first class is `cls` and that hold no element of the same name."""
    found = re.findall(rf'<(\w+)[^>]*class="{cls}[ "][^>]*>(.*?)</\1>', document, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", " ", inner)).strip() for _, inner in found]


def act(page: Path, script: str, fragment: str = "", width: int = 1280) -> object:
    """What `script` returns when it runs in the rendered page; events that it sends reach the page."""
    browse(page, fragment, width)
    value = browser().act(f"""
      const at = (element, type, x, y, more) => element.dispatchEvent(new PointerEvent(type, {{
        bubbles: true, clientX: x, clientY: y, button: 0, pointerId: 1, ...more}}));
      const frame = () => new Promise((go) => requestAnimationFrame(() => setTimeout(go, 20)));
      // The parts, and the frame in which what the last of them changed is painted.
      const pause = async () => {{ do await frame(); while (document.querySelector('[aria-busy="true"]')); await frame(); }};
      Element.prototype.setPointerCapture = () => {{}};
      const $ = (selector) => document.querySelector(selector);
      {script}""")
    assert not browser().complaints
    return value


def begins(data: dict) -> list[int]:
    return list(itertools.accumulate(data["allocations"]["begin"]))


def live_at(data: dict, at: int) -> list[tuple[int, dict]]:
    """Bytes and site of each allocation of the first device that is live then."""
    rows, sites = data["allocations"], data["sites"]
    live = []
    for begin, duration, size, number in zip(begins(data), rows["duration"], rows["bytes"], rows["site"]):
        site = {key: column[number] for key, column in sites.items()}
        if begin <= at and (duration < 0 or at < begin + duration) and data["accounts"]["device"][site["account"]] == 0:
            live.append((size, site))
    return live


@pytest.fixture(scope="module")
def sample(tmp_path_factory) -> tuple[dict, Path]:
    data = make_sample.make(5000)
    page = tmp_path_factory.mktemp("page") / "sample.html"
    page.write_text(make_sample.page(data), encoding="utf-8")
    return data, page


@needs_browser
def test_the_page_renders_every_part(sample):
    data, page = sample
    document = browse(page)
    assert data["title"] in document and data["command"] in document
    assert [text.split()[0] for text in text_of(document, "device-name")] == ["GPU", "Host"]
    for part in ("Timeline", "Summary", "Icicle", "Modules", "Ledger", "Top allocations"):
        assert f'<section class="card" aria-label="{part}">' in document
    peak = data["report"]["devices"][0]
    shown = text_of(document, "instant")[0]
    assert "at its peak" in shown and "4.66 GiB" in shown
    assert abs(peak["ledger_bytes"] / 2**30 - 4.66) < 0.01
    names = set(text_of(document, "label"))
    assert {"PyTorch", "allocated", "driver-owned", "h", "(no module)"} <= names
    assert {"activation", "optimizer state", "driver"} <= set(text_of(document, "brief-name"))
    assert "Checks of the ledger: 4 of 4 hold." in document


@needs_browser
def test_the_head_says_what_it_is_of(tmp_path):
    data = make_sample.make(100)
    page = tmp_path / "page.html"
    data["finished"] = False
    data["devices"][1].update(name="host", total_bytes=None)  # in the form of a recording
    page.write_text(make_sample.page(data), encoding="utf-8")
    document = browse(page)
    assert "not finished" in text_of(document, "facts")[0]
    assert re.sub(r"\s+", " ", text_of(document, "device-name")[1]) == "Host pinned and registered memory"


@needs_browser
def test_only_rows_in_sight_have_elements(tmp_path):
    data = make_sample.make(60_000)
    # Every allocation is never freed and has a row of its own: tens of thousands of them.
    allocations, sites = data["allocations"], data["sites"]
    count = len(allocations["site"])
    first_path, first_site = len(data["paths"]), len(sites["path"])
    data["paths"] += [["PyTorch", f"level {i}"] for i in range(count)]
    for key, column in sites.items():
        column += range(first_path, first_path + count) if key == "path" else [column[site] for site in allocations["site"]]
    allocations["site"] = list(range(first_site, first_site + count))
    allocations["duration"] = [-1] * count
    page = tmp_path / "many.html"
    page.write_text(make_sample.page(data), encoding="utf-8")
    document = browse(page, f"at={data['duration_ns']}")
    assert count > 50_000
    assert 0 < document.count('class="top-item') < 60
    assert document.count('class="row"') < 200


@needs_browser
def test_an_instant_of_the_fragment_is_shown(sample):
    data, page = sample
    at = begins(data)[100]
    document = browse(page, f"at={at}&q=mlp")
    assert f"{at / 1e6:,.1f} ms" in text_of(document, "instant")[0]
    assert "<mark>" in document
    assert "Back to peak" in document


@needs_browser
def test_a_click_chooses_an_instant_and_back_returns(sample):
    _, page = sample
    texts = act(page, """
      const box = $('.timeline').getBoundingClientRect();
      const told = [$('.instant').textContent, $('.chip.action').className];
      at($('.timeline'), 'pointerdown', box.left + 400, box.top + 100);
      at($('.timeline'), 'pointerup', box.left + 400, box.top + 100);
      await pause();
      told.push($('.instant').textContent, $('.chip.action').className, location.hash);
      $('.chip.action').click();
      await pause();
      return [...told, $('.instant').textContent];
    """)
    peak, hidden, instant, shown, fragment, again = texts
    assert "peak" in peak and "gone" in hidden
    assert "peak" not in instant and "gone" not in shown
    assert fragment.startswith("#at=")
    assert again == peak


@needs_browser
def test_the_line_of_the_instant_can_be_dragged(sample):
    data, page = sample
    fragment = act(page, """
      const canvas = $('.timeline');
      const box = canvas.getBoundingClientRect();
      const x = (share) => box.left + 74 + share * (box.width - 84);
      at(canvas, 'pointerdown', x(0.5), box.top + 100);
      at(canvas, 'pointermove', x(0.6), box.top + 100);
      at(canvas, 'pointerup', x(0.6), box.top + 100);
      await pause();
      return location.hash;
    """, f"at={data['duration_ns'] // 2}")
    assert "zoom" not in fragment
    assert int(re.search(r"at=(\d+)", fragment).group(1)) == pytest.approx(0.6 * data["duration_ns"], rel=0.01)


@needs_browser
def test_keys_choose_an_instant(sample):
    data, page = sample
    told = act(page, """
      const press = (key) => $('.timeline').dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
      const told = [];
      for (const key of [']', ']', '[', 'ArrowLeft', 'Escape']) { press(key); await pause(); told.push(location.hash); }
      return told;
    """, f"at={data['iterations'][3][2] + 5}")
    begins = [begin for _, _, begin, _ in data["iterations"]]
    assert told[:3] == [f"#at={begins[at]}" for at in (4, 5, 4)]
    assert begins[3] < int(told[3][4:]) < begins[4]
    assert told[4] == ""


@needs_browser
def test_drag_and_wheel_zoom_and_double_click_resets(sample):
    data, page = sample
    hashes = act(page, """
      const canvas = $('.timeline');
      const box = canvas.getBoundingClientRect();
      const told = [];
      at(canvas, 'pointerdown', box.left + 300, box.top + 100);
      at(canvas, 'pointermove', box.left + 500, box.top + 100);
      at(canvas, 'pointerup', box.left + 500, box.top + 100);
      await pause();
      told.push(location.hash);
      canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: -200, clientX: box.left + 500, cancelable: true, bubbles: true}));
      await pause();
      told.push(location.hash);
      at(canvas, 'pointerdown', box.left + 500, box.top + 100, {shiftKey: true});
      at(canvas, 'pointermove', box.left + 450, box.top + 100, {shiftKey: true});
      at(canvas, 'pointerup', box.left + 450, box.top + 100, {shiftKey: true});
      await pause();
      told.push(location.hash);
      canvas.dispatchEvent(new MouseEvent('dblclick', {bubbles: true}));
      await pause();
      return [...told, location.hash];
    """)
    windows = [tuple(map(int, re.search(r"zoom=(\d+)-(\d+)", text).groups())) for text in hashes[:3]]
    assert windows[0][1] - windows[0][0] == pytest.approx(data["duration_ns"] * 200 / 1100, rel=0.1)
    assert windows[1][1] - windows[1][0] < windows[0][1] - windows[0][0]
    assert windows[2][0] > windows[1][0]
    assert windows[2][1] - windows[2][0] == pytest.approx(windows[1][1] - windows[1][0], abs=2)
    assert "zoom" not in hashes[3]


@needs_browser
def test_hovering_tells_time_and_bytes(sample):
    _, page = sample
    tip = act(page, """
      const box = $('.timeline').getBoundingClientRect();
      at($('.timeline'), 'pointermove', box.left + 700, box.top + 100);
      await pause();
      return $('.tip').textContent;
    """)
    for word in ("s", "GiB", "parameter", "optimizer state", "NVML"):
        assert word in tip


@needs_browser
def test_keys_walk_a_table_and_choose_a_branch(sample):
    _, page = sample
    told = act(page, """
      const press = (key) => document.activeElement.dispatchEvent(
        new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
      const level = () => document.activeElement.querySelector('.label').textContent;
      const told = [];
      $('[aria-label="Modules"] .rows .row').focus();
      for (const key of ['ArrowDown', 'ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowDown', 'ArrowRight', 'ArrowDown']) press(key);
      told.push(level());
      press('ArrowLeft');
      told.push(level(), document.activeElement.getAttribute('aria-expanded'));
      press('ArrowLeft');
      told.push(document.activeElement.getAttribute('aria-expanded'));
      press('Enter');
      await pause();
      return [...told, location.hash, $('.filters').textContent, $('.top-scroll .what').textContent];
    """)
    assert told[0].startswith("c_")
    assert told[1:4] == ["mlp", "true", "false"]
    assert told[4].endswith("mod=h.0.mlp") and "h.0.mlp" in told[5] and told[6].startswith("h.0.mlp")


@needs_browser
def test_tables_are_sorted_by_the_column_chosen(sample):
    _, page = sample
    told = act(page, """
      const names = () => [...document.querySelectorAll('[aria-label="Modules"] .row[aria-level="3"] .label')]
        .map((label) => label.textContent).filter((label) => /^[0-9]+$/.test(label));
      document.querySelector('[aria-label="Modules"] .row[aria-level="2"]').click();
      const told = [names()];
      $('[aria-label="Modules"] .head-cell.count').click();
      told.push(names());
      $('[aria-label="Modules"] .head-cell.name').click();
      return [...told, names(), $('[aria-label="Modules"] .head-cell.name').getAttribute('aria-pressed')];
    """)
    # Where they hold the same, in natural order: 2 before 10.
    assert told[0] == told[2] == [str(i) for i in range(11)]
    assert set(told[0]) == set(told[1]) and told[3] == "true"


@needs_browser
def test_a_colour_filters_the_whole_page_and_clears(sample):
    _, page = sample
    told = act(page, """
      const shown = () => [$('.matching')?.textContent ?? '', $('.readout').textContent,
        $('[aria-label="Ledger"] .rows .cell.bytes').textContent, $('[aria-label="Top allocations"] .hint').textContent];
      const tip = async () => {
        const box = $('.timeline').getBoundingClientRect();
        at($('.timeline'), 'pointermove', box.left + 700, box.top + 100);
        await pause();
        return $('.tip').textContent;
      };
      const chip = (name) => [...document.querySelectorAll('.legend-line button')].find((b) => b.textContent === name);
      const told = [shown()];
      chip('gradient').click();
      chip('parameter').click();
      await pause();
      told.push(shown(), await tip(), location.hash, chip('parameter').getAttribute('aria-pressed'),
        chip('activation').className);
      $('.clear').click();
      await pause();
      return [...told, shown(), location.hash, await tip()];
    """)
    every, chosen, hint, fragment, pressed, other, cleared, bare, hint_of_all = told
    assert every == cleared and bare == ""
    assert "4.66 GiB" in every[1] and "474.5 MiB" in chosen[0] and "474.5 MiB" in chosen[1]
    assert "474.5" in chosen[2] and "474.5 MiB" in chosen[3]
    assert "parameter" in hint and "activation" not in hint and "NVML" not in hint
    assert "activation" in hint_of_all and "NVML" in hint_of_all
    assert fragment.endswith("cat=gradient%7Cparameter") and pressed == "true" and "dim" in other


@needs_browser
def test_filters_of_the_fragment_narrow_every_view(sample):
    data, page = sample
    document = browse(page, "mod=h.3&min=1048576&q=3.mlp&cat=activation|parameter")
    for chip in ("activation", "parameter", "module h.3", "text 3.mlp", "size ≥ 1.0 MiB"):
        assert any(chip in re.sub(r"\s+", " ", text) for text in text_of(document, "chip")), chip
    at = data["report"]["devices"][0]["at"]["time_ns"] - int(data["start_ns"])
    live = sum(
        size for size, site in live_at(data, at)
        if size >= 1 << 20 and data["names"][site["module"]].startswith("h.3.mlp")
        and data["categories"][site["category"]] in ("activation", "parameter"))
    assert live > 0
    shown = f"{live / 2**20:,.1f} MiB"
    assert shown in text_of(document, "matching")[0]
    assert shown in text_of(document, "readout")[0]


@needs_browser
def test_the_icicle_folds_by_every_order_and_zooms(sample):
    _, page = sample
    told = act(page, """
      const buttons = [...document.querySelectorAll('[aria-label="Icicle"] .segment-button')];
      const told = [];
      for (const button of [...buttons.slice(1), buttons[0]]) {
        button.click();
        await pause();
        told.push([location.hash, $('.readout').textContent]);
      }
      const canvas = $('.icicle');
      canvas.focus();
      const press = (key) => canvas.dispatchEvent(new KeyboardEvent('keydown', {key, bubbles: true, cancelable: true}));
      for (const key of ['ArrowDown', 'ArrowDown', 'Enter']) { press(key); await pause(); }
      const crumbs = () => [...document.querySelectorAll('.crumb')].map((crumb) => crumb.textContent);
      told.push(crumbs(), location.hash);
      $('.crumbs .quiet').click();
      await pause();
      told.push(location.hash, crumbs().length);
      return told;
    """)
    assert [fragment for fragment, _ in told[:4]] == ["#by=stack", "#by=category", "#by=owner", ""]
    # One sum, whatever the order.
    assert len({sum_ for _, sum_ in told[:4]}) == 1
    crumbs, zoomed, filtered, left = told[4:]
    assert crumbs[0].startswith("all") and crumbs[1] == "h" and len(crumbs) == 3
    assert zoomed == f"#in=h%7C{crumbs[2]}"
    assert filtered == f"#mod=h.{crumbs[2]}" and left == 1


@needs_browser
def test_the_page_fits_a_narrow_window(sample):
    _, page = sample
    told = act(page, "return [innerWidth, document.documentElement.scrollWidth, $('.hint.for-touch').clientHeight > 0];", width=390)
    assert told[:2] == [390, 390]


@needs_browser
def test_a_row_unfolds_its_stack(sample):
    _, page = sample
    told = act(page, """
      $('.top-item:nth-child(2) .top-row').click();
      await pause();
      return [...document.querySelectorAll('.frames .frame-name')].map((e) => e.textContent);
    """)
    assert told[0] == "GPT.forward" and told[-1] == "<module>"


@needs_browser
def test_the_device_can_be_changed(sample):
    _, page = sample
    told = act(page, """
      document.querySelectorAll('.device')[1].click();
      await pause();
      return [$('.instant').textContent, document.querySelectorAll('.device')[1].getAttribute('aria-checked')];
    """)
    assert told[0].startswith("Host at its peak") and "96.0 MiB" in told[0]
    assert told[1] == "true"


@needs_browser
def test_a_recording_without_devices_says_so(tmp_path, sample):
    data = json.loads(json.dumps(sample[0]))
    data.update(devices=[], timelines=[], marks=[])
    data["report"].update(devices=[], rows=[], processes=[], residuals=[])
    data["accounts"]["device"] = [-1] * len(data["accounts"]["device"])
    page = tmp_path / "empty.html"
    page.write_text(make_sample.page(data), encoding="utf-8")
    assert "contains no device memory" in browse(page)


@needs_browser
def test_an_error_in_the_page_is_seen_by_these_tests(tmp_path, sample):
    data = json.loads(json.dumps(sample[0]))
    del data["timelines"]
    page = tmp_path / "broken.html"
    page.write_text(make_sample.page(data), encoding="utf-8")
    with pytest.raises(BrowserError, match="did not become ready"):
        browse(page)


def test_the_page_asks_nothing_of_the_network(sample):
    text = sample[1].read_text(encoding="utf-8")
    outside = re.sub(r'<script type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"""https?://|@import|(src|href)=["'](?!data:)""", outside)


@needs_program
@needs_browser
def test_a_real_recording_makes_a_page(tmp_path):
    pytest.importorskip("torch")
    program = tmp_path / "train.py"
    program.write_text(
        "import torch\n"
        "def step(model):\n"
        "    return model(torch.randn(256, 64)).sum()\n"
        "model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(8)])\n"
        "for _ in range(5):\n"
        "    step(model).backward()\n")
    page = tmp_path / "page.html"
    subprocess.run([VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "t.vram", "--html", page, "--",
                    sys.executable, program], check=True, timeout=300, capture_output=True)
    document = browse(page)
    assert "train.py" in document
    assert text_of(document, "instant")[0].startswith("at its peak")
    data = json.loads(re.search(r'id="vramscope-data">(.*?)</script>', page.read_text(), re.DOTALL).group(1))
    assert len(data["allocations"]["bytes"]) > 20
    functions = {data["strings"][frame[0]] for frame in data["frames"]}
    assert "step" in functions
    assert {"0", "7", "0.weight", "7.bias"} <= set(data["names"])
    assert data["module_types"]["0"] == "Linear"
    assert {"activation", "parameter"} <= set(text_of(document, "brief-name"))
    assert "[0-6] Linear x7" in [re.sub(r"\s+", " ", label) for label in text_of(document, "label")]
    # The timeline and the allocations tell the same story at the peak.
    device = data["report"]["devices"][0]
    live = live_at(data, device["at"]["time_ns"] - int(data["start_ns"]))
    assert sum(size for size, _ in live) == device["ledger_bytes"]
    timeline = data["timelines"][0]
    peak = max(zip(*timeline["peak"]), key=sum)
    assert sum(peak) == device["ledger_bytes"]
    by_category = dict.fromkeys(timeline["groups"], 0)
    for size, site in live:
        by_category[data["categories"][site["category"]]] += size
    assert by_category == dict(zip(timeline["groups"], peak))
