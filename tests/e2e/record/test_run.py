# SPDX-License-Identifier: Apache-2.0
"""`vramscope run` as a command among commands: statuses, streams, files; and the small commands beside it."""
from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from live_file import LiveFile
from places import BUILD, FAKE, ROOT, VRAMSCOPE
from run_command import (
    child_of,
    live_directory,
    nothing_stays_behind,  # noqa: F401 (of every test here)
    one_error_line,
    run,
    start,
    until,
)

pytestmark = pytest.mark.skipif(not Path(VRAMSCOPE).exists(), reason="vramscope is not built")

# ---- exit statuses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [0, 1, 3, 126, 127, 255])
def test_exits_with_the_status_of_the_command(tmp_path, status):
    assert run("sh", "-c", f"exit {status}", cwd=tmp_path).returncode == status


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGINT])
def test_exits_with_128_and_the_signal(tmp_path, number):
    assert run("sh", "-c", f"kill -{int(number)} $$", cwd=tmp_path, options=("-o", "x.vram")).returncode == 128 + number
    # It used no memory, so that no process was recorded.
    text = subprocess.run([VRAMSCOPE, "report", "x.vram"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert text.startswith(f"The program was killed by signal {int(number)}\n")


@pytest.mark.parametrize("script, options, said", [
    ("os._exit(3)", (), "The program ended with exit status 3"),
    ("os.kill(os.getpid(), 9)", (), "The program was killed by signal 9"),
    ("torch.nn.Linear(9, 9)(x).sum().backward()", ("--start-paused",), "The recording was never started"),
])
def test_the_report_says_how_the_program_ended(tmp_path, script, options, said):
    pytest.importorskip("torch")
    run(sys.executable, "-c", f"import os, torch\nx = torch.ones(9)\n{script}", cwd=tmp_path,
        options=("--cpu", "-o", "x.vram", *options))
    text = subprocess.run([VRAMSCOPE, "report", "x.vram"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert f"\n{said}" in text and "No device was used" not in text and "Lost" not in text
    assert ("The program" in text) == (not options)


def test_an_unknown_command_is_127(tmp_path):
    result = run("no-such-command-here", cwd=tmp_path)
    assert result.returncode == 127
    assert "no-such-command-here" in one_error_line(result)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_path_is_127(tmp_path):
    result = run("./nothing", cwd=tmp_path)
    assert result.returncode == 127
    assert "./nothing" in one_error_line(result)


def test_a_file_without_permission_and_a_directory_are_126(tmp_path):
    (tmp_path / "plain").write_text("echo hello\n")
    (tmp_path / "folder").mkdir()
    for name in ("./plain", "./folder"):
        result = run(name, cwd=tmp_path)
        assert result.returncode == 126
        assert name in one_error_line(result)


def test_a_missing_interpreter_is_126(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    result = run("./script", cwd=tmp_path)
    assert result.returncode == 126
    assert "/no/such/interpreter" in one_error_line(result)


def test_a_script_without_interpreter_line_runs_as_in_a_shell(tmp_path):
    script = tmp_path / "script"
    script.write_text("echo $1\nexit 5\n")
    script.chmod(0o755)
    result = run("./script", "word", cwd=tmp_path)
    assert (result.returncode, result.stdout) == (5, "word\n")


# ---- usage -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words, hint",
    [
        ([], "--help"),
        (["rnu"], "did you mean run?"),
        (["--verison"], "did you mean --version?"),
        (["run"], "vramscope run -- "),
        (["run", "--"], "vramscope run -- "),
        (["run", "--nativ", "--", "true"], "did you mean --native?"),
        (["run", "--ring", "much", "--", "true"], "--ring"),
        (["run", "--ring", "1K", "--", "true"], "--ring"),
        (["run", "stray", "--", "true"], "stray"),
        (["run", "-o"], "-o"),
        (["report", "--top", "-3", "x"], "--top: '-3' is not a whole number: see `vramscope report --help`"),
        (["leaks", "--top", "x", "x"], "--top: 'x' is not a whole number"),
        (["iterations", "--pid", "-1", "x"], "--pid: '-1' is not a whole number"),
        (["finish"], "DIR"),
        (["finish", "no-such-directory"], "no-such-directory"),
    ],
)
def test_a_usage_error_is_one_line_and_status_2(tmp_path, words, hint):
    result = subprocess.run([VRAMSCOPE, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert hint in one_error_line(result)
    assert result.stdout == ""


COMMANDS = "run sample env snapshot finish attach detach dump report open plot keywords iterations leaks diff predict whatif fleet top metrics info doctor import export yield resume".split()


@pytest.mark.parametrize("words", [[], *([command] for command in COMMANDS)], ids=lambda words: " ".join(words))
def test_help_is_everywhere_and_fits_a_screen(words):
    result = subprocess.run([VRAMSCOPE, *words, "--help"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert "Usage: " + " ".join(["vramscope", *words]) in result.stdout
    assert not [line for line in lines if len(line) > 80]
    assert "" not in (lines[0], lines[-1]) and "\n\n\n" not in result.stdout
    # Options of the argument parser that are not used.
    assert not re.search("REQUIRED|Excludes|TEXT \\.\\.\\.", result.stdout)
    # How to find the other commands is not for those who have found one.
    assert ("explains a command" in result.stdout) == (words == [])
    assert words or re.findall("^  ([a-z]+)  ", result.stdout, re.MULTILINE) == COMMANDS


def test_version():
    result = subprocess.run([VRAMSCOPE, "--version"], capture_output=True, text=True, timeout=60)
    assert result.stdout == f"vramscope {(ROOT / 'VERSION').read_text().strip()}\n"


def test_the_command_keeps_its_own_options(tmp_path):
    result = run("printf", "%s|", "-o", "--", "x", "--cpu", cwd=tmp_path)
    assert result.stdout == "-o|--|x|--cpu|"


def test_dashes_can_be_left_out(tmp_path):
    result = subprocess.run(
        [VRAMSCOPE, "run", "--no-report", "printf", "%s|", "-o", "--cpu"],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )
    assert result.stdout == "-o|--cpu|"


# ---- streams, environment ----------------------------------------------------------------------------


def test_standard_streams_pass_through(tmp_path):
    text = "".join(f"line {i}\n" for i in range(20_000))
    result = run("sh", "-c", "cat; echo said >&2", cwd=tmp_path, input=text)
    assert result.stdout == text
    assert result.stderr.startswith("said\n")


def test_the_program_gets_no_descriptors_and_no_signals_blocked(tmp_path):
    code = (
        "import os, signal\n"
        "print(sorted(int(n) for n in os.listdir('/proc/self/fd'))[:4],"
        " signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getsignal(signal.SIGCHLD))"
    )
    bare = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    assert run(sys.executable, "-c", code, cwd=tmp_path).stdout == bare.stdout


def test_the_environment_keeps_an_existing_preload(tmp_path):
    libc = next(line.split()[-1] for line in open("/proc/self/maps") if "libc.so.6" in line)
    result = run("sh", "-c", 'echo "$LD_PRELOAD"', cwd=tmp_path, env={**os.environ, "LD_PRELOAD": libc})
    probe, _, kept = result.stdout.strip().partition(":")
    assert probe.endswith("/libvramscope_probe.so")
    assert kept == libc


# ---- output ------------------------------------------------------------------------------------------


def test_the_default_output_bears_the_script_and_the_pid(tmp_path):
    (tmp_path / "train.py").write_text("import os; print(os.getpid())")
    result = run(sys.executable, "train.py", cwd=tmp_path)
    pid = int(result.stdout)
    assert [path.name for path in tmp_path.glob("*.vram*")] == [f"train-{pid}.vram"]
    assert f"train-{pid}.vram" in result.stderr


def test_one_file_is_left(tmp_path):
    run("true", cwd=tmp_path, options=("-o", "x.vram"))
    assert [path.name for path in tmp_path.iterdir()] == ["x.vram"]


def test_an_older_trace_is_replaced(tmp_path):
    for said in (False, True):
        result = run("true", cwd=tmp_path, options=("-o", "x.vram"))
        assert result.returncode == 0 and ("an older recording" in result.stderr) == said
    assert [path.name for path in tmp_path.iterdir()] == ["x.vram"]


def marker(tmp_path: Path) -> tuple[Path, list[str]]:
    """A command that leaves a trace of its own when it is started."""
    path = tmp_path / "was-started"
    return path, ["touch", str(path)]


def test_a_foreign_file_is_refused_before_the_program_starts(tmp_path):
    started, command = marker(tmp_path)
    foreign = tmp_path / "thesis.txt"
    foreign.write_text("years of work")
    result = run(*command, cwd=tmp_path, options=("-o", "thesis.txt"))
    assert result.returncode == 2
    assert "thesis.txt" in one_error_line(result)
    assert foreign.read_text() == "years of work"
    assert not started.exists()


def test_a_foreign_directory_in_the_way_is_refused(tmp_path):
    started, command = marker(tmp_path)
    (tmp_path / "x.vram.d").mkdir()
    (tmp_path / "x.vram.d" / "precious").write_text("data")
    result = run(*command, cwd=tmp_path, options=("-o", "x.vram"))
    assert result.returncode == 2
    assert "x.vram.d" in one_error_line(result)
    assert (tmp_path / "x.vram.d" / "precious").exists()
    assert not started.exists()


@pytest.mark.parametrize("output", ["missing/x.vram", "/dev/null", "."])
def test_an_output_that_cannot_be_written_is_refused(tmp_path, output):
    started, command = marker(tmp_path)
    result = run(*command, cwd=tmp_path, options=("-o", output))
    assert result.returncode == 2
    assert "-o" in one_error_line(result)
    assert not started.exists()


@pytest.mark.parametrize("length", [254, 255])
def test_a_name_that_is_too_long_is_refused(tmp_path, length):
    started, command = marker(tmp_path)
    result = run(*command, cwd=tmp_path, options=("-o", "x" * length))
    assert result.returncode == 2
    assert "-o" in one_error_line(result)
    assert not started.exists()


def test_a_working_directory_that_was_removed(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    command = f"cd {shlex.quote(str(place))} && rmdir ../place && exec {VRAMSCOPE} run --no-report -- sh -c 'exit 3'"
    result = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, timeout=60, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert result.returncode == 3, result.stderr
    assert "the working directory cannot be written" in result.stderr
    (path,) = tmp_path.glob("vramscope-*/sh-*.vram")
    assert str(path) in result.stderr


def test_a_recording_that_the_program_removes_is_lost_in_one_line(tmp_path):
    result = run("sh", "-c", "rm -r x.vram.d; exit 3", cwd=tmp_path, options=("-o", "x.vram"))
    assert result.returncode == 3
    assert "the recording is lost" in one_error_line(result)


def test_memory_that_ends_while_the_recording_is_finished_leaves_the_status(tmp_path):
    """30 MB of address space: the launcher lives in it, the analysis does not."""
    words = shlex.join([str(VRAMSCOPE), "run", "--no-report", "-o", "x.vram", "--", "sh", "-c", "exit 3"])
    for kilobytes in (28_000, 30_000, 34_000, 40_000, 60_000):
        result = subprocess.run(
            ["sh", "-c", f"ulimit -v {kilobytes}; exec {words}"], cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
        assert "internal error" not in result.stderr, kilobytes
        # Where there is too little to begin with, nothing is started.
        assert result.returncode in (3, 2, 127), result.stderr
        if result.returncode == 3:
            assert (tmp_path / "x.vram").exists() or "vramscope finish" in result.stderr


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    started, command = marker(tmp_path)
    result = run(*command, cwd=tmp_path, options=("--html", "missing/page.html"))
    assert result.returncode == 2
    assert "missing" in one_error_line(result)
    assert not started.exists()


def test_an_unwritable_directory_moves_the_output_to_the_temporary_one(tmp_path):
    # Not even root can create files in /proc.
    result = run("true", cwd=Path("/proc"), env={**os.environ, "TMPDIR": str(tmp_path)})
    assert result.returncode == 0
    (path,) = tmp_path.glob("vramscope-*/true-*.vram")
    assert str(path) in result.stderr
    # Others who use that directory can neither guess the name nor look inside.
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_recording_under_way_is_not_replaced(tmp_path):
    first = start("sleep", "60", cwd=tmp_path, options=("-o", "x.vram"))
    try:
        until(lambda: (tmp_path / "x.vram.d" / "launcher.vrl").exists())
        result = run("true", cwd=tmp_path, options=("-o", "x.vram"))
        assert result.returncode == 2
        assert "x.vram.d" in one_error_line(result)
        result = subprocess.run([VRAMSCOPE, "finish", "x.vram.d"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert result.returncode == 2
        assert "still recording" in one_error_line(result)
    finally:
        first.terminate()
        assert first.wait(60) == 128 + signal.SIGTERM
        first.communicate()


def test_a_missing_probe_is_found_before_the_program_starts(tmp_path):
    started, command = marker(tmp_path)
    result = run(*command, cwd=tmp_path, env={**os.environ, "VRAMSCOPE_PROBE": "/no/such/probe.so"})
    assert result.returncode == 2
    assert "/no/such/probe.so" in one_error_line(result)
    assert not started.exists()


def probe_path() -> Path:
    named = os.environ.get("VRAMSCOPE_PROBE")
    return Path(named) if named else Path(VRAMSCOPE).resolve().parents[1] / "lib" / "libvramscope_probe.so"


def test_a_probe_in_a_path_with_spaces_is_linked(tmp_path):
    folder = tmp_path / "my files"
    folder.mkdir()
    (folder / "libvramscope_probe.so").symlink_to(probe_path())
    environment = {**os.environ, "VRAMSCOPE_PROBE": str(folder / "libvramscope_probe.so")}
    result = run("sh", "-c", 'echo "$LD_PRELOAD"; cat /proc/self/maps', cwd=tmp_path, env=environment)
    link, _, maps = result.stdout.partition("\n")
    assert " " not in link
    assert "libvramscope_probe.so" in maps
    assert not Path(link).parent.exists(), "the link is removed at the end"


def test_a_static_program_runs_and_is_named(tmp_path):
    source = tmp_path / "static.c"
    source.write_text("int main(void) { return 7; }\n")
    built = subprocess.run(["cc", "-static", "-o", "static", "static.c"], cwd=tmp_path, capture_output=True, text=True)
    if built.returncode != 0:
        pytest.skip("no static C library")
    result = run("./static", cwd=tmp_path, options=("-o", "x.vram"))
    assert result.returncode == 7
    assert "statically linked" in result.stderr


def test_a_program_that_its_loader_is_told_to_load_is_recorded(tmp_path):
    """As wrappers of packages start theirs: the loader has no loader, and is no static program."""
    with open(sys.executable, "rb") as program:
        (loader,) = re.findall(rb"/[^\0]*/ld-linux[^\0]*", program.read())[:1]
    code = "print('libvramscope_probe.so' in open('/proc/self/maps').read()); import time; time.sleep(0.7)"
    result = run(os.fsdecode(loader), os.path.realpath(sys.executable), "-I", "-S", "-c", code, cwd=tmp_path)
    assert (result.returncode, result.stdout) == (0, "True\n")
    assert "recorded" not in result.stderr


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_a_program_under_valgrind_is_recorded(tmp_path):
    """A static program that loads another with all that is preloaded."""
    result = run("valgrind", "-q", "--tool=none", "sleep", "2", cwd=tmp_path)
    assert result.returncode == 0
    assert "recorded" not in result.stderr


def test_a_program_of_another_c_library_never_sees_the_probe(tmp_path):
    """musl's loader would end the program over a library that needs glibc. Here it is glibc's, by musl's name."""
    loader = tmp_path / "ld-musl-x86_64.so.1"
    loader.symlink_to("/lib64/ld-linux-x86-64.so.2")
    source = "#include <stdio.h>\n#include <stdlib.h>\nint main() { puts(getenv(\"LD_PRELOAD\") ? \"seen\" : \"none\"); }\n"
    (tmp_path / "program.c").write_text(source)
    words = ["cc", "-o", "program", "program.c", f"-Wl,--dynamic-linker={loader}"]
    subprocess.run(words, cwd=tmp_path, check=True)
    result = run("./program", cwd=tmp_path, options=("-o", "x.vram"))
    assert (result.returncode, result.stdout) == (0, "none\n")
    assert "is linked with musl: it cannot be recorded" in result.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's setuid program")
def test_a_setuid_program_runs_and_is_named(tmp_path):
    program = tmp_path / "true"
    program.write_bytes(Path("/bin/true").read_bytes())
    os.chown(program, 65534, 65534)
    program.chmod(0o755 | stat.S_ISUID)
    result = run("./true", cwd=tmp_path, options=("-o", "x.vram"))
    assert result.returncode == 0
    assert "setuid" in result.stderr


# ---- programs that outlive it -----------------------------------------------------------------------------


QUICK = BUILD / "hosts" / "quick_exit"  # allocates 50 times and exits with 3


def finish(directory: Path, *options: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [VRAMSCOPE, "finish", "--no-report", *options, str(directory)], capture_output=True, text=True, timeout=60
    )


def recorded(trace: Path) -> tuple[int, int]:
    """Processes and events."""
    info = subprocess.run([VRAMSCOPE, "info", str(trace)], capture_output=True, text=True, timeout=60).stdout
    return tuple(int(re.search(rf"^{word} +(\d+)$", info, re.M)[1]) for word in ("processes", "events"))


def test_a_program_in_the_background_is_waited_for(tmp_path):
    os.mkfifo(tmp_path / "go")
    background = f"(read word < go; exec {QUICK}) </dev/null >log 2>&1 &"
    result = run("sh", "-c", background, cwd=tmp_path, options=("--cpu", "-o", "x.vram"))
    assert (result.returncode, "still runs and may record" in one_error_line(result)) == (0, True)
    assert "may still record" in one_error_line(finish(tmp_path / "x.vram.d"))
    assert "may still record" in one_error_line(run("true", cwd=tmp_path, options=("-o", "x.vram")))
    (tmp_path / "go").write_text("go\n")
    until(lambda: finish(tmp_path / "x.vram.d").returncode == 0)
    assert recorded(tmp_path / "x.vram") == (1, 51)


def test_a_process_of_an_earlier_recording_is_not_in_the_next(tmp_path):
    os.mkfifo(tmp_path / "go")
    os.mkfifo(tmp_path / "went")
    background = f"(read word < go; {QUICK}; echo > went) </dev/null >log 2>&1 &"
    assert run("sh", "-c", background, cwd=tmp_path, options=("--cpu", "-o", "x.vram")).returncode == 0
    finished = finish(tmp_path / "x.vram.d", "--now")
    assert (finished.returncode, "further allocations are not recorded" in finished.stderr) == (0, True)
    both = f"echo > go; read word < went; {QUICK}"
    result = run("sh", "-c", both, cwd=tmp_path, options=("--cpu", "-o", "x.vram"))
    assert (result.returncode, "was replaced" in result.stderr, result.stderr.count("\n")) == (3, True, 2), result.stderr
    assert recorded(tmp_path / "x.vram") == (1, 51)


# ---- env ------------------------------------------------------------------------------------------------


def test_env_prints_exports_that_a_shell_takes(tmp_path):
    where = tmp_path / "it's a run.vram.d"
    result = subprocess.run([VRAMSCOPE, "env", "--cpu", "-o", str(where)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    shell = subprocess.run(
        ["sh", "-c", result.stdout + '\nprintf "%s\\n" "$LD_PRELOAD" "$VRAMSCOPE_DIR" "$VRAMSCOPE_OPTIONS"'],
        capture_output=True, text=True, timeout=60,
    )
    preload, directory, options = shell.stdout.splitlines()
    assert Path(preload).name == "libvramscope_probe.so"
    assert directory == str(where)
    assert "cpu" in options.split(",")
    assert where.is_dir()
    again = subprocess.run([VRAMSCOPE, "env", "--cpu", "-o", str(where)], capture_output=True, text=True, timeout=60)
    assert again.stdout == result.stdout, "several shells record into one directory"


def test_env_refuses_a_foreign_directory(tmp_path):
    (tmp_path / "precious").write_text("data")
    result = subprocess.run([VRAMSCOPE, "env", "-o", str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert result.returncode == 2
    assert str(tmp_path) in one_error_line(result)


# ---- NVML -------------------------------------------------------------------------------------------------

needs_fake_nvml = pytest.mark.skipif(
    not (FAKE / "libnvidia-ml.so.1").exists(), reason="the stand-in NVML is not built"
)


@needs_fake_nvml
def test_the_launcher_samples_nvml(tmp_path):
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": str(FAKE),
        "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "VRAMSCOPE_FAKE_DEVICES": "2",
    }
    process = start("sleep", "60", cwd=tmp_path, options=("-o", "x.vram"), env=environment)
    directory = live_directory(process, tmp_path)
    child = until(lambda: child_of(process.pid))
    until(lambda: "sleep" in Path(f"/proc/{child}/comm").read_text())
    # Two before the start, each for two devices.
    until(lambda: LiveFile(directory / "launcher.vrl").counts["DeviceSample"] > 2 * 2)
    process.kill()
    os.kill(child, signal.SIGKILL)
    process.communicate(timeout=60)
    assert LiveFile(directory / "launcher.vrl").counts["Device"] == 2


@needs_fake_nvml
def test_a_broken_nvml_is_no_error(tmp_path):
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_NVML_ERROR": "18"}
    assert run("true", cwd=tmp_path, env=environment).returncode == 0


def test_doctor_reads_well():
    result = subprocess.run([VRAMSCOPE, "doctor"], capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stdout
    for title in ("Driver", "Machine", "Probe", "Python", "A quick recording"):
        assert f"\n{title}\n" in result.stdout
    for line in result.stdout.splitlines()[1:-1]:
        assert re.match(r"[A-Z]|  (ok|no|note) +\S", line), line


def test_doctor_in_a_notebook_looks_at_the_kernels_python(tmp_path):
    """`!vramscope doctor`: a shell below the kernel, with another Python on PATH."""
    kernel = tmp_path / "venv python"
    kernel.symlink_to(sys.executable)
    code = "import subprocess, sys; subprocess.run(sys.argv[2] + ' doctor; true', shell=True)"
    result = subprocess.run(
        [kernel, "-c", code, "ipykernel_launcher", VRAMSCOPE], capture_output=True, text=True, timeout=180,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
    )
    assert f"\nPython\n  ok    Python of this notebook's kernel\n  ok    {kernel}: " in result.stdout, result.stdout


def test_the_ready_dictionaries_can_be_listed_and_shown(tmp_path):
    def keywords(*words):
        return subprocess.run([VRAMSCOPE, "keywords", *words], capture_output=True, text=True, timeout=60)

    names = keywords("list").stdout.split()
    assert names == ["layers", "data-structures", "tbd"]
    for name in names:
        assert keywords("show", name).stdout == (ROOT / "share" / "keywords" / f"{name}.toml").read_text()
    for words, said in (
        (["show", "nothing"], "no dictionary is named 'nothing': use one of layers, data-structures, tbd"),
        (["show"], "use `keywords list` or `keywords show NAME`: see `vramscope keywords --help`"),
        (["write", "layers"], "use `keywords list` or `keywords show NAME`: see `vramscope keywords --help`"),
    ):
        done = keywords(*words)
        assert (done.returncode, done.stdout, done.stderr) == (2, "", f"vramscope: {said}\n")


def test_the_directory_of_the_headers(tmp_path):
    done = subprocess.run([VRAMSCOPE, "--include-dir"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert (Path(done.stdout.strip()) / "vramscope" / "annotate.h").samefile(
        ROOT / "include" / "vramscope" / "annotate.h"
    )
    alone = tmp_path / "bin" / "vramscope"
    alone.parent.mkdir()
    shutil.copy(VRAMSCOPE, alone)
    done = subprocess.run([alone, "--include-dir"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"vramscope: the headers are not in {tmp_path}/include: build or install vramscope again\n"


def test_run_inside_run_records_once(tmp_path):
    inner = shlex.join([str(VRAMSCOPE), "run", "--no-report", "-o", "inner.vram", "--", "sh", "-c", 'echo "$LD_PRELOAD"'])
    result = run("sh", "-c", inner, cwd=tmp_path, options=("-o", "outer.vram"))
    assert result.stdout.count("libvramscope_probe.so") == 1
    assert (tmp_path / "inner.vram").exists() and (tmp_path / "outer.vram").exists()
