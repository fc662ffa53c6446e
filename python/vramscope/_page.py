# SPDX-License-Identifier: Apache-2.0
"""Shows the page of `vramscope open` in a notebook."""

from __future__ import annotations

import html
import os
import subprocess
import sys
from typing import List, Union

from . import _files, _paths, _session

_Path = Union[str, "os.PathLike[str]"]
_HEIGHT = 720  # CSS pixels


class Page:
    """The page of a recording. It is stored in the notebook's file and needs no server."""

    def __init__(self, path: _Path, height: int = _HEIGHT) -> None:
        self._path = os.path.abspath(os.fspath(path))
        self._height = int(height)
        self._text = _page_of(self._path)

    @property
    def html(self) -> str:
        """The whole page as HTML that works offline."""
        return self._text

    def __repr__(self) -> str:
        return f"<vramscope page of {self._path}: {len(self._text)} characters>"

    def _repr_html_(self) -> str:
        # A separate document: its scripts cannot access the notebook.
        return (
            f'<iframe title="vramscope: {html.escape(os.path.basename(self._path))}" sandbox="allow-scripts '
            f'allow-downloads" style="width:100%;height:{self._height}px;border:0" '
            f'srcdoc="{html.escape(self._text)}"></iframe>'
        )


def show(path: _Path, height: int = _HEIGHT) -> None:
    """Shows the page of a recording: in a notebook below the cell, otherwise in the browser.

    `path` is a finished recording, or the live directory of a running one (`live_directory`). `height` is in CSS
    pixels. The page shows the recording as it is now and works offline. A RuntimeError explains why a page could
    not be made.

    ::

        vramscope.show("train.vram")
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is not None:
        from IPython.display import display

        display(Page(path, height))
        return
    _say(["open", os.fspath(path)])


def _page_of(path: str) -> str:
    folder = _files.temporary_directory()
    try:
        page = folder / "page.html"
        _say(["report", path, "--top", "1", "--html", os.fspath(page)], quiet=True)
        return page.read_text(encoding="utf-8")
    finally:
        _files.remove_directory(folder)


def _say(words: List[str], quiet: bool = False) -> None:
    """Runs the vramscope program; prints its messages."""
    done = subprocess.run(
        [os.fspath(_paths.program()), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=_session.without_probe(),
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip() or f"vramscope {words[0]}: {done.returncode}")
    if not quiet:
        print(done.stdout, end="")
