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


def xla_rows(recording, when):
    report = recording.report("--at", when, "--by", "owner,category")
    devices = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
    found = {}
    for row in report["rows"]:
        if row["device"] in devices and row["path"][0] == "XLA" and len(row["path"]) > 1:
            found[row["path"][1]] = found.get(row["path"][1], 0) + row["bytes"]
    return found


def compare(recording, said):
    found = xla_rows(recording, f"mark:{said['mark']}")
    live = sum(size for category, size in found.items() if category not in ("cached", "fragmentation"))
    problems = []
    if live != said["in_use"]:
        problems.append(f"at {said['mark']}: {live} bytes live, XLA has {said['in_use']} in use: {found}")
    for category in ("parameter", "optimizer state"):
        if found.get(category, 0) != said[category]:
            problems.append(f"at {said['mark']}: {category} is {found.get(category, 0)} and not {said[category]}")
    return {"at": said["mark"], "live": live, **found}, problems


def case(name, *arguments):
    def run(bench):
        if importlib.util.find_spec("jax") is None:
            return {"skipped": "no JAX on this machine", "problems": []}
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
        if len(marks) != 20:
            problems.append(f"{len(marks)} marks instead of 20")
        if residual.prefixed(output, "DIGEST") != residual.prefixed(plain, "DIGEST"):
            problems.append("it computes something else under vramscope")
        steps = [json.loads(residual.prefixed(text, "STEP")[0]) for text in (plain, output)]
        return {
            "states": states, "problems": problems, "flax": steps[0]["flax"],
            "step_us": [round(step["median_us"], 1) for step in steps],
        }

    return run


def all_cases():
    yield "small steps", case("small", "--layers", "4", "--width", "256", "--plain")
    yield "dictionaries", case("dictionaries", "--plain")
    yield "Flax and Optax", case("flax")


def print_table(results):
    print(f"{'jax':20s} {'step us, plain':>15s} {'recorded':>10s}")
    for name, result in results.items():
        if "step_us" in result:
            print(f"{name:20s} {result['step_us'][0]:15.1f} {result['step_us'][1]:10.1f}")
    print()
