# SPDX-License-Identifier: Apache-2.0
"""Nobody's file but ours: what is written, replaced and deleted, who may read it, and what is read (docs/SECURITY.md)."""
from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator

import pytest
from places import FAKE, HOSTS, VRAMSCOPE

NOBODY = 65534

pytestmark = pytest.mark.skipif(not Path(VRAMSCOPE).exists(), reason="vramscope is not built")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


def vramscope(*words: str, cwd: Path, **more) -> subprocess.CompletedProcess:
    """It ends by itself, whatever it finds: nothing of what is here takes it five seconds."""
    return subprocess.run(
        [VRAMSCOPE, *words], cwd=cwd, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL, **more
    )


def record(cwd: Path, *command: str, output: str = "o.vram", **more) -> subprocess.CompletedProcess:
    return vramscope("run", "--no-report", "--cpu", "-o", output, "--", *(command or ("true",)), cwd=cwd, **more)


def unfinished(cwd: Path, name: str = "o.vram.d") -> Path:
    """What a killed `run` leaves."""
    process = subprocess.Popen(
        [VRAMSCOPE, "run", "--no-report", "--cpu", "-o", name[:-2], "--", "sleep", "60"],
        cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    directory = cwd / name
    deadline = time.monotonic() + 30
    while not (children := Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()) or (
        Path(f"/proc/{children[0]}/comm").read_text() != "sleep\n"
    ):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    os.kill(int(children[0]), 9)
    process.communicate()
    while Path(f"/proc/{children[0]}").exists():
        time.sleep(0.01)
    return directory


def one_line(result: subprocess.CompletedProcess) -> str:
    (line,) = result.stderr.splitlines()
    assert line.startswith("vramscope: ")
    return line


# ---- nothing is destroyed through a live directory -------------------------------------------------------


def lay_link(victim: Path, at: Path) -> None:
    at.symlink_to(victim)


def lay_hard_link(victim: Path, at: Path) -> None:
    at.hardlink_to(victim)


@pytest.mark.parametrize("lay", [lay_link, lay_hard_link])
@pytest.mark.parametrize("name", ["x.vrl", "launcher.vrl", "session.json", "stop", "1.unrecorded"])
def test_a_file_behind_a_link_in_the_live_directory_stays(tmp_path, lay, name):
    victim = tmp_path / "file"
    victim.write_text("precious\n")
    live = tmp_path / "o.vram.d"
    live.mkdir()
    lay(victim, live / name)
    result = record(tmp_path, "touch", "started")
    assert victim.read_text() == "precious\n"
    if not (name == "1.unrecorded" and lay is lay_link):  # that is what such a mark looks like
        assert result.returncode == 2
        assert name in one_line(result) and "-o" in one_line(result)
        assert (live / name).exists() and not (tmp_path / "started").exists()


@pytest.mark.parametrize("lay", [lay_link, lay_hard_link])
def test_finish_leaves_what_is_not_the_recordings(tmp_path, lay):
    live = unfinished(tmp_path)
    victim = tmp_path / "file"
    victim.write_text("precious\n")
    lay(victim, live / "x.vrl")
    (live / "notes.txt").write_text("mine")
    result = vramscope("finish", "--no-report", "o.vram.d", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert victim.read_text() == "precious\n"
    assert {"launcher.vrl", "notes.txt", "session.json", "x.vrl"} <= {path.name for path in live.iterdir()}
    assert "was not removed" in result.stderr
    assert (tmp_path / "o.vram").exists()


def test_the_file_of_a_process_that_was_killed_while_it_made_it_goes_with_the_others(tmp_path):
    # The rest of the header is there, as in one run of 500 that are killed at any moment.
    page = b"VRAM\0\0\0\0" + bytes(range(1, 57)) + bytes(4032)
    live = unfinished(tmp_path)
    (live / "1.2.vrl").write_bytes(page)
    result = vramscope("finish", "--no-report", "o.vram.d", cwd=tmp_path)
    assert result.returncode == 0 and "was not removed" not in result.stderr
    assert not live.exists()

    live = unfinished(tmp_path, "p.vram.d")
    (live / "1.2.vrl").write_bytes(bytes(4) + page[4:])  # nothing says that it is ours
    result = vramscope("finish", "--no-report", "p.vram.d", cwd=tmp_path)
    assert "was not removed: 1.2.vrl" in result.stderr
    assert (live / "1.2.vrl").exists()


def test_a_file_of_the_users_in_a_live_directory_stops_the_replacement(tmp_path):
    live = unfinished(tmp_path)
    before = {path.name: path.read_bytes() for path in live.iterdir()}
    (live / "notes.txt").write_text("mine")
    result = record(tmp_path)
    assert result.returncode == 2
    assert "notes.txt" in one_line(result)
    (live / "notes.txt").unlink()
    assert {path.name: path.read_bytes() for path in live.iterdir()} == before
    (live / "x.vrl").write_bytes(b"no magic of ours" * 1000)
    assert record(tmp_path).returncode == 2
    assert (live / "x.vrl").read_bytes() == b"no magic of ours" * 1000


def test_a_link_for_a_live_directory_is_refused(tmp_path):
    live = unfinished(tmp_path, "other.vram.d")
    before = {path.name: path.read_bytes() for path in live.iterdir()}
    (tmp_path / "o.vram.d").symlink_to(live)
    assert record(tmp_path).returncode == 2
    assert {path.name: path.read_bytes() for path in live.iterdir()} == before


@as_root
def test_another_users_directory_is_left_alone(tmp_path):
    """As root, for whom no permission stands in the way."""
    live = unfinished(tmp_path)
    for path in [live, *live.iterdir()]:
        os.chown(path, NOBODY, NOBODY)
    before = {path.name: path.read_bytes() for path in live.iterdir()}
    result = record(tmp_path)
    assert result.returncode == 2
    assert "belongs to another user" in one_line(result)
    result = vramscope("finish", "--no-report", "-o", "mine.vram", "o.vram.d", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert {path.name: path.read_bytes() for path in live.iterdir()} == before
    assert (tmp_path / "mine.vram").exists()
    empty = tmp_path / "e.vram.d"
    empty.mkdir()
    os.chown(empty, NOBODY, NOBODY)
    assert record(tmp_path, output="e.vram").returncode == 2
    assert empty.is_dir()


# ---- temporary files and outputs ---------------------------------------------------------------------------


def outputs(cwd: Path) -> list[tuple[str, list[str]]]:
    """Every command that writes a file that the user names, and the name's ending."""
    machine = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(cwd / "books")}
    assert record(cwd, str(HOSTS / "driver_basic"), output="in.vram", env=machine).returncode == 0
    (cwd / "books").unlink()
    return [
        (".vram", ["run", "--no-report", "--cpu", "-o", "OUT", "--", "true"]),
        (".html", ["report", "in.vram", "--html", "OUT"]),
        (".csv", ["export", "in.vram", "--to", "csv", "-o", "OUT"]),
        (".svg", ["plot", "in.vram", "--kind", "timeline", "-o", "OUT"]),
    ]


def test_links_laid_where_a_temporary_file_could_be_are_not_followed(tmp_path):
    commands = outputs(tmp_path)
    for ending, words in commands:
        folder = tmp_path / ending[1:]
        folder.mkdir()
        victim = folder / "file"
        victim.write_text("precious\n")
        last = int(Path("/proc/loadavg").read_text().split()[-1])
        for pid in range(last, last + 400):
            (folder / f"out{ending}.tmp.{pid}").symlink_to(victim)
        result = vramscope(*[word.replace("OUT", str(folder / f"out{ending}")) for word in words], cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        assert victim.read_text() == "precious\n", words
        assert (folder / f"out{ending}").exists()


def test_an_output_replaces_nothing_but_a_file_of_ours(tmp_path):
    victim = tmp_path / "victim"
    for number, (ending, words) in enumerate(outputs(tmp_path)):
        for kind in ("link", "hard", "fifo", "directory"):
            victim.write_bytes((tmp_path / "in.vram").read_bytes())
            name = f"{kind}{number}{ending}"
            at = tmp_path / name
            {
                "link": lambda: at.symlink_to(victim),
                "hard": lambda: at.hardlink_to(victim),
                "fifo": lambda: os.mkfifo(at),
                "directory": lambda: at.mkdir(),
            }[kind]()
            before = at.lstat()
            result = vramscope(*[word.replace("OUT", name) for word in words], cwd=tmp_path)
            assert result.returncode == 2, (words, kind)
            assert name in one_line(result)
            after = at.lstat()
            assert (after.st_mode, after.st_ino, after.st_nlink) == (before.st_mode, before.st_ino, before.st_nlink)
            assert victim.read_bytes() == (tmp_path / "in.vram").read_bytes()
            if kind == "hard":
                at.unlink()


@as_root
def test_not_even_root_replaces_another_users_file(tmp_path):
    for ending, words in outputs(tmp_path):
        name = f"theirs{ending}"
        (tmp_path / name).write_bytes((tmp_path / "in.vram").read_bytes())
        os.chown(tmp_path / name, NOBODY, NOBODY)
        result = vramscope(*[word.replace("OUT", name) for word in words], cwd=tmp_path)
        assert result.returncode == 2
        assert "belongs to another user" in one_line(result)
        assert (tmp_path / name).read_bytes() == (tmp_path / "in.vram").read_bytes()


@pytest.mark.parametrize("text", ["thesis", ""])
def test_a_file_that_appears_at_the_output_during_the_run_is_left(tmp_path, text):
    result = record(tmp_path, "sh", "-c", f"printf '{text}' > o.vram; exit 3")
    assert result.returncode == 3
    assert (tmp_path / "o.vram").read_text() == text
    assert "o.vram during the run, and it is unchanged" in result.stderr
    assert "vramscope finish" in result.stderr
    result = vramscope("finish", "--no-report", "o.vram.d", "-o", "p.vram", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert (tmp_path / "o.vram").read_text() == text and (tmp_path / "p.vram").exists()


def test_an_older_recording_is_replaced(tmp_path):
    assert record(tmp_path, "true").returncode == 0
    first = (tmp_path / "o.vram").read_bytes()
    assert record(tmp_path, "true").returncode == 0
    assert (tmp_path / "o.vram").read_bytes() != first
    assert [path.name for path in tmp_path.iterdir()] == ["o.vram"]


# ---- who may read what we write -----------------------------------------------------------------------------


def modes_below(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mode & 0o7777 for path in folder.rglob("*")}


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_written_is_for_this_user_alone(tmp_path, umask):
    during = "import os, json, sys; json.dump({n: os.lstat('o.vram.d/' + n).st_mode & 0o7777 for n in ['.', *os.listdir('o.vram.d')]}, sys.stdout)"
    result = record(tmp_path, sys.executable, "-c", during, umask=umask)
    assert result.returncode == 0, result.stderr
    seen = eval(result.stdout)
    assert seen.pop(".") == 0o700
    assert "session.json" in seen and "launcher.vrl" in seen
    assert set(seen.values()) == {0o600}
    for ending, words in outputs(tmp_path):
        result = vramscope(*[word.replace("OUT", f"out{ending}") for word in words], cwd=tmp_path, umask=umask)
        assert result.returncode == 0, result.stderr
    assert set(modes_below(tmp_path).values()) == {0o600}
    result = vramscope("env", "--cpu", "-o", "e.vram.d", cwd=tmp_path, umask=umask)
    assert result.returncode == 0
    modes = modes_below(tmp_path / "e.vram.d")
    assert {"manifest", "session.json"} < set(modes) and set(modes.values()) == {0o600}
    assert (tmp_path / "e.vram.d").stat().st_mode & 0o777 == 0o700


# ---- received files -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def standing(kind: str, at: Path) -> Iterator[None]:
    if kind == "fifo":
        os.mkfifo(at)
    elif kind == "device":
        os.mknod(at, 0o20666, os.makedev(1, 5))  # /dev/zero
    else:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(at))
            yield
            return
    yield


@pytest.mark.parametrize(
    "kind", ["fifo", "socket", pytest.param("device", marks=as_root)]
)
@pytest.mark.parametrize("name", ["x.vrl", "launcher.vrl", "session.json"])
def test_what_is_no_file_is_refused_at_once(tmp_path, monkeypatch, kind, name):
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    live = Path("r.vram.d")
    live.mkdir()
    with standing(kind, live / name):
        began = time.monotonic()
        for words in (
            ["run", "--no-report", "--cpu", "-o", "r.vram", "--", "true"],
            ["finish", "--no-report", "r.vram.d"],
            ["report", "r.vram"],
            ["info", "r.vram.d"],
        ):
            result = vramscope(*words, cwd=tmp_path)
            assert result.returncode == 2, words
            one_line(result)
        assert (live / name).lstat()
        assert time.monotonic() - began < 20


@pytest.mark.parametrize("option", ["--html", "--keywords"])
def test_a_fifo_for_a_file_is_refused_at_once(tmp_path, option):
    assert record(tmp_path).returncode == 0
    os.mkfifo(tmp_path / "fifo")
    assert vramscope("report", "o.vram", option, "fifo", cwd=tmp_path).returncode == 2
    assert vramscope("report", "fifo", cwd=tmp_path).returncode == 2
    assert vramscope("run", "--cpu", "--html", "fifo", "-o", "p.vram", "--", "true", cwd=tmp_path).returncode == 2


# ---- text out of a recording ----------------------------------------------------------------------------------


def test_a_reader_that_has_had_enough_is_no_failure(tmp_path):
    assert record(tmp_path).returncode == 0
    for words in (["export", "o.vram", "--to", "csv"], ["report", "o.vram", "--json"], ["info", "o.vram"]):
        for ignored in (False, True):  # services of systemd ignore SIGPIPE
            reading, writing = os.pipe()
            os.close(reading)
            result = subprocess.run(
                [VRAMSCOPE, *words], cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=writing, stderr=subprocess.PIPE,
                text=True, timeout=60, restore_signals=not ignored,
            )
            os.close(writing)
            assert (result.returncode, result.stderr) == (0, ""), (words, ignored)


# ---- the launcher outlives what it watches -----------------------------------------------------------------------


def test_short_processes_do_not_end_the_launcher(tmp_path):
    """One that ends while the launcher reads its /proc. `make soak` runs 100 rounds (VRAMSCOPE_SHORT_ROUNDS)."""
    for _ in range(int(os.environ.get("VRAMSCOPE_SHORT_ROUNDS", "1"))):
        result = vramscope(
            "run", "--no-report", "--cpu", "-o", "o.vram", "--", "bash", "-c", "for i in {1..2000}; do /bin/true; done",
            cwd=tmp_path,
        )
        assert result.returncode == 0, result.stderr
        assert (tmp_path / "o.vram").exists()
