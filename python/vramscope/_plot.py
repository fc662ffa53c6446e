# SPDX-License-Identifier: Apache-2.0
"""Figures of recordings for notebooks and files, drawn by `vramscope plot`."""

from __future__ import annotations

import os
import subprocess
from typing import List, Optional, Sequence, Union

from . import _files, _paths

_Path = Union[str, "os.PathLike[str]"]


class PlotError(RuntimeError):
    """A figure could not be drawn; the text is the error of `vramscope plot`."""


class Picture:
    """A figure. A notebook shows it; `save` writes it."""

    def __init__(self, words: Sequence[str]) -> None:
        self._words = list(words)
        folder = _files.temporary_directory()
        try:
            self.save(folder / "picture.svg")
            self.svg = (folder / "picture.svg").read_text(encoding="utf-8")
        finally:
            _files.remove_directory(folder)

    def save(self, path: _Path) -> None:
        """Writes the figure. The suffix of `path` chooses SVG, PNG or PDF."""
        command = [os.fspath(_paths.program()), "plot", *self._words, "-o", os.fspath(path)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise PlotError(done.stderr.strip().removeprefix("vramscope: ") or f"vramscope plot: {done.returncode}")

    def _repr_svg_(self) -> str:
        return self.svg


def draw(
    files: Sequence[_Path],
    kind: str,
    by: Optional[str],
    at: Optional[str],
    title: str,
    unit: str,
    omit_below: float,
    overlay: bool,
    subtract_baseline: bool,
    keywords: Sequence[_Path],
    device: str,
) -> Picture:
    """Draws a figure with these options of `vramscope plot`."""
    words: List[str] = [os.fspath(file) for file in files] + ["--kind", kind]
    for name, value in (("--by", by), ("--at", at), ("--title", title), ("--unit", unit), ("--device", device)):
        if value:
            words += [name, value]
    if omit_below:
        words += ["--omit-below", repr(omit_below)]
    for name, wanted in (("--overlay", overlay), ("--subtract-baseline", subtract_baseline)):
        words += [name] if wanted else []
    for dictionary in keywords:
        words += ["--keywords", os.fspath(dictionary)]
    return Picture(words)
