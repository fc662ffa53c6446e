# SPDX-License-Identifier: Apache-2.0
"""The version of this package: the VERSION file of the source tree, or the installed metadata."""

from __future__ import annotations

import pathlib
from importlib import metadata


def _find() -> str:
    try:
        return metadata.version("vramscope")
    except metadata.PackageNotFoundError:
        source = pathlib.Path(__file__).resolve().parents[2] / "VERSION"
        return source.read_text(encoding="ascii").strip() if source.is_file() else "0+unknown"


__version__ = _find()
