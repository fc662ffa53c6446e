# SPDX-License-Identifier: Apache-2.0
"""DDP and FSDP2 under torchrun are one report that balances for each rank, and the heavier one is named first."""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import package
import pytest
from places import PROBE, VRAMSCOPE

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not PROBE.exists(), reason="the probe is not built")
PROGRAM = Path(__file__).parents[1] / "programs" / "ranks.py"
HEAVY = 1
ACTIVATION = 128 * 512 * 4  # of blocks.2.up
KEPT = 24 * ACTIVATION


def report(*words: str | Path) -> dict:
    done = subprocess.run([VRAMSCOPE, "report", "--json", *words], capture_output=True, text=True, check=True, timeout=60)
    return json.loads(done.stdout)


@pytest.fixture(scope="module", params=[("ddp", 4), ("fsdp", 2)], ids=["4 ranks of DDP", "2 ranks of FSDP2"])
def run(request, tmp_path_factory):
    how, ranks = request.param
    folder = tmp_path_factory.mktemp(how)
    trace = folder / "ranks.vram"
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", ranks]
    under = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", *torchrun, PROGRAM, how, "--heavy", HEAVY]
    done = subprocess.run(
        [str(word) for word in under], env=package.make(folder), capture_output=True, text=True, timeout=300
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    said = sorted((json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")), key=lambda of: of["rank"])
    assert [of["rank"] for of in said] == list(range(ranks))
    return trace, said


def test_the_heavier_rank_is_named_first_with_its_layer(run):
    trace, said = run
    ranks = report("--ranks", trace)
    assert ranks["uneven"] and ranks["heaviest"] == f"rank {HEAVY}" and not ranks["missing"], ranks
    assert (ranks["excess"][0]["layer"], ranks["excess"][0]["category"]) == ("blocks.2", "activation"), ranks["excess"]
    # Ranks that share a device are compared at their own peaks, which can be within another block's forward.
    assert abs(ranks["excess"][0]["bytes"] - KEPT) <= ACTIVATION, ranks["excess"]
    lines = subprocess.run([VRAMSCOPE, "report", "--ranks", trace], capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[1].startswith(f"  rank {HEAVY} holds ") and "MiB of activation in blocks.2" in lines[1], lines
    # And the recording's own report says so, too.
    alone = subprocess.run([VRAMSCOPE, "report", trace], capture_output=True, text=True, check=True).stdout
    assert f"Ranks: {len(said)}; rank {HEAVY} holds " in alone, alone


def test_each_rank_balances_and_together_they_are_the_whole(run):
    trace, said = run
    ranks = report("--ranks", trace)
    # Data loader workers and torchrun itself have no row.
    assert [(row["name"], row["pid"], row["on"]) for row in ranks["ranks"]] == [
        (f"rank {of['rank']}", of["pid"], "cpu") for of in said
    ]
    for row in ranks["ranks"]:
        assert row["bytes"] == sum(row["categories"].values())
    assert ranks["bytes"] == sum(row["bytes"] for row in ranks["ranks"]) == sum(ranks["categories"].values())
    kept = {row["path"][0]: row["bytes"] for row in report(
        trace, "--at", "mark:trained", "--by", "rank", "--where", "module=blocks.2", "--where", "category=activation"
    )["rows"]}  # fmt: skip
    assert kept == {str(HEAVY): KEPT}
    whole = report(trace, "--at", "mark:trained", "--by", "rank,category")
    assert not whole["losses"] and all(invariant["holds"] for invariant in whole["invariants"]), whole["losses"]
    of_rank: dict[tuple[str, str], int] = {}
    for row in whole["rows"]:
        of_rank[tuple(row["path"])] = of_rank.get(tuple(row["path"]), 0) + row["bytes"]
    for of in said:
        for category in ("parameter", "optimizer state"):
            assert of_rank[str(of["rank"]), category] == of[category], (of, of_rank)
    assert sum(of_rank.values()) == sum(device["ledger_bytes"] for device in whole["devices"])
