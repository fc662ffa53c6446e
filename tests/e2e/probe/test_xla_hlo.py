# SPDX-License-Identifier: Apache-2.0
"""`run --xla-hlo`: the temporary memory of XLA's programs by operation, with a fake PJRT plugin."""
from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from places import FAKE, HOSTS, VRAMSCOPE

pytestmark = pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the fake driver is not built")

TEMPORARY = 9_000_192  # of jit_train_step (pjrt_buffers.cc)
STEM = "module_0004.jit_train_step.sm_9.0_gpu_after_optimizations"


def texts(program: str, temporary: int) -> dict[str, str]:
    """The dump of a program: at instruction 3 the first value has ended, and a gap is left."""
    half = temporary // 2 // 256 * 256
    values = [("tanh.1", half, 0, "0-1"), ("fusion.2", half, 0, "1-4"), ("dot.remat", 4096, half, "2-3")]
    buffers = f"BufferAssignment:\nallocation 0: size {temporary}, preallocated-temp:\n"
    ranges = "HloLiveRange (max 5):\n  BufferLiveRange:\n"
    for number, (name, size, offset, live) in enumerate(values):
        buffers += f" value: <{number} {name} @0> (size={size},offset={offset}): f32[{size // 4}]{{0}}\n"
        ranges += f"    {name}{{}}:{live}\n"
    hlo = f"""HloModule {program}, is_scheduled=true

FileNames
1 "/home/me/train.py"
2 "/venv/lib/python3.12/site-packages/flax/linen.py"

FunctionNames
1 "loss"
2 "Dense.__call__"

FileLocations
1 {{file_name_id=1 function_name_id=1 line=7}}
2 {{file_name_id=2 function_name_id=2 line=70}}

StackFrames
1 {{file_location_id=1 parent_frame_id=1}}
2 {{file_location_id=2 parent_frame_id=2}}


%fused (a: f32[8]) -> f32[8] {{
  %a = f32[8]{{0}} parameter(0)
  %b = f32[8]{{0}} add(%a, %a)
  ROOT %c = f32[8]{{0}} tanh(%b)
}}

ENTRY %main (p: f32[8]) -> f32[8] {{
  %tanh.1 = f32[8]{{0}} tanh(%p), metadata={{op_name="jit(train_step)/tanh" stack_frame_id=1}}
  %fusion.2 = f32[8]{{0}} fusion(%tanh.1), kind=kLoop, calls=%fused, metadata={{op_name="jit(train_step)/jvp()/add" stack_frame_id=2}}
  ROOT %dot.remat = f32[8]{{0}} dot(%fusion.2, %p), metadata={{op_name="jit(train_step)/transpose(jvp())/dot_general"}}
}}
"""
    return {"-buffer-assignment.txt": buffers, "-live-range.txt": ranges + "  Live ranges at 3 (peak):\n", ".txt": hlo}


