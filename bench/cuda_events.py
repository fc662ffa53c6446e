# SPDX-License-Identifier: Apache-2.0
"""Cost of one allocation event of PyTorch's allocator: plain, vramscope, PyTorch's recorder.

Times pairs of torch.empty() and its free, at two depths of the Python stack. The cost of one event is
half of what a pair takes longer than in a plain process. On a noisy machine that difference of two processes
says little, so one process also records and pauses in turn, some hundred times: the median of the differences
between neighbours is the cost of recording an event beside the same hook that looks at a flag and goes on.

    python3 bench/cuda_events.py --json build/cuda_events.json
"""

import argparse
import json
import os
import pathlib
import statistics
import sys
import time

import arms

# The smallest is the depth of the stack when the benchmark begins to count.
DEPTHS = (6, 20)


TURNS = 300
PAIRS_A_TURN = 1000


def child(pairs, recorder, in_turn, device):
    import torch

    if recorder:
        torch.cuda.memory._record_memory_history(stacks=recorder, max_entries=10_000_000)
    empty = torch.empty
    device = torch.device(device)

    def at_depth(left):
        if left > 0:
            return at_depth(left - 1)
        began = time.perf_counter_ns()
        for _ in range(pairs):
            empty(1024, device=device)
        return (time.perf_counter_ns() - began) / pairs

    def timed(depth):
        # The existing frames count, including at_depth's own.
        standing, frame = 1, sys._getframe()
        while frame is not None:
            standing, frame = standing + 1, frame.f_back
        return at_depth(depth - standing)

    def in_turns(depth):
        sys.path.insert(0, os.fspath(arms.ROOT / "python"))
        import vramscope

        nonlocal pairs
        pairs = PAIRS_A_TURN
        differences = []
        for _ in range(TURNS):
            vramscope.start()
            recorded = timed(depth)
            vramscope.stop()
            differences.append((recorded - timed(depth)) / 2)
        vramscope.start()
        return statistics.median(differences)

    timed(DEPTHS[0])
    if in_turn:
        print(json.dumps({"event_ns": {depth: in_turns(depth) for depth in DEPTHS}}))
        return
    best = {}
    for depth in DEPTHS:
        best[depth] = min(timed(depth) for _ in range(9))
    print(
        json.dumps(
            {"pair_ns": best, "torch": torch.__version__, "gpu": torch.cuda.get_device_name() if device.type == "cuda" else None}
        )
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--recorder", choices=("python", "all"), help=argparse.SUPPRESS)
    parser.add_argument("--in-turn", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--pairs", type=int, default=40_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--program", type=pathlib.Path, default=arms.DEFAULT_PROGRAM)
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    if args.child:
        child(args.pairs, args.recorder, args.in_turn, args.device)
        return 0

    common = ["--pairs", str(args.pairs), "--device", args.device]
    of_device = ["--cpu"] if args.device == "cpu" else []
    plan = {
        "plain": (common, lambda trace: []),
        "vramscope": (common, lambda trace: arms.vramscope_command(args.program, trace, *of_device)),
        "vramscope --no-python": (
            common,
            lambda trace: arms.vramscope_command(args.program, trace, "--no-python", *of_device),
        ),
        "in turn": (
            [*common, "--in-turn"],
            lambda trace: arms.vramscope_command(args.program, trace, *of_device),
        ),
        "in turn, --no-python": (
            [*common, "--in-turn"],
            lambda trace: arms.vramscope_command(args.program, trace, "--no-python", *of_device),
        ),
    }
    if args.device == "cuda":
        plan["recorder, stacks=python"] = ([*common, "--recorder", "python"], lambda trace: [])
    results = arms.measure(__file__, plan, args.rounds)
    rows = {}
    for name in [name for name in results if name.startswith("in turn")]:
        runs = results.pop(name)
        rows[name] = {}
        for depth in map(str, DEPTHS):
            events = [run["event_ns"][depth] for run in runs]
            rows[name][f"depth {depth}"] = {"event_ns": arms.median(events), "rounds_event_ns": events}
            print(f"{name:26s} depth {depth:>2s} {arms.median(events):+8.1f} ns an event", file=sys.stderr)
    for name, runs in results.items():
        rows[name] = {}
        for depth in map(str, DEPTHS):
            pair = arms.median([run["pair_ns"][depth] for run in runs])
            plain = arms.median([run["pair_ns"][depth] for run in results["plain"]])
            rows[name][f"depth {depth}"] = {
                "pair_ns": pair,
                "event_ns": (pair - plain) / 2,
                "rounds_pair_ns": [run["pair_ns"][depth] for run in runs],
            }
            print(
                f"{name:26s} depth {depth:>2s} {pair:8.0f} ns a pair   {(pair - plain) / 2:+8.0f} ns an event",
                file=sys.stderr,
            )
    first = results["plain"][0]
    arms.write_json(
        args.json,
        {
            "bench": "cuda_events",
            "pairs": args.pairs,
            "machine": arms.machine(first["torch"], first["gpu"]),
            "arms": rows,
        },
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
