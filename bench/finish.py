# SPDX-License-Identifier: Apache-2.0
"""What it costs to finish a recording and to ask it, beside heaptrack_print and PyTorch's snapshot loader.

    cmake --build build --target vramscope bench_make_recording
    .venv/bin/python bench/finish.py [--events 10000000] [--build build] [--json FILE] [--only vramscope]

One made-up training (bench/made_up_training.h) is written as a live recording of vramscope, as heaptrack and as
PyTorch's recorder write it, and read by each of them: `vramscope finish` and then the questions that look at all of a
recording, heaptrack_print with its usual report, and pickle.load with torch.cuda._memory_viz.trace_plot. An event is an
allocation or a free. Wall-clock and processor time, highest memory of each process.
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import arms

ROOT = arms.ROOT
INSTANTS = 5
DIFFS = 5
LOADER = """
import pickle, sys, torch.cuda._memory_viz as viz
with open(sys.argv[1], "rb") as file:
    snapshot = pickle.load(file)
viz.trace_plot(snapshot)
"""


def run(command):
    """Its cost, or None where it fails; what it prints is thrown away."""
    began = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    with child.stderr as stderr:
        complaint = stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        print(f"finish: {' '.join(map(str, command))}: {complaint.strip() or child.returncode}", file=sys.stderr)
        return None
    return {
        "wall_s": time.monotonic() - began,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "memory_mib": usage.ru_maxrss / 1024,
    }


def made(build, kind, events, path):
    """Writes the training; how many events it has."""
    program = build / "bin/bench_make_recording"
    if not program.is_file():
        sys.exit(f"finish: {program} is not there: cmake --build {build} --target vramscope bench_make_recording")
    return int(subprocess.run([program, kind, str(events), path], check=True, capture_output=True, text=True).stdout)


def slowest(costs):
    return max((cost for cost in costs if cost), key=lambda cost: cost["wall_s"], default=None)


def diff(program, a, b, beside):
    """What a diff costs: medians, and that of its processor time beside a question asked in turn with it."""
    costs = [(run([program, "diff", "--json", a, b]), run(beside)) for _ in range(DIFFS)]
    pairs = [pair for pair in costs if all(pair)]
    if not pairs:
        return None
    medians = {key: statistics.median(cost[key] for cost, _ in pairs) for key in pairs[0][0]}
    return medians | {"cpu_beside_a_timeline": statistics.median(x["cpu_s"] / y["cpu_s"] for x, y in pairs)}


def vramscope(build, events, folder):
    program = build / "bin/vramscope"
    live, finished = folder / "made-up.vram.d", folder / "made-up.vram"
    count = made(build, "live", events, live)
    live_bytes = sum(file.stat().st_size for file in live.iterdir())
    finish = run([program, "finish", "--no-report", live, "-o", finished])
    if finish is None:
        return {}
    finish |= {
        "events": count,
        "events_per_second": count / finish["wall_s"],
        "bytes_per_event": finished.stat().st_size / count,
        "live_bytes_per_event": live_bytes / count,
    }
    ask = [program, "report", "--json"]
    halves = subprocess.run([*ask, "--timeline", "2", finished], check=True, capture_output=True, text=True)
    begin_ns, middle_ns = json.loads(halves.stdout)["timelines"][0]["time_ns"][:2]
    # The same instants each time.
    instants = random.Random(1)
    timeline = [*ask, "--timeline", "1000", finished]
    other = shutil.copy(finished, folder / "other.vram")
    costs = {
        "finish": finish,
        "report at the peak": run([*ask, finished]),
        f"report at {INSTANTS} instants, the slowest": slowest(
            run([*ask, "--at", f"@{instants.randrange(begin_ns, 2 * middle_ns - begin_ns)}", finished]) for _ in range(INSTANTS)
        ),
        "report with a timeline of 1000": run(timeline),
        "iterations": run([program, "iterations", "--json", finished]),
        "leaks": run([program, "leaks", "--json", finished]),
        "diff with a copy": diff(program, finished, other, timeline),
    }
    finished.unlink()
    other.unlink()
    return {name: cost for name, cost in costs.items() if cost}


def heaptrack(build, events, folder):
    program = shutil.which("heaptrack_print")
    if program is None:
        print("finish: no heaptrack_print: install heaptrack", file=sys.stderr)
        return {}
    file = folder / "made-up.heaptrack"
    count = made(build, "heaptrack", events, file)
    cost = run([program, file])
    file.unlink()
    return {"heaptrack_print": cost | {"events_per_second": count / cost["wall_s"]}} if cost else {}


def snapshot(build, events, folder):
    file = folder / "made-up.pickle"
    count = made(build, "snapshot", events, file)
    size = file.stat().st_size
    cost = run([sys.executable, "-c", LOADER, file])
    file.unlink()
    if cost is None:
        return {}
    return {"snapshot": cost | {"events_per_second": count / cost["wall_s"], "bytes_per_event": size / count}}


READERS = {"vramscope": vramscope, "heaptrack": heaptrack, "snapshot": snapshot}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--only", choices=READERS, help="one of them alone")
    parser.add_argument("--folder", type=pathlib.Path, help="where the recordings are while they are read (/tmp)")
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    results = {}
    for name, read in READERS.items():
        if args.only in (None, name):
            with tempfile.TemporaryDirectory(prefix="vramscope-bench-", dir=args.folder) as folder:
                results |= read(args.build, args.events, pathlib.Path(folder))
    for name, cost in results.items():
        rate = f"   {cost['events_per_second'] / 1e6:6.2f} M events/s" if "events_per_second" in cost else ""
        size = f"   {cost['bytes_per_event']:.2f} bytes an event" if "bytes_per_event" in cost else ""
        beside = f"   {cost['cpu_beside_a_timeline']:.2f} of a timeline's CPU" if "cpu_beside_a_timeline" in cost else ""
        print(
            f"{name:36s} {cost['wall_s']:8.2f} s {cost['cpu_s']:8.2f} s of CPU {cost['memory_mib']:8.0f} MiB{rate}{size}{beside}",
            file=sys.stderr,
        )
    cases = {f"{name}, {args.events // 1_000_000} M events": cost for name, cost in results.items()}
    arms.write_json(args.json, {"bench": "finish", "machine": arms.machine(), "results": {"finish": cases}})
    return 0


if __name__ == "__main__":
    sys.exit(main())