def write(folder: Path, stem: str, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for end, text in files.items():
        (folder / (stem + end)).write_text(text)
    return folder


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """What XLA writes: one program that runs, one that never does, and a folder with the inputs of a module."""
    folder = write(tmp_path / "dump", STEM, texts("jit_train_step", TEMPORARY))
    write(folder, "module_0009.jit_never_ran.sm_9.0_gpu_after_optimizations", texts("jit_never_ran", 4_000_000))
    write(folder / "module_0004.jit_train_step", "module", {".mlir": "module {}\n"})
    return folder


def run(tmp_path: Path, dump: Path, *options: str, command: list[str] | None = None, **environment: str):
    machine = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "VRAMSCOPE_FAKE_DEVICES": "2", "VRAMSCOPE_TEST_XLA_DUMP": str(dump), **environment,
    }  # fmt: skip
    command = command or [str(HOSTS / "pjrt_buffers"), str(HOSTS / "xla_fake_plugin.so")]
    file = tmp_path / "a b.vram"
    done = subprocess.run(
        [VRAMSCOPE, "run", "--no-report", *options, "-o", file, "--", *command],
        env=machine, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    return file, done


def ask(file: Path, *options: str) -> str:
    return subprocess.run([VRAMSCOPE, *options, file], capture_output=True, text=True, check=True).stdout


def programs(file: Path) -> dict[str, dict]:
    said = json.loads(ask(file, "report", "--xla-hlo", "--json"))
    assert said["schema"] == "vramscope.xla_programs/1"
    sizes = [program["temp_bytes"] for program in said["programs"]]
    assert sizes == sorted(sizes, reverse=True)
    for program in said["programs"]:
        held = sum(operation["bytes"] for operation in program["operations"])
        assert held + program["idle_bytes"] == program["temp_bytes"]
    return {program["name"]: program for program in said["programs"]}


def check_split(file: Path) -> None:
    program = programs(file)["jit_train_step"]
    assert (program["temp_bytes"], program["dumped"]) == (TEMPORARY, True)
    largest, second = program["operations"]
    assert largest == {
        "bytes": TEMPORARY // 2 // 256 * 256, "instruction": "fusion.2", "op_name": "jit(train_step)/jvp()/add",
        "line": "train.py:7 in loss", "fused": 2, "rematerialized": False,
    }  # fmt: skip
    assert (second["instruction"], second["bytes"], second["rematerialized"]) == ("dot.remat", 4096, True)


def test_rows_and_split_meet(tmp_path, dump):
    file, done = run(tmp_path, dump, "--xla-hlo")
    assert done.returncode == 0, done.stderr
    check_split(file)
    found = programs(file)
    assert "jit_never_ran" not in found and "jit_none" not in found
    assert found["jit_quiet"]["dumped"] is False and found["jit_quiet"]["operations"] == []
    # The rows of the executions have the same name and size.
    said = json.loads(ask(file, "report", "--json", "--at", "own-peak", "--where", "category=temporary", "--by", "tag"))
    assert {row["path"][0]: row["bytes"] // row["count"] for row in said["rows"]}["jit_train_step"] == TEMPORARY
    text = ask(file, "report", "--xla-hlo")
    assert "jit_train_step: 8.58 MiB of temporary memory at its peak\n" in text
    assert "train.py:7 in loss  fusion of 2  jvp()/add\n" in text
    assert "not live at the peak" in text
    assert "jit_quiet: 4.77 MiB of temporary memory at its peak, without a dump" in text
    # Nothing is left of the dumps.
    assert not Path(f"{file}.d").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".vramscope")]
    assert "XLA programs without a readable dump" in ask(file, "info")


def test_a_live_recording_and_a_killed_one(tmp_path, dump):
    host = f"{HOSTS / 'pjrt_buffers'} {HOSTS / 'xla_fake_plugin.so'}"
    script = f'{host} && {VRAMSCOPE} report --xla-hlo "$VRAMSCOPE_DIR" && kill -9 $PPID'
    file, done = run(tmp_path, dump, "--xla-hlo", command=["sh", "-c", script])
    assert done.returncode == -9
    assert "train.py:7 in loss  fusion of 2  jvp()/add\n" in done.stdout
    subprocess.run([VRAMSCOPE, "finish", "--no-report", f"{file}.d"], check=True, timeout=60)
    check_split(file)
    assert not Path(f"{file}.d").exists()


def test_the_users_folder_is_read_and_kept(tmp_path, dump):
    users = tmp_path / "users"
    write(users, STEM, texts("jit_train_step", TEMPORARY))
    os.utime(users / f"{STEM}-buffer-assignment.txt", (1, 1))  # of an older run
    show = ["sh", "-c", 'echo "$XLA_FLAGS"']
    flags = f"--xla_gpu_autotune_level=0 --xla_dump_to={users}"
    file, done = run(tmp_path, dump, "--xla-hlo", command=show, XLA_FLAGS=flags)
    assert done.stdout == f"{flags} --xla_dump_hlo_as_text\n", done.stderr
    file, done = run(tmp_path, tmp_path / "none", "--xla-hlo", command=None, XLA_FLAGS=flags)
    assert done.returncode != 0  # the host has no folder to copy
    file, done = run(tmp_path, dump, "--xla-hlo", XLA_FLAGS=flags)
    assert done.returncode == 0, done.stderr
    check_split(file)
    assert sorted(path.name for path in users.iterdir()) == sorted(path.name for path in dump.iterdir())


