# SPDX-License-Identifier: Apache-2.0
"""examples/vgg19 without a GPU: its CPU reference beside PyTorch's VGG-19, its files, its build."""
from __future__ import annotations

import os
import subprocess
import sys

import pytest
from places import BUILD, ROOT

EXAMPLE = ROOT / "examples" / "vgg19"
REFERENCE = BUILD / "bin" / "example_vgg19_reference"

pytestmark = pytest.mark.skipif(not REFERENCE.exists(), reason="example_vgg19_reference is not built")


def run(*command, **environment):
    return subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


@pytest.fixture
def weights(tmp_path):
    """Random weights; 548 MiB, so they go at once."""
    pytest.importorskip("numpy")
    path = tmp_path / "weights.bin"
    done = run(sys.executable, EXAMPLE / "weights.py", path, "--random")
    assert done.returncode == 0, done.stderr
    yield path
    path.unlink()


def test_the_reference_agrees_with_pytorch(tmp_path, weights):
    pytest.importorskip("torch")
    import numpy

    pictures, logits = tmp_path / "pictures.npy", tmp_path / "logits.npy"
    numpy.save(pictures, numpy.random.default_rng(7).standard_normal((2, 3, 48, 48), dtype=numpy.float32))
    done = run(
        *(REFERENCE, "--size", "48", "--batch", "2", "--weights", weights, "--image", pictures, "--output", logits)
    )
    assert done.returncode == 0, done.stderr
    compare = [sys.executable, EXAMPLE / "pytorch.py", "--weights", weights, "--image", pictures, logits]
    done = run(*compare)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the same class for 2 of 2 pictures" in done.stdout

    # The test finds a logit that differs by more than the tolerance, and one that is NaN.
    for wrong in (1e-2, float("nan")):
        values = numpy.load(logits)
        values[1, 999] += abs(values).max() * wrong
        numpy.save(tmp_path / "wrong.npy", values)
        done = run(*compare[:-1], tmp_path / "wrong.npy")
        assert done.returncode == 1 and "too large" in done.stdout

    # A file that was cut off is an error of one line.
    with open(weights, "r+b") as file:
        file.truncate(1 << 20)
    done = run(REFERENCE, "--size", "48", "--weights", weights)
    assert done.returncode == 2
    assert done.stderr == f"vgg19: {weights}: ends too early\n"


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--batch", "0"], "--batch takes a number from 1 to 1024, not '0'"),
        (["--size", "33.5"], "--size takes a whole number, not '33.5'"),
        (["--algorithm", "magic"], "--algorithm takes one of cudnn, direct, im2col, fft, winograd, not 'magic'"),
        (["--weights"], "--weights takes a value"),
        (["--fast"], "there is no option '--fast'"),
    ],
)
def test_arguments_that_cannot_be_meant_are_one_line(arguments, said):
    done = run(REFERENCE, *arguments)
    assert done.returncode == 2
    assert done.stderr == f"vgg19: {said}; --help shows the options\n"


def test_a_machine_without_nvcc_is_told_so(tmp_path):
    done = run(EXAMPLE / "build.sh", tmp_path / "build", PATH="/usr/bin:/bin", CUDA_HOME="/nonexistent")
    assert done.returncode == 0
    assert done.stdout.startswith("vgg19: there is no nvcc on this machine")
    assert not list(tmp_path.iterdir())
