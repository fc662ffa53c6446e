# SPDX-License-Identifier: Apache-2.0
"""The cases of tests/gpu/run.py. Each returns a dictionary; its "problems" are what failed."""

import json
import pathlib
import re
import subprocess
import sys
import threading

import advice
import attaching
import balance
import causes
import engines
import laboratory
import names
import overflow
import ranks
import residual
import sleeping
import vgg19
import xla
import yielding

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
        # vramscope's own block comes last, after the program's error message.
        failure = re.search(r"^Traceback.*?^\S+(?:Error|Exception).*?$", done.stderr, re.DOTALL | re.MULTILINE)
        said = failure.group(0)[-800:] if failure else done.stderr[-600:].strip()
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {said}")
    return done.stdout


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


def overhead_case(script, *arguments, of_build=False):
    def case(bench):
        path = bench.folder / f"{script}.json"
        where = ["--build", bench.build] if of_build else ["--program", bench.program]
        command = [sys.executable, ROOT / "bench" / script, *where]
        run([*command, "--json", path, *arguments], bench.environment, bench.limit(180))
        return {**json.loads(path.read_text(encoding="utf-8")), "problems": []}

    return case


def all_cases():
    """(group, name, function), the most telling first: the time can run out."""
    identity = {
        "gpt2": identity_case("train_gpt2.py", "--steps", "60"),
        "resnet50": identity_case("train_resnet50.py", "--steps", "10"),
    }
    overhead = {
        "cuda_events": overhead_case("cuda_events.py", "--rounds", "2"),
        "threads": overhead_case("threads.py", "--rounds", "2", of_build=True),
        "mlp_step": overhead_case("mlp_step.py", "--device", "cuda", "--rounds", "2", "--steps", "600"),
    }
    groups = {
        "residual": dict(residual.all_cases()),
        "two": dict(residual.cases_of_two_gpus()),
        "ranks": dict(ranks.all_cases()),
        "identity": identity,
        "overhead": overhead,
        "names": dict(names.all_cases()),
        "laboratory": dict(laboratory.all_cases()),
        "causes": dict(causes.all_cases()),
        "yield": dict(yielding.all_cases()),
        "balance": dict(balance.all_cases()),
        "overflow": dict(overflow.all_cases()),
        "sleep": dict(sleeping.all_cases()),
        "attach": dict(attaching.all_cases()),
        "jax": dict(xla.all_cases()),
        "engines": dict(engines.all_cases()),
        "advice": dict(advice.all_cases()),
        "vgg19": dict(vgg19.all_cases()),
    }
    for group, entries in groups.items():
        for name, function in entries.items():
            yield group, name, function


def print_tables(results):
    for group in ("residual", "two"):
        if group in results:
            residual.print_table(results[group])
    if "ranks" in results:
        ranks.print_table(results["ranks"])
    if "names" in results:
        names.print_table(results["names"])
    if "laboratory" in results:
        laboratory.print_table(results["laboratory"])
    if "causes" in results:
        causes.print_table(results["causes"])
    if "yield" in results:
        yielding.print_table(results["yield"])
    if "sleep" in results:
        sleeping.print_table(results["sleep"])
    if "attach" in results:
        attaching.print_table(results["attach"])
    if "jax" in results:
        xla.print_table(results["jax"])
    if "advice" in results:
        advice.print_table(results["advice"])
    if "engines" in results:
        engines.print_table(results["engines"])
    if "balance" in results:
        balance.print_table(results["balance"])
    if "overflow" in results:
        overflow.print_table(results["overflow"])
    if "vgg19" in results:
        vgg19.print_table(results["vgg19"])
    for name, result in results.get("identity", {}).items():
        if "plain" in result:
            same = result["plain"][0]["digest"] == result["vramscope"]["digest"]
            print(
                f"{name}: losses and weights {'bit-identical' if same else 'DIFFER'}; nvidia-smi"
                f" {result['plain'][0]['nvidia_smi_mib']} plain, {result['vramscope']['nvidia_smi_mib']} MiB"
            )
    for name, result in results.get("overhead", {}).items():
        for threads, figures in result.get("threads", {}).items():
            alone = result["threads"]["1"]["event_ns"]
            print(f"{name}: {threads} at once {figures['event_ns']:6.1f} ns an event {figures['event_ns'] / alone:.2f}x")
        for arm, figures in result.get("arms", {}).items():
            if name == "mlp_step":
                print(f"{name} {arm:26s} {figures['us_per_step']:9.1f} us   {figures['ratio']:.3f}x")
            else:
                for depth, cost in figures.items():
                    pair = f"{cost['pair_ns']:7.0f} ns a pair" if "pair_ns" in cost else ""
                    print(f"{name} {arm:26s} {depth:8s} {pair:17s} {cost['event_ns']:+7.0f} ns an event")
    print()