@pytest.mark.parametrize("damage", ["half", "none", "pipe", "link", "large", "other"])
def test_what_cannot_be_read_is_a_loss(tmp_path, dump, damage):
    file = dump / (STEM + ("-live-range.txt" if damage != "other" else ".txt"))
    text = file.read_text()
    file.unlink()
    if damage == "half":
        file.write_text(text[: text.index("tanh.1")])
    elif damage == "link":
        file.symlink_to("/etc/passwd")
    elif damage == "large":
        with file.open("w") as sparse:
            sparse.truncate(1 << 40)
    elif damage == "other":
        file.write_text("x" * 100_000)
    users = tmp_path / "users"
    environment = {}
    if damage in ("pipe", "large"):  # which the host cannot copy
        write(users, STEM, {})
        for path in dump.iterdir():
            path.rename(users / path.name)
        environment["XLA_FLAGS"] = f"--xla_dump_to={users}"
        if damage == "pipe":
            os.mkfifo(users / file.name)
        dump = write(tmp_path / "empty", "x", {})
    recording, done = run(tmp_path, dump, "--xla-hlo", **environment)
    assert done.returncode == 0, done.stderr
    program = programs(recording)["jit_train_step"]
    assert (program["dumped"], program["idle_bytes"]) == (False, TEMPORARY)
    said = ask(recording, "info")
    assert "XLA programs without a readable dump" in said and "XLA dump of jit_train_step" in said


def test_only_dumps_are_deleted(tmp_path, dump):
    command = ["sh", "-c", 'echo mine > "$VRAMSCOPE_DIR/xla/notes.txt"; : > "$VRAMSCOPE_DIR/xla/module_0001.x.txt"']
    file, done = run(tmp_path, dump, "--xla-hlo", command=command)
    assert done.returncode == 0
    assert "xla/notes.txt is not part of a recording" in done.stderr
    assert (Path(f"{file}.d") / "xla" / "notes.txt").read_text() == "mine\n"
    victim = tmp_path / "victim"
    victim.write_text("mine\n")
    for link in ('ln -s "%s" "$VRAMSCOPE_DIR/xla/module_1"', 'ln "%s" "$VRAMSCOPE_DIR/xla/module_1"'):
        other = tmp_path / f"other{len(link)}"
        other.mkdir()
        _, done = run(other, dump, "--xla-hlo", command=["sh", "-c", link % victim])
        assert "xla/module_1" in done.stderr and victim.read_text() == "mine\n"


@pytest.mark.parametrize("flags, why", [
    ("--xla_dump_to=-", "is not a folder"),
    ("--xla_dump_to='' --xla_gpu_x=1", "is not a folder"),
    ("/home/me/flags.txt", "names a file of flags"),
])  # fmt: skip
def test_flags_without_a_folder_are_an_error(tmp_path, dump, flags, why):
    _, done = run(tmp_path, dump, "--xla-hlo", XLA_FLAGS=flags)
    assert done.returncode == 2 and why in done.stderr


def test_without_the_option_nothing_is_dumped(tmp_path, dump):
    file, done = run(tmp_path, dump, command=["sh", "-c", 'echo "$XLA_FLAGS"; ls "$VRAMSCOPE_DIR"'])
    assert "xla" not in done.stdout
    said = subprocess.run([VRAMSCOPE, "report", "--xla-hlo", file], capture_output=True, text=True)
    assert said.returncode == 2 and "record with `vramscope run --xla-hlo`" in said.stderr
