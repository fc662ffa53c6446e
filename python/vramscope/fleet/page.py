# SPDX-License-Identifier: Apache-2.0
"""The page of a fleet: a heat map of ranks, and each rank beside the median of its peers."""

from __future__ import annotations

import json
from typing import Any, Dict, List

from .. import _paths
from . import engines, questions

# Layers that the page shows of a rank: those that are farthest from the median of its peers.
_LAYERS = 12

_RANKS = """
SELECT rank, host, pid, device, mesh, peers, peak_bytes, total_bytes, peak_iteration, failures
FROM ranks ORDER BY rank, host, pid
"""

_CATEGORIES = """
SELECT rank, host, pid, category, CAST(sum(bytes) AS BIGINT) AS bytes FROM parts GROUP BY rank, host, pid, category
"""

def data_of(engine: engines.Engine) -> Dict[str, Any]:
    """What the page needs, as columns and dictionaries."""
    ranks = engine.query(_RANKS)
    at = {(row[0], row[1], row[2]): number for number, row in enumerate(ranks.rows)}
    columns: Dict[str, List[Any]] = {name: [row[i] for row in ranks.rows] for i, name in enumerate(ranks.columns)}
    names: Dict[str, int] = {}
    categories: List[Dict[int, int]] = [{} for _ in ranks.rows]
    for rank, host, pid, category, size in engine.query(_CATEGORIES).rows:
        categories[at[rank, host, pid]][names.setdefault(category, len(names))] = size
    layers: List[List[List[int]]] = [[] for _ in ranks.rows]
    keys: Dict[str, int] = {}
    for rank, host, pid, category, layer, size, usual in engine.query(questions.text_of("layers", _LAYERS)).rows:
        key = keys.setdefault(f"{layer} · {category}", len(keys))
        layers[at[rank, host, pid]].append([key, size, usual])
    growth = [0] * len(ranks.rows)
    answer = engine.query(questions.text_of("growth", max(1, len(ranks.rows))))
    where = {name: i for i, name in enumerate(answer.columns)}
    numbers = {(row[0], row[1]): number for number, row in enumerate(ranks.rows)}
    for row in answer.rows:
        growth[numbers[row[where["rank"]], row[where["host"]]]] = row[where["per_iteration_bytes"]]
    return {
        "run": engine.source.run,
        "ranks": columns,
        "growth": growth,
        "categories": list(names),
        "bytes": [[own.get(number, 0) for number in range(len(names))] for own in categories],
        "keys": list(keys),
        "layers": layers,
    }


def text_of(engine: engines.Engine) -> str:
    """The page as HTML. It needs no network and no other file."""
    template = _paths.fleet_queries().joinpath("page.html").read_text(encoding="utf-8")
    data = json.dumps(data_of(engine), separators=(",", ":"), ensure_ascii=True).replace("<", "\\u003c")
    return template.replace("{{DATA}}", data)
