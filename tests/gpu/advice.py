# SPDX-License-Identifier: Apache-2.0
"""The group `advice` of tests/gpu/run.py: what `report --advice` promises beside the peak of a run that follows it."""

import json
import subprocess

RULES = {
    "checkpoint": "checkpoint", "checkpoint_amp": "checkpoint", "checkpoint_cnn": "checkpoint", "no_grad": "no_grad",
    "attention": "attention", "fused": "fused", "buckets": "buckets", "release": "release", "keep": "keep",
    "zero_grad": "zero_grad", "zero_grad_late": "zero_grad", "state_dict": "state_dict",
}  # fmt: skip
ON_PURPOSE = (
    "kv_cache", "carried_state", "frozen", "accumulated", "averaged", "accumulated_zeroed", "slow_optimizer", "bucket_views", "assigned_state",
    "loaded_data", "slow_like_optimizer",
)  # fmt: skip
MOST_OFF = 0.05


def advice(bench, *words):
    trace = bench.folder / ("advice-" + "-".join(words) + ".vram")
    program = bench.programs.parents[1] / "e2e" / "programs" / "advised.py"
    run = [bench.program, "run", "--no-report", "-o", trace, "--", bench.python, str(program), *words, "cuda"]
    report = [bench.program, "report", trace, "--advice", "--json"]
    for command in (run, report):
        done = subprocess.run(command, env=bench.environment, capture_output=True, text=True, timeout=bench.limit(60), check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{command[1]} ended with {done.returncode}: {done.stderr[-1500:]}")
    trace.unlink()
    return json.loads(done.stdout)


def promised(program, rule):
    def case(bench):
        told, followed = advice(bench, program), advice(bench, program, "follow")
        saved = told["allocated_peak_bytes"] - followed["allocated_peak_bytes"]
        promises = [each["saves_bytes"] for each in told["savings"] if each["rule"] == rule]
        result = {"peak_bytes": told["allocated_peak_bytes"], "saved_bytes": saved, "promised_bytes": sum(promises), "problems": []}
        if len(promises) != 1:
            result["problems"].append(f"{len(promises)} savings by {rule}")
        elif abs(promises[0] - saved) > MOST_OFF * saved:
            result["problems"].append(f"{promises[0]} bytes promised, {saved} saved")
        if rule in [each["rule"] for each in followed["savings"]]:
            result["problems"].append("advised to a program that follows it")
        return result

    return case


def left_alone(program):
    def case(bench):
        told = advice(bench, program)
        return {"peak_bytes": told["allocated_peak_bytes"], "problems": [each["change"] for each in told["savings"] if each["lowers"] == "allocated"]}

    return case


def all_cases():
    for program, rule in RULES.items():
        yield program, promised(program, rule)
    for program in ON_PURPOSE:
        yield program, left_alone(program)


def print_table(results):
    print(f"{'advice':16s} {'peak':>12s} {'promised':>12s} {'saved':>12s}")
    for name, result in results.items():
        mib = [f"{result[key] / 2**20:.1f} MiB" if key in result else "-" for key in ("peak_bytes", "promised_bytes", "saved_bytes")]
        print(f"{name:16s} " + " ".join(f"{text:>12s}" for text in mib))
