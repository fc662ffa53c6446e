# SPDX-License-Identifier: Apache-2.0
"""What `vramscope export --to parquet` costs for a thousand ranks, beside the disk's own speed.

    cmake --build build --target vramscope vramscope_read_library bench_make_recording
    .venv/bin/python bench/fleet.py [--ranks 1000] [--events 20000] [--rounds 3] [--build build] [--json FILE]

One recording a rank, of a made-up training (bench/made_up_training.h): two events are an allocation and its free, which is
a row. Each round writes the dataset anew. The best round counts, because other programs may use the machine. `disk` writes
and flushes zeros of 512 MiB, before and after the rounds. `library` writes the same allocations from memory with pyarrow
alone, on as many threads: no export is faster. The export is one process: its memory is that of all.
"""

import argparse
import concurrent.futures
import os
import pathlib
import shutil
import sys
import tempfile
import time

import arms
import finish
import ranks

sys.path.insert(0, str(arms.ROOT / "python"))


def disk_speed(folder):
    """Bytes a second that are written and flushed."""
    block = bytes(8 << 20)
    path = folder / "zeros"
    began = time.monotonic()
    with path.open("wb") as file:
        for _ in range(64):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    speed = 64 * len(block) / (time.monotonic() - began)
    path.unlink()
    return speed


def library_speed(data, rounds):
    """Rows of allocations that pyarrow writes, from memory: a second, and a second of CPU."""
    import pyarrow.parquet
    from vramscope.fleet import dataset, schema

    target = schema.arrow("allocations")
    texts = [field.name for field in target if pyarrow.types.is_dictionary(field.type)]
    groups = []
    for file in sorted(data.glob("allocations/*/*.parquet")):
        opened = pyarrow.parquet.ParquetFile(file, read_dictionary=texts)
        groups.append([opened.read_row_group(i).cast(target) for i in range(opened.num_row_groups)])
    rows = sum(group.num_rows for own in groups for group in own)

    def write(number):
        with dataset.parquet_writer(data / f"_library-{number}.tmp", "allocations") as writer:
            for group in groups[number]:
                writer.write_table(group, row_group_size=group.num_rows)

    costs = []
    with concurrent.futures.ThreadPoolExecutor(len(groups)) as pool:
        for _ in range(rounds):
            wall, cpu = time.monotonic(), time.process_time()
            list(pool.map(write, range(len(groups))))
            costs.append((time.monotonic() - wall, time.process_time() - cpu))
    return rows / min(wall for wall, _ in costs), rows / min(cpu for _, cpu in costs)


def rows_of(data):
    import pyarrow.parquet

    return sum(pyarrow.parquet.ParquetFile(file).metadata.num_rows for file in data.glob("allocations/*/*.parquet"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1000)
    parser.add_argument("--events", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--build", type=pathlib.Path, default=arms.ROOT / "build")
    parser.add_argument("--folder", type=pathlib.Path, help="where recordings and dataset are meanwhile (/tmp)")
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    args = parser.parse_args()
    os.environ.setdefault("VRAMSCOPE_PYTHON", sys.executable)
    costs = []
    with tempfile.TemporaryDirectory(prefix="vramscope-fleet-", dir=args.folder) as scratch:
        recordings, data = pathlib.Path(scratch) / "ranks", pathlib.Path(scratch) / "data"
        recordings.mkdir()
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda rank: ranks.make_rank(args.build, recordings, rank, args.events), range(args.ranks)))
        disk = [disk_speed(pathlib.Path(scratch))]
        for _ in range(args.rounds):
            shutil.rmtree(data, ignore_errors=True)
            cost = finish.run([args.build / "bin/vramscope", "export", "--to", "parquet", recordings, "-o", data])
            if cost is None:
                return 1
            costs.append(cost)
        disk.append(disk_speed(pathlib.Path(scratch)))
        rows, files = rows_of(data), [file for file in data.rglob("*.parquet")]
        size = sum(file.stat().st_size for file in files)
        library, library_cpu = library_speed(data, args.rounds)
    best = min(costs, key=lambda cost: cost["wall_s"])
    result = {
        **best,
        "rows": rows,
        "rows_per_s": rows / best["wall_s"],
        "rows_per_cpu_s": rows / min(cost["cpu_s"] for cost in costs),
        "files": len(files),
        "bytes": size,
        "disk_bytes_per_s": max(disk),
        "disk_rows_per_s": max(disk) * rows / size,
        "library_rows_per_s": library,
        "library_rows_per_cpu_s": library_cpu,
    }
    for name, value in result.items():
        print(f"{name:20s} {value:,.2f}" if isinstance(value, float) else f"{name:20s} {value:,}")
    if args.json:
        content = {"bench": "fleet", "machine": arms.machine(), "ranks": args.ranks, "events": args.events, "results": {"fleet": {"export": result}}}
        arms.write_json(args.json, content)
    return 0


if __name__ == "__main__":
    sys.exit(main())
