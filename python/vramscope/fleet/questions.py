# SPDX-License-Identifier: Apache-2.0
"""The questions of ``vramscope fleet``: one SQL file each in share/fleet, for DuckDB and Spark."""

from __future__ import annotations

import re
from typing import Dict, List

from .. import _paths
from . import schema
from .errors import FleetError

#: The questions, in the order of the help, and what each answers.
QUESTIONS: Dict[str, str] = {
    "heaviest": "Which ranks have the highest peaks?",
    "outliers": "Which ranks differ from their peers, where and since when?",
    "imbalance": "How far are peaks apart, by host or mesh axis (--by)?",
    "growth": "Which ranks grow from iteration to iteration, and where?",
    "failures": "Which rank ran out of memory first, and what did it hold?",
    "versions": "Which versions and settings are not the same on all ranks?",
}

#: What --by takes.
BY: List[str] = ["host", "node", "pod", "device", "device_name", "local_rank", "group_rank", *(f"mesh.{axis}" for axis in schema.AXES)]


def text_of(question: str, top: int, by: str = "host") -> str:
    """The SQL of a question."""
    if by not in BY:
        raise FleetError(f"--by {by}: no column of ranks; it takes {', '.join(BY)}")
    text = _paths.fleet_queries().joinpath(f"{question}.sql").read_text(encoding="utf-8")
    return text.replace("{top}", str(top)).replace("{by}", by.replace(".", "_"))


def title_of(column: str) -> str:
    """`peak_bytes` as the head of a column: the unit is in the cells."""
    return re.sub(r"_(bytes|ns)$", "", column).replace("_", " ")
