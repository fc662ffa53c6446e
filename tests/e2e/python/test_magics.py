# SPDX-License-Identifier: Apache-2.0
"""The magics of `%load_ext vramscope`, and the notebook in examples/, run without a kernel."""
from __future__ import annotations

import json
import subprocess
import sys

import package
import pytest
from places import ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")
pytest.importorskip("IPython")

RUNNER = ROOT / "tests" / "e2e" / "programs" / "run_notebook.py"


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("package")
    return {**package.make(folder), "IPYTHONDIR": str(folder / "ipython")}


def show(environment, notebook, directory):
    """What each cell of a notebook showed: (all text, all HTML)."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", RUNNER, notebook],
        env=environment, cwd=directory, capture_output=True, text=True, timeout=120,
    )
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    cells = json.loads(done.stdout)
    kinds = ("text/plain", "text/html")
    return [tuple("\n".join(part.get(kind, "") for part in cell) for kind in kinds) for cell in cells]


@pytest.fixture()
def cells(environment, tmp_path):
    """Runs cells; those that raise UsageError print it."""

    def run(*sources):
        notebook = tmp_path / "cells.ipynb"
        made = [{"cell_type": "code", "source": source} for source in sources]
        notebook.write_text(json.dumps({"cells": made}))
        return show(environment, notebook, tmp_path)

    return run


def test_mlrun_and_vram_where_torch_was_there_before(cells, tmp_path):
    shown = cells(
        "import torch\n%load_ext vramscope\ndef func(n, text=''):\n    a = torch.empty(n)\n    return a.sum()",
        "%mlrun -g cpu -f func -c growth -c hits func(250, 'a  b')",
        "%%mlrun -g cpu -f func -f Thing.method\n"
        "class Thing:\n    def method(self):\n        return func(1000)\n"
        "def func(n):\n    b = torch.empty(n)\n    return b\nresult = Thing().method()",
        "%%mlrun -g cpu -D -c gross\nx = torch.empty(500)\nprint(result.shape)",
        "profiler = %mlrun -q -r -g cpu -f func func(250)\nprint(profiler.display(columns=['gross']))",
        "profiler = %mlrun -g cpu -r -f func func(1000)\nprint(profiler.display(func, columns=['gross']))",
        f"%mlrun -q -g cpu -T {tmp_path}/profile.txt -f func func(1000)",
        f"print(open('{tmp_path}/profile.txt').read())",
        "%%vram -g cpu\nimport time\nkept = torch.empty(1000)\nlarge = torch.empty(100_000)\n"
        "time.sleep(0.02)\ndel large",
        "print(kept.shape)",
        "%%vram -g cuda\nother = torch.empty(250)",
        "%%vram -q\nother = torch.empty(250)",
        "usage = get_ipython().run_cell_magic('vram', '-q -r', 'more = torch.empty(250)')\nusage.devices[0].peak",
    )
    texts = [text for text, _ in shown]
    assert "1000.00B       1000.00B 1000.00B    1" in texts[1] and "a = torch.empty(n)" in texts[1], texts[1]
    assert "## func" in texts[2] and "## Thing.method" in texts[2] and "b = torch.empty(n)" in texts[2], texts[2]
    assert "1.95K    1  x = torch.empty(500)" in texts[3] and "torch.Size([1000])" in texts[3], texts[3]
    assert texts[4].count("##") == 1 and "1000.00B" in texts[4], "-r returns it, and -q keeps it from being shown"
    assert "3.91K    5      b = torch.empty(n)" in texts[5], texts[5]
    assert texts[6].strip() == "" and "3.91K" in texts[7]
    assert "cpu: allocated 394.53K in 2 blocks, peak" in texts[8], texts[8]
    assert "left behind +3.91K" in texts[8] and "<svg " in shown[8][1] and "<polyline" in shown[8][1]
    assert texts[9].strip() == "torch.Size([1000])"
    assert "cpu: allocated 1000.00B in 1 block, peak" in texts[10], "no GPU here: " + texts[10]
    assert texts[11].strip() == "" and shown[11][1] == "", "-q is quiet"
    assert texts[12].splitlines()[0] == "1000", texts[12]


def test_a_statement_is_left_as_it_was_typed(cells, tmp_path):
    """What looks like an option in it, or like a variable of IPython's; and what it did before it failed is shown."""
    shown = cells(
        "import torch\n%load_ext vramscope\ndef func(n):\n    a = torch.empty(abs(n))\n    return a[n]",
        "%mlrun -g cpu -f func print(func( -1), {'a' : 1}, '-q  $func')",
        f"try:\n    %mlrun -g cpu -T \"{tmp_path}/a profile.txt\" -f func func(1000)\nexcept IndexError: print('it')",
        f"print(open('{tmp_path}/a profile.txt').read())",
        "try:\n    %mlrun -q -g cpu -f func func(1000)\nexcept IndexError: print('it')",
        "%mlrun -g cpu torch.empty(250)",
    )
    texts = [text for text, _ in shown]
    assert "{'a': 1} -q  $func" in texts[1] and "4.00B          4.00B    4" in texts[1], texts[1]
    for text in texts[2:4]:
        assert "3.91K          3.91K    4      a = torch.empty(abs(n))" in text, text
    assert "it" in texts[2].splitlines() and "linear-gradient" in shown[2][1]
    assert texts[4].strip() == "it"
    assert "## statement" in texts[5] and "1000.00B       1000.00B    1  torch.empty(250)" in texts[5], texts[5]


def test_what_is_wrong_is_one_line(environment, tmp_path):
    code = """
import torch
from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_line_magic("load_ext", "vramscope.memlab")
for line in ("-f nothing nothing()", "-g cpu -c x print()", "-g tpu print()", "-g cpu",
             "-T /nowhere/file print('ran')"):
    try: shell.run_line_magic("mlrun", line)
    except UsageError as error: print(str(error))
    else: raise AssertionError(line)
import sys
sys.modules["torch"] = None
try: shell.run_cell_magic("vram", "", "1")
except UsageError as error: print(str(error))
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    assert done.returncode == 0, done.stderr
    missing, column, device, statement, file, torch = done.stdout.splitlines()
    assert missing == "Could not find function 'nothing'. NameError: name 'nothing' is not defined"
    assert column.startswith("vramscope: 'x' is not a column. ")
    assert device == "vramscope: 'tpu' is not a device: use a GPU's number, 'cuda:0' or 'cpu'"
    assert statement == "%mlrun needs a statement: %mlrun -f FUNC STATEMENT"
    assert torch == ("vramscope: %%vram needs PyTorch, which this Python does not have "
                     "(import of torch halted; None in sys.modules); use the Python that has torch")
    assert file == "vramscope: /nowhere/file cannot be written: No such file or directory", "and nothing ran"


def test_the_notebook(environment, tmp_path):
    shown = show(environment, ROOT / "examples" / "laboratory.ipynb", tmp_path)
    text, page = ("\n".join(part) for part in zip(*shown))
    assert "left behind +530.08K" in shown[2][0], "Adam's state: two of 66.03K parameters' size and four steps"
    for part in ("## step", "## scratch", "## Sequential.forward", "every_second", "Adam.0.weight.exp_avg",
                 "came  +3 Tensor (128, 128)", "global 'kept' of __main__", "bytes are away"):
        assert part in text, part
    assert page.count("linear-gradient") > 20 and "<svg " in page
