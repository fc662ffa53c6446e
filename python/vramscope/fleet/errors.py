# SPDX-License-Identifier: Apache-2.0
"""Errors that the commands print as one line, and the import of libraries."""

from __future__ import annotations

import importlib
import sys
from typing import Any


class FleetError(Exception):
    """What is wrong, where, and what to do: one line."""


def need(module: str, package: str, what_for: str) -> Any:
    """Imports a library that is an extra of the package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FleetError(f"{what_for} needs {package}: python -m pip install {package}") from error


class _NoPandas:
    """An import hook under which pandas is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


def without_pandas() -> None:
    """Hides pandas in a process of our own: pyarrow would import it, which takes 1 s."""
    if "pandas" not in sys.modules:
        sys.meta_path.insert(0, _NoPandas())
