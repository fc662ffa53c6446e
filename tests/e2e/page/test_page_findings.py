# SPDX-License-Identifier: Apache-2.0
"""The phases of an engine and the advice on the page are those of `report --phases` and `report --advice`."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from browser import EXECUTABLE, Browser, page_data
from places import FAKE, ROOT, VRAMSCOPE

pytestmark = [
    pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine"),
    pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built"),
]
PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"


def report(*arguments: object) -> str:
    return subprocess.run([VRAMSCOPE, "report", *arguments], capture_output=True, text=True, check=True, timeout=60).stdout


def page_of(recording: Path, directory: Path) -> Path:
    page = directory / f"{recording.stem}.html"
    report(recording, "--html", page)
    return page


@pytest.fixture(scope="module")
def browser():
    with Browser(1280, 800) as started:
        yield started


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (FAKE / "libcuda.so.1").exists():
        pytest.skip("the stand-in driver is not built")
    directory = tmp_path_factory.mktemp("engine")
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "books"), "PYTHONPATH": str(PROGRAMS / "engine"),
    }  # fmt: skip
    command = [VRAMSCOPE, "run", "--no-report", "-o", directory / "engine.vram", "--", sys.executable, PROGRAMS / "engine" / "serve.py"]
    subprocess.run([*command, "--gpu-memory-utilization", "0.25"], env=environment, check=True, capture_output=True, timeout=120)
    return directory / "engine.vram"


# Titles have exact bytes.
TABLE = """
  const exact = (cell) => Number(/(-?[0-9,]+) bytes/.exec(cell.title)[1].replaceAll(",", ""));
  return [...document.querySelectorAll(".phases table")[NUMBER].rows].slice(1).map(({children: [name, , peak, left, by]}) =>
    [name.textContent, peak.title && exact(peak), exact(left), by.textContent]);
