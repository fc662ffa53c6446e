# SPDX-License-Identifier: Apache-2.0
"""The group `sleep` of tests/gpu/run.py: engines whose device memory is taken away below live tensors.

In every state the ledger must be NVML's figure to the byte, and `parameter` and `unbacked` what the program says. What it
computes must be what it computes without vramscope.
"""

import importlib.util
import json
import signal
import subprocess

import residual
from ledger import Recording


def start(bench, command, timeout=100):
    """What the program printed, and how it ended."""
    done = subprocess.run(
        [str(word) for word in command],
        env=bench.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=bench.limit(timeout),
        check=False,
    )
    return done.stdout, done.returncode, done.stderr[-600:].strip()


def bytes_of(rows, category):
    return sum(row["bytes"] for row in rows if row["path"] == [category])


def compare_state(recording, said, when):
    """What the report says of an instant, and where it differs from the program's word."""
    report = recording.report("--at", when, "--by", "category")
    gpus = [device for device in report["devices"] if device["kind"] == "gpu"]
    found = {
        "parameter": bytes_of(report["rows"], "parameter"),
        "unbacked_parameter": bytes_of(report["unbacked"], "parameter"),
        "kv cache": bytes_of(report["rows"], "kv cache"),
        "unbacked_kv cache": bytes_of(report["unbacked"], "kv cache"),
        "unbacked": sum(device["unbacked_bytes"] for device in gpus),
        "residual": sum(device["residual_bytes"] or 0 for device in gpus),
    }
    problems = [
        f"at {when}: {name} is {found[name]} and not {said.get(name, 0)}" for name in found if found[name] != said.get(name, 0)
    ]
    return {"at": when, **found}, problems


def case(name, saver, *, dies=False):
    def run(bench):
        if saver != "own" and importlib.util.find_spec("torch_memory_saver") is None:
            return {"skipped": "no torch_memory_saver on this machine", "problems": []}
        command = [bench.python, bench.programs / "sleeping_engine.py", "--saver", saver, "--seconds", "14"]
        plain, status, error = start(bench, [*command, "--seconds", "1"])
        if status != 0:
            raise RuntimeError(f"without vramscope it ended with {status}: {error}")
        trace, page = bench.files("sleep " + name)
        under = [bench.program, "run", "-o", trace, "--html", page, "--", *command, *(["--die"] if dies else [])]
        output, status, error = start(bench, under)
        if status != (128 + signal.SIGKILL if dies else 0):
            raise RuntimeError(f"it ended with {status}: {error}")
        recording = Recording(bench.program, trace, bench.environment)
        marks = [json.loads(line) for line in residual.prefixed(output, "MARK")]
        states, problems = [], []
        for said in marks:
            found, wrong = compare_state(recording, said, f"mark:{said['mark']}")
            states.append(found)
            problems += wrong
        if dies:
            found, wrong = compare_state(recording, marks[-1], "end")
            states.append(found)
            problems += wrong
        elif residual.prefixed(output, "DIGEST") != residual.prefixed(plain, "DIGEST"):
            problems.append("it computes something else under vramscope")
        # What it computes first makes workspaces, which stay.
        if len({(said["memory_allocated"], said["memory_reserved"]) for said in marks[1:]}) != 1 or any(
            said["memory_allocated"] < said["unbacked"] for said in marks
        ):
            problems.append("PyTorch's own figures changed: the program proves nothing")
        residuals = recording.residuals()
        problems += [f"worst residual {entry['worst_bytes']} bytes" for entry in residuals if entry["worst_bytes"] != 0]
        if not any(entry["samples"] for entry in residuals):
            problems.append("the recording has no NVML samples")
        problems += [
            f"invariant {entry['name']} is broken: {entry['detail']}"
            for entry in recording.report()["invariants"]
            if not entry["holds"]
        ]
        return {"states": states, "residuals": residuals, "problems": problems}

    return name, run


def all_cases():
    yield case("own allocator", "own")
    yield case("own allocator, killed", "own", dies=True)
    yield case("torch_memory_saver", "preload")
    yield case("torch_memory_saver, pluggable", "torch")


def print_table(results):
    for name, result in results.items():
        if "skipped" in result:
            print(f"{name:32s} skipped: {result['skipped']}")
        for state in result.get("states", []):
            print(
                f"{name:32s} {state['at']:38s} parameter {residual.mib(state['parameter']):>8s}, asleep"
                f" {residual.mib(state['unbacked']):>8s} MiB, of it parameter {residual.mib(state['unbacked_parameter']):>8s};"
                f" residual {state['residual']}"
            )
    print()
