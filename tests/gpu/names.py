# SPDX-License-Identifier: Apache-2.0
"""The group `names` of tests/gpu/run.py: the programs of tests/models at real sizes, byte by byte.

The oracles that need a process of their own run beside the recordings, on the same GPU.
"""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests" / "models"
sys.path.insert(0, str(MODELS))
import catalogue  # noqa: E402
import compare  # noqa: E402
import residual  # noqa: E402

STEPS = 3
MIB = 1 << 20
COLUMNS = ("parameter", "gradient", "buffer", "optimizer state")


class References:
    """Runs all oracles before the first case, so that the recordings have the GPU to themselves."""

    def __init__(self):
        self._folder = None

    def run(self, bench):
        if self._folder is not None:
            return
        self._folder = bench.folder / "references"
        command = [sys.executable, MODELS / "references.py", "--out", self._folder]
        subprocess.run(
            [*map(str, command), "--device", "cuda", "--size", "full", "--steps", str(STEPS), "--jobs", "5"],
            env=on_one_gpu(bench.environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=bench.limit(180),
            check=False,
        )

    def get(self, name, mode):
        path = self._folder / f"{name}.{mode}.json"
        if not path.exists():
            log = path.with_suffix(".log")
            raise RuntimeError(f"{mode} failed: {log.read_text()[-400:] if log.exists() else 'no log'}")
        return compare.load(path)


REFERENCES = References()


def on_one_gpu(environment):
    """Of several GPUs the first: Transformers' Trainer spreads a model over all that it sees (DataParallel), in
    threads whose graphs no oracle sees."""
    first = environment.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]
    return {**environment, "CUDA_VISIBLE_DEVICES": first}


def gpu_count(bench):
    smi = subprocess.run(
        ["nvidia-smi", "-L"], env=bench.environment, capture_output=True, text=True, check=False
    )
    return len(smi.stdout.splitlines())


def names_case(case):
    def run(bench):
        # The command of cases.py, which knows its time limits.
        import cases

        if case.ranks > gpu_count(bench):
            return {"skipped": f"needs {case.ranks} GPUs", "problems": []}
        REFERENCES.run(bench)
        trace, sums_path = bench.folder / f"{case.name}.vram", bench.folder / f"{case.name}.sums.json"
        command = case.command(sys.executable, "cuda", "full", STEPS, "--oracle", sums_path)
        under = [bench.program, "run", "--no-report", "-o", trace, "--", *command]
        environment = bench.environment if case.ranks > 1 else on_one_gpu(bench.environment)
        output = cases.run(under, environment, bench.limit(120))
        if output.startswith("SKIP"):
            return {"skipped": output.strip()[5:], "problems": []}
        paths = [sums_path]
        if case.ranks > 1:
            paths = [sums_path.with_suffix(f".{rank}.json") for rank in range(case.ranks)]
        recording = compare.Recording(bench.program, trace, "cuda", bench.environment)
        comparison = compare.Comparison(recording, case.name, case.unchecked)
        shares = []
        for path in paths:
            sums = compare.load(path)
            comparison.with_sums(sums)
            shares.append(comparison.at_the_peak(sums["pid"]))
            if "saved" in case.references:
                comparison.with_saved(REFERENCES.get(case.name, "saved"), sums["pid"])
            if "memtracker" in case.references:
                comparison.with_memtracker(REFERENCES.get(case.name, "memtracker"), sums["pid"])
        return {
            "named_share": min(shares),
            "instants": comparison.figures,
            "trace_bytes": trace.stat().st_size,
            "problems": comparison.problems,
        }

    return run


def compiled_case(backend):
    """torch.compile: the same graphs, no recompilation, the same bits."""

    def run(bench):
        import cases

        case = catalogue.case("compiled")
        command = case.command(
            sys.executable, "cuda", "small", STEPS, "--backend", backend, "--deterministic", "--digest"
        )
        first = cases.run(command, bench.environment, bench.limit(150))
        second = cases.run(command, bench.environment, bench.limit(150))
        trace = bench.folder / "compiled-same.vram"
        under = [bench.program, "run", "--no-report", "-o", trace, "--", *command]
        recorded = cases.run(under, bench.environment, bench.limit(150))
        counters = json.loads(residual.prefixed(first, "COUNTERS")[0])
        problems = []
        if first != second:
            problems.append("two plain runs differ: the comparison proves nothing")
        elif recorded != first:
            problems.append(f"differs under vramscope: {recorded.strip()} in place of {first.strip()}")
        if counters["stats"].get("unique_graphs") != 1 or counters.get("graph_break"):
            problems.append(f"not one graph: {counters}")
        return {"counters": counters, "problems": problems}

    return run


def all_cases():
    yield from ((case.name, names_case(case)) for case in catalogue.CASES)
    yield "compiled, same graphs", compiled_case("aot_eager")


def mib(value):
    return "-" if value is None else f"{value / MIB:.2f}"


def print_table(results):
    """One line an instant of the last step: ours, and the oracle's where it is not the same."""
    print("MiB: ours, then (the oracle's) where it differs; worst off MemTracker; named at the peak")
    head = "".join(f"{name:>18s}" for name in (*COLUMNS, "activation+input"))
    print(f"{'program, instant':44s}{head} {'MemTracker':>10s} {'named':>7s}")
    for name, result in results.items():
        if "skipped" in result:
            print(f"{name:44s}skipped: {result['skipped']}")
            continue
        for figure in result.get("instants", []):
            if f" {STEPS}" not in figure["mark"] and result["instants"][-1]["mark"].endswith(f" {STEPS}"):
                continue
            ours, oracle = figure["ours"], figure["oracle"]
            cells = [(ours.get(column, 0), oracle.get(column)) for column in COLUMNS]
            held = ours.get("activation", 0) + ours.get("input", 0) - figure["unnamed_rounding"]
            cells.append((held, oracle.get("activation and input", held)))
            text = "".join(
                f"{mib(left) if left == right else f'{mib(left)} ({mib(right)})':>18s}" for left, right in cells
            )
            worst = figure.get("memtracker_worst")
            off = "-" if worst is None else f"{worst:.2%}"
            print(f"{name + ', ' + figure['mark']:44s}{text} {off:>10s} {result['named_share']:7.2%}")
    print()
