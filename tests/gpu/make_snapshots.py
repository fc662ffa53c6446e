# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/snapshots anew, on a machine with a GPU: `make_snapshots.py --build build DIRECTORY`.

Each case of programs/snapshots.py runs under `vramscope run`: CASE.vram is what vramscope saw, CASE.pickle.gz
PyTorch's own snapshot of the same run, CASE.json its own figures. programs/profiles.py adds a profile of JAX and a
trace of torch.profiler.
"""

import argparse
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "bench"))
import arms  # noqa: E402

CASES = ("train", "expandable", "graph", "streams", "ring")

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--build", type=pathlib.Path, required=True)
parser.add_argument("directory", type=pathlib.Path)
options = parser.parse_args()
options.directory.mkdir(parents=True, exist_ok=True)
environment = {**arms.environment(), "PYTHONPATH": str(HERE.parents[1] / "python") + os.pathsep + os.environ.get("PYTHONPATH", "")}
failed = 0
for case in CASES:
    recording = options.directory / f"{case}.vram"
    program = [sys.executable, HERE / "programs" / "snapshots.py", case, options.directory]
    run = [options.build.resolve() / "bin" / "vramscope", "run", "-o", recording, "--", *program]
    status = subprocess.run(run, env=environment, timeout=60).returncode
    failed += status != 0
    print(f"{case}: exit status {status}, {recording.stat().st_size if recording.exists() else 0} bytes", flush=True)
for which in ("torch", "jax"):
    program = [sys.executable, HERE / "programs" / "profiles.py", which, options.directory]
    status = subprocess.run(program, env=environment, timeout=60).returncode
    failed += status != 0
    print(f"{which}: exit status {status}", flush=True)
sys.exit(1 if failed else 0)
