# SPDX-License-Identifier: Apache-2.0
"""Maps code to the notebook cell that it came from: IPython compiles each cell under a meaningless file name.

The current recording gets a file PID.cells beside the live file (docs/FORMAT.md), with the number, the compiled file
name and the text of each cell. Reports then show ``In[5]:3`` and the line.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Dict, Optional

from . import _files, _probe


class _Watch:
    """The cells that the current recording already contains."""

    def __init__(self) -> None:
        self.shell: Any = None
        self.directory: Optional[str] = None
        self.told: Dict[str, int] = {}  # number by file name
        # When a cell begins, old versions of IPython have counted to its number, newer ones to the next.
        self.ahead = 0


_watch = _Watch()


def watch() -> None:
    """From now on adds cells to the current and any later recording. Does nothing outside IPython."""
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
        if numbers:  # the last one belongs to the running cell
            _watch.ahead = shell.execution_count - numbers[-1]
        _after_cell()
    except Exception:  # an unknown version of IPython: keep its file names
        return


def _before_cell(info: Any = None) -> None:
    # Write all candidates now: a cell can run for hours and its process can be killed, but the compiled name is certain
    # only afterwards. ipykernel derives it from the typed text, IPython from the transformed text with a final newline.
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
