# SPDX-License-Identifier: Apache-2.0
"""What the report of a thousand ranks costs.

    cmake --build build --target vramscope bench_make_recording
    .venv/bin/python bench/ranks.py [--ranks 1000] [--events 100000] [--build build] [--json FILE]

One made-up training (bench/made_up_training.h) a rank, each finished into a recording of its own in one folder; ranks' clocks
differ by minutes, and one rank holds 64 MiB more in one layer. Then `vramscope report FOLDER`, as text, as JSON and as a page,
is asked for, once to warm up. Wall-clock and processor time, highest memory of the process. The folder has about 0.2 GB for a
thousand ranks, and is removed.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import arms
import finish

HEAVY = 777  # as in bench_make_recording


def make_rank(build, folder, rank, events):
    live = folder / f"rank-{rank}.vram.d"
    command = [build / "bin/bench_make_recording", "live", str(events), live, str(rank)]
    made = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    subprocess.run(
        [build / "bin/vramscope", "finish", "--no-report", live], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    shutil.rmtree(live, ignore_errors=True)
    return made


def ask(build, folder, ranks):
    """The costs of each question; the answers are what they must be."""
    program = build / "bin/vramscope"
    told = json.loads(subprocess.run([program, "report", folder, "--json"], check=True, capture_output=True, text=True).stdout)
    assert len(told["ranks"]) == ranks and not told["unread"], told["unread"][:3]
    if ranks > HEAVY:
        assert told["heaviest"] == f"rank {HEAVY}" and told["excess"][0]["layer"] == "layers.7", told["excess"][:3]
    page = folder.parent / "ranks.html"
    costs = {
        "report FOLDER": finish.run([program, "report", folder]),
        "report FOLDER --json": finish.run([program, "report", folder, "--json"]),
        "report FOLDER --html": finish.run([program, "report", folder, "--html", page]),
    }
    return {name: cost for name, cost in costs.items() if cost}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--build", type=pathlib.Path, default=arms.ROOT / "build")
    parser.add_argument("--folder", type=pathlib.Path, help="where the recordings are while they are read (/tmp)")
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vramscope-ranks-", dir=args.folder) as scratch:
        folder = pathlib.Path(scratch) / "ranks"
        folder.mkdir()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            made = list(pool.map(lambda rank: make_rank(args.build, folder, rank, args.events), range(args.ranks)))
        size = sum(file.stat().st_size for file in folder.iterdir())
        print(f"{args.ranks} ranks of {made[0]} events, {size / 1e6:.0f} MB", flush=True)
        costs = ask(args.build, folder, args.ranks)
    for name, cost in costs.items():
        print(f"{name:28s} {cost['wall_s']:7.2f} s   {cost['cpu_s']:7.2f} s of CPU   {cost['memory_mib']:7.0f} MiB")
    if args.json:
        arms.write_json(
            args.json,
            {"bench": "ranks", "machine": arms.machine(), "ranks": args.ranks, "events": sum(made), "bytes": size, "results": costs},
        )
    return 0 if len(costs) == 3 else 1


if __name__ == "__main__":
    sys.exit(main())
