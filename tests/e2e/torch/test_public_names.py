# SPDX-License-Identifier: Apache-2.0
"""What editors, type checkers and notebooks know of the package."""
from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys

import package
import pytest
from places import BUILD, ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

# What a program may do with each public name; none of it runs.
PROGRAM = """
from __future__ import annotations
import pathlib
import vramscope
from vramscope import IterationProfiler, LineProfiler, MemReporter, profile, profile_every

def model() -> object: ...

@profile
def step(batch: int) -> float:
    return batch / 2

@profile(columns=["growth"])
class Trainer:
    rate = 0.1

@profile_every(10)
def epoch(batches: list[int]) -> float:
    return sum(map(step, batches))

@vramscope.scope("load")
def load(path: str) -> bytes:
    with vramscope.scope("read"):
        data = pathlib.Path(path).read_bytes()
    vramscope.tag(data, "weights")
    vramscope.mark("loaded")
    return data

def train() -> None:
    file = vramscope.start("a.vram", cpu=True, overwrite=True)
    print(file.stem if file is not None else vramscope.live_directory())
    vramscope.set_target_gpu(0)
    print(epoch([1, 2]) + step(3), len(load("x")), vramscope.is_recording(), vramscope.__version__.split("."))
    vramscope.stop()
    with vramscope.record("b.vram") as recording:
        pass
    if recording.path is not None:
        vramscope.show(recording.path)
    with vramscope.Courtesy() as courtesy:
        print(courtesy.bytes_away + 1)
    with vramscope.yield_gpu(timeout=3) as away:
        print(away.bytes + 1, away.seconds + 1.0)
    reporter = MemReporter(model())
    print(reporter.snapshot().diff(reporter.report(device="cpu")))
    print(Trainer.rate * 2)
    with LineProfiler(step) as lines:
        print(step(1), lines.display())
    IterationProfiler(model()).record_stats()
    trace: vramscope.Trace = vramscope.read("b.vram")
    try:
        print(trace.report(at="peak", by=["category"]).devices["ledger_bytes"][0])
    except vramscope.ReadError as error:
        print(error.args)
"""
# Each of them is an error: a checker that knows no types would find none.
WRONG = [
    "vramscope.nothing_of_the_kind",
    "vramscope.record(3)",
    "step('x')",
    "epoch(3)",
    "vramscope.show()",
    "vramscope.Courtesy().bytes_away + ''",
    "vramscope.MemReporter().report(verbos=True)",
    "vramscope.yield_gpu(timeout='3')",
    "vramscope.read('x').report(by=3)",
]


def run(code, environment, directory, *options):
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=environment, cwd=directory, capture_output=True, text=True, timeout=60,
    )


def names(environment, directory):
    done = run("import vramscope; print(*dir(vramscope))", environment, directory)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def write_program(directory, public):
    """The program, a question for the type of each public name, and what is wrong; its lines."""
    of_module = "\n".join(f"reveal_type(vramscope.{name})" for name in public)
    wrong = "\n".join(f"def wrong_{i}() -> None:\n    {code}" for i, code in enumerate(WRONG))
    (directory / "program.py").write_text(f"{PROGRAM}\n{of_module}\n{wrong}\n")
    return (directory / "program.py").read_text().splitlines()


def test_a_users_program_is_checked_strictly(tmp_path):
    pytest.importorskip("mypy")
    environment = package.make(tmp_path)
    public = names(environment, tmp_path)
    lines = write_program(tmp_path, public)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--follow-imports=silent",
         f"--cache-dir={BUILD / 'mypy-of-programs'}", "program.py"],
        env={**environment, "MYPYPATH": str(tmp_path), "MYPY_FORCE_COLOR": "0"},
        cwd=tmp_path, capture_output=True, text=True, timeout=300,
    )
    revealed, errors = [], []
    for number, kind, text in re.findall(r"^program\.py:(\d+): (\w+): (.*)$", done.stdout, re.M):
        if kind == "error":
            errors.append(lines[int(number) - 1].strip())
        elif text.startswith("Revealed type is"):
            revealed.append(text)
    assert sorted(errors) == sorted(WRONG), done.stdout + done.stderr
    assert len(revealed) == len(public)
    assert not [text for text in revealed if re.search(r'is "(Any|object|builtins\.object)"', text)]


