# SPDX-License-Identifier: Apache-2.0
"""Runs the programs' oracles, each in a process of its own, and leaves their files in a folder.

    python references.py --out DIR [--device cuda] [--size full] [NAME ...]

Importing torch takes longer than most of the small programs, so it is done once, before the forks.
"""

import argparse
import os
import pathlib
import runpy
import signal
import sys

import catalogue

SECONDS_EACH = 240


def preload():
    """Imports what the programs import at once or in their first step."""
    import importlib

    names = ("oracle", "torch._dynamo", "torch.distributed._tools.mem_tracker", "transformers.trainer")
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError:
            pass


def become(command, log):
    """Turns this process, a fork, into the command's program; never returns."""
    status = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(output, 1)
        os.dup2(output, 2)
        signal.alarm(SECONDS_EACH)
        sys.argv = command[1:]
        runpy.run_path(command[1], run_name="__main__")
        status = 0
    except SystemExit as ended:
        status = ended.code or 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status if isinstance(status, int) else 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--size", default="small")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--jobs", type=int, default=1, help="so many at once")
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    sys.path.insert(0, str(catalogue.HERE))

    # Tiny operators do not gain from threads that wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    preload()

    failed, running = [], {}

    def reap():
        pid, status = os.wait()
        name = running.pop(pid)
        if status != 0:
            failed.append(name)

    for case in catalogue.CASES:
        if args.names and case.name not in args.names:
            continue
        for mode in case.references:
            path = args.out / f"{case.name}.{mode}.json"
            command = case.command(
                sys.executable, args.device, args.size, args.steps, "--oracle", path, "--mode", mode
            )
            pid = os.fork()
            if pid == 0:
                become(command, path.with_suffix(".log"))
            running[pid] = path.stem
            if len(running) >= args.jobs:
                reap()
    while running:
        reap()
    if failed:
        print(f"references: failed: {', '.join(failed)}; see the .log files in {args.out}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
