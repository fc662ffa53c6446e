# SPDX-License-Identifier: Apache-2.0
"""The examples, as far as a machine without a GPU can run them."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest
from live_file import read_directory
from places import BUILD, FAKE, MIB, ROOT, VRAMSCOPE

DRIVER_EXAMPLE = BUILD / "bin" / "example_cuda_driver"

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


def run(*command, **environment):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


@pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
def test_the_driver_example_balances_on_the_stand_in_gpu(tmp_path):
    trace, page = tmp_path / "driver.vram", tmp_path / "driver.html"
    machine = {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    # The fake driver runs no kernels, so there are no values to verify.
    done = run(
        VRAMSCOPE, "run", "-o", trace, "--html", page, "--", DRIVER_EXAMPLE, "--no-verify", "--hold", "0.3", **machine
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(run(VRAMSCOPE, "report", trace, "--json", "--at", "mark:everything live").stdout)
    rows = [row for row in report["rows"] if row["device"] == 0]

    def total(*levels):
        return sum(row["bytes"] for row in rows if all(level in row["path"] for level in levels))

    # cuMemAlloc, 100 small ones, pitched, VMM, pool; the rest of the pool's 64 MiB is cached.
    asked = 96 * MIB + 100 * 24 * 1024 + 4000 * 4096 + 64 * MIB + 48 * MIB
    assert total("application", "allocated") == asked
    assert total("application", "rounding") == 96 * 4096  # of the pitch
    assert total("application", "arrays") == 16 * MIB
    assert total("application", "cached") == 16 * MIB
    assert sum(row["bytes"] for row in rows if row["path"] == ["rounding"]) > 0  # of the small ones
    assert all(entry["holds"] for entry in report["invariants"])
    (host,) = [device for device in report["devices"] if device["kind"] == "host"]
    assert host["ledger_bytes"] == 32 * MIB

    (residual,) = [entry for entry in report["residuals"] if entry["samples"] > 0]
    assert residual["worst_bytes"] == 0


@pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
def test_a_primary_context_that_was_released_is_not_found_again(tmp_path):
    trace, live, kept = tmp_path / "x.vram", tmp_path / "x.vram.d", tmp_path / "kept"
    kept.mkdir()
    machine = {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    process = subprocess.Popen(
        [VRAMSCOPE, "run", "--no-report", "-o", trace, "--", DRIVER_EXAMPLE, "--no-verify", "--hold", "1"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ, **machine},
    )
    process.stdout.readline()  # it has a context: its file is there
    for file in live.glob("[0-9]*.vrl"):
        (kept / file.name).hardlink_to(file)  # a file with two names is left where it is
    process.communicate(timeout=120)
    (file,) = read_directory(kept)
    counts = sum(file.by_stream.values(), Counter())
    assert (counts["ContextCreate"], counts["ContextDestroy"]) == (1, 1)


def test_a_real_training_is_unchanged_by_recording(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, ROOT / "examples" / "train_gpt2.py", "--device", "cpu", "--steps", "3", "--digest"]
    plain = run(*command, "--deterministic")
    recorded = run(
        VRAMSCOPE, "run", "--cpu", "--no-report", "-o", tmp_path / "gpt2.vram", "--", *command, "--deterministic"
    )
    assert plain.returncode == recorded.returncode == 0, plain.stderr + recorded.stderr
    digests = [re.search(r"^DIGEST (\w+)$", done.stdout, re.MULTILINE).group(1) for done in (plain, recorded)]
    assert digests[0] == digests[1]
    report = json.loads(run(VRAMSCOPE, "report", tmp_path / "gpt2.vram", "--json", "--by", "line").stdout)
    lines = {row["path"][0].split(" in ")[0].split(":")[0] for row in report["rows"]}
    assert "train_gpt2.py" in lines
    assert all(entry["holds"] for entry in report["invariants"])
