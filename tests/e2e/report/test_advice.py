# SPDX-License-Identifier: Apache-2.0
"""`report --advice`: what is promised is what a program gets that follows it, and who follows it is not told again."""
from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, VRAMSCOPE

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
PROGRAM = Path(__file__).resolve().parents[1] / "programs" / "advised.py"
SNAPSHOTS = ROOT / "tests" / "data" / "snapshots"
GPT2 = ROOT / "examples" / "traces" / "gpt2.vram"


def record(folder: Path, *arguments: str) -> Path:
    file = folder / ("-".join(arguments) + ".vram")
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", file, "--", sys.executable, PROGRAM, *arguments]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return file


def advice(file: Path, *options: str, status: int = 0) -> dict:
    done = subprocess.run([VRAMSCOPE, "report", file, "--advice", "--json", *options], capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "program, rule, word",
    [
        ("checkpoint", "checkpoint", "blocks.[0-5] x6"),
        ("checkpoint_amp", "checkpoint", "blocks.[0-5] x6"),
        ("checkpoint_cnn", "checkpoint", "layers.[0-5] x6"),
        ("no_grad", "no_grad", "blocks.[0-5] x6"),
        ("attention", "attention", "in Attention.forward"),
        ("fused", "fused", "fused=True"),
        ("buckets", "buckets", "gradient_as_bucket_view=True"),
        ("release", "release", "advised.py:"),
        ("keep", "keep", "advised.py:"),
        ("zero_grad", "zero_grad", "without set_to_none=False"),
        ("zero_grad_late", "zero_grad", "after each step"),
        ("state_dict", "state_dict", "advised.py:"),
    ],
)
def test_what_is_promised_is_what_happens(tmp_path: Path, program: str, rule: str, word: str) -> None:
    told = advice(record(tmp_path, program))
    saving = next(each for each in told["savings"] if each["rule"] == rule)
    assert word in saving["change"]
    followed = advice(record(tmp_path, program, "follow"))
    assert rule not in [each["rule"] for each in followed["savings"]]
    saved = told["allocated_peak_bytes"] - followed["allocated_peak_bytes"]
    assert saved > 0.05 * told["allocated_peak_bytes"]
    assert abs(saving["saves_bytes"] - saved) < 0.05 * saved, (saving["saves_bytes"], saved)
    assert saving["peak_bytes"] == told["allocated_peak_bytes"] - saving["saves_bytes"]
    assert saving["lowers"] == "allocated"
    assert told["together_bytes"] <= min(each["peak_bytes"] for each in told["savings"] if each["lowers"] == "allocated")


def test_other_settings_of_the_allocator() -> None:
    """One program on a GPU, with and without expandable segments: torch.cuda.max_memory_reserved() is known of both."""
    reserved = {name: json.loads((SNAPSHOTS / f"{name}.json").read_text())["peak_reserved"] for name in ("train", "expandable")}
    told = advice(SNAPSHOTS / "train.vram")
    (saving,) = told["savings"]
    assert (saving["rule"], saving["lowers"], saving["confidence"]) == ("allocator", "reserved", "about")
    assert saving["change"] == "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    assert saving["saves_bytes"] == reserved["train"] - reserved["expandable"] > 0.05 * reserved["train"]
    assert saving["peak_bytes"] == reserved["expandable"]
    assert told["together_bytes"] == told["allocated_peak_bytes"]
    text = subprocess.run([VRAMSCOPE, "report", SNAPSHOTS / "train.vram", "--advice"], capture_output=True, text=True, check=True).stdout
    assert ": saves about 22.0 MiB of\nreserved memory\n" in text and "Together" not in text and "With it" not in text


# It is set; what its streams or private pools took is a guess; host memory was mapped; no setting needs less.
@pytest.mark.parametrize("name", ["expandable", "streams", "graph", "overflow", "oom"])
def test_the_allocator_is_left_alone(name: str) -> None:
    file = next(folder / f"{name}.vram" for folder in (SNAPSHOTS, GPT2.parent) if (folder / f"{name}.vram").exists())
    assert advice(file)["savings"] == []


def test_a_recording_that_the_model_does_not_reproduce(tmp_path: Path) -> None:
    """The ring of this snapshot lost what came first."""
    (tmp_path / "ring.pickle").write_bytes(gzip.decompress((SNAPSHOTS / "ring.pickle.gz").read_bytes()))
    subprocess.run([VRAMSCOPE, "import", tmp_path / "ring.pickle", "-o", tmp_path / "ring.vram"], check=True, capture_output=True)
    assert advice(tmp_path / "ring.vram")["savings"] == []


@pytest.mark.parametrize(
    "program",
    [
        "kv_cache", "carried_state", "frozen", "accumulated", "averaged", "accumulated_zeroed", "slow_optimizer", "bucket_views",
        "assigned_state", "loaded_data", "slow_like_optimizer",
    ],
)  # fmt: skip
def test_what_is_on_purpose_is_left_alone(tmp_path: Path, program: str) -> None:
    assert advice(record(tmp_path, program))["savings"] == []


def test_a_budget(tmp_path: Path) -> None:
    whole = json.loads(subprocess.run([VRAMSCOPE, "report", GPT2, "--json"], capture_output=True, check=True).stdout)
    device = whole["devices"][0]
    fits = advice(GPT2, "--budget", "14GiB")
    assert fits["over_bytes"] == 0 and fits["device_peak_bytes"] == device["ledger_bytes"]
    assert fits["allocated_peak_bytes"] == device["allocated_peak_bytes"]
    assert sum(each["bytes"] for each in fits["categories"]) == fits["allocated_peak_bytes"]
    over = advice(GPT2, "--budget", "10GiB", status=1)
    assert over["over_bytes"] == device["ledger_bytes"] - (10 << 30)
    text = subprocess.run([VRAMSCOPE, "report", GPT2, "--budget", "10GiB"], capture_output=True, text=True)
    assert text.returncode == 1 and "It exceeds 10.0 GiB by 1.98 GiB: the changes below save that much." in text.stdout
    assert max(map(len, text.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    "file, options, says",
    [
        (GPT2, ["--advice", "--csv"], "--advice and --budget can only be used with --json"),
        (GPT2, ["--budget", "much"], "--budget: "),
        (GPT2.parent, ["--advice"], "is a folder: with --advice and --budget name a recording"),
    ],
)
def test_bad_input_is_one_line(file: Path, options: list[str], says: str) -> None:
    done = subprocess.run([VRAMSCOPE, "report", file, *options], capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and says in done.stderr, done.stderr
