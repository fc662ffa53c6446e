# SPDX-License-Identifier: Apache-2.0
"""Inference engines: their phases and caches by the functions that vLLM has, or by marks. The engine is a stand-in on the
fake driver with vLLM's files and names."""
from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import package
import pytest
from places import FAKE, MIB, VRAMSCOPE

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
ENGINE = Path(__file__).resolve().parents[1] / "programs" / "engine"


def record(directory: Path, *arguments: str, renamed: bool = False) -> Path:
    engine = directory / "engine"
    shutil.copytree(ENGINE, engine)
    if renamed:  # as another version of the engine
        (engine / "vllm").rename(engine / "engine_of_tomorrow")
        for file in engine.rglob("*.py"):
            file.write_text(file.read_text().replace("from vllm.", "from engine_of_tomorrow."))
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "books"), "PYTHONPATH": str(engine)
    }  # fmt: skip
    file = directory / "engine.vram"
    command = [VRAMSCOPE, "run", "--no-report", "-o", file, "--", sys.executable, engine / "serve.py", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == (137 if "--die-asleep" in arguments else 0), done.stderr
    return file


def ask(*arguments: object) -> dict:
    done = subprocess.run([VRAMSCOPE, "report", *arguments, "--json"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(file: Path, by: str, at: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in ask(file, "--by", by, "--at", at)["rows"]:
        if row["device"] == 0:
            found[row["path"][0]] = found.get(row["path"][0], 0) + row["bytes"]
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("engine"), "--gpu-memory-utilization", "0.25")


def test_the_cache_is_a_category(served: Path) -> None:
    for mark, cache, weights in (("3 initialize_from_config", 512, 160), ("6 sleep", 0, 0), ("8 execute_model", 512, 160)):
        found = rows(served, "category", "mark:" + mark)
        assert found.get("kv cache", 0) == cache * MIB, (mark, found)
        assert found.get("parameter", 0) == weights * MIB, (mark, found)
    asleep = {row["path"][0]: row["bytes"] for row in ask(served, "--by", "category", "--at", "mark:6 sleep")["unbacked"]}
    assert asleep == {"kv cache": 512 * MIB, "parameter": 160 * MIB}


def test_the_outermost_function_is_the_phase(served: Path) -> None:
    found = rows(served, "phase", "mark:4 compile_or_warm_up_model")
    # What profiling captured and its lengths stay: they are not of `kv cache` or `capture`.
    assert found["profile"] == 2 * MIB + 4 * MIB
    assert found["load"] == 160 * MIB and found["init"] == 4 * MIB
    assert found["kv cache"] == 514 * MIB and found["capture"] == 28 * MIB
    # A thread without a function of the engine is in the phase of the process.
    assert rows(served, "phase", "mark:5 execute_model")["serve"] == 6 * MIB


def test_phases_add_up(served: Path) -> None:
    answer = ask(served, "--phases")
    phases = [entry for entry in answer["phases"] if entry["device"] == 0]
    assert [entry["name"] for entry in phases if entry["name"] != "(no phase)"] == [
        "init", "load", "profile", "kv cache", "capture", "serve", "sleep",
    ]  # fmt: skip
    by_name = {entry["name"]: entry for entry in phases}
    left = {name: {each["category"]: each["bytes"] for each in entry["left"]} for name, entry in by_name.items()}
    assert left["load"]["parameter"] == 160 * MIB and left["kv cache"]["kv cache"] == 512 * MIB
    assert "kv cache" not in left["profile"], "it was given back"
    # Asleep until it is awake, with all that it gave back.
    assert by_name["sleep"]["left_bytes"] == 0 and left["sleep"] == {}
    for entry in phases:
        assert entry["left_bytes"] == sum(left[entry["name"]].values())
    end = ask(served, "--at", "end")
    assert sum(entry["left_bytes"] for entry in phases) == end["processes"][0]["ledger_bytes"]
    assert all(device["residual_bytes"] == 0 for device in end["devices"] if device["kind"] == "gpu")
    assert by_name["profile"]["peak_bytes"] >= by_name["load"]["peak_bytes"] + 96 * MIB
    (budget,) = answer["budgets"]
    assert budget["option"] == "gpu_memory_utilization" and budget["share"] == 0.25
    assert budget["peak_bytes"] == max(entry["peak_bytes"] for entry in phases)


def test_each_graph_is_a_row_by_its_batch(served: Path) -> None:
    answer = ask(served, "--phases")
    # Names of Python 3.10 and older have no class.
    found = [(entry["name"].replace("GPUModelRunner.", ""), entry["count"]) for entry in answer["graphs"]]
    assert found == [("batch=1 in capture_model", 2), ("batch=2 in capture_model", 1), ("batch=4 in capture_model", 1)]
    # One of the first is thrown away by profiling, which keeps its memory.
    assert [entry["left"][0] for entry in answer["graphs"]] == [
        {"category": "retained", "bytes": batch * 4 * MIB} for batch in (2, 2, 4)
    ]  # fmt: skip


def test_the_text_has_the_table(served: Path) -> None:
    text = subprocess.run([VRAMSCOPE, "report", served, "--phases"], capture_output=True, text=True, check=True).stdout
    for word in ("gpu_memory_utilization 0.25 allows", "capture took", "kv cache +512 MiB", "at the end"):
        assert word in text, text


def test_python_reads_the_phases(served: Path, tmp_path: Path) -> None:
    code = """
import sys, vramscope
with vramscope.read(sys.argv[1]) as trace:
    answer = trace.phases()
    print([row["name"] for row in answer.phases if row["index"] == 0][-1], len(answer.budgets))
"""
    environment = package.make(tmp_path)
    done = subprocess.run([sys.executable, "-c", code, served], env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["sleep", "1"], done.stderr


def test_marks_name_phases_of_an_unknown_engine(tmp_path: Path) -> None:
    file = record(tmp_path, "marks", renamed=True)
    found = {entry["name"]: entry for entry in ask(file, "--phases")["phases"] if entry["device"] == 0}
    assert list(found)[-7:] == ["load", "profile", "kv cache", "capture", "serve", "sleep", "rollout"], list(found)
    assert found["rollout"]["left_bytes"] >= 10 * MIB and found["serve"]["count"] == 2
    assert rows(file, "phase", "mark:3 initialize_from_config")["kv cache"] == 514 * MIB


def test_without_names_or_marks_there_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "plain.vram"
    subprocess.run([VRAMSCOPE, "run", "--no-report", "-o", file, "--", sys.executable, "-c", "pass"], check=True, timeout=60)
    done = subprocess.run([VRAMSCOPE, "report", file, "--phases"], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and 'vramscope.mark("phase:NAME")' in done.stderr


def test_an_engine_killed_asleep(tmp_path: Path) -> None:
    file = record(tmp_path, "--die-asleep")
    answer = ask(file, "--at", "end")
    assert answer["devices"][0]["unbacked_bytes"] == 672 * MIB and answer["devices"][0]["residual_bytes"] == 0
    phases = [entry for entry in ask(file, "--phases")["phases"] if entry["device"] == 0]
    assert phases[-1]["name"] == "sleep" and phases[-1]["left_bytes"] == -672 * MIB
