# SPDX-License-Identifier: Apache-2.0
"""The one command for a machine with a GPU: records real programs and proves what the reports say.

    python3 tests/gpu/run.py --build build --json build/gpu.json

It needs the binaries of a build, a Python with a CUDA PyTorch, and nothing from the network:
  * residual   every program under `vramscope run`: the ledger beside NVML at every sample
               (every allocator and framework, compiled programs, graphs, two processes at once)
  * two        the same on two GPUs: data-parallel training with NCCL
  * ranks      DDP and FSDP2 under torchrun on two GPUs, one rank heavier: one report that names it
  * marks      live blocks and segments beside torch.cuda.memory_allocated() and memory_reserved()
  * names      the programs of tests/models: categories beside the exact sums of what their models,
               optimizers and autograd hold, and beside PyTorch's MemTracker
  * identity   losses and weights with and without vramscope, bit by bit; nvidia-smi's bytes too
  * causes     twelve programs that run out of memory, each for another reason, and GPT-2, C++ and
               JAX that do: the first three lines of what is said name the reason
  * yield      a training gives all its memory back in its middle and ends as it would have ended
  * balance    managed memory by CUDA C++ and CuPy, prefetched and evicted; resets and releases of primary
               contexts, three times in a row: residual 0 at every sample
  * overflow   five trainings on a GPU with 60 % of what each needs: bit-identical, their peak to 1 %
  * sleep      engines that sleep (a pluggable allocator that works as vLLM's, torch_memory_saver): residual 0,
               `parameter` and `unbacked` to the byte asleep, awake, half awake and killed
  * attach     trainings that `vramscope attach` finds under way: exact sums at the first instant, the same
               losses, 100 times in a row; `dump` of 1 B parameters
  * jax        trainings in JAX: live bytes of XLA's pool are XLA's own figure at 20 instants, parameters and
               optimizer state those of the pytrees, the same results
  * engines    a small engine: weights and KV cache at nine instants, its phases; trainings whose forward and backward are CUDA graphs (reduce-overhead, make_graphed_callables): categories to
               the byte at 24 instants; memory open by CUDA IPC: who keeps it after each of two processes drops it or is killed
  * advice     what `report --advice` promises beside the peak of a program that follows it, and five that get none
  * vgg19      examples/vgg19's five convolutions beside the CPU, PyTorch and NVML, and under
               compute-sanitizer; only with --only vgg19: it takes 5 minutes by itself. The program
               is that of `make vgg19`, built first where it is not there
  * overhead   bench/cuda_events.py, threads.py and mlp_step.py beside PyTorch's own recorder
A case that fails is a row of the table and does not stop the others. Exit status 1 if any failed.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "bench"))  # after this folder: both have a `ranks`
import arms  # noqa: E402
import cases  # noqa: E402
from ledger import Recording  # noqa: E402

GROUPS = ("residual", "two", "ranks", "identity", "overhead", "names", "laboratory", "causes", "yield", "balance", "overflow", "sleep", "attach", "jax", "engines", "advice", "vgg19")


class Bench:
    """What every case needs: the programs, a folder for traces, the clock."""

    def __init__(self, build, folder, seconds, gpu_count):
        self.build = build
        self.program = build / "bin" / "vramscope"
        self.bin = build / "bin"
        self.folder = folder
        self.gpu_count = gpu_count
        self.deadline = time.monotonic() + seconds
        self.python = sys.executable
        self.programs = ROOT / "tests" / "gpu" / "programs"
        # The package of this tree gives the examples their marks; nothing is installed.
        paths = [str(ROOT / "python"), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.environment = {**arms.environment(), "PYTHONPATH": os.pathsep.join(paths)}

    def portable(self, text):
        """`text` without the folders of this machine: results are kept beside the source."""
        folders = {self.folder: "TRACES", ROOT: ".", pathlib.Path(sys.prefix): "PYTHON"}
        for folder, name in folders.items():
            text = text.replace(str(folder), name)
        return text

    def limit(self, wanted):
        """The time that a case may take: its own limit, or what is left of the whole."""
        left = self.deadline - time.monotonic()
        if left < 5:
            raise TimeoutError("the time of the whole run is used up")
        return min(wanted, left)

    def example(self, name, *arguments):
        return [self.python, str(ROOT / "examples" / name), *arguments]

    def record(self, name, command, timeout=120, environment=None):
        """Runs a command under vramscope, with more in its environment, and opens the recording."""
        trace, page = self.files(name)
        under = [self.program, "run", "-o", trace, "--html", page, "--", *command]
        output = cases.run(under, {**self.environment, **(environment or {})}, self.limit(timeout))
        return Recording(self.program, trace, self.environment), output

    def record_by_itself(self, name, command, timeout=120, environment=None):
        """Runs a command that records itself and opens that recording."""
        trace, page = self.files(name)
        command = [*command, "--trace", trace]
        output = cases.run(command, {**self.environment, **(environment or {})}, self.limit(timeout))
        cases.run([self.program, "report", trace, "--html", page], self.environment, self.limit(timeout))
        return Recording(self.program, trace, self.environment), output

    def files(self, name):
        stem = name.replace(", ", "-").replace(" ", "-")
        return self.folder / f"{stem}.vram", self.folder / f"{stem}.html"


def gpu_facts():
    query = "name,driver_version,memory.total"
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--json", type=pathlib.Path, help="write the results there")
    parser.add_argument("--keep", type=pathlib.Path, help="keep traces and pages in this folder")
    parser.add_argument("--only", choices=GROUPS, action="append", help="these groups alone")
    parser.add_argument("--case", action="append", help="these cases alone (their names begin so)")
    parser.add_argument("--seconds", type=float, default=470, help="limit of the whole run")
    args = parser.parse_args()

    build = args.build.resolve()
    if not os.access(build / "bin" / "vramscope", os.X_OK):
        print(f"gpu: {build}/bin/vramscope is missing; run 'make build' or give --build", file=sys.stderr)
        return 2
    if not (ROOT / "build" / "lib" / "libvramscope_probe.so").exists():
        print(f"gpu: the Python package looks for the probe in {ROOT / 'build'}: link {build} there", file=sys.stderr)
        return 2
    facts = gpu_facts()
    if facts is None:
        print("gpu: nvidia-smi finds no GPU on this machine; these tests need one", file=sys.stderr)
        return 2
    print(facts, flush=True)

    groups = args.only or [group for group in GROUPS if group != "vgg19"]
    results, failures = {}, []
    with tempfile.TemporaryDirectory(prefix="vramscope-gpu-") as scratch:
        folder = args.keep or pathlib.Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        bench = Bench(build, folder, args.seconds, len(facts.splitlines()))
        for group, name, function in cases.all_cases():
            if group not in groups or not name.startswith(tuple(args.case or [""])):
                continue
            began = time.monotonic()
            try:
                result = function(bench)
            except Exception as error:  # a broken case must not take the others with it
                result = {"problems": [f"{type(error).__name__}: {error}"]}
            result["problems"] = [bench.portable(problem) for problem in result["problems"]]
            result["seconds"] = round(time.monotonic() - began, 1)
            results.setdefault(group, {})[name] = result
            for problem in result["problems"]:
                failures.append(f"{group} {name}: {problem}")
            state = "failed" if result["problems"] else "ok"
            print(f"{state:6s} {group} {name} ({result['seconds']} s)", flush=True)

    print()
    cases.print_tables(results)
    for failure in failures:
        print(f"FAILED {failure}")
    passed = sum(not r["problems"] for group in results.values() for r in group.values())
    total = sum(len(group) for group in results.values())
    if args.json:
        arms.write_json(
            args.json, {"bench": "gpu", "machine": arms.machine(gpu=facts), "results": results}
        )
        print(f"results are in {args.json}")
    print(f"{passed} passed, {total - passed} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
