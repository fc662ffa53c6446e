#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the summaries of many ranks from one real summary, with planted facts that questions must find.

    tests/fleet/generate.py SUMMARY.json DIR [--ranks 10000] [--seed 1]

Eight ranks a host and file. The mesh is dp x pp x tp, with tp inside a host. Pipeline stages differ by design, so that
only ranks of one stage are peers. Every rank has noise of 0.02 % in its layers.
"""

from __future__ import annotations

import argparse
import copy
import json
import pathlib
import random
from typing import Any, Dict, List

MIB = 1 << 20
PER_HOST = 8
STAGES = 4
ITERATIONS = 60


def stage_of(rank: int, ranks: int) -> int:
    return rank // PER_HOST % STAGES if ranks >= STAGES * PER_HOST else 0


class Plan:
    """Which ranks are different, and how."""

    def __init__(self, ranks: int, seed: int) -> None:
        chosen = random.Random(seed).sample(range(ranks), 5)
        self.heavy, self.late, self.light, self.growing, self.failing = chosen
        self.outliers = {
            self.heavy: {"layer": "blocks.3.expand", "category": "activation", "bytes": 700 * MIB, "since": 0},
            self.late: {"layer": "blocks.5.attention.qkv", "category": "optimizer state", "bytes": 512 * MIB, "since": 40},
            self.light: {"layer": "GPT", "category": "activation", "bytes": -400 * MIB, "since": 0},
        }
        self.growth = {"bytes": MIB // 2, "place": "train.py:88 in log", "layer": "history", "category": "activation"}
        self.failure = {"iteration": ITERATIONS - 5, "category": "temporary", "bytes": 60 * MIB, "place": "train.py:41 in step"}


def ranks_of(base: Dict[str, Any], ranks: int, seed: int) -> List[Dict[str, Any]]:
    """A summary a host."""
    plan, noise = Plan(ranks, seed), random.Random(seed + 1)
    template = base["ranks"][0]
    host_summaries = []
    for first in range(0, ranks, PER_HOST):
        summary = {key: [] if isinstance(value, list) else value for key, value in base.items()}
        summary.update(run="pretrain", host=f"node{first // PER_HOST:04d}", finished=True)
        for rank in range(first, min(first + PER_HOST, ranks)):
            add_rank(summary, base, template, rank, ranks, plan, noise)
        host_summaries.append(summary)
    return host_summaries


def add_rank(summary: Dict[str, Any], base: Dict[str, Any], template: Dict[str, Any], rank: int, ranks: int, plan: Plan, noise: random.Random) -> None:
    stage = stage_of(rank, ranks)
    key = {"rank": rank, "host": summary["host"], "pid": 1000 + rank % PER_HOST}
    parts = []
    for part in base["parts"]:
        scale = (1 + 0.1 * stage) * (1 + noise.uniform(-2e-4, 2e-4)) if part["layer"] else 1
        parts.append({**part, **key, "bytes": int(part["bytes"] * scale)})
    normal = sum(part["bytes"] for part in parts)
    planted = plan.outliers.get(rank)
    if planted:
        change = planted["bytes"]
        own = next((p for p in parts if p["layer"] == planted["layer"] and p["category"] == planted["category"]), None)
        if own is None:
            own = {**key, "category": planted["category"], "layer": planted["layer"], "bytes": 0}
            parts.append(own)
        assert own["bytes"] + change >= 0, own
        own["bytes"] += change
    if rank == plan.failing:
        parts.append({**key, "category": plan.failure["category"], "layer": "", "bytes": plan.failure["bytes"]})
    peak = sum(part["bytes"] for part in parts)
    growth = plan.growth["bytes"] if rank == plan.growing else 0
    last = plan.failure["iteration"] if rank == plan.failing else ITERATIONS
    begin = template["begin_wall_ns"] + noise.randrange(10**9)
    summary["ranks"].append(
        {
            **template,
            **key,
            "device": rank % PER_HOST,
            "device_uuid": f"GPU-{rank:08x}",
            "mesh": f"dp={rank // PER_HOST // STAGES},pp={stage},tp={rank % PER_HOST}",
            "peak_bytes": peak + growth * ITERATIONS,
            "begin_wall_ns": begin,
            "iterations": last,
            "peak_iteration": last - 1,
            "failures": int(rank == plan.failing),
            "exit_status": 1 if rank == plan.failing else 0,
        }
    )
    summary["parts"] += parts
    if growth:
        next(part for part in parts if part["category"] == "activation")["bytes"] += growth * ITERATIONS
    for iteration in range(last):
        high = peak if not planted or iteration >= planted["since"] else normal
        end = high // 3 + growth * iteration + noise.randrange(4096)
        row = {**key, "iteration": iteration, "end_wall_ns": begin + (iteration + 1) * 10**9, "peak_bytes": high + growth * iteration}
        row.update(end_bytes=end, peak_allocated_bytes=high, end_allocated_bytes=end, peak_reserved_bytes=high)
        summary["iterations"].append(row)
    if growth:
        row = {"pid": key["pid"], **{field: plan.growth[field] for field in ("place", "layer", "category")}}
        figures = {"bytes_per_iteration": float(growth), "first_bytes": 0, "last_bytes": growth * ITERATIONS, "steady": True}
        summary["growing"].append({"rank": rank, "host": summary["host"], "device": rank % PER_HOST, **row, **figures})
    if rank == plan.failing:
        held: Dict[str, int] = {}
        for part in parts:
            held[part["category"]] = held.get(part["category"], 0) + part["bytes"]
        for category, held_bytes in held.items():
            asked = {"wall_ns": begin + last * 10**9, "iteration": last, "requested_bytes": 64 * MIB, "place": plan.failure["place"]}
            summary["failures"].append({**key, **asked, "category": category, "held_bytes": held_bytes})
    for setting in base["settings"]:
        summary["settings"].append({**copy.copy(setting), **key})


def write(base: Dict[str, Any], folder: pathlib.Path, ranks: int, seed: int) -> Plan:
    """Writes the summaries; returns what was planted."""
    folder.mkdir(parents=True, exist_ok=True)
    for summary in ranks_of(base, ranks, seed):
        (folder / f"pretrain-{summary['host']}.summary.json").write_text(json.dumps(summary), encoding="utf-8")
    return Plan(ranks, seed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("SUMMARY", type=pathlib.Path)
    parser.add_argument("DIR", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    plan = write(json.loads(options.SUMMARY.read_text(encoding="utf-8")), options.DIR, options.ranks, options.seed)
    print(json.dumps(vars(plan), indent=1))


if __name__ == "__main__":
    main()
