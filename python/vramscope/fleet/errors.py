# SPDX-License-Identifier: Apache-2.0
"""Errors that the commands print as one line."""

from __future__ import annotations

import importlib
from typing import Any


class FleetError(Exception):
    """What is wrong, where, and what to do: one line."""


def need(module: str, package: str, what_for: str) -> Any:
    """Imports a library that is an extra of the package."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise FleetError(f"{what_for} needs {package}: python -m pip install {package}") from error
