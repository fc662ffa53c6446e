# SPDX-License-Identifier: Apache-2.0
"""The group `overflow` of tests/gpu/run.py: five trainings on a GPU that has 60 % of what each of them needs.

Another process holds the rest by plain cuMemAlloc. All must end with the losses and weights of a run that nobody
disturbed, to the bit, and `run --overflow` must report that run's peak, to 1 %.
"""

import contextlib
import json
import subprocess
import time

import cases

TRAININGS = ("mlp", "convolutions", "gpt", "autoencoder", "mixer")
SHARE = 0.6
SLACK = ("cached", "fragmentation", "rounding", "graph pool", "driver")
# Takes all but this many bytes, and keeps them until its input ends.
FILLER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
address = ctypes.c_uint64()
size = ctypes.c_size_t((free.value - int(sys.argv[1])) // (2 << 20) * (2 << 20))
assert cuda.cuMemAlloc_v2(ctypes.byref(address), size) == 0
print(size.value, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def filled(bench, left_bytes):
    command = [bench.python, "-c", FILLER, str(int(left_bytes))]
    filler = subprocess.Popen(command, env=bench.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        if not filler.stdout.readline():
            raise RuntimeError("the GPU could not be filled")
        yield
    finally:
        filler.stdin.close()
        filler.wait(timeout=60)


def training(bench, *names):
    return [bench.python, str(bench.programs / "five_trainings.py"), *names]


def lines_of(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def in_use(categories):
    return sum(size for name, size in categories.items() if name not in SLACK)


def run_recorded(bench, name, options, timeout):
    trace = bench.folder / f"overflow-{name}.vram"
    began = time.monotonic()
    done = subprocess.run(
        [bench.program, "run", "-o", trace, *options, "--", *training(bench, name.split("-")[0])],
        env=bench.environment, capture_output=True, text=True, timeout=bench.limit(timeout), check=False,
    )
    seconds = time.monotonic() - began
    if done.returncode != 0:
        raise RuntimeError(f"ended with {done.returncode}: {done.stderr[-1500:]}")
    report = subprocess.run(
        [bench.program, "report", trace, "--json"], env=bench.environment, capture_output=True, text=True, timeout=60, check=True
    )
    trace.unlink(missing_ok=True)
    return lines_of(done.stdout)[0], json.loads(report.stdout), seconds, done.stderr


def one_training(name):
    def case(bench):
        if not hasattr(bench, "plain_trainings"):
            text = cases.run(training(bench), bench.environment, bench.limit(120))
            bench.plain_trainings = {line["name"]: line for line in lines_of(text)}
        plain = bench.plain_trainings[name]
        free, free_report, free_seconds, _ = run_recorded(bench, f"{name}-free", ["--no-report"], 90)
        categories = {c["category"]: c["bytes"] for c in free_report["categories"] if c["device"] >= 0}
        needed = sum(process["ledger_bytes"] for process in free_report["processes"] if process["device"] >= 0)
        result = {"needed_bytes": needed, "undisturbed_bytes": in_use(categories), "undisturbed_s": round(free_seconds, 1)}
        problems = result["problems"] = []
        if plain["losses"] != free["losses"] or plain["weights"] != free["weights"]:
            problems.append("two undisturbed runs differ: this training proves nothing")
        with filled(bench, SHARE * needed):
            held, report, seconds, stderr = run_recorded(bench, f"{name}-held", ["--overflow"], 150)
        result["overflow_s"] = round(seconds, 1)
        if held["losses"] != plain["losses"]:
            problems.append(f"losses differ: {held['losses']} and {plain['losses']}")
        if held["weights"] != plain["weights"]:
            problems.append("weights differ")
        if held["allocated"] != plain["allocated"]:
            result["allocated_differs_by"] = held["allocated"] - plain["allocated"]
        overflow = [entry for entry in report.get("overflow", []) if entry["device"] >= 0]
        if not overflow:
            problems.append(f"nothing was in host memory: {stderr[-800:]}")
            return result
        result.update({key: overflow[0][key] for key in ("held_bytes", "host_bytes", "most_host_bytes", "card_gb", "batch_percent")})
        result["reported_bytes"] = in_use(overflow[0]["categories"])
        result["off"] = round(result["reported_bytes"] / result["undisturbed_bytes"] - 1, 5)
        if abs(result["off"]) > 0.01:
            problems.append(f"the peak is off by {result['off']:.2%}")
        result["residual_bytes"] = max(abs(entry["worst_bytes"]) for entry in report["residuals"])
        problems += [f"{i['name']}: {i['detail']}" for i in report["invariants"] if not i["holds"]]
        said = stderr.splitlines()
        first = next((i for i, line in enumerate(said) if line.startswith("Overflow on")), len(said))
        result["said"] = said[first : first + 6]
        return result

    return case


def all_cases():
    for name in TRAININGS:
        yield name, one_training(name)


def print_table(results):
    print(f"{'overflow':14s} {'needed':>9s} {'in use':>9s} {'reported':>9s} {'off':>8s} {'in host':>9s} {'residual':>9s} {'free':>7s} {'held':>7s}")
    for name, result in results.items():
        gib = {key: f"{value / 2**30:.2f}" for key, value in result.items() if key.endswith("_bytes")}
        print(
            f"{name:14s} {gib.get('needed_bytes', '-'):>9s} {gib.get('undisturbed_bytes', '-'):>9s} {gib.get('reported_bytes', '-'):>9s} "
            f"{result.get('off', 0):>8.3%} {gib.get('host_bytes', '-'):>9s} {gib.get('residual_bytes', '-'):>9s} "
            f"{result.get('undisturbed_s', 0):>5.1f} s {result.get('overflow_s', 0):>5.1f} s"
        )
        for line in result.get("said", []):
            print(f"    {line}")
