# SPDX-License-Identifier: Apache-2.0
"""The cases of tests/gpu/run.py. Each returns a dictionary; its "problems" are what failed."""

import json
import pathlib
import subprocess
import sys
import threading

import ledger
import names

ROOT = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20

# The target: 0.1 % of the peak or 4 MiB, whichever is larger; 1 % of samples in transit.
RESIDUAL_SHARE = 0.001
RESIDUAL_BYTES = 4 * MIB
TRANSIT_SHARE = 0.01


def run(command, environment, timeout):
    """The command's standard output; an error with the end of its stderr if it fails."""
    done = subprocess.run(
        [str(word) for word in command],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-600:].strip()}")
    return done.stdout


def prefixed(output, word):
    return [line[len(word) + 1 :] for line in output.splitlines() if line.startswith(word + " ")]


def residual_case(name, command, marks=False):
    def case(bench):
        recording, output = bench.record(name, command(bench))
        report = recording.report()
        problems = [
            f"invariant {entry['name']} is broken: {entry['detail']}"
            for entry in report["invariants"]
            if not entry["holds"]
        ]
        gpus = [device for device in report["devices"] if device["kind"] == "gpu"]
        if not gpus:
            raise RuntimeError("the recording has no GPU")
        residuals = recording.residuals()
        if not residuals:
            raise RuntimeError("the recording has no NVML samples")
        # One GPU is used; where a machine has several, its row is the one with the ledger.
        gpu = max(gpus, key=lambda device: device["ledger_bytes"])
        residual = max(residuals, key=lambda entry: entry["ledger_peak_bytes"])
        limit = max(RESIDUAL_BYTES, RESIDUAL_SHARE * residual["ledger_peak_bytes"])
        if residual["samples"] == 0:
            problems.append("no NVML sample was taken")
        if abs(residual["worst_bytes"]) > limit:
            problems.append(f"worst residual {residual['worst_bytes']} bytes, over {limit:.0f}")
        if residual["samples_in_transit"] > max(1, TRANSIT_SHARE * residual["samples"]):
            problems.append(f"{residual['samples_in_transit']} of {residual['samples']} samples in transit")
        result = {
            "peak": {key: gpu[key] for key in ("nvml_bytes", "ledger_bytes", "residual_bytes")},
            "residual": residual,
            "losses": report["losses"],
            "trace_bytes": recording.trace.stat().st_size,
            "problems": problems,
        }
        if marks:
            result["marks"] = [compare_mark(recording, json.loads(line)) for line in prefixed(output, "MARK")]
            if not result["marks"]:
                problems.append("the program printed no mark")
            problems += [
                f"mark {mark['mark']}: {key} {mark[key]} is not PyTorch's {mark[theirs]}"
                for mark in result["marks"]
                for key, theirs in (("blocks", "memory_allocated"), ("segments", "memory_reserved"))
                if mark[key] != mark[theirs]
            ]
        return result

    return case


def compare_mark(recording, printed):
    report = recording.report("--at", f"mark:{printed['mark']}")
    return {**printed, **ledger.torch_totals(report)}


