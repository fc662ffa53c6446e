#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random kills, and runs and finishes at once: how many recordings lack something that no loss says.

    bench/crash_consistency.py --build build --kills 2000 --at-once 500 --json FILE

The program counts its pairs of allocation and free in a file that outlives it. Each kill round records it, half of the
time over an older recording, and kills it, its launcher or `finish` at a random moment. A round is wrong where a reader
finds fewer events than were counted and no loss, or where a last `finish` leaves anything but the recording.
"""
from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path

KINDS = ("program", "launcher", "both", "finish", "html", "ring")
# What a reader can find beyond the pairs that were counted: a pair under way on each of four threads, the process's end,
# the cut of a ring.
MOST_BEYOND = 10


class Bench:
    def __init__(self, build: Path, folder: Path) -> None:
        self.program = str(build / "bin" / "vramscope")
        self.hosts = build / "hosts"
        self.folder = folder

    def call(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            [self.program, *words], cwd=self.folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
        )

    def facts(self, what: str) -> tuple[int, int, str] | None:
        """Processes, events with those that a ring folded, and the other losses."""
        result = self.call("info", what)
        if result.returncode != 0:
            return None
        number = {key: int(value.replace(",", "")) for key, value in re.findall(r"^(processes|events) +([\d,]+)$", result.stdout, re.M)}
        losses = re.search(r"^losses +(.*?)(?=^\w)", result.stdout, re.M | re.S)
        text = losses.group(1) if losses else "none\n"
        folded = re.search(r"allocations older than the ring: ([\d,]+)", text)
        events = number.get("events", 0) + 2 * (int(folded.group(1).replace(",", "")) if folded else 0)
        # A cut record of a killed thread does not lose committed data, and a line about compaction is not damage.
        said = [line for line in text.splitlines() if re.search(r": [\d,]+", line)]
        said = [line for line in said if "cut off" not in line and "older than the ring" not in line]
        return number.get("processes", 0), events, "; ".join(said)

    def committed(self) -> int | None:
        pairs = self.folder / "pairs"
        if not pairs.exists() or pairs.stat().st_size < 32:
            return None
        return 2 * sum(struct.unpack_from("<4Q", pairs.read_bytes()))

    def clear(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def left(self) -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if re.match(r"x\.vram|\.vramscope-gone-", path.name))


def child_of(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return next((int(c) for c in children if Path(f"/proc/{c}/comm").read_text() == "steady_threads\n"), None)
    except OSError:
        return None


def kill(pid: int | None) -> None:
    try:
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def is_wrong(bench: Bench, what: str, committed: int, least: int = 0) -> str:
    found = bench.facts(what)
    if found is None:
        return f"{what}: not readable" if committed else ""
    _, events, losses = found
    if losses or least <= committed <= events <= committed + MOST_BEYOND:
        return ""
    return f"{what}: {events} events of {committed}, and no loss says so"


def kill_round(bench: Bench, kind: str, rng: random.Random) -> str:
    bench.clear()
    has_older = rng.random() < 0.5
    if has_older:
        bench.call("run", "--cpu", "--no-report", "-o", "x.vram", "--", str(bench.hosts / "fork_without_exec"))
    older = (bench.folder / "x.vram").read_bytes() if has_older else b""
    options = {"ring": ["--ring", "16M"], "html": ["--html", "p.html"]}.get(kind, [])
    run = subprocess.Popen(
        [bench.program, "run", "--cpu", "--no-report", *options, "-o", "x.vram", "--", str(bench.hosts / "steady_threads"), "pairs"],
        cwd=bench.folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )
    began = time.monotonic()
    early = rng.random() < 0.1
    while not early and bench.committed() in (None, 0) and run.poll() is None and time.monotonic() < began + 60:
        time.sleep(0.001)
    time.sleep(rng.uniform(0.5, 1.0) if kind == "ring" else rng.uniform(0, 0.03))
    program = child_of(run.pid)
    if kind in ("launcher", "both") or (kind == "ring" and rng.random() < 0.5):
        kill(run.pid)
        if kind != "both":
            time.sleep(rng.uniform(0, 0.01))
        kill(program)
    else:
        kill(program)
        if kind != "program":
            time.sleep(rng.uniform(0, 0.1))
            kill(run.pid)
    if program is None:
        kill(run.pid)
    run.wait()
    # A launcher that was killed early may have begun the program meanwhile.
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and os.readlink(path / "cwd") == str(bench.folder) and (path / "comm").read_text() == "steady_threads\n":
                kill(int(path.name))
        except OSError:
            pass
    while program is not None and Path(f"/proc/{program}/maps").exists() and Path(f"/proc/{program}/maps").read_bytes():
        time.sleep(0.002)
    committed = bench.committed() or 0
    if not committed:
        # Nothing was recorded yet. Where the launcher was not killed, it has replaced the older one.
        is_kept = run.returncode >= 0 or not has_older or (bench.folder / "x.vram").read_bytes() == older
        return "" if is_kept else "the older recording is lost"
    wrong = is_wrong(bench, "x.vram", committed)
    for _ in range(rng.randrange(4)):
        finish = subprocess.Popen([bench.program, "finish", "--no-report", "x.vram.d"], cwd=bench.folder, stderr=subprocess.DEVNULL)
        time.sleep(rng.uniform(0, 0.06))
        kill(finish.pid)
        finish.wait()
        wrong = wrong or is_wrong(bench, "x.vram", committed)
    result = bench.call("finish", "--no-report", "x.vram.d")
    wrong = wrong or (f"finish: {result.stderr.strip()}" if result.returncode != 0 else "")
    wrong = wrong or is_wrong(bench, "x.vram", committed)
    page = bench.folder / "p.html"
    if page.exists() and not page.read_bytes().rstrip().endswith(b"</html>"):
        wrong = wrong or "half a page"
    return wrong or ("" if bench.left() == ["x.vram"] else f"left: {bench.left()}")


def runs_round(bench: Bench, count: int) -> str:
    bench.clear()
    host = str(bench.hosts / "fork_without_exec")
    command = [bench.program, "run", "--cpu", "--no-report", "-o", "x.vram", "--", host]
    runs = [
        subprocess.Popen(command, cwd=bench.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(count)
    ]
    ended = [(*run.communicate(), run.returncode) for run in runs]
    for output, errors, status in ended:
        if (status, output != "") not in ((0, True), (2, False)):
            return f"status {status}, {output!r}: {errors}"
        if status == 2 and not re.fullmatch(r"vramscope: .*x\.vram\.d.*: choose another name with -o\n", errors):
            return errors
    if bench.left() != ["x.vram"]:
        return f"left: {bench.left()}"
    found = bench.facts("x.vram")
    return "" if found is not None and found[:2] == (2, 226) else f"{found}"


def finishes_round(bench: Bench, count: int) -> str:
    bench.clear()
    script = '"$@"; "$@"; "$@"; kill -9 $PPID'
    host = str(bench.hosts / "fork_without_exec")
    bench.call("run", "--cpu", "--no-report", "-o", "x.vram", "--", "sh", "-c", script, "sh", host)
    whole = bench.facts("x.vram.d")
    finish = [bench.program, "finish", "--no-report", "x.vram.d"]
    finishes = [subprocess.Popen(finish, cwd=bench.folder, stderr=subprocess.PIPE, text=True) for _ in range(count)]
    wrong = ""
    while any(process.poll() is None for process in finishes):
        if bench.facts("x.vram") != whole or bench.facts("x.vram.d") not in (whole, None):
            wrong = "a reader found a part"
    for process in finishes:
        _, errors = process.communicate()
        if process.returncode != 0:
            wrong = wrong or errors
    if bench.facts("x.vram") != whole or bench.left() != ["x.vram"]:
        wrong = wrong or f"left: {bench.left()}"
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rounds: Counter[str] = Counter()
    wrong: list[str] = []
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="vramscope-crash-") as folder:
        bench = Bench(arguments.build.resolve(), Path(folder).resolve())
        work = [("kill", number) for number in range(arguments.kills)] + [("at once", number) for number in range(arguments.at_once)]
        random.Random(arguments.seed).shuffle(work)
        for what, number in work:
            if what == "kill":
                # A ring has to fill up first: one round in twenty.
                kind = "ring" if number % 20 == 19 else KINDS[number % 5]
                name, result = f"kill: {kind}", kill_round(bench, kind, random.Random(arguments.seed * 1_000_003 + number))
            else:
                name, make = [
                    ("4 runs at once", lambda: runs_round(bench, 4)),
                    ("8 runs at once", lambda: runs_round(bench, 8)),
                    ("6 finishes and 2 readers at once", lambda: finishes_round(bench, 6)),
                ][number % 3]
                result = make()
            rounds[name] += 1
            if result:
                wrong.append(f"{name}, round {number}: {result}")
                print(wrong[-1], flush=True)
            if arguments.json is not None:
                figures = {"seed": arguments.seed, "seconds": round(time.monotonic() - began), "rounds": dict(sorted(rounds.items())), "wrong": wrong}
                arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    print(f"{sum(rounds.values())} rounds, {len(wrong)} wrong: {dict(sorted(rounds.items()))}")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
