# SPDX-License-Identifier: Apache-2.0
"""Which cell of a notebook code is of: IPython compiles each under a file name that says nothing to anybody.

The recording under way gets a file PID.cells beside the live file (docs/FORMAT.md): for each cell its number, the name
that it was compiled under, and its text. Reports then say ``In[5]:3`` and show the line.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Optional

from . import _files, _probe


class _Watch:
    """What the recording under way has been told."""

    def __init__(self) -> None:
        self.shell: Any = None
        self.directory: Optional[str] = None
        self.told: Dict[str, int] = {}  # number by file name
        # How far IPython has counted when it says that a cell begins: to its number, newer ones to the next.
        self.ahead = 0


_watch = _Watch()


def watch() -> None:
    """From here on the recording under way, and any later one, hears of cells. Nothing outside of IPython."""
    ipython = sys.modules.get("IPython")
    try:
        shell = ipython.get_ipython() if ipython is not None else None
        if shell is None:
            return
        if _watch.shell is not shell:
            _watch.shell = shell
            shell.events.register("pre_run_cell", _before_cell)
            shell.events.register("post_run_cell", _after_cell)
        numbers = list(shell.compile._filename_map.values())
        if numbers:  # the last is of the cell that runs
            _watch.ahead = shell.execution_count - numbers[-1]
        _after_cell()
    except Exception:  # another IPython than those we know: names stay as they are
        return


def _before_cell(info: Any = None) -> None:
    # A cell can run for hours, and its process be killed. What it is compiled under is certain only afterwards:
    # ipykernel makes the name of what was typed, IPython of what its magics made of that, and ends that with a newline.
    try:
        if info.silent or not info.store_history:
            return
        number = _watch.shell.execution_count - _watch.ahead
        text = info.raw_cell if info.raw_cell.endswith("\n") else info.raw_cell + "\n"
        _tell({_watch.shell.compile.get_code_name(info.raw_cell, text, number): number}, {number: text})
    except Exception:
        return


def _after_cell(_result: Any = None) -> None:
    try:
        known = dict(_watch.shell.compile._filename_map)
        _tell(known, {})
    except Exception:
        return


def _text_of(file: str) -> str:
    entry = sys.modules["linecache"].cache.get(file) if "linecache" in sys.modules else None
    return "".join(entry[2]) if entry is not None and len(entry) > 2 else ""


def _tell(known: Dict[str, int], texts: Dict[int, str]) -> None:
    probe = _probe.current
    directory = probe.session_path() if probe is not None else None
    if directory is None:
        return
    if directory != _watch.directory:
        _watch.directory, _watch.told = directory, {}
    new = {file: number for file, number in known.items() if _watch.told.get(file) != number}
    if not new:
        return
    with _files.open_text(os.path.join(directory, f"{os.getpid()}.cells"), append=True, newline="\n") as out:
        if os.fstat(out.fileno()).st_size == 0:
            out.write("vramscope cells 1\n")
        for file, number in new.items():
            text = texts.get(number) or _text_of(file)
            if "\n" not in file:
                out.write(f"{number} {len(text.encode('utf-8', 'replace'))} {file}\n{text}\n")
    _watch.told.update(new)
