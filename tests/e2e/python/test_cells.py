# SPDX-License-Identifier: Apache-2.0
"""Code of a notebook's cell is In[5]:3, not a file that IPython made up; a real IPython runs the cells."""
from __future__ import annotations

import json
import os
import subprocess
import sys

import package
import pytest
from places import BUILD, MIB, VRAMSCOPE

pytest.importorskip("torch")
pytest.importorskip("IPython")
pytestmark = pytest.mark.skipif(not (BUILD / "lib" / "libvramscope_probe.so").exists(), reason="the probe is not built")

NOTEBOOK = """
import sys
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
def cell(text):
    shell.run_cell(text, store_history=True).raise_error()
cell("import torch\\nimport vramscope")
BEGIN
cell("a = 1\\n\\nkept = torch.zeros(1 << 20)")
cell("def more():\\n    return torch.zeros(1 << 19)\\n")
cell("%time other = more()")
END
"""


def lines_of(trace):
    done = subprocess.run([VRAMSCOPE, "report", trace, "--json", "--by", "line", "--at", "end"], capture_output=True, check=True)
    return {row["path"][-1]: row["bytes"] for row in json.loads(done.stdout)["rows"]}


@pytest.mark.parametrize("how", ["start", "run"])
def test_lines_of_cells(tmp_path, how):
    trace = tmp_path / "notebook.vram"
    begin = f"cell('vramscope.start(\"{trace}\", cpu=True)')" if how == "start" else "cell('1 + 1')"
    text = NOTEBOOK.replace("BEGIN", begin).replace("END", "vramscope = sys.modules['vramscope']; vramscope.mark('end')")
    environment = {**package.make(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    under = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--"] if how == "run" else []
    done = subprocess.run(
        [*map(str, under), sys.executable, "-c", text], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = lines_of(trace)
    assert rows["In[3]:3 in <module>"] == 4 * MIB, rows
    assert rows["In[4]:2 in more"] == 2 * MIB, rows
    text = subprocess.run([VRAMSCOPE, "report", trace], capture_output=True, text=True, check=True).stdout
    assert "kept = torch.zeros(1 << 20)" in text and "ipython-input" not in text, text


def test_what_was_killed_in_a_cell(tmp_path):
    trace = tmp_path / "notebook.vram"
    text = NOTEBOOK.replace("BEGIN", "cell('1 + 1')").replace(
        "END", "cell('import os, signal\\nlast = torch.zeros(1 << 18)\\nos.kill(os.getpid(), signal.SIGKILL)')"
    )
    environment = {**package.make(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython")}
    under = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", sys.executable, "-c", text]
    done = subprocess.run([str(word) for word in under], env=environment, cwd=tmp_path, capture_output=True, timeout=120)
    assert done.returncode != 0
    rows = lines_of(trace)
    assert rows["In[6]:2 in <module>"] == MIB, rows
    assert not [path for path in os.listdir(tmp_path) if path.endswith(".vram.d")]
