# SPDX-License-Identifier: Apache-2.0
"""Cost of one event where many threads allocate at once, beside one thread alone.

Runs tests/hosts/load/event_cost.c (a pair of calls of c10::alloc_cpu's kind, nothing else) plain and recorded, each
with 1 to 16 threads. The cost of an event is half of what a pair takes longer recorded than plain.

    python3 bench/threads.py --build build --json build/threads.json
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import arms


def pair_ns(command, threads):
    done = subprocess.run(
        [*command, str(threads)], env=arms.environment(), capture_output=True, text=True, timeout=120, check=True
    )
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=arms.ROOT / "build")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    host = args.build / "hosts" / "event_cost"
    rows = {}
    with tempfile.TemporaryDirectory(prefix="vramscope-bench-") as folder:
        for threads in args.threads:
            plain, recorded = [], []
            for number in range(args.rounds):
                trace = pathlib.Path(folder) / f"{threads}-{number}.vram"
                under = arms.vramscope_command(args.build / "bin" / "vramscope", trace, "--cpu")
                plain.append(pair_ns([host], threads))
                recorded.append(pair_ns([*under, host], threads))
                trace.unlink()
            event = (arms.median(recorded) - arms.median(plain)) / 2
            rows[threads] = {"event_ns": event, "plain_pair_ns": plain, "recorded_pair_ns": recorded}
            ratio = event / rows[args.threads[0]]["event_ns"]
            print(f"{threads:2d} threads {event:7.1f} ns an event   {ratio:.2f}x", file=sys.stderr)
    arms.write_json(args.json, {"bench": "threads", "machine": arms.machine(), "threads": rows})
    return 0


if __name__ == "__main__":
    sys.exit(main())
