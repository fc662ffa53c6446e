# SPDX-License-Identifier: Apache-2.0
"""Reads what a recording says of itself, through the same commands as everybody."""

import json
import subprocess


class Recording:
    def __init__(self, program, trace, environment):
        self._program = program
        self.trace = trace
        self._environment = environment

    def report(self, *arguments):
        """`vramscope report --json` of this recording."""
        done = subprocess.run(
            [self._program, "report", self.trace, "--json", *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(f"report {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
        return json.loads(done.stdout)

    def residuals(self):
        """Per GPU, how the ledger compares with NVML over all samples."""
        report = self.report()
        gpus = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
        return [{**entry, "index": entry["device"]} for entry in report["residuals"] if entry["device"] in gpus]


def owners(rows):
    """Bytes by the first level of the rows' paths: who asked for them."""
    totals = {}
    for row in rows:
        totals[row["path"][0]] = totals.get(row["path"][0], 0) + row["bytes"]
    return totals


def torch_totals(report):
    """What the report says of PyTorch's caching allocator: bytes in live blocks, bytes in segments."""
    gpus = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
    rows = [row for row in report["rows"] if row["device"] in gpus and row["path"][0] == "PyTorch"]
    free = sum(row["bytes"] for row in rows if row["path"][1] in ("cached", "fragmentation", "graph pool"))
    segments = sum(row["bytes"] for row in rows)
    return {"blocks": segments - free, "segments": segments}
