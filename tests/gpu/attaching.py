# SPDX-License-Identifier: Apache-2.0
"""The group `attach` of tests/gpu/run.py: trainings that `vramscope attach` finds under way."""

import json
import re
import statistics
import subprocess
import sys
import time

import names
from attach import GAPS

catalogue, compare = names.catalogue, names.compare
STEPS, AT = 5, 3
MIB = names.MIB
CYCLES = 100
MODELS = ("gpt2", "resnet", "lora_trainer", "lightning", "hf_trainer", "gan", "lstm_lm", "amp", "accumulate")

# Parameters, gradients and Adam's states of 1 B parameters in half precision: 8 GB.
LARGE = """
import sys, time
import torch
layers = [torch.nn.Linear(4096, 4096, device="cuda", dtype=torch.bfloat16) for _ in range(60)]
model = torch.nn.Sequential(*layers)
optimizer = torch.optim.Adam(model.parameters())
def step():
    optimizer.zero_grad()
    model(torch.randn(64, 4096, device="cuda", dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
step()
print("ready", flush=True)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    step()
print(torch.cuda.memory_allocated(), flush=True)
"""


class Running:
    """A program that has printed "ready"."""

    def __init__(self, command, environment):
        self.process = subprocess.Popen(
            list(map(str, command)), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while (line := self.process.stdout.readline()) != "ready\n":
            if line == "":
                raise RuntimeError(self.process.stderr.read()[-800:])

    def finish(self, limit):
        output, errors = self.process.communicate(timeout=limit)
        if self.process.returncode != 0:
            raise RuntimeError(errors[-800:])
        return output

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


def vramscope(bench, *words, limit=60):
    began = time.perf_counter()
    done = subprocess.run(
        list(map(str, [bench.program, *words])), env=bench.environment, capture_output=True, text=True,
        timeout=bench.limit(limit), check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return done, time.perf_counter() - began


def model_case(name, device="cuda", size="full"):
    """Exact sums at the first instant after attach and at the later ones, the same losses, NVML's figure."""

    def run(bench):
        case = catalogue.case(name)
        trace, sums_path = bench.folder / f"attach-{name}.vram", bench.folder / f"attach-{name}.json"
        common = ("--oracle", sums_path, "--deterministic", "--digest")
        command = case.command(sys.executable, device, size, STEPS, *common)
        environment = names.on_one_gpu(bench.environment)
        plain = subprocess.run(
            list(map(str, command)), env=environment, capture_output=True, text=True, timeout=bench.limit(120), check=True
        ).stdout
        with Running([*command, "--attach-at", str(AT)], environment) as program:
            attach = subprocess.Popen(
                list(map(str, [bench.program, "attach", program.process.pid, "-o", trace, "--no-report"])),
                env=bench.environment, stderr=subprocess.PIPE, text=True,
            )
            said = ""
            while "recording process" not in said and (line := attach.stderr.readline()):
                said += line
            if "recording process" not in said:
                raise RuntimeError(said)
            output = program.finish(bench.limit(120))
            said = attach.communicate(timeout=bench.limit(60))[1]
        if attach.returncode != 0:
            raise RuntimeError(said)
        recording = compare.Recording(bench.program, trace, device, bench.environment)
        comparison = compare.Comparison(recording, name, case.unchecked)
        sums = compare.load(sums_path)
        comparison.with_sums(sums)
        problems = list(comparison.problems)
        if digest(output) != digest(plain):
            problems.append(f"{name}: other losses or weights than without attach")
        instant = f"mark:{sums['instants'][0]['mark']}"
        report = recording.report("--at", instant)
        first = {}
        for row in report["rows"]:
            first[row["path"][0]] = first.get(row["path"][0], 0) + row["bytes"]
        residual = max((abs(entry["worst_bytes"]) for entry in report["residuals"]), default=0)
        problems += [f"{name}: {entry['name']} is broken" for entry in report["invariants"] if not entry["holds"]]
        return {"instants": comparison.figures, "rows": first, "residual": residual, "problems": problems}

    return run


def digest(output):
    found = re.search(r"DIGEST \w+", output)
    return found.group() if found else output


def cycles_case(device="cuda", count=CYCLES):
    """Attach and detach again and again: the standstill of the main thread, and what remains of the process."""

    def run(bench):
        seconds = 4 + 0.45 * count
        trace = bench.folder / "cycles.vram"
        with Running([sys.executable, "-c", GAPS.replace("DEVICE", device), str(seconds)], bench.environment) as program:
            pid, resident, began = program.process.pid, [], time.monotonic()
            for _ in range(count):
                if time.monotonic() - began > seconds - 3:
                    break
                vramscope(bench, "attach", pid, "--for", "1ms", "-o", trace, "--no-report")
                with open(f"/proc/{pid}/status", encoding="ascii") as status:
                    resident.append(int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)))
            attached = [float(gap) for gap in program.finish(bench.limit(60 + seconds)).split()]
        with Running([sys.executable, "-c", GAPS.replace("DEVICE", device), "5"], bench.environment) as program:
            alone = [float(gap) for gap in program.finish(bench.limit(60)).split()]
        # Each cycle interrupts the main thread twice.
        worst = attached[: 2 * len(resident)]
        figures = {
            "cycles": len(resident),
            "gap_median_ms": statistics.median(worst),
            "gap_worst_ms": worst[0],
            "gap_worst_alone_ms": alone[0] if alone else 0,
            "resident_growth_kib": resident[-1] - resident[min(3, len(resident) - 1)],
        }
        return {**figures, "problems": []}

    return run