"""


def test_the_phases_are_those_of_the_report(engine: Path, browser: Browser, tmp_path: Path) -> None:
    page = page_of(engine, tmp_path)
    answer = json.loads(report(engine, "--phases", "--json"))
    data = page_data(page)
    assert data["phases"]["answer"] == answer and len(answer["budgets"]) == 1
    browser.open(page)
    for device, index in enumerate((0, -2)):  # the GPU and the host, by NVML's numbers
        phases = [entry for entry in answer["phases"] if entry["device"] == index]
        browser.run(f"location.hash = 'device={device}'")
        browser.settle()
        *rows, end = browser.act(TABLE.replace("NUMBER", "0"))
        assert [row[:3] for row in rows] == [[entry["name"], entry["peak_bytes"], entry["left_bytes"]] for entry in phases] != []
        assert end == ["at the end", "", sum(entry["left_bytes"] for entry in phases), ""]
        for (*_, by), entry in zip(rows, phases):
            assert [part.rsplit(" ", 2)[0] for part in by.split(", ") if part] == [each["category"] for each in entry["left"]]
        if index == 0:
            *graphs, end = browser.act(TABLE.replace("NUMBER", "1"))
            wanted = [[entry["name"], entry["peak_bytes"], entry["left_bytes"]] for entry in answer["graphs"]]
            assert [row[:3] for row in graphs] == wanted and len(wanted) == 3
            assert end == ["all", "", sum(entry["left_bytes"] for entry in answer["graphs"]), ""]
    lines = report(engine, "--phases").splitlines()
    notes = browser.run("[...document.querySelectorAll('.phases > p')].map((each) => each.textContent)")
    assert notes == lines[-2:] and notes[0].startswith("gpu_memory_utilization 0.25 allows") and "capture took" in notes[1]
    assert not browser.complaints


def test_a_click_on_a_phase_shows_its_stretch_of_time(engine: Path, browser: Browser, tmp_path: Path) -> None:
    page = page_of(engine, tmp_path)
    start_ns = int(page_data(page)["start_ns"])
    answer = json.loads(report(engine, "--phases", "--json"))
    phases = [entry for entry in [*answer["phases"], *answer["graphs"]] if entry["device"] == 0]
    browser.open(page)
    for row, entry in enumerate(phases):
        browser.run(f"document.querySelectorAll('.phases tbody tr')[{row}].querySelector('button').click()")
        browser.settle()
        begin, end, at = map(int, re.search(r"at=(\d+)&zoom=(\d+)-(\d+)|$", browser.run("location.hash")).group(2, 3, 1))
        assert at == entry["peak_ns"] - start_ns and begin <= at < end
        assert entry["count"] > 1 or end - begin == entry["duration_ns"], entry["name"]
        assert browser.run("[...document.querySelectorAll('.phases .chosen th')].map((each) => each.textContent)") == [
            each["name"] for each in phases if each["peak_ns"] == entry["peak_ns"]
        ]
    assert not browser.complaints


@pytest.mark.parametrize("width", [1280, 800, 390])
def test_the_phases_fit(engine: Path, browser: Browser, tmp_path: Path, width: int) -> None:
    page = page_of(engine, tmp_path)
    # A mark can have any name.
    text = page.read_text(encoding="utf-8")
    assert '"name":"capture"' in text
    page.write_text(text.replace('"name":"capture"', f'"name":"{"capture" * 20}"'), encoding="utf-8")
    browser.resize(width, 800, mobile=width < 600)
    browser.open(page)
    wide = browser.run("""[document.documentElement, ...document.querySelectorAll(".phases .data-scroll")].map((each) => Math.max(0, each.scrollWidth - each.clientWidth))""")
    browser.resize(1280, 800)
    assert wide == [0, 0]


@pytest.mark.parametrize("program", ["gpt2", "release"])
def test_the_advice_is_that_of_the_report(browser: Browser, tmp_path: Path, program: str) -> None:
    recording = GPT2
    if program != "gpt2":
        pytest.importorskip("torch")
        recording = tmp_path / "release.vram"
        command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", recording, "--", sys.executable, PROGRAMS / "advised.py", program]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    page = page_of(recording, tmp_path)
    answer = json.loads(report(recording, "--advice", "--json"))
    assert page_data(page)["savings"] == answer and answer["savings"]
    browser.open(page)
    # The first is in sight above the timeline; the others open.
    first = answer["savings"][0]
    shown = browser.run("""(() => { const each = document.querySelector("[aria-label=Advice]");
      return [each.innerText.trim().replaceAll("\\n", ""), each.nextElementSibling.getAttribute("aria-label"), each.getBoundingClientRect().bottom]; })()""")
    assert shown[0].startswith(f"To lower the peak: {first['change']}: saves ") and "why" not in shown[0]
    assert shown[1] == "Timeline" and shown[2] < 250
    browser.run("document.querySelector('[aria-label=Advice] summary').click()")
    told = browser.act("""const exact = (each) => Number(/([0-9,]+) bytes/.exec(each.title)[1].replaceAll(",", ""));
      return [[...document.querySelectorAll("[aria-label=Advice] li")].map((each) => [exact(each.firstChild), each.innerText]),
              [...document.querySelectorAll("[aria-label=Advice] p [title]")].map(exact)];""")
    assert [bytes_ for bytes_, _ in told[0]] == [each["saves_bytes"] for each in answer["savings"]]
    for (_, text), each in zip(told[0], answer["savings"]):
        lines = [line for line in text.split("\n") if line]
        sure = "" if each["confidence"] == "exact" else each["confidence"] + " "
        assert lines[0].startswith(f"{each['change']}: saves {sure}")
        assert lines[0].endswith({"allocated": "iB", "reserved": "iB of reserved memory", "device": "iB of the device"}[each["lowers"]])
        said = {"why": each["why"], "if": each["condition"], "most of it": each["place"]}
        assert lines[1:] == [f"{name}: {value}" for name, value in said.items() if value]
    assert told[1] == [answer["allocated_peak_bytes"], answer["together_bytes"]]
    assert len(told[0]) > 1 and (program != "gpt2" or {each["lowers"] for each in answer["savings"]} == {"allocated", "reserved"})
    assert not browser.complaints


def test_without_phases_or_advice_there_is_neither(engine: Path, browser: Browser, tmp_path: Path) -> None:
    assert json.loads(report(engine, "--advice", "--json"))["savings"] == []
    for recording, part in ((engine, "savings"), (GPT2, "phases")):
        page = page_of(recording, tmp_path)
        assert page_data(page)[part] is None
        browser.open(page)
        assert browser.run(f"document.querySelector('[aria-label={'Advice' if part == 'savings' else 'Phases'}]')") is None
