# SPDX-License-Identifier: Apache-2.0
"""Paths of the program and the libraries of this installation."""

from __future__ import annotations

import pathlib

_NATIVE = pathlib.Path(__file__).resolve().parent / "_native"
# In a source tree the build directory is two folders up.
_BUILD = pathlib.Path(__file__).resolve().parents[2] / "build"


def _find(*parts: str) -> pathlib.Path:
    for root in (_NATIVE, _BUILD):
        path = root.joinpath(*parts)
        if path.is_file():
            return path
    raise RuntimeError(
        f"vramscope: {parts[-1]} is missing from this installation ({_NATIVE}); "
        "reinstall with 'pip install --force-reinstall vramscope' or build the source tree"
    )


def program() -> pathlib.Path:
    """The `vramscope` command-line program."""
    return _find("bin", "vramscope")


def probe() -> pathlib.Path:
    """The library that records inside a program."""
    return _find("lib", "libvramscope_probe.so")


def reader() -> pathlib.Path:
    """The library that reads recordings."""
    return _find("lib", "libvramscope_read.so")


def fleet_queries() -> pathlib.Path:
    """The folder with the SQL of `vramscope fleet`."""
    source = _BUILD.parent / "share" / "fleet"
    return source if source.is_dir() else _NATIVE / "share" / "fleet"
