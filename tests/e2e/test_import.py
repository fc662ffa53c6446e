# SPDX-License-Identifier: Apache-2.0
"""`vramscope import`: other tools' logs become recordings."""
from __future__ import annotations

import json
import subprocess
from pathlib import Path

from hosts import ROOT, VRAMSCOPE

DATA = ROOT / "tests/data/import"
MIB = 1 << 20


def call(*arguments: str | Path, folder: Path | None = None, status: int = 0) -> subprocess.CompletedProcess:
    done = subprocess.run([VRAMSCOPE, *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stderr
    return done


def imported(log: Path, folder: Path, *options: str) -> Path:
    file = folder / f"{log.name}.vram"
    said = call("import", log, "-o", file, *options).stderr
    assert said.count("\n") == 1 and log.name in said
    return file


def report(file: Path, *options: str) -> dict:
    said = json.loads(call("report", file, "--json", *options).stdout)
    for device in said["devices"]:
        rows = [row["bytes"] for row in said["rows"] if row["device"] == device["index"]]
        assert sum(rows) == device["ledger_bytes"]
    assert all(invariant["holds"] for invariant in said["invariants"])
    return said


def test_readings_of_nvidia_smi_are_a_sampled_recording(tmp_path):
    file = imported(DATA / "nvidia_smi_used.txt", tmp_path)
    said = report(file)
    (device,) = said["devices"]
    assert said["sampled"] is True and device["ledger_bytes"] == device["nvml_bytes"] == 4406 * MIB
    assert [report(file, "--at", str(second))["devices"][0]["ledger_bytes"] // MIB for second in range(7)] == [
        0, 230, 487, 4406, 310, 622, 0
    ]
    info = call("info", file).stdout
    assert "a second stands for a reading" in info and "losses      none" in info
    timed = imported(DATA / "nvidia_smi_used.txt", tmp_path, "--period", "10ms")
    assert report(timed)["devices"][0]["at"]["time_ns"] == 30_000_000


def test_what_is_no_log_is_refused_in_a_line(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "poem.txt").write_text("Roses are red\n")
    (tmp_path / "kept.txt").write_text("mine")
    log = DATA / "nvidia_smi_used.txt"
    for arguments, word in [
        ([tmp_path / "empty.csv"], "is empty"),
        ([tmp_path / "poem.txt"], "no log or trace that vramscope knows: the formats are nvidia-smi"),
        ([tmp_path / "none.csv"], "No such file"),
        ([log, "--from", "csv"], "unknown format 'csv'"),
        ([log, "--period", "fast"], "--period fast: use a number"),
        ([log, "-o", tmp_path / "kept.txt"], "is not a vramscope trace"),
    ]:
        said = call("import", *arguments, folder=tmp_path, status=2).stderr
        assert word in said and said.count("\n") == 1, said
    assert (tmp_path / "kept.txt").read_text() == "mine" and not list(tmp_path.glob("*.vram"))


def test_a_folder_becomes_one_recording_a_log(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a.txt").write_text("memory.used [MiB]\n5 MiB\n")
    (logs / "a.csv").write_text("memory.used [MiB]\n6 MiB\n")
    (logs / "b.txt").write_text("memory.used [MiB]\n7 MiB\n")
    (logs / "README").write_text("What these are\n")
    said = call("import", logs, "-o", tmp_path / "out").stderr
    assert "left out" in said and "README" in said
    found = {path.name: report(path)["devices"][0]["ledger_bytes"] // MIB for path in (tmp_path / "out").iterdir()}
    assert found == {"a.txt.vram": 5, "a.csv.vram": 6, "b.vram": 7}
    (logs / "damaged.txt").write_text("memory.used [MiB]\n")
    said = call("import", logs, "-o", tmp_path / "out", status=2).stderr
    assert "1 of 4 logs could not be imported, damaged.txt first" in said
