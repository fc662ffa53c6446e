# SPDX-License-Identifier: Apache-2.0
"""LineProfiler: the right bytes on the right line, in every Python that is here, and nothing changed by it."""
from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import package
import pytest
import warm_torch
from places import VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

HERE = Path(__file__).resolve().parents[1]


def interpreters() -> dict[str, str]:
    """By version, those of 3.9 and later that this machine has."""
    candidates = [sys.executable]
    candidates += filter(None, (shutil.which(f"python3.{minor}") for minor in range(9, 16)))
    candidates += map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")))
    found = {}
    for candidate in candidates:
        code = "import sys; print('%d.%d' % sys.version_info[:2], sys.version_info >= (3, 9))"
        done = subprocess.run([candidate, "-c", code], capture_output=True, text=True, check=False)
        version, _, is_new = done.stdout.strip().partition(" ")
        if done.returncode == 0 and is_new == "True":
            found.setdefault(version, candidate)
    return found


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    return package.make(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def run(environment, tmp_path_factory):
    pytest.importorskip("torch")
    process = warm_torch.Warm(environment, tmp_path_factory.mktemp("programs"))

    def run_program(code: str) -> str:
        done = process.run(code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run_program
    process.close()


@pytest.mark.parametrize("version", interpreters())
def test_every_event_of_every_interpreter(version, environment):
    """sys.monitoring from 3.12 on, a trace function before; calls, threads, generators, other tracers."""
    done = subprocess.run(
        [interpreters()[version], HERE / "programs" / "line_profiler_events.py", HERE],
        env=environment, capture_output=True, text=True, timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("version", interpreters())
def test_without_the_probe_counters_are_read(version, environment):
    done = subprocess.run(
        [interpreters()[version], HERE / "programs" / "line_profiler_sampled.py", HERE],
        env=environment, capture_output=True, text=True, timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


README = """\
import torch
from vramscope.memlab import LineProfiler

def inner():
    torch.nn.Linear(100, 100)

def outer():
    linear = torch.nn.Linear(100, 100)
    linear2 = torch.nn.Linear(100, 100)
    inner()

with LineProfiler(outer, inner, target_gpu="cpu") as profiler:
    outer()
"""


def test_the_table_of_the_old_guide(run):
    """Its figures are blocks of a GPU; those of CPU tensors are what was asked for: 100 * 100 * 4 + 100 * 4."""
    out = run(README + "profiler.print_stats()")
    assert out == """\
## outer

active_bytes reserved_bytes line  code
         all            all
        peak           peak
       0.00B          0.00B    7  def outer():
      39.45K         39.45K    8      linear = torch.nn.Linear(100, 100)
      78.91K         78.91K    9      linear2 = torch.nn.Linear(100, 100)
     118.36K        118.36K   10      inner()
Peak 118.36K in line 10


## inner

active_bytes reserved_bytes line  code
         all            all
        peak           peak
      78.91K         78.91K    4  def inner():
     118.36K        118.36K    5      torch.nn.Linear(100, 100)
Peak 118.36K in line 5
"""


def test_html(run):
    page = run(README + "print(profiler.display()._repr_html_())")
    assert page.count("<h3>") == 2 and page.count("linear-gradient") == 2 * 5
    assert "#4878d0 99.0%" in page, "the bar of the largest value"
    assert re.search(r"font-weight:bold\">    inner\(\)</td>", page), "the line that held the peak"


def test_exact_bytes_of_a_training_step(run):
    run("""
import torch
from vramscope import LineProfiler
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data = torch.ones(64, 256)

def step():
    out = model(data)
    loss = out.sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)

columns = ("hits", "net", "gross", "growth", "allocated_bytes.all.peak", "allocation.all.allocated")
with LineProfiler(step, target_gpu="cpu") as profiler:
    step()
lines = {line["code"].strip(): [line[name] for name in columns]
         for line in profiler.display(columns=columns).to_dict()["functions"][0]["lines"]}
weights = 4 * (256 * 256 + 256)
activation = 4 * 64 * 256
assert lines["out = model(data)"][:5] == [1, activation, activation, activation, activation], lines
assert lines["loss = out.sum()"][:4] == [1, 4, 4, 4], lines
assert lines["loss.backward()"][1] == weights, lines
assert lines["loss.backward()"][3] == 0, "gradients are gone when step returns"
assert lines["optimizer.step()"][1] == lines["optimizer.step()"][3] == weights, lines
assert lines["optimizer.zero_grad(set_to_none=True)"][1] == -weights, lines
assert lines["loss.backward()"][4] >= activation + 4 + weights
""")


def test_nothing_is_changed_by_it(run):
    """The process had torch long before the probe came; the wrapped and the plain run give the same numbers."""
    run("""
import sys, torch
from vramscope import LineProfiler
import vramscope
assert not vramscope.is_recording()
def work():
    torch.manual_seed(1)
    x = torch.randn(64, 64, requires_grad=True)
    (x @ x).sum().backward()
    return x.grad.sum().item()
plain = work()
with LineProfiler(work, target_gpu="cpu"):
    assert work() == plain
assert work() == plain and not torch.cuda.is_initialized() and sys.gettrace() is None
assert vramscope.live_directory() is None
""")


def test_no_gpu_is_one_line(run):
    out = run("""
import warnings, torch
from vramscope import LineProfiler
def work():
    return torch.ones(1000)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    with LineProfiler(work) as profiler:
        work()
(warning,) = caught
print(warning.message)
assert "3.91K" in str(profiler.display())
""")
    assert out == "vramscope: PyTorch finds no GPU: CPU tensors are profiled\n"


def test_without_torch(environment, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('none here')")
    code = "from vramscope import LineProfiler\nLineProfiler(lambda: 1).enable()"
    path = f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**environment, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60,
    )
    last = done.stderr.splitlines()[-1]
    assert last.startswith("RuntimeError: vramscope: LineProfiler needs PyTorch, which"), last


PROFILED = """\
import sys, time, torch
from vramscope import profile

@profile
def work():
    return torch.ones(1000)

@profile(columns=["growth"])
class Thing:
    def method(self):
        self.kept = torch.ones(500)

@profile
def never_called():
    pass

work()
work()
Thing().method()
"""


@pytest.mark.parametrize("interrupted", (False, True))
def test_the_decorator_prints_at_exit(environment, tmp_path, interrupted):
    """Also after Ctrl-C, and under `vramscope run`, whose recording it does not disturb."""
    pytest.importorskip("torch")
    program = tmp_path / "program.py"
    program.write_text(PROFILED + ("print('ready', flush=True)\ntime.sleep(60)\n" if interrupted else ""))
    command = [sys.executable, "-W", "ignore", program]
    if not interrupted:
        trace = tmp_path / "trace.vram"
        command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", *command]
    process = subprocess.Popen(
        [str(word) for word in command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if interrupted:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=120)
    assert ("KeyboardInterrupt" in errors) == interrupted
    assert "## work\n" in out and "## Thing.method\n" in out, (out, errors)
    assert "## never_called\n\nNo data collected\n\n## Thing.method\n" in out, out
    lines = {line.rsplit("  ", 1)[-1].strip(): line.split() for line in out.splitlines()}
    assert lines["return torch.ones(1000)"][0] == "3.91K", out
    assert lines["self.kept = torch.ones(500)"][0] == "1.95K", out
    if not interrupted:
        report = subprocess.run(
            [VRAMSCOPE, "report", trace], capture_output=True, text=True, timeout=60, check=True
        )
        assert report.stdout
