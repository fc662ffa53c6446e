# SPDX-License-Identifier: Apache-2.0
"""What a process holds after many vramscope.record() blocks: mappings, descriptors, anonymous memory.

    .venv/bin/python bench/record_blocks.py --blocks 1000 --json build/record_blocks.json

Each block allocates CPU tensors, beside a thread that does so all the time.
"""

import argparse
import pathlib
import re
import sys
import tempfile
import threading

import arms
import torch
import vramscope


def held():
    status = pathlib.Path("/proc/self/status").read_text()
    return {
        "maps": len(pathlib.Path("/proc/self/maps").read_text().splitlines()),
        "descriptors": len(list(pathlib.Path("/proc/self/fd").iterdir())),
        "anonymous_kib": int(re.search(r"RssAnon:\s+(\d+)", status)[1]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--blocks", type=int, default=1000)
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    torch.set_num_threads(1)
    ended = threading.Event()

    def allocate():
        while not ended.wait(0.001):
            torch.ones(100)

    thread = threading.Thread(target=allocate)
    thread.start()
    after = {}
    with tempfile.TemporaryDirectory(prefix="vramscope-bench-") as folder:
        for block in range(1, args.blocks + 1):
            with vramscope.record(pathlib.Path(folder) / "block.vram", cpu=True, overwrite=True):
                for _ in range(5):
                    torch.ones(1000)
            if block in (10, 100, args.blocks):
                after[f"after {block}"] = held()
                print(f"after {block}: {after[f'after {block}']}", file=sys.stderr, flush=True)
    ended.set()
    thread.join()
    arms.write_json(args.json, {"bench": "record_blocks", "machine": arms.machine(), **after})
    return 0


if __name__ == "__main__":
    sys.exit(main())
