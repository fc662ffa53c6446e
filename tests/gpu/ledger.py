# SPDX-License-Identifier: Apache-2.0
"""Reads what a recording says of itself, through the same commands as everybody."""

import json
import re
import subprocess

_PAGE_DATA = re.compile(r'<script type="application/json" id="vramscope-data">(.*?)</script>', re.DOTALL)


class Recording:
    def __init__(self, program, trace, page, environment):
        self._program = program
        self.trace = trace
        self._page = page
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
        """Per GPU, how the ledger compares with NVML over all samples; from the HTML page's data."""
        match = _PAGE_DATA.search(self._page.read_text(encoding="utf-8"))
        if match is None:
            raise RuntimeError(f"{self._page} holds no data")
        page = json.loads(match.group(1))
        devices = dict(enumerate(page["devices"]))
        return [
            {**entry, "index": devices[entry["device"]]["index"]}
            for entry in page["residuals"]
            if devices[entry["device"]]["kind"] == "gpu"
        ]


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
    free = sum(row["bytes"] for row in rows if row["path"][1] in ("cached", "fragmentation"))
    segments = sum(row["bytes"] for row in rows)
    return {"blocks": segments - free, "segments": segments}
