# SPDX-License-Identifier: Apache-2.0
"""What the Python benchmarks share: a program is run plain, under vramscope and under a peer in turn,
each time in a process of its own, and the results stand beside each other in one JSON file."""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
DEFAULT_PROGRAM = ROOT / "build" / "bin" / "vramscope"

# The median of this many steps is not affected by the costs of start and end.
TURN_STEPS = 20

# NVLink multicast is of no use here, and on shared hosts it can harm other people's jobs.
SAFE_ENVIRONMENT = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NVSHMEM_DISABLE_NVLS": "1",
}


def environment():
    return {**os.environ, **SAFE_ENVIRONMENT}


def run_child(script, arguments, under=(), timeout=300):
    """Runs `script --child ...` behind the command `under` and reads the JSON of its last line."""
    command = [*map(os.fspath, under), sys.executable, os.fspath(script), "--child", *arguments]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=timeout, check=False
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 or not lines:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-800:]}")
    return json.loads(lines[-1])


def vramscope_command(program, trace, *options):
    return [program, "run", "--no-report", *options, "-o", trace, "--"]


def measure(script, arms, rounds, say=lambda text: print(text, file=sys.stderr, flush=True)):
    """Runs each arm once a round, in turn, so that a machine's moods fall on all of them.

    `arms` maps a name to (arguments, function from a trace path to the command in front).
    Returns per arm the list of the children's results.
    """
    results = {name: [] for name in arms}
    with tempfile.TemporaryDirectory(prefix="vramscope-bench-") as folder:
        for number in range(rounds):
            for name, (arguments, under) in arms.items():
                trace = pathlib.Path(folder) / f"{name}-{number}.vram"
                results[name].append(run_child(script, arguments, under(trace)))
                trace.unlink(missing_ok=True)
            say(f"round {number + 1} of {rounds}")
    return results


def machine(torch_version=None, gpu=None):
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "gpu": gpu,
        "python": platform.python_version(),
        "torch": torch_version,
        "kernel": platform.release(),
    }


def step_us(step, wait, count):
    """Median time of so many steps, in microseconds; `wait` waits for the device."""
    times = []
    for _ in range(count):
        began = time.perf_counter_ns()
        step()
        wait()
        times.append(time.perf_counter_ns() - began)
    return median(times) / 1e3


def in_turns(step, wait, begin, end, steps):
    """Steps with something under way and as many without, in turn: a machine's moods last longer than a turn.

    Returns the median time of a step with it, and the median of the neighbours' ratios.
    """
    without, under = [], []
    for _ in range(max(1, steps // TURN_STEPS)):
        without.append(step_us(step, wait, TURN_STEPS))
        begin()
        under.append(step_us(step, wait, TURN_STEPS))
        end()
    return {"us": median(under), "ratio": median(one / other for one, other in zip(under, without))}


def median(values):
    return statistics.median(values)


def report_steps(path, bench, results, ratio_of, **facts):
    """Prints and writes the time of a training step by arm; `ratio_of(runs)` is the list of a round's ratios."""
    rows = {}
    for name, runs in results.items():
        times = [run["us"] for run in runs]
        ratio = median(ratio_of(runs))
        least = min(times) / min(run["us"] for run in results["plain"])
        rows[name] = {"us_per_step": median(times), "ratio": ratio, "ratio_of_least": least, "rounds_us": times}
        print(
            f"{name:32s} {median(times):9.1f} us a step   {ratio:.3f}x, the least of all rounds {least:.3f}x",
            file=sys.stderr,
        )
    first = results["plain"][0]
    content = {"bench": bench, **facts, "machine": machine(first["torch"], first["gpu"]), "arms": rows}
    write_json(path, content)


def write_json(path, content):
    content = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), **content}
    text = json.dumps(content, indent=1) + "\n"
    if path is None:
        print(text, end="")
        return
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
