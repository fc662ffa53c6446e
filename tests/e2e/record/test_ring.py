# SPDX-License-Identifier: Apache-2.0
"""`vramscope run --ring SIZE`: a bounded recording that says of its history, of what is live and of the peak what an
unbounded one says (docs/FORMAT.md)."""
from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hosts import probe_environment
from places import BUILD, FAKE, HOSTS, MIB, ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

RING = 16 * MIB
# 36 MB of records; some 4 MB a second, with which a compaction on a busy machine keeps up, or four times that.
STEPS, PAIRS, PAUSE_US, SHORT_PAUSE_US = 4000, 400, 2000, 400
BY = "tag,size_class"
OLDER, OUTRAN = "allocations older than the ring", "allocations that outran the ring"


def vramscope(*words: object) -> subprocess.CompletedProcess:
    command = [str(word) for word in (VRAMSCOPE, *words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)


def report(trace: Path, at: str, by: str = BY) -> dict:
    done = vramscope("report", trace, "--json", "--at", at, "--by", by)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def rows(told: dict) -> list:
    """What a recording says, without what differs from run to run."""
    return sorted((row["device"], row["path"], row["bytes"], row["count"]) for row in told["rows"])


def allocations(trace: Path) -> int:
    """How many allocations a recording has: the lines of its table in JSON."""
    return vramscope("export", "--to", "json", trace).stdout.count("\n")


def space_of(folder: Path) -> int:
    total = 0
    for path in folder.iterdir():
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            pass
    return total


class Watch(threading.Thread):
    """The most that a directory ever takes of the disk, and what its past files do."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self.folder, self.most, self.pasts, self.ended = folder, 0, set(), False

    def run(self) -> None:
        while not self.ended:
            try:
                self.most = max(self.most, space_of(self.folder))
                # Each is a file of its own, but the number of one that is gone is soon another's.
                self.pasts |= {path.stat().st_mtime_ns for path in self.folder.glob("*.past")}
            except FileNotFoundError:
                pass
            time.sleep(0.01)


def run(trace: Path, *options: str, steps: int = STEPS, pause_us: int = PAUSE_US) -> tuple[subprocess.CompletedProcess, Watch]:
    watch = Watch(Path(f"{trace}.d"))
    watch.start()
    program = (HOSTS / "long_run", steps, PAIRS, pause_us)
    done = vramscope("run", "--no-report", "-o", trace, *options, "--", *program)
    watch.ended = True
    watch.join()
    assert done.returncode == 0, done.stderr
    return done, watch


@pytest.fixture(scope="module")
def both(tmp_path_factory) -> tuple[Path, Path, Watch]:
    folder = tmp_path_factory.mktemp("ring")
    run(folder / "all.vram", pause_us=0)
    _, watch = run(folder / "ring.vram", "--ring", "16M")
    return folder / "all.vram", folder / "ring.vram", watch


def test_the_disk_is_bounded(both):
    _, _, watch = both
    assert len(watch.pasts) >= 2, "it was compacted more than once"
    assert watch.most <= RING, watch.most


def test_the_peak_is_that_of_the_whole_run(both):
    all_of_it, ring, _ = both
    expected, told = (report(trace, "peak") for trace in both[:2])
    assert rows(told) == rows(expected)
    assert any(row["path"][0] == "of the peak" for row in told["rows"])


def test_instants_of_the_history_are_the_same(both):
    all_of_it, ring, _ = both
    marks = [step for step in range(0, STEPS, STEPS // 64)]
    kept = [step for step in marks if vramscope("report", ring, "--at", f"mark:at {step}").returncode == 0]
    assert kept == marks[-len(kept) :] and 1 <= len(kept) < len(marks) // 2
    for step in random.Random(1).sample(kept, min(len(kept), 6)):
        assert rows(report(ring, f"mark:at {step}")) == rows(report(all_of_it, f"mark:at {step}")), step
    assert rows(report(ring, "end")) == rows(report(all_of_it, "end"))


def test_iterations_keep_their_numbers(both):
    all_of_it, ring, _ = both
    last = STEPS - 2
    assert rows(report(ring, f"iter:{last}")) == rows(report(all_of_it, f"iter:{last}"))
    refused = vramscope("report", ring, "--at", "iter:7")
    assert refused.returncode == 2 and "older than the history that `run --ring` kept" in refused.stderr and refused.stderr.count("\n") == 1
    refused = vramscope("report", ring, "--at", "0.1")
    assert refused.returncode == 2 and "older than the history that `run --ring` kept" in refused.stderr and refused.stderr.count("\n") == 1


def test_what_is_left_out_is_said(both):
    all_of_it, ring, _ = both
    told, whole = report(ring, "peak"), report(all_of_it, "peak")
    assert [found["name"] for found in told["invariants"] if not found["holds"]] == []
    losses = {entry["name"]: entry["count"] for entry in told["losses"]}
    assert losses and set(losses) <= {OLDER, OUTRAN}  # a busy machine's compaction may be too slow
    assert whole["losses"] == []
    assert sum(losses.values()) > STEPS * PAIRS / 2 and allocations(ring) + sum(losses.values()) == allocations(all_of_it)
    info = vramscope("info", ring).stdout
    assert "history" in info, info
    assert "history" not in vramscope("info", all_of_it).stdout


def test_a_program_that_outruns_the_ring_loses_its_oldest_history(both, tmp_path):
    """As fast as it can on one processor, with the compaction beside it: the size holds, or how much more it was is said."""
    trace = tmp_path / "fast.vram"
    watch = Watch(Path(f"{trace}.d"))
    watch.start()
    program = (HOSTS / "long_run", STEPS, PAIRS, 0)
    words = ("taskset", "-c", "0", VRAMSCOPE, "run", "--no-report", "-o", trace, "--ring", "16M", "--", *program)
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=300, check=True)
    watch.ended = True
    watch.join()
    told = report(trace, "end")
    losses = {entry["name"]: entry for entry in told["losses"]}
    assert set(losses) <= {OLDER, OUTRAN}, losses
    assert losses and allocations(trace) + sum(entry["count"] for entry in losses.values()) == allocations(both[0])
    assert all(entry["bytes"] > 64 * entry["count"] for entry in losses.values())
    exceeded = [line for line in done.stderr.splitlines() if "--ring 16.0 MiB was exceeded by " in line]
    assert watch.most <= RING or exceeded, (watch.most, done.stderr)
    info = vramscope("info", trace).stdout
    assert bool(exceeded) == ("--ring 16.0 MiB was exceeded by " in info), info
    # What is live at the end is what a recording of everything says.
    assert rows(told) == rows(report(both[0], "end"))


def test_a_stopped_reader_is_said(tmp_path):
    trace = tmp_path / "x.vram"
    with start(trace, steps=3 * STEPS) as launcher:
        live = Path(f"{trace}.d")
        while not live.exists() or space_of(live) < 4 * MIB:
            time.sleep(0.01)
        reader = subprocess.Popen([str(VRAMSCOPE), "report", str(live)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Stopped while it reads: it holds the directory's lock.
        while not any(f":{live.stat().st_ino} " in line and f" {reader.pid} " in line
                      for line in Path("/proc/locks").read_text().splitlines()):
            assert reader.poll() is None and launcher.poll() is None
        reader.send_signal(signal.SIGSTOP)
        _, said = launcher.communicate(timeout=300)
        reader.kill()
        reader.wait()
    assert "was exceeded by" in said and "somebody reads the recording" in said, said
    assert "somebody reads the recording" in vramscope("info", trace).stdout


def child_named(pid: int, name: str) -> int | None:
    try:
        for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
            if Path(f"/proc/{child}/comm").read_text().strip() == name:
                return child
    except OSError:
        pass
    return None


def compactions_of(pid: int) -> list[int]:
    """Compactions under way, whichever thread of the launcher started them."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            for child in map(int, task.read_text().split()):
                if b"\0compact\0" in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.append(child)
        except OSError:
            pass
    return found


def start(trace: Path, steps: int = STEPS) -> subprocess.Popen:
    program = (HOSTS / "long_run", steps, PAIRS, SHORT_PAUSE_US)
    words = (VRAMSCOPE, "run", "--no-report", "-o", trace, "--ring", "16M", "--", *program)
    return subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def test_snapshots_and_reports_while_it_compacts(both, tmp_path):
    """Readers and compactions pass each other many times; what is read is whole each time."""
    all_of_it, _, _ = both
    trace = tmp_path / "x.vram"
    peak = rows(report(all_of_it, "peak"))
    read = 0
    with start(trace) as launcher:
        while launcher.poll() is None:
            past = Path(f"{trace}.d").exists() and list(Path(f"{trace}.d").glob("*.past"))
            done = vramscope("snapshot", "-o", tmp_path / "y.vram", trace) if past else None
            if done is not None and done.returncode == 0:
                read += 1
                told = report(tmp_path / "y.vram", "peak")
                assert rows(told) == peak
                assert {entry["name"] for entry in told["losses"]} <= {OLDER, OUTRAN}
            time.sleep(0.05)
        assert launcher.wait() == 0
    assert read >= 3
    assert rows(report(trace, "end")) == rows(report(all_of_it, "end"))


@pytest.mark.parametrize("victim", ["compact", "program", "launcher", "all"])
def test_kills_lose_no_more_than_without_a_ring(both, tmp_path, victim):
    all_of_it, _, _ = both
    trace, live = tmp_path / "x.vram", tmp_path / "x.vram.d"
    rng = random.Random(victim)
    with start(trace) as launcher:
        program, kills = None, 0
        while launcher.poll() is None:
            program = program or child_named(launcher.pid, "long_run")
            compactions = compactions_of(launcher.pid)
            if not compactions or (victim != "compact" and not list(live.glob("*.past"))):
                time.sleep(0.001)
                continue
            time.sleep(rng.uniform(0, 0.3))
            victims = {"compact": compactions, "program": [program], "launcher": [launcher.pid]}
            for pid in victims.get(victim, [*compactions, launcher.pid, program]):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            kills += 1
            if victim != "compact" or kills == 4:
                break
        status = launcher.wait(timeout=300)
    assert kills > 0
    if victim == "compact":
        assert status == 0
        assert rows(report(trace, "end")) == rows(report(all_of_it, "end"))
    elif victim == "program":
        assert status == 128 + signal.SIGKILL
    else:
        deadline = time.monotonic() + 100
        while Path(f"/proc/{program}").exists() and " Z " not in Path(f"/proc/{program}/stat").read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        done = vramscope("finish", "--no-report", live)
        assert done.returncode == 0, done.stderr
    told = report(trace, "peak")
    assert rows(told) == rows(report(all_of_it, "peak"))
    assert {entry["name"] for entry in told["losses"]} <= {
        OLDER,
        OUTRAN,
        "last record of a thread cut off",
    }
    assert not live.exists()


def test_names_of_a_training(tmp_path):
    """What surrounded an allocation says what it is for: phase, forward operator, module. Here compactions are made by
    hand, one after the other, so that one recording is compared with itself."""
    pytest.importorskip("torch")
    live, compacted = tmp_path / "live", tmp_path / "compacted"
    live.mkdir()
    program = [sys.executable, str(ROOT / "tests" / "e2e" / "programs" / "long_training.py"), "400"]
    subprocess.run(program, env=probe_environment(live), check=True, timeout=300)
    shutil.copytree(live, compacted)
    space = space_of(live)
    for left in (8, 6, 4):
        done = vramscope("compact", "--to", space * left // 10, compacted)
        assert done.returncode == 0, done.stderr
    assert space_of(compacted) < space * 6 // 10
    names = "module,class,parameter,category,phase,line,tag"
    for at in ("peak", "end", "mark:at 382", "mark:at 384", "mark:at 386", "iter:380", "iter:390"):
        for by in (names, "thread,size_class,owner,api"):
            assert rows(report(compacted, at, by)) == rows(report(live, at, by)), (at, by)
    assert report(compacted, "iter:390")["devices"][0]["at"]["iteration"] == 390
    assert {entry["name"] for entry in report(compacted, "peak")["losses"]} == {OLDER}


# Known: with engines, driver memory is shared out to its calls with the help of NVML's samples, of which a ring drops
# most. Only what an engine's phases allocated is compared then.
PHASES = ("load", "kv cache", "sleep", "serve")


@pytest.mark.parametrize("seed, without", [(5, "--without engine"), (11, "--without engine"), (11, "")])
def test_the_driver_s_memory(tmp_path, seed, without):
    """A random driver program on the stand-in driver: what the ledger says of the peak and of the end rests on calls,
    readings and blocks that are long compacted."""
    program = BUILD / "differential" / "random_driver"
    if not program.exists():
        pytest.skip("random_driver is not built")
    machine = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FAKE),
        "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
    }
    live, compacted = tmp_path / "live", tmp_path / "compacted"
    # Copied before the launcher makes one file of it.
    script = f'"{program}" --seed {seed} --operations 20000 {without} --truth "{tmp_path}/truth"; cp -a "$VRAMSCOPE_DIR" "{live}"'
    words = [str(VRAMSCOPE), "run", "--no-report", "-o", str(tmp_path / "x.vram"), "--", "sh", "-c", script]
    subprocess.run(words, env=machine, check=True, capture_output=True, timeout=300)
    shutil.copytree(live, compacted)
    space = space_of(live)
    for left in (7, 4):
        done = vramscope("compact", "--to", space * left // 10, compacted)
        assert done.returncode == 0, done.stderr
    for at in ("peak", "end"):
        for by in ("owner,api,category", "native,tag", "stream,size_class,phase") if without else ():
            assert rows(report(compacted, at, by)) == rows(report(live, at, by)), (at, by)
        found, expected = ([row for row in rows(report(of, at, "phase,category")) if row[1][0] in PHASES] for of in (compacted, live))
        assert found == expected and bool(found) == (not without), at
    told = report(compacted, "peak")
    assert {entry["name"] for entry in told["losses"]} == {OLDER}
    broken = [found["name"] for found in told["invariants"] if not found["holds"]]
    assert broken == [found["name"] for found in report(live, "peak")["invariants"] if not found["holds"]]


def test_a_ring_too_small_says_so(tmp_path):
    done = vramscope("run", "-o", tmp_path / "x.vram", "--ring", "1M", "--", "true")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "use 16.0 MiB or more" in done.stderr, done.stderr
    done = vramscope("run", "-o", tmp_path / "x.vram", "--ring", "much", "--", "true")
    assert done.returncode == 2 and done.stderr.count("\n") == 1


def test_a_program_that_needs_no_ring(tmp_path):
    shutil.rmtree(tmp_path / "x.vram.d", ignore_errors=True)
    run(tmp_path / "x.vram", "--ring", "1G", steps=100)
    assert report(tmp_path / "x.vram", "peak")["losses"] == []
