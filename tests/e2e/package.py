# SPDX-License-Identifier: Apache-2.0
"""The Python package of this tree over the binaries of the build, without installing it."""
from __future__ import annotations

import os
import shutil
from pathlib import Path

from places import BUILD, ROOT


def make(directory: Path) -> dict[str, str]:
    """Lays the package out below `directory`; the environment in which Python finds it."""
    shutil.copytree(
        ROOT / "python" / "vramscope", directory / "vramscope", ignore=shutil.ignore_patterns("__pycache__")
    )
    (directory / "vramscope" / "_native").symlink_to(BUILD)
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    return {**environment, "PYTHONPATH": str(directory), "LC_ALL": "C.UTF-8"}
