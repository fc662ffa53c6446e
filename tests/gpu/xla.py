# SPDX-License-Identifier: Apache-2.0
"""The group `jax` of tests/gpu/run.py: what a JAX program has in XLA's pool, at 20 instants of a training.

Live bytes must be XLA's own bytes_in_use, and the categories the exact sums of the program's pytrees. The training must
compute what it computes without vramscope. XLA times its kernels and takes the fastest, so two runs without vramscope
differ too: that is turned off.
"""

import importlib.util
import json

import cases
import residual
from ledger import Recording


DETERMINISTIC = {"XLA_FLAGS": "--xla_gpu_autotune_level=0 --xla_gpu_deterministic_ops=true"}


# Of a pool's used bytes, those that need no name.
NAMELESS = 0.01


def xla_rows(recording, when, by="owner,category"):
    """Of each GPU: bytes by category of what is in use in XLA's pool."""
    report = recording.report("--at", when, "--by", by)
    found = [{} for device in report["devices"] if device["kind"] == "gpu"]
    for row in report["rows"]:
        path = row["path"]
        if 0 <= row["device"] < len(found) and path[0] == "XLA" and len(path) > 1 and path[1] not in ("cached", "fragmentation"):
            key = tuple(path[1:])
            found[row["device"]][key] = found[row["device"]].get(key, 0) + row["bytes"]
    return found


def compare(recording, said):
    found = xla_rows(recording, f"mark:{said['mark']}")
    problems = []
    for number, truth in enumerate(said["gpus"]):
        where = f"at {said['mark']} on GPU {number}"
        live = sum(found[number].values())
        if live != truth["in_use"]:
            problems.append(f"{where}: {live} bytes live, XLA has {truth['in_use']} in use: {found[number]}")
        for category in ("parameter", "optimizer state"):
            size = found[number].get((category,), 0)
            if size != truth[category]:
                problems.append(f"{where}: {category} is {size} and not {truth[category]}")
    return {"at": said["mark"], "gpus": [{" ".join(key): size for key, size in one.items()} for one in found]}, problems


def compare_peak(recording, said):
    """The pool's peak beside XLA's own, and what of it has a name."""
    found = xla_rows(recording, "allocated-peak", "owner,category,tag,parameter,line")
    states, problems = [], []
    for number, truth in enumerate(said["gpus"]):
        live = sum(found[number].values())
        nameless = sum(size for key, size in found[number].items() if all(part in ("(none)", "unknown") for part in key))
        states.append({"peak": live, "of_xla": truth["peak"], "nameless": nameless})
        if abs(live - truth["peak"]) > 0.01 * truth["peak"]:
            problems.append(f"the peak of GPU {number} is {live}, XLA's {truth['peak']}")
        if nameless > NAMELESS * live:
            problems.append(f"at the peak of GPU {number} {nameless} bytes have no name: {found[number]}")
    return states, problems


def case(name, *arguments, needs=(), gpus_needed=1):
    def run(bench):
        if bench.gpu_count < gpus_needed:
            return {"skipped": f"needs {gpus_needed} GPUs", "problems": []}
        missing = [package for package in ("jax", *needs) if importlib.util.find_spec(package) is None]
        if missing:
            return {"skipped": f"no {missing[0]} on this machine", "problems": []}
        command = [bench.python, bench.programs / "jax_training.py", *arguments]
        environment = {**bench.environment, **DETERMINISTIC}
        plain = cases.run(command, environment, bench.limit(120))
        trace, page = bench.files("jax " + name)
        under = [bench.program, "run", "-o", trace, "--html", page, "--", *command]
        output = cases.run(under, environment, bench.limit(180))
        recording = Recording(bench.program, trace, bench.environment)
        marks = [json.loads(line) for line in residual.prefixed(output, "MARK")]
        states, problems = [], []
        for said in marks:
            state, wrong = compare(recording, said)
            states.append(state)
            problems += wrong
        peaks, wrong = compare_peak(recording, marks[-1])
        problems += wrong
        if len(marks) != 20:
            problems.append(f"{len(marks)} marks instead of 20")
        if residual.prefixed(output, "DIGEST") != residual.prefixed(plain, "DIGEST"):
            problems.append("it computes something else under vramscope")
        steps = [json.loads(residual.prefixed(text, "STEP")[0]) for text in (plain, output)]
        return {
            "states": states, "peaks": peaks, "problems": problems,
            "step_us": [round(step["median_us"], 1) for step in steps],
        }

    return run


def all_cases():
    yield "small steps", case("small", "--layers", "4", "--width", "256")
    yield "dictionaries", case("dictionaries")
    yield "scan and remat", case("scan", "--model", "scan", "--layers", "16")
    yield "Flax and Optax", case("flax", "--model", "flax", needs=("flax", "optax"))
    yield "CNN", case("cnn", "--model", "cnn", "--width", "1024", "--batch", "64", needs=("flax", "optax"))
    yield "transformer", case("transformer", "--model", "transformer", "--width", "1024", "--layers", "4", "--batch", "32", needs=("flax", "optax"))
    yield "Equinox", case("equinox", "--model", "equinox", needs=("equinox", "optax"))
    yield "two GPUs", case("two", "--devices", "2", gpus_needed=2)


def print_table(results):
    print(f"{'jax':20s} {'step us, plain':>15s} {'recorded':>10s}")
    for name, result in results.items():
        if "step_us" in result:
            print(f"{name:20s} {result['step_us'][0]:15.1f} {result['step_us'][1]:10.1f}")
    print()
