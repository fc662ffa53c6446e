# SPDX-License-Identifier: Apache-2.0
"""The group `balance` of tests/gpu/run.py: managed memory, and the ends of primary contexts, while NVML is read.

The residual is 0 at every sample outside of calls under way, nothing is unexplained, and the program prints what it
prints without vramscope. No program has more than 1 GiB of managed memory.
"""

import importlib.util

import cases
import residual

MIB = 1 << 20


def judge(recording):
    """Per GPU how the ledger compares with NVML, and what is wrong with it."""
    report = recording.report()
    problems = [
        f"invariant {entry['name']} is broken: {entry['detail']}" for entry in report["invariants"] if not entry["holds"]
    ]
    residuals = recording.residuals()
    if not residuals or not any(entry["samples"] for entry in residuals):
        problems.append("the recording has no NVML samples")
    problems += [f"worst residual {entry['worst_bytes']} bytes" for entry in residuals if entry["worst_bytes"] != 0]
    problems += [
        f"{process['pid']}: residual {process['residual_bytes']} bytes of its own"
        for process in report["processes"]
        if process["residual_bytes"] not in (None, 0)
    ]
    problems += [f"{entry['bytes']} bytes are unexplained" for entry in report.get("unexplained", [])]
    return report, residuals, problems


def managed_rows(recording, at):
    """Of an instant, bytes by line of what managed memory is on the GPU."""
    report = recording.report("--at", at, "--by", "line")
    gpus = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
    return {row["path"][0]: row["bytes"] for row in report["rows"] if row["device"] in gpus and row["bytes"]}


def largest_managed(report):
    rows = [row for row in report["rows"] if "managed" in row["path"]]
    return sum(row["bytes"] for row in rows)


def case(command, *, needs=None, managed_bytes=0, lines=()):
    """`managed_bytes`: at the peak at least so many are managed; `lines`: what --by line shows then, and how much."""

    def run(bench):
        if needs is not None and importlib.util.find_spec(needs) is None:
            return {"skipped": f"no {needs} on this machine", "problems": []}
        words = command(bench)
        plain = cases.run(words, bench.environment, bench.limit(90))
        recording, output = bench.record("balance-" + "-".join(str(word).split("/")[-1] for word in words[-3:]), words)
        report, residuals, problems = judge(recording)
        if output != plain:
            problems.append(f"it printed {output!r}, and without vramscope {plain!r}")
        managed = largest_managed(report)
        if managed < managed_bytes:
            problems.append(f"{managed} bytes are managed at the peak, not {managed_bytes}")
        rows = managed_rows(recording, "peak") if lines else {}
        for line, size in lines:
            found = sum(value for name, value in rows.items() if name.startswith(line))
            if found != size:
                problems.append(f"{line}: {found} bytes at the peak, not {size}; lines are {rows}")
        return {"residuals": residuals, "managed_bytes": managed, "lines": rows, "problems": problems}

    return run


def _built(name, *arguments):
    return lambda bench: [bench.bin / name, *arguments]


def all_cases():
    yield "managed, C++", case(_built("gpu_managed", "touch", "--seconds", "12"), managed_bytes=364 * MIB)
    yield "managed, paged", case(_built("gpu_managed", "paged", "--seconds", "12"), managed_bytes=512 * MIB)
    script = "cupy_managed.py"
    yield (
        "managed, cupy",
        case(
            lambda bench: [bench.python, str(bench.programs / script), "--seconds", "8"],
            needs="cupy",
            managed_bytes=320 * MIB,
            lines=((f"{script}:13", 64 * MIB), (f"{script}:16", 256 * MIB)),
        ),
    )
    for how in ("reset", "managed", "primary-reset", "release"):
        yield how if how != "managed" else "managed, reset", case(_built("gpu_resets", how, "--seconds", "9"))


def print_table(results):
    for name, result in results.items():
        if "skipped" in result:
            print(f"{name:20s} skipped: {result['skipped']}")
        for entry in result.get("residuals", []):
            print(
                f"{name:20s} peak {residual.mib(entry['ledger_peak_bytes'])} MiB, managed"
                f" {residual.mib(result['managed_bytes'])}, residual {residual.mib(entry['worst_bytes'])} at most;"
                f" {entry['samples']} samples, {entry['samples_in_transit']} in transit"
            )
    print()
