# SPDX-License-Identifier: Apache-2.0
"""`vramscope whatif`: recordings of real runs, and what PyTorch itself reserved in them."""
from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest
from places import MIB, ROOT, VRAMSCOPE
from run_command import one_error_line

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

TRACES = ROOT / "examples" / "traces"
SNAPSHOTS = ROOT / "tests" / "data" / "snapshots"


def run(*words: str | Path) -> subprocess.CompletedProcess:
    return subprocess.run([VRAMSCOPE, *words], capture_output=True, text=True, timeout=120)


def ask(file: Path, *options: str) -> dict:
    result = run("whatif", file, "--json", *options)
    assert result.returncode == 0, result.stderr
    answer = json.loads(result.stdout)
    assert answer["schema"] == "vramscope.whatif/1"
    return answer


def rows(file: Path, *options: str) -> dict[str, dict]:
    (gpu,) = ask(file, *options)["gpus"]
    return {row["settings"]: row for row in gpu["settings"]}


def peak_of(name: str) -> int:
    """What torch.cuda.max_memory_reserved() said at the end of the program."""
    return json.loads((SNAPSHOTS / f"{name}.json").read_text())["peak_reserved"]


@pytest.mark.parametrize("name", ["train", "expandable", "streams", "graph", "ring"])
def test_the_recorded_peak_is_what_pytorch_said(name):
    (gpu,) = ask(SNAPSHOTS / f"{name}.vram")["gpus"]
    assert gpu["segment_events"] > 5
    assert gpu["different_events"] == gpu["moved_blocks"] == 0
    assert gpu["settings"][0]["settings"] == ""
    assert gpu["settings"][0]["reserved_peak_bytes"] == peak_of(name)


@pytest.mark.parametrize("name,segments,streams", [("gpt2", 128, 1), ("oom", 21, 1), ("overflow", 21, 1)])
def test_examples_are_reproduced(name, segments, streams):
    (gpu,) = ask(TRACES / f"{name}.vram")["gpus"]
    assert (gpu["segment_events"], gpu["inferred_streams"]) == (segments, streams)
    assert gpu["different_events"] == gpu["moved_blocks"] == 0


def test_the_prediction_is_what_a_run_with_the_setting_reserved():
    """The same program was recorded with and without expandable segments."""
    with_them = rows(SNAPSHOTS / "train.vram")["expandable_segments:True"]
    assert with_them["reserved_peak_bytes"] == peak_of("expandable") != peak_of("train")
    without = rows(SNAPSHOTS / "expandable.vram", "--set", "expandable_segments:False")["expandable_segments:False"]
    assert without["reserved_peak_bytes"] == peak_of("train")


def test_unused_bytes_are_the_rest_of_the_peak():
    for row in rows(TRACES / "gpt2.vram").values():
        assert row["unused_bytes"] == row["reserved_peak_bytes"] - row["allocated_bytes"] > 0
        assert row["fits"] is None and row["spare_bytes"] is None


def test_a_card_fits_or_fails():
    gpt2 = TRACES / "gpt2.vram"
    (gpu,) = ask(gpt2)["gpus"]
    # Without segments to give back at its peak, the program needs each byte.
    needed = gpu["settings"][0]["reserved_peak_bytes"] + gpu["other_bytes"]
    assert rows(gpt2, "--card", str(needed))[""]["spare_bytes"] == 0
    assert rows(gpt2, "--card", str(needed + 5 * MIB))[""]["spare_bytes"] == 5 * MIB
    too_small = rows(gpt2, "--card", f"{needed // MIB - 400}MiB")
    assert too_small[""]["fits"] is False and too_small["expandable_segments:True"]["fits"] is True
    failed = too_small[""]
    assert failed["spare_bytes"] is None and failed["fails_iteration"] == 1
    assert failed["fails_place"].startswith("train_gpt2.py:")
    text = run("whatif", gpt2, "--card", "11GiB").stdout
    assert f"in iteration 1, at {failed['fails_place']}, asking for" in text


def test_a_failed_request_names_its_line():
    failed = rows(TRACES / "oom.vram", "--card", "24GiB")[""]
    assert failed["fails_bytes"] == 12 << 30 and failed["fails_place"]
    assert "Fails at 8.386581854 s" in run("whatif", TRACES / "oom.vram", "--card", "24GiB").stdout


def test_what_is_inferred_is_said():
    text = run("whatif", SNAPSHOTS / "streams.vram").stdout
    assert "Assumed: the rules of PyTorch 2.14, since the version was not recorded." in text
    assert "Inferred: 2 streams or private pools, so that segments match: the answers are estimates." in text
    assert "whose requests may be up to 1 MiB smaller" in text
    assert "Inferred: the recording's setting expandable_segments:True." in run("whatif", SNAPSHOTS / "expandable.vram").stdout


def test_a_recording_that_differs_has_one_line_and_status_1(tmp_path):
    """The ring of this snapshot lost what came first."""
    (tmp_path / "ring.pickle").write_bytes(gzip.decompress((SNAPSHOTS / "ring.pickle.gz").read_bytes()))
    assert run("import", tmp_path / "ring.pickle", "-o", tmp_path / "ring.vram").returncode == 0
    result = run("whatif", tmp_path / "ring.vram")
    assert result.returncode == 1
    assert len(result.stdout.splitlines()) == 1
    assert "the model of PyTorch's allocator differs from the recording after 12 of 12 segment events" in result.stdout
    as_json = run("whatif", tmp_path / "ring.vram", "--json")
    assert as_json.returncode == 1
    assert json.loads(as_json.stdout)["gpus"][0]["settings"] == []


def test_wrong_words_are_one_line_and_status_2():
    for words, hint in (
        (["--set", "max_splits:3"], "--set: 'max_splits' is no setting of PyTorch's allocator"),
        (["--card", "much"], "--card: "),
    ):
        result = run("whatif", TRACES / "gpt2.vram", *words)
        assert result.returncode == 2 and result.stdout == ""
        assert hint in one_error_line(result)
    result = run("whatif", ROOT / "tests" / "golden" / "v2.0" / "cpu_training.vram")
    assert result.returncode == 2
    assert "no program of it used PyTorch's allocator on a GPU" in one_error_line(result)


def test_text_fits_80_columns():
    """Sentences are one line each where no terminal wraps them; the table is cut."""
    table = [line for line in run("whatif", TRACES / "gpt2.vram", "--card", "12GiB").stdout.splitlines() if line[:1] == " "]
    assert len(table) == 8 and max(map(len, table)) <= 80
