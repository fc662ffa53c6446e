# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own viewer, MemoryViz.js, draws our snapshots. Nobody packages it: VRAMSCOPE_MEMORY_VIZ is a folder with
MemoryViz.js and what it imports beside it (pytorch/pytorch, torch/utils/viz), and d3.js, the d3 that it names."""
from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from browser import EXECUTABLE, Browser
from places import ROOT, VRAMSCOPE

VIEWER = Path(os.environ.get("VRAMSCOPE_MEMORY_VIZ", "/nonexistent"))
GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"

pytestmark = [
    pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built"),
    pytest.mark.skipif(EXECUTABLE is None, reason="no chromium on this machine"),
    pytest.mark.skipif(not (VIEWER / "MemoryViz.js").exists(), reason="VRAMSCOPE_MEMORY_VIZ names no folder with MemoryViz.js"),
]

PAGE = """<!DOCTYPE html><meta charset="utf-8">
<script src="d3.js"></script>
<script type="importmap">{importmap}</script>
<body></body>
<script type="module">
import {{add_local_files}} from "./MemoryViz.js";
add_local_files([{{name: "ours", base64: "{snapshot}"}}], "Active Memory Timeline");
document.documentElement.dataset.ready = "1";
</script>
"""


def vramscope(*arguments: str | Path) -> bytes:
    return subprocess.run([VRAMSCOPE, *arguments], capture_output=True, check=True, timeout=60).stdout


@pytest.fixture
def page(tmp_path) -> Path:
    """The viewer with our snapshot, and d3 from beside it for what it would load from a network."""
    for script in VIEWER.glob("*.js"):
        shutil.copy(script, tmp_path)
    urls = re.findall(r'from\s+"(https://[^"]+)"', (tmp_path / "MemoryViz.js").read_text())
    (tmp_path / "d3.mjs").write_text(
        "export const {select, format, axisLeft, scaleLinear, zoom, zoomIdentity, brushX} = globalThis.d3;\n")
    snapshot = base64.b64encode(vramscope("export", GPT2, "--to", "torch-snapshot")).decode()
    importmap = json.dumps({"imports": {url: "./d3.mjs" for url in urls}})
    (tmp_path / "page.html").write_text(PAGE.format(importmap=importmap, snapshot=snapshot))
    return tmp_path / "page.html"


def choose(browser: Browser, number: int, option: str) -> None:
    """An option of the page's selects: the file, the view, the GPU."""
    browser.run(f"""(() => {{
        const select = document.querySelectorAll("select")[{number}];
        select.value = {json.dumps(option)};
        select.dispatchEvent(new Event("change"));
    }})()""")
    browser.settle()


#: Of the view that is in sight.
SEEN = '[...document.querySelectorAll("body > div")].filter((div) => div.checkVisibility()).at(-1)'


def test_memory_viz_draws_our_recording(page):
    pictures = os.environ.get("VRAMSCOPE_PICTURES")
    ledger = json.loads(vramscope("report", GPT2, "--json", "--at", "end"))["devices"]
    with Browser(1400, 1000, flags=("--allow-file-access-from-files",)) as browser:
        browser.open(page)
        views = browser.run('[...document.querySelectorAll("select")[1].options].map((option) => option.text)')
        assert {"Active Memory Timeline", "Allocator State History", "Active Cached Segment Timeline"} <= set(views)
        devices = browser.run('[...document.querySelectorAll("select")[2].options].map((option) => option.text)')
        data = len([device for device in ledger if device["ledger_bytes"]])
        assert len(devices) >= data > 0
        for view in views:
            choose(browser, 1, view)
            assert browser.complaints == [], view
            shapes = browser.run(f'{SEEN}.querySelectorAll("polygon, rect").length')
            text = browser.run(f"{SEEN}.textContent")
            assert shapes > 100 or view == "Allocator Settings", (view, shapes)
            if view == "Allocator State History":
                # What it has worked out of segments and blocks is the ledger, to the byte.
                reserved = re.search(r"\((\d+) bytes\) reserved\)", text)
                assert reserved and int(reserved[1]) == ledger[0]["ledger_bytes"], text[-2000:]
            if view == "Active Memory Timeline":
                assert "activation" in text and "parameter" in text, "its legend has our categories"
            if pictures:
                browser.screenshot(Path(pictures) / (re.sub(r"\W+", "-", view) + ".png"))
