# SPDX-License-Identifier: Apache-2.0
"""Random driver programs against the stand-in driver's own books, many at once.

    run.py --build BUILD [--seconds 20] [--first N] [--seed N] [--only N,N-N,...] [--operations N] [--script FILE] [--save FILE] [--keep DIR]

Each seed is a program (random_driver), recorded with `vramscope run` and the stand-in driver; after every call
of it the ledger must say what the stand-in's books say (differential_compare). The programs of regressions/ and the
fixed seeds come first, then for so many seconds random ones, which follow from the number that is printed (--first
runs the same). A program that fails is made smaller, and printed with the command that runs it again. A seed is
another program once there are more operations: --save writes down what it does now, and a file of regressions/ stays
what it is. --keep leaves the recordings and truths of what failed there: what depends on the moment fails once in a
thousand runs.
"""
from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
REGRESSIONS = HERE / "regressions"
FIXED_SEEDS = range(1, 41)
SHRINK_SECONDS = 8.0
# On a machine that has other things to do, too.
PROGRAM_SECONDS = 600
# Of the figures of devices. What implicit calls took is known with the next reading, and nothing is after the
# last context's end; where hardly any figure is known, the comparison says nothing.
LEAST_KNOWN = 0.4


def ranges(numbers: frozenset[int]) -> str:
    """"3,7-12,40"."""
    parts: list[list[int]] = []
    for number in sorted(numbers):
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