def dump_case(bench):
    """All of a training of 1 B parameters by name, in a second."""
    with Running([sys.executable, "-c", LARGE, "25"], bench.environment) as program:
        times = []
        for _ in range(5):
            done, seconds = vramscope(bench, "dump", program.process.pid, "--json")
            times.append(seconds)
        report = json.loads(done.stdout)
        program.finish(bench.limit(60))
    devices = {device["index"] for device in report["devices"] if device["kind"] == "gpu"}
    rows = [row for row in report["rows"] if row["device"] in devices]
    total = sum(row["bytes"] for row in rows)
    named = {word: sum(row["bytes"] for row in rows if word in row["path"]) for word in ("parameter", "gradient", "optimizer state", "before recording", "unknown")}
    problems = [] if statistics.median(times) <= 1 else [f"dump takes {statistics.median(times):.2f} s"]
    return {"dump_seconds": times, "bytes": total, "named": named, "categories": report["categories"], "problems": problems}


def native_case(bench):
    """A program with the static CUDA runtime and no Python: what it takes from then on, by line, and NVML's figure."""
    trace = bench.folder / "attach-native.vram"
    with Running([bench.program.parent / "gpu_server", "12"], bench.environment) as program:
        for _ in range(2):
            _, seconds = vramscope(bench, "attach", program.process.pid, "--for", "3s", "-o", trace, "--no-report")
        output = program.finish(bench.limit(60))
    recording = compare.Recording(bench.program, trace, "cuda", bench.environment)
    report = recording.report("--at", "peak", "--by", "owner,line")
    rows, lines = {}, {}
    for row in report["rows"]:
        for sums, key in ((rows, row["path"][0]), (lines, row["path"][-1])):
            sums[key] = sums.get(key, 0) + row["bytes"]
    # Without debug information the line is the program's name.
    requests = {line: size for line, size in lines.items() if "server" in line}
    residual = max((abs(entry["worst_bytes"]) for entry in report["residuals"]), default=0)
    problems = [f"{entry['name']} is broken" for entry in report["invariants"] if not entry["holds"]]
    if "right" not in output:
        problems.append("another result")
    # At the peak it may be a request from before the recording: it has no stack.
    if sum(requests.values()) + rows.get("unknown owner", 0) != 32 * MIB:
        problems.append(f"its requests are {requests}")
    return {"rows": rows, "residual": residual, "seconds_for_3": seconds, "problems": problems}


def all_cases():
    yield from ((name, model_case(name)) for name in MODELS)
    yield "native", native_case
    yield "cycles", cycles_case()
    yield "dump, 1 B parameters", dump_case


def print_table(results):
    for name, result in results.items():
        if "rows" in result:
            held = sum(result["rows"].values()) / MIB
            before = result["rows"].get("before recording", 0) / MIB
            print(f"attach {name:12s} {held:9.1f} MiB at its first instant, {before:7.1f} before recording; "
                  f"residual {result['residual'] / MIB:.1f}")
        elif "cycles" in result:
            print(f"attach {result['cycles']} times: the main thread stands {result['gap_median_ms']:.1f} ms (median), "
                  f"{result['gap_worst_ms']:.1f} at most; {result['gap_worst_alone_ms']:.1f} alone")
        elif "dump_seconds" in result:
            print(f"{name}: {statistics.median(result['dump_seconds']):.2f} s, {result['bytes'] / MIB:.0f} MiB, "
                  + ", ".join(f"{word} {size / MIB:.0f}" for word, size in result["named"].items()))
