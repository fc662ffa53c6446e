# SPDX-License-Identifier: Apache-2.0
"""Real trainings, small, on the CPU: every byte has the purpose and the name that the program gives it.

The programs and their oracles are in tests/models; oracle.py says what is compared with what.
"""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import ROOT, VRAMSCOPE

MODELS = ROOT / "tests" / "models"

sys.path.insert(0, str(MODELS))
import catalogue  # noqa: E402
import compare  # noqa: E402

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

# Tiny operators gain nothing from threads, and the reference runs want a core too.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
ENVIRONMENT["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(ROOT / "python"), os.environ.get("PYTHONPATH")))
)

every_case = pytest.mark.parametrize("name", [case.name for case in catalogue.CASES])


def with_reference(mode):
    return pytest.mark.parametrize("name", [case.name for case in catalogue.CASES if mode in case.references])


def run(*command, timeout=600):
    done = subprocess.run(
        [str(word) for word in command],
        env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout, check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def record(trace: Path, command, *options):
    return run(VRAMSCOPE, "run", "--cpu", "--no-report", *options, "-o", trace, "--", *command)


class Bench:
    """Every program is recorded once; the oracles that need a process of their own run meanwhile."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._comparisons: dict[str, tuple[compare.Comparison, list[dict]]] = {}
        self._problems: dict[str, list[str]] = {}
        self._references = subprocess.Popen(
            [sys.executable, MODELS / "references.py", "--out", folder],
            env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )

    def compared(self, name: str) -> tuple[compare.Comparison, list[dict]]:
        """The comparison of a program so far, and what each of its processes said of itself."""
        if name not in self._comparisons:
            case = catalogue.case(name)
            trace, sums = self.folder / f"{name}.vram", self.folder / f"{name}.sums.json"
            output = record(trace, case.command(sys.executable, "cpu", "small", None, "--oracle", sums))
            if output.startswith("SKIP"):
                pytest.skip(output.strip())
            paths = [sums] if case.ranks == 1 else [sums.with_suffix(f".{rank}.json") for rank in range(case.ranks)]
            recording = compare.Recording(VRAMSCOPE, trace, "cpu", ENVIRONMENT)
            comparison = compare.Comparison(recording, name, case.unchecked)
            processes = [compare.load(path) for path in paths]
            for sums in processes:
                comparison.with_sums(sums)
            self._problems[name] = list(comparison.problems)
            self._comparisons[name] = comparison, processes
        return self._comparisons[name]

    def problems_of_sums(self, name: str) -> list[str]:
        self.compared(name)
        return self._problems[name]

    def reference(self, name: str, mode: str) -> dict:
        _, errors = self._references.communicate(timeout=900)
        path = self.folder / f"{name}.{mode}.json"
        assert path.exists(), errors or path.with_suffix(".log").read_text()
        return compare.load(path)

    def stop(self) -> None:
        if self._references.poll() is None:
            self._references.kill()
            self._references.communicate()


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    bench = Bench(tmp_path_factory.mktemp("models"))
    yield bench
    bench.stop()


def check(comparison, compared):
    """Runs a comparison and shows all of its problems at once."""
    comparison.problems.clear()
    compared()
    assert not comparison.problems, "\n".join(["", *comparison.problems])


@every_case
def test_parameters_gradients_buffers_and_optimizer_state_to_the_byte(bench, name):
    _, processes = bench.compared(name)
    assert all(sums["instants"] for sums in processes)
    problems = bench.problems_of_sums(name)
    assert not problems, "\n".join(["", *problems])


# Threads of a process group copy tensors with no Python anywhere: they are left out.
@pytest.mark.parametrize("name", [case.name for case in catalogue.CASES if case.ranks == 1])
def test_the_peak_has_categories_and_places(bench, name):
    comparison, (sums,) = bench.compared(name)
    check(comparison, lambda: comparison.at_the_peak(sums["pid"]))


@with_reference("saved")
def test_activations_are_what_autograd_keeps_and_the_program_holds(bench, name):
    comparison, (sums,) = bench.compared(name)
    saved = bench.reference(name, "saved")
    check(comparison, lambda: comparison.with_saved(saved, sums["pid"]))


@with_reference("memtracker")
def test_agrees_with_memtracker(bench, name):
    pytest.importorskip("torch.distributed._tools.mem_tracker", reason="MemTracker came with PyTorch 2.4")
    comparison, (sums,) = bench.compared(name)
    tracked = bench.reference(name, "memtracker")
    check(comparison, lambda: comparison.with_memtracker(tracked, sums["pid"]))


def pairs(comparison, pid, mark):
    """(category, name, bytes) of every tensor at an instant."""
    rows = comparison.recording.rows(pid, f"mark:{mark}")
    return sorted((path["category"], path["parameter"], size) for path, size in rows if size > 0)


def test_tensordot_gives_the_pairs_of_mxnets_test(bench):
    comparison, (sums,) = bench.compared("tensordot")
    a, b, c = 4 * 1024 * 2048, 4 * 2048 * 4096, 4 * 1024 * 4096
    forward = pairs(comparison, sums["pid"], "end of forward 1")
    assert [(category, size) for category, _, size in forward] == [
        ("activation", c), ("parameter", a), ("parameter", b),
    ]
    backward = pairs(comparison, sums["pid"], "end of backward 1")
    assert [(name, size) for category, name, size in backward if category == "parameter"] == [("A", a), ("B", b)]
    assert [(name, size) for category, name, size in backward if category == "gradient"] == [("A", a), ("B", b)]
    assert not [row for row in backward if row[0] == "unknown"]
    # The product knows the module that made it.
    rows = comparison.recording.rows(sums["pid"], "mark:end of forward 1")
    ((path, size),) = [(path, size) for path, size in rows if path["category"] == "activation"]
    assert size == c
    assert path["module"] == "TensorDot"
    assert path["line"].startswith("tensordot.py:")


def test_the_three_layer_mlp_has_every_parameter_of_mxnets_test(bench):
    comparison, (sums,) = bench.compared("mlp3")
    shapes = {
        "0.weight": 128 * 10, "0.bias": 128, "3.weight": 64 * 128, "3.bias": 64, "5.weight": 32 * 64, "5.bias": 32,
    }
    expected = sorted((name, 4 * count) for name, count in shapes.items())
    found = pairs(comparison, sums["pid"], "after step 2")
    for category in ("parameter", "gradient", "optimizer state"):
        assert [(name, size) for kind, name, size in found if kind == category] == expected, category
    assert not [row for row in found if row[0] == "unknown"]


@pytest.mark.parametrize("name", ["gan", "amp", "checkpointed", "lstm_lm"])
def test_weights_and_losses_are_the_same_bits(tmp_path, name):
    command = catalogue.case(name).command(sys.executable, "cpu", "small", None, "--deterministic", "--digest")
    plain, recorded = run(*command), record(tmp_path / "x.vram", command)
    if plain.startswith("SKIP"):
        pytest.skip(plain.strip())
    assert plain.startswith("DIGEST ") and len(plain.split()[1]) == 64
    assert recorded == plain


def counters_of(output):
    if output.startswith("SKIP"):
        pytest.skip(output.strip()[5:])
    return json.loads(output.splitlines()[-1].removeprefix("COUNTERS "))


def test_compiled_graphs_are_the_same(tmp_path):
    command = catalogue.case("compiled").command(sys.executable, "cpu", "small", None, "--deterministic", "--digest")
    plain, recorded = run(*command), record(tmp_path / "x.vram", command)
    counters = counters_of(plain)
    assert counters["stats"]["unique_graphs"] == 1
    assert not counters.get("graph_break")
    assert recorded == plain


def test_a_compiled_step_has_the_same_graphs(tmp_path):
    case = catalogue.case("compiled")
    command = case.command(sys.executable, "cpu", "small", None, "--deterministic", "--digest", "--compile-step")
    plain, recorded = run(*command), record(tmp_path / "x.vram", command)
    assert recorded.splitlines()[0] == plain.splitlines()[0]
    ours, theirs = counters_of(recorded), counters_of(plain)
    assert theirs["stats"]["unique_graphs"] == 2
    # Not "frames", which counts what Dynamo looked at and left alone too.
    for name in ("stats", "aot_autograd", "graph_break", "resumes"):
        assert ours.get(name) == theirs.get(name)  # what never happened is not counted in every version