@dataclasses.dataclass(frozen=True)
class Program:
    seed: int
    operations: int
    only: frozenset[int] = frozenset()  # empty: all
    script: Path | None = None

    @property
    def devices(self) -> int:
        return 2 if self.seed % 3 == 0 else 1

    @property
    def threads(self) -> int:
        return 2 + self.seed // 5 % 3 if self.seed % 5 == 4 else 1

    @property
    def total_mib(self) -> int:
        return (2500, 8000, 143771)[self.seed // 7 % 3]

    def command(self, build: Path) -> str:
        """What to type to run it again."""
        only = f" --only {ranges(self.only)}" if self.only else ""
        what = f"--script {self.script}" if self.script else f"--seed {self.seed} --operations {self.operations}"
        return f"tests/differential/run.py --build {build} {what}{only}"


@dataclasses.dataclass
class Result:
    program: Program
    right: bool
    text: str

    @property
    def figures(self) -> tuple[int, int]:
        """Of devices: known when they were compared, and not yet known."""
        found = re.search(r"(\d+) device figures settled, (\d+) not yet known", self.text)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def samples(self) -> tuple[int, int]:
        """NVML's samples that the ledger does not explain, and all that were taken while it was known."""
        found = re.search(r"(\d+) of (\d+) samples", self.text)
        return (int(found[1]), int(found[2])) if found else (0, 0)

    @property
    def complaint(self) -> str:
        """What is wrong, without the figures: a smaller program must fail in the same way."""
        first = self.text.partition("\n")[0]
        return re.sub(r"[-+]?\d[\d.]*", "", first.partition("device")[2].partition("expected")[0] or first)


def scripted(file: Path) -> Program:
    """What is written down: "seed N", and its operations by number."""
    lines = file.read_text().splitlines()
    seed = next(int(line.split()[1]) for line in lines if line.startswith("seed "))
    return Program(seed, max(int(line.split()[0]) for line in lines if line[:1].isdigit()) + 1, script=file)


def save(program: Program, truth: Path, file: Path) -> None:
    operations = dict(re.findall(r"^O (\d+) (.*)$", truth.read_text(), re.MULTILINE))
    lines = [f"{number} {operations[number]}\n" for number in sorted(operations, key=int)]
    file.write_text(f"# {file.stem.replace('_', ' ')}\nseed {program.seed}\n{''.join(lines)}")


def run(program: Program, build: Path, save_to: Path | None = None, keep: Path | None = None) -> Result:
    directory = Path(tempfile.mkdtemp(prefix="vramscope-differential-"))
    # The truth is in the directory of the recording. `run` leaves it as it is, and the live directory too:
    # its events say what can be known when.
    truth, recording = directory / "program.vram", directory / "program.vram.d"
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(build / "fake_cuda"),
        "VRAMSCOPE_FAKE_BOOKS": str(directory / "books"),
        "VRAMSCOPE_FAKE_DEVICES": str(program.devices),
        "VRAMSCOPE_FAKE_TOTAL_MIB": str(program.total_mib),
    }
    command = [str(build / "bin/vramscope"), "run", "--no-report", "-o", str(truth), "--"]
    command += [str(build / "differential/random_driver"), "--seed", str(program.seed), "--truth", str(truth)]
    command += ["--operations", str(program.operations), "--threads", str(program.threads)]
    if program.only:
        command += ["--only", ranges(program.only)]
    if program.script:
        command += ["--script", str(program.script)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
        if save_to:
            save(program, truth, save_to)
        if done.returncode != 0:
            return Result(program, False, f"random_driver ended with {done.returncode}\n{done.stderr}")
        compare = [str(build / "differential/differential_compare"), str(recording), str(truth)]
        done = subprocess.run(compare, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
        if keep and done.returncode != 0:
            shutil.copytree(directory, keep / f"{program.seed}-{time.time_ns()}")
        return Result(program, done.returncode == 0, done.stdout + done.stderr)
    except subprocess.TimeoutExpired as error:
        return Result(program, False, f"{error}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def shrink(failed: Result, build: Path) -> Result:
    """Leaves out operations, in ever smaller groups, as long as it still fails."""
    end = time.monotonic() + SHRINK_SECONDS
    best = failed
    kept = sorted(failed.program.only or range(failed.program.operations))
    size = max(1, len(kept) // 2)
    while time.monotonic() < end:
        at, dropped = 0, False
        while at < len(kept) and len(kept) > 1 and time.monotonic() < end:
            fewer = kept[:at] + kept[at + size :]
            result = run(dataclasses.replace(best.program, only=frozenset(fewer)), build) if fewer else None
            if result is not None and not result.right and result.complaint == failed.complaint:
                best, kept, dropped = result, fewer, True
            else:
                at += size
        if size == 1 and not dropped:
            break
        size = max(1, size // 2)
    return best


def random_programs(first: int, operations: int, seconds: float) -> Iterator[Program]:
    """Until the time is over, which begins with the first of them."""
    end = time.monotonic() + seconds
    seeds = random.Random(first)
    while time.monotonic() < end:
        yield Program(seeds.randrange(1 << 32), operations)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="the build directory")
    parser.add_argument("--seconds", type=float, default=20, help="of random programs, after the fixed ones")
    parser.add_argument("--first", type=int, default=time.time_ns() % (1 << 32), help="random programs follow from it")
    parser.add_argument("--seed", type=int, help="this program alone")
    parser.add_argument("--only", default="", help="these operations of it")
    parser.add_argument("--operations", type=int, default=300)
    parser.add_argument("--script", type=Path, help="a program of regressions/ alone")
    parser.add_argument("--save", type=Path, help="write the program of --seed down, as one of regressions/")
    parser.add_argument("--keep", type=Path, help="copies of what failed are left there")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--failures", type=int, default=3, help="stop after so many programs that fail")
    arguments = parser.parse_args()
    build = arguments.build.resolve()

    if arguments.seed is not None or arguments.script:
        only = frozenset(
            number
            for part in arguments.only.split(",")
            if part
            for number in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)
        )
        one = scripted(arguments.script) if arguments.script else Program(arguments.seed, arguments.operations)
        result = run(dataclasses.replace(one, only=only), build, arguments.save, arguments.keep)
        print(result.text, end="")
        return 0 if result.right else 1

    began = time.monotonic()
    fixed = [scripted(file) for file in sorted(REGRESSIONS.glob("*.txt"))]
    fixed += [Program(seed, arguments.operations) for seed in FIXED_SEEDS]
    print(f"differential: {len(fixed)} fixed programs, then those of --first {arguments.first}", flush=True)
    queue = itertools.chain(fixed, random_programs(arguments.first, arguments.operations, arguments.seconds))
    count, failures, numbers, known, unknown = 0, [], [], 0, 0
    odd_samples, samples = 0, 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        running = set()
        while len(failures) < arguments.failures:
            for program in queue:
                running.add(pool.submit(run, program, build, keep=arguments.keep))
                if len(running) >= 2 * arguments.jobs:
                    break
            if not running:
                break
            done, running = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
            for result in (future.result() for future in done):
                count += 1
                known, unknown = known + result.figures[0], unknown + result.figures[1]
                odd_samples, samples = odd_samples + result.samples[0], samples + result.samples[1]
                if result.program not in fixed:
                    numbers.append(result.program.seed)
                if not result.right:
                    failures.append((count, result))
    for number, result in failures[: arguments.failures]:
        small = shrink(result, build)
        print(f"\nprogram {number} of the run failed:\n{small.text}again: {small.program.command(arguments.build)}")
    print(f"differential: {count} programs in {time.monotonic() - began:.0f} s, {len(failures)} failed; "
          f"fixed programs {len(fixed)}, further seeds {len(numbers)}: "
          f"{' '.join(map(str, numbers[:8]))}{' ...' if len(numbers) > 8 else ''}")
    print(f"differential: {known} figures of devices compared, {unknown} more were not yet known; "
          f"{odd_samples} of {samples} NVML samples unexplained")
    if known < LEAST_KNOWN * (known + unknown):
        print("differential: too few figures were known: are the probe, NVML and the driver of one build?")
        return 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
