# SPDX-License-Identifier: Apache-2.0
"""Memory that a process has open of another one by CUDA IPC: who keeps it after its maker freed it, ended or was killed."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from driver_steps import report
from places import FAKE, MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
PEERS = Path(__file__).resolve().parents[1] / "programs" / "peers.py"
PYTHON = Path(sys.executable).name
BYTES = 64 * MIB


class Played:
    def __init__(self, directory: Path, *orders: str) -> None:
        self.file = directory / "peers.vram"
        environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "books")}
        command = [VRAMSCOPE, "run", "--no-report", "-o", self.file, "--", sys.executable, PEERS, *orders]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        # Processes and instants.
        self.said = {name: int(number) for name, number in (line.split() for line in done.stdout.splitlines())}

    def at(self, name: str, *options: str) -> dict:
        return report(self.file, f"@{self.said[name]}", *options)

    def weights(self, name: str) -> dict[str, int]:
        """Bytes by who holds them, of rows as large as the weights."""
        rows = self.at(name, "--by", "holder,size_class", "--where", "api=cuMemAlloc_v2")["rows"]
        rows += self.at(name, "--by", "holder,size_class", "--where", "api=cuIpcOpenMemHandle_v2")["rows"]
        return {row["path"][0]: row["bytes"] for row in rows if row["bytes"] == BYTES}

    def text(self, name: str = "") -> str:
        at = ["--at", f"@{self.said[name]}"] if name else []
        done = subprocess.run([VRAMSCOPE, "report", self.file, *at], capture_output=True, text=True, check=True)
        return " ".join(done.stdout.split())


def entry(played: Played, maker: str) -> dict:
    return {
        "pid": played.said["engine"], "maker_pid": played.said["trainer"], "bytes": BYTES, "count": 1, "maker": maker,
    }  # fmt: skip


def of(rows: list[dict]) -> list[dict]:
    assert all(row["line"].startswith("peers.py:") and row["line"].endswith(" in open_weights") for row in rows), rows
    assert all(row["command"].endswith("peers.py engine") and row["maker_command"].endswith("peers.py trainer") for row in rows)
    return [{key: row[key] for key in ("pid", "maker_pid", "bytes", "count", "maker")} for row in rows]


def test_the_trainer_drops_what_the_engine_has_open(tmp_path: Path) -> None:
    played = Played(tmp_path, "trainer-frees", "engine-closes")
    assert of(played.at("opened")["open_memory"]) == [entry(played, "holds")]
    (holder,) = played.weights("opened")
    assert holder.startswith(f"pid {played.said['trainer']} (") and "keeps" not in holder
    assert of(played.at("trainer-frees")["open_memory"]) == [entry(played, "freed")]
    (holder,) = played.weights("trainer-frees")
    assert holder.startswith(f"pid {played.said['engine']} (") and f" keeps memory of pid {played.said['trainer']} (" in holder
    last = played.at("engine-closes")
    assert "open_memory" not in last and played.weights("engine-closes") == {}
    assert of(last["kept_memory"]) == [entry(played, "freed")]
    assert f"Kept open: 64.0 MiB of gpu0 by {PYTHON} peers.py (pid {played.said['engine']}) at peers.py:" in played.text()
    assert " freed it at " in played.text()


def test_the_engine_drops_it(tmp_path: Path) -> None:
    played = Played(tmp_path, "engine-closes")
    last = played.at("engine-closes")
    assert "open_memory" not in last and "kept_memory" not in last
    (holder,) = played.weights("engine-closes")
    assert holder.startswith(f"pid {played.said['trainer']} (")
    assert f"Open: 64.0 MiB of gpu0 of {PYTHON} peers.py (pid {played.said['trainer']}), by " in played.text("opened")


def test_the_engine_is_killed(tmp_path: Path) -> None:
    played = Played(tmp_path, "trainer-frees", "engine-killed")
    assert of(played.at("trainer-frees")["open_memory"]) == [entry(played, "freed")]
    last = played.at("engine-killed")
    assert "open_memory" not in last and played.weights("engine-killed") == {}
    assert abs(last["devices"][0]["residual_bytes"]) < MIB


def test_the_trainer_is_killed(tmp_path: Path) -> None:
    played = Played(tmp_path, "trainer-killed")
    assert of(played.at("trainer-killed")["open_memory"]) == [entry(played, "ended")]
    (holder,) = played.weights("trainer-killed")
    assert f" keeps memory of pid {played.said['trainer']} (" in holder
    assert " made it and ended at " in played.text()


def test_an_unrecorded_process_keeps_it(tmp_path: Path) -> None:
    played = Played(tmp_path, "stranger", "trainer-frees", "engine-closes")
    assert "open_memory" not in played.at("trainer-frees")
    (kept,) = played.at("trainer-frees")["kept_memory"]
    found = (kept["pid"], kept["command"], kept["maker_pid"], kept["bytes"], kept["maker"], kept["line"])
    assert found == (played.said["engine"], PYTHON, played.said["trainer"], BYTES, "freed", "")
    assert f"Kept open: 64.0 MiB of gpu0 by {PYTHON} (pid {played.said['engine']}); {PYTHON} peers.py" in played.text()