def pyright(directory, environment, *options):
    return subprocess.run(
        [sys.executable, "-m", "pyright", *options], env={**environment, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
        cwd=directory, capture_output=True, text=True, timeout=300,
    )


def test_pyright_is_as_strict(tmp_path):
    pytest.importorskip("pyright")
    if shutil.which("node") is None:
        pytest.skip("pyright needs Node.js")
    environment = package.make(tmp_path)
    public = names(environment, tmp_path)
    lines = write_program(tmp_path, public)
    (tmp_path / "pyrightconfig.json").write_text(
        '{"include": ["program.py"], "typeCheckingMode": "strict", "pythonVersion": "3.9"}'
    )
    done = pyright(tmp_path, environment, "--outputjson")
    said = json.loads(done.stdout)["generalDiagnostics"]
    errors = {lines[each["range"]["start"]["line"]].strip() for each in said if each["severity"] == "error"}
    assert errors == set(WRONG), done.stdout + done.stderr
    revealed = [each["message"] for each in said if each["message"].startswith("Type of ") and "rule" not in each]
    assert len(revealed) == len(public), done.stdout
    assert not [text for text in revealed if re.search(r'\bUnknown\b|is "(Any|object)"', text)], revealed


def test_the_names_are_listed_and_asking_for_them_records_nothing(tmp_path):
    environment = package.make(tmp_path)
    public = names(environment, tmp_path)
    assert {"Courtesy", "IterationProfiler", "MemReporter", "read", "record", "show", "yield_gpu"} <= set(public)
    done = run(
        "import sys\nfrom vramscope import *\nimport vramscope\n"
        "print(*sorted(set(vramscope.__all__) - set(globals())), is_recording(), live_directory())\n"
        "print(*(name for name in dir(vramscope) if name != 'IterationProfiler' and not hasattr(vramscope, name)))\n"
        "print(vramscope.MemReporter is MemReporter, 'torch' in sys.modules)\n"
        "vramscope.nothing",
        environment, tmp_path,
    )
    assert done.stdout.splitlines() == ["False None", "", "True False"], done.stderr
    assert "AttributeError: module 'vramscope' has no attribute 'nothing'" in done.stderr
    assert set(public) - {"IterationProfiler", "load_ipython_extension"} == set(
        run("import vramscope; print(*vramscope.__all__)", environment, tmp_path).stdout.split()
    )


def test_a_recording_is_replaced_where_that_is_said(tmp_path):
    environment = package.make(tmp_path)
    code = (
        "import vramscope\n"
        "def again(**how):\n"
        "    try:\n"
        "        with vramscope.record('a.vram', cpu=True, **how) as recording:\n"
        "            print(recording)\n"
        "        print(recording)\n"
        "    except FileExistsError as error: print(error)\n"
        "again()\nagain()\nagain(overwrite=True)\n"
        "print(vramscope.record())\n"
    )
    done = run(code, environment, tmp_path)
    under_way = f"<vramscope recording, running, into {tmp_path}/a.vram.d>"
    assert done.stdout.splitlines() == [
        under_way,
        "<vramscope recording a.vram>",
        f"vramscope: {tmp_path}/a.vram exists and is a recording; choose another path, or use overwrite=True",
        under_way,
        "<vramscope recording a.vram>",
        "<vramscope recording without a file of its own: no path was given>",
    ], done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.vram", "vramscope"]


def test_a_notebook_shows_the_page(tmp_path):
    """IPython as it is within a kernel; the frame's document is the page that `vramscope report --html` makes."""
    pytest.importorskip("IPython")
    environment = {**package.make(tmp_path), "IPYTHONDIR": str(tmp_path / "ipython"), "TMPDIR": str(tmp_path)}
    golden = ROOT / "tests" / "golden" / "v2.0" / "cpu_training.vram"
    page = tmp_path / "page.html"
    subprocess.run(
        [VRAMSCOPE, "report", golden, "--html", page], check=True, capture_output=True, timeout=60
    )
    done = run(
        f"""
import html, re, vramscope
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
shell = InteractiveShell.instance()
shell.kernel = object()
with capture_output() as shown:
    vramscope.show({str(golden)!r}, height=300)
(output,) = shown.outputs
frame = output.data["text/html"]
assert re.match(r'<iframe title="vramscope: cpu_training.vram" sandbox="allow-scripts allow-downloads" style="[^"]*height:300px', frame)
assert html.unescape(re.search(r'srcdoc="([^"]*)"></iframe>$', frame).group(1)) == open({str(page)!r}).read()
assert "<vramscope page of" in output.data["text/plain"]
with vramscope.record("mine.vram", cpu=True) as recording:
    with capture_output() as shown:
        display = shell.display_formatter.format
        assert "text/html" not in display(recording)[0]
assert "<iframe" in display(recording)[0]["text/html"]
try:
    vramscope.show("nothing.vram")
except RuntimeError as error:
    print(error)
""",
        environment, tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "nothing.vram" in done.stdout and len(done.stdout.splitlines()) == 1
    assert not list(tmp_path.glob("vramscope-*")), "nothing is left in the temporary directory"


def test_outside_of_a_notebook_the_page_goes_to_the_browser(tmp_path):
    environment = {**package.make(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "BROWSER": ""}
    environment = {name: value for name, value in environment.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    golden = ROOT / "tests" / "golden" / "v2.0" / "cpu_training.vram"
    done = run(f"import vramscope; vramscope.show({os.fspath(golden)!r})", environment, tmp_path)
    assert done.returncode == 0, done.stderr
    (page,) = (tmp_path / "cache").rglob("*.html")
    assert done.stdout == f"No browser could be started here; the page is {page}\n"
