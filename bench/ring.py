# SPDX-License-Identifier: Apache-2.0
"""A week of a training in ring mode: its disk, its launcher, its folds, and whether its peak is the one that was.

    bench/ring.py [--build build] [--steps 600000] [--pairs 150] [--pause-us 0] [--ring 64M] [--json FILE]
    bench/ring.py --busy 600 [--ring 64M] [--json FILE]

The program is tests/hosts/load/long_run.c: each step allocates and frees PAIRS blocks in 8 scopes, replaces some of a cache of 600,
and marks `iteration`. A week of steps of one second is 600,000; here they come as fast as they can, or with a pause. Run without
a ring first, for so many steps as hold the peak, the program says what the peak is.

With --busy, two such programs run at once for so many seconds, as fast as they can: is the size kept, and what is said where not?
"""
from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIB = 1 << 20


class Watch(threading.Thread):
    """Looks at the directory and at all processes below the launcher, ten times a second."""

    def __init__(self, folder: Path, launcher: int) -> None:
        super().__init__(daemon=True)
        self.folder, self.launcher, self.ended = folder, launcher, False
        self.disk = self.past = self.launcher_memory = self.fold_memory = self.folds = 0
        self.past_file = 0

    @staticmethod
    def memory_of(pid: int) -> int:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0

    def look(self) -> None:
        disk = past = 0
        for path in self.folder.iterdir():
            info = path.stat()
            disk += info.st_blocks * 512
            if path.suffix == ".past":
                past += info.st_blocks * 512
                self.folds += info.st_ino != self.past_file
                self.past_file = info.st_ino
        self.disk, self.past = max(self.disk, disk), max(self.past, past)
        self.launcher_memory = max(self.launcher_memory, self.memory_of(self.launcher))
        for task in Path(f"/proc/{self.launcher}/task").glob("*/children"):
            for child in map(int, task.read_text().split()):
                if b"\0compact\0" in Path(f"/proc/{child}/cmdline").read_bytes():
                    self.fold_memory = max(self.fold_memory, self.memory_of(child))

    def run(self) -> None:
        while not self.ended:
            try:
                self.look()
            except OSError:
                pass  # a process or a file that was just going
            time.sleep(0.02)


def watched(command: list[object], folder: Path) -> tuple[Watch, str, str, float]:
    """Runs a command that records into `folder`: what was seen there, what was printed, and how long it took."""
    begin = time.monotonic()
    with subprocess.Popen(
        [str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as run:
        watch = Watch(folder, run.pid)
        watch.start()
        said, notes = run.communicate()
    watch.ended = True
    watch.join()
    return watch, said, notes, time.monotonic() - begin


def told_by_info(vramscope: Path, trace: Path) -> list[str]:
    info = subprocess.run([str(vramscope), "info", str(trace)], check=True, capture_output=True, text=True).stdout
    wanted = ("history", "losses", "events", "duration", "allocations that", "allocations older")
    return [line.strip() for line in info.splitlines() if line.strip().startswith(wanted)]


def busy(options: argparse.Namespace, vramscope: Path, program: Path) -> dict:
    with tempfile.TemporaryDirectory(prefix="vramscope-ring-", dir=options.build) as folder:
        trace = Path(folder) / "ring.vram"
        both = f"{program} 1000000000 {options.pairs} 0 & {program} 1000000000 {options.pairs} 0 & wait"
        watch, _, notes, seconds = watched(
            [vramscope, "run", "--no-report", "-o", trace, "--ring", options.ring, "--",
             "timeout", options.busy, "sh", "-c", both],
            Path(f"{trace}.d"),
        )
        return {
            "ring": options.ring,
            "seconds": round(seconds, 1),
            "disk_mib": round(watch.disk / MIB, 1),
            "past_mib": round(watch.past / MIB, 1),
            "launcher_mib": round(watch.launcher_memory / MIB, 1),
            "fold_mib": round(watch.fold_memory / MIB, 1),
            "notes": notes.strip(),
            "info": told_by_info(vramscope, trace),
        }


def peak(vramscope: Path, trace: Path) -> list[tuple[list[str], int, int]]:
    words = [str(vramscope), "report", str(trace), "--json", "--at", "peak", "--by", "tag,size_class"]
    told = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return sorted((row["path"], row["bytes"], row["count"]) for row in told["rows"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--steps", type=int, default=600_000)
    parser.add_argument("--pairs", type=int, default=150)
    parser.add_argument("--pause-us", type=int, default=0)
    parser.add_argument("--ring", default="64M")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--busy", type=int, metavar="SECONDS")
    options = parser.parse_args()
    vramscope, program = options.build / "bin" / "vramscope", options.build / "hosts" / "long_run"
    if options.busy:
        result = busy(options, vramscope, program)
        size = float(options.ring.removesuffix("M"))
        return finish(options, result, result["disk_mib"] <= size or "was exceeded by" in result["notes"])
    with tempfile.TemporaryDirectory(prefix="vramscope-ring-", dir=options.build) as folder:
        trace = Path(folder) / "ring.vram"
        words = [program, options.steps, options.pairs, options.pause_us]
        begin = time.monotonic()
        plain = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout
        plain_s = time.monotonic() - begin
        command = [vramscope, "run", "--no-report", "-o", trace, "--ring", options.ring, "--", *words]
        watch, said, notes, seconds = watched(command, Path(f"{trace}.d"))
        ring_peak = peak(vramscope, trace)
        info = told_by_info(vramscope, trace)
        # The peak comes at a twentieth of the steps: the same program up to there, and a little more, without a ring.
        whole = Path(folder) / "whole.vram"
        fewer = [program, options.steps, options.pairs, 0, options.steps // 16]
        subprocess.run(
            [str(word) for word in (vramscope, "run", "--no-report", "-o", whole, "--", *fewer)],
            check=True,
            capture_output=True,
        )
        whole_peak = peak(vramscope, whole)
    result = {
        "steps": options.steps,
        "pairs": options.pairs,
        "ring": options.ring,
        "seconds_plain": round(plain_s, 1),
        "seconds": round(seconds, 1),
        "disk_mib": round(watch.disk / MIB, 1),
        "past_mib": round(watch.past / MIB, 1),
        "folds": watch.folds,
        "launcher_mib": round(watch.launcher_memory / MIB, 1),
        "fold_mib": round(watch.fold_memory / MIB, 1),
        "peak_is_exact": ring_peak == whole_peak,
        "plain": plain.splitlines()[-1],
        "recorded": said.splitlines()[-1],
        "notes": notes.strip(),
        "info": info,
    }
    return finish(options, result, result["peak_is_exact"])


def finish(options: argparse.Namespace, result: dict, good: bool) -> int:
    print(json.dumps(result, indent=2))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