def observe(command, bench, timeout=90):
    """Runs a training with --hold and --digest: its digest, and nvidia-smi's bytes while it holds."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=bench.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    killer = threading.Timer(bench.limit(timeout), process.kill)
    killer.start()
    digest, used = None, None
    try:
        for line in process.stdout:
            if line.startswith("HOLD"):
                smi = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
                used = [int(value) for value in run(smi, bench.environment, 30).split()]
            if line.startswith("DIGEST "):
                digest = line.split()[1]
        if process.wait() != 0 or digest is None:
            raise RuntimeError(f"{command[0]} ended with {process.returncode} and no digest")
    finally:
        killer.cancel()
        process.kill()
        process.wait()
    return {"digest": digest, "nvidia_smi_mib": used}


def identity_case(script, *arguments):
    def case(bench):
        command = bench.example(
            script, "--device", "cuda", "--deterministic", "--digest", "--hold", "2", *arguments
        )
        trace = bench.folder / f"identity-{script}.vram"
        first, second = observe(command, bench), observe(command, bench)
        under = observe([bench.program, "run", "--no-report", "-o", trace, "--", *command], bench)
        problems = []
        if first["digest"] != second["digest"]:
            problems.append("two plain runs differ: the comparison proves nothing")
        elif under["digest"] != first["digest"]:
            problems.append("losses or weights differ under vramscope")
        if under["nvidia_smi_mib"] != first["nvidia_smi_mib"]:
            problems.append(
                f"nvidia-smi shows {under['nvidia_smi_mib']} MiB, plain {first['nvidia_smi_mib']}"
            )
        return {"plain": [first, second], "vramscope": under, "problems": problems}

    return case


def overhead_case(script, *arguments):
    def case(bench):
        path = bench.folder / f"{script}.json"
        command = [sys.executable, ROOT / "bench" / script, "--program", bench.program]
        run([*command, "--json", path, *arguments], bench.environment, bench.limit(180))
        return {**json.loads(path.read_text(encoding="utf-8")), "problems": []}

    return case


def all_cases():
    """(group, name, function), the most telling first: the time can run out."""

    def training(script, *arguments):
        return lambda bench: bench.example(script, "--device", "cuda", "--marks", *arguments)

    def program(name, *arguments):
        return lambda bench: [bench.bin / name, *arguments]

    # Long enough for the share of samples in transit to say something: a context alone takes 0.1 s.
    jacobi = ("4096", "250000")
    residual = {
        "resnet50": residual_case("resnet50", training("train_resnet50.py", "--steps", "450"), marks=True),
        "gpt2": residual_case("gpt2", training("train_gpt2.py", "--size", "gpt2", "--steps", "140"), marks=True),
        "cuda_driver": residual_case("cuda_driver", program("example_cuda_driver", "--hold", "15")),
        "cuda_runtime_static": residual_case(
            "cuda_runtime_static", program("example_cuda_runtime_static", *jacobi)
        ),
        "cuda_runtime_shared": residual_case(
            "cuda_runtime_shared", program("example_cuda_runtime_shared", *jacobi)
        ),
    }
    identity = {
        "gpt2": identity_case("train_gpt2.py", "--steps", "60"),
        "resnet50": identity_case("train_resnet50.py", "--steps", "10"),
    }
    overhead = {
        "cuda_events": overhead_case("cuda_events.py"),
        "mlp_step": overhead_case("mlp_step.py", "--device", "cuda", "--rounds", "3", "--steps", "1000"),
    }
    groups = {
        "residual": residual,
        "identity": identity,
        "overhead": overhead,
        "names": dict(names.all_cases()),
    }
    for group, entries in groups.items():
        for name, function in entries.items():
            yield group, name, function


def mib(value):
    return "-" if value is None else f"{value / MIB:.1f}"


def print_tables(results):
    if "residual" in results:
        print("MiB                     peak     NVML   ledger    worst      p99  samples transit bracketed")
        for name, result in results["residual"].items():
            if "residual" not in result:
                continue
            peak, residual = result["peak"], result["residual"]
            share = residual["bracketed_bytes"] / max(1, residual["ledger_peak_bytes"])
            print(
                f"{name:20s} {mib(residual['ledger_peak_bytes']):>8s} {mib(peak['nvml_bytes']):>8s}"
                f" {mib(peak['ledger_bytes']):>8s} {mib(residual['worst_bytes']):>8s}"
                f" {mib(residual['p99_bytes']):>8s} {residual['samples']:8d}"
                f" {residual['samples_in_transit']:7d} {share:8.1%}"
            )
            for mark in result.get("marks", []):
                print(
                    f"  at {mark['mark']}: blocks {mark['blocks']}, PyTorch {mark['memory_allocated']};"
                    f" segments {mark['segments']}, PyTorch {mark['memory_reserved']}"
                )
        print()
    if "names" in results:
        names.print_table(results["names"])
    for name, result in results.get("identity", {}).items():
        if "plain" in result:
            same = result["plain"][0]["digest"] == result["vramscope"]["digest"]
            print(
                f"{name}: losses and weights {'bit-identical' if same else 'DIFFER'}; nvidia-smi"
                f" {result['plain'][0]['nvidia_smi_mib']} plain, {result['vramscope']['nvidia_smi_mib']} MiB"
            )
    for name, result in results.get("overhead", {}).items():
        for arm, figures in result.get("arms", {}).items():
            if name == "mlp_step":
                print(f"{name} {arm:26s} {figures['us_per_step']:9.1f} us   {figures['ratio']:.3f}x")
            else:
                for depth, cost in figures.items():
                    print(
                        f"{name} {arm:26s} {depth:8s} {cost['pair_ns']:7.0f} ns a pair"
                        f" {cost['event_ns']:+7.0f} ns an event"
                    )
    print()
