# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin, in a pytest of its own."""
from __future__ import annotations

from pathlib import Path

import package
import pytest
import warm_torch
from places import VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

TESTS = """\
import os, pytest, time, torch
SIZE = int(os.environ.get("SIZE", 4)) << 20
torch.ones(1)

@pytest.mark.limit_vram("6 MiB")
def test_tensor():
    x = torch.zeros(SIZE, dtype=torch.uint8)
    assert x.numel() == SIZE

@pytest.fixture
def before():
    return torch.zeros(64 << 20, dtype=torch.uint8)

@pytest.mark.limit_vram("6 MiB")
def test_before(before):
    torch.zeros(1 << 20, dtype=torch.uint8)

@pytest.mark.limit_vram()
def test_only_compared():
    torch.zeros(1 << 20, dtype=torch.uint8)

@pytest.mark.limit_vram("6 MiB")
def test_optimizer():
    model = torch.nn.Linear(1024, 1024)
    optimizer = torch.optim.Adam(model.parameters(), foreach=True)
    for _ in range(2):
        model(torch.randn(1, 1024)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

@pytest.mark.limit_vram("12 apples")
def test_wrong_mark():
    pass

def test_unmarked():
    torch.zeros(64 << 20, dtype=torch.uint8)

@pytest.mark.limit_vram("6 MiB")
def test_outlived():
    begun = os.pipe()
    if os.fork() == 0:
        x = torch.zeros(7 << 20, dtype=torch.uint8)
        os.write(begun[1], b"x")
        time.sleep(5)
        os._exit(0)
    os.read(begun[0], 1)
"""


# This tree's plugin, and not that of a package that is installed as well.
PLUGINS = ("-p", "no:vramscope", "-p", "vramscope.pytest", "-p", "no:cacheprovider")


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    directory = tmp_path_factory.mktemp("package")
    process = warm_torch.Warm(package.make(directory), directory, imports=("pytest",))
    yield process
    process.close()


@pytest.fixture
def run(tmp_path, warm):
    (tmp_path / "test_it.py").write_text(TESTS)

    def run_tests(*arguments: str | Path, size: int = 4) -> tuple[int, str]:
        words = ["-q", *PLUGINS, *map(str, arguments)]
        done = warm.run(
            f"import os, pytest, sys\nos.environ['SIZE'] = '{size}'\nsys.exit(pytest.main({words!r}))\n", tmp_path
        )
        return done.returncode, done.stdout + done.stderr

    return run_tests


def test_a_limit_fails_the_test_and_says_who_had_it(run):
    status, text = run("-k", "test_tensor or test_unmarked")
    assert status == 0 and "2 passed" in text, text
    status, text = run("-k", "test_tensor or outlived", size=8)
    assert status == 1 and "2 failed" in text, text
    assert "vramscope: the peak of 7 MiB exceeds the limit of 6 MiB" in text, "of a process that goes on"
    assert "vramscope: the peak of 8 MiB exceeds the limit of 6 MiB" in text
    assert "test_it.py:7 in test_tensor" in text


def test_a_failure_says_what_would_lower_the_peak(run):
    status, text = run("-k", "optimizer")
    assert status == 1 and "MiB: give the optimizer fused=True" in text, text


def test_what_was_there_before_counts(run):
    status, text = run("-k", "test_before")
    assert status == 1, text
    assert "the peak of 65 MiB (64 MiB of it in CPU tensors from before the test) exceeds the limit of 6 MiB" in text


def test_a_baseline_fails_the_test_with_the_diff(run, tmp_path):
    kept = tmp_path / "kept"
    assert run("-k", "test_tensor or compared", "--vram-keep", kept)[0] == 0
    assert len(list(kept.glob("*.vram"))) == 2
    status, text = run("-k", "test_tensor or compared", "--vram-baseline", kept)
    assert status == 0 and "2 passed" in text, text
    status, text = run("-k", "test_tensor or compared", "--vram-baseline", kept, size=5)
    assert status == 1 and "1 failed, 1 passed" in text, text
    assert "the peak of B exceeds that of A by 1.00 MiB, more than the 5 % of --fail-above" in text
    assert "grew by 1.00 MiB: test_it.py:7 in test_tensor" in text
    assert run("-k", "test_tensor", "--vram-baseline", kept, "--vram-fail-above", "2MiB", size=5)[0] == 0


def test_what_is_wrong_is_one_line(run, tmp_path):
    status, text = run("-k", "wrong_mark")
    assert status == 1 and "limit_vram: '12 apples' is not a size; use a size such as '2 GiB' or '200 MiB'" in text
    status, text = run("--vram-baseline", tmp_path / "missing")
    assert status == 4 and "does not exist" in text
    (tmp_path / "foreign.vram").write_text("mine")
    status, text = run("-k", "compared", "--vram-keep", tmp_path / "foreign.vram")
    assert status == 1 and "vramscope: the test could not be recorded: " in text and "Traceback" not in text
    status, text = run("-k", "compared", "--vram-baseline", tmp_path / "foreign.vram")
    assert status == 1 and "foreign.vram" in text and "Traceback" not in text
