# SPDX-License-Identifier: Apache-2.0
"""How long the main thread of a program stands when a profiler attaches to it: `vramscope attach` beside memray's two ways.

    bench/attach.py [--build build] [--rounds 10] [--device cpu] [--json FILE]

The program is a PyTorch process whose main thread does nothing but look at the clock. Each round starts one for each
tool. `gap_ms` is the longest time between two looks while the tool attached and detached, `seconds` what its command
took. memray's ways are measured where they can be: `gdb` where gdb is installed, `sys.remote_exec` from Python 3.14 on.
"""

import argparse
import importlib.util
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import arms

# When its time is over it prints the gaps of more than 0.2 ms in its main thread, the longest first.
GAPS = """
import sys, time
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(48)]).to("DEVICE")
optimizer = torch.optim.Adam(model.parameters())
model(torch.randn(8, 1024, device="DEVICE")).sum().backward()
optimizer.step()
print("ready", flush=True)
gaps, last, end = [], time.perf_counter(), time.perf_counter() + float(sys.argv[1])
while last < end:
    now = time.perf_counter()
    if now - last > 2e-4:
        gaps.append(1e3 * (now - last))
    last = now
print(*(f"{gap:.3f}" for gap in sorted(gaps, reverse=True)))
"""


def ways(program, folder):
    """(name, the command without the process id)."""
    yield "vramscope", [program, "attach", "--for", "1ms", "--no-report", "-o", folder / "x.vram"]
    if importlib.util.find_spec("memray") is None:
        return
    memray = [sys.executable, "-m", "memray", "attach", "--duration", "1", "-f", "-o", folder / "x.bin", "--method"]
    if shutil.which("gdb"):
        yield "memray, gdb", [*memray, "gdb"]
    if hasattr(sys, "remote_exec"):
        yield "memray, sys.remote_exec", [*memray, "sys.remote_exec"]


def attach(command, device, seconds):
    process = subprocess.Popen(
        [sys.executable, "-c", GAPS.replace("DEVICE", device), str(seconds)],
        stdout=subprocess.PIPE, text=True, env=arms.environment(),
    )  # fmt: skip
    with process:
        assert process.stdout.readline() == "ready\n"
        began = time.perf_counter()
        done = subprocess.run([*map(os.fspath, command), str(process.pid)], capture_output=True, text=True, check=False)
        took = time.perf_counter() - began
        gaps = [float(gap) for gap in process.communicate()[0].split()]
    if done.returncode != 0:
        raise RuntimeError(done.stderr[-800:])
    if took > seconds:
        raise RuntimeError(f"the program ended before {command[0]}, which took {took:.1f} s")
    return {"gap_ms": gaps[0] if gaps else 0.0, "seconds": took}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=arms.ROOT / "build")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(options.rounds):
            for name, command in ways(options.build / "bin" / "vramscope", pathlib.Path(folder)):
                results.setdefault(name, []).append(attach(command, options.device, 8))
    cases = {}
    for name, rounds in results.items():
        gaps = [entry["gap_ms"] for entry in rounds]
        took = [entry["seconds"] for entry in rounds]
        cases[name] = {
            "rounds": len(rounds), "gap_median_ms": statistics.median(gaps), "gap_worst_ms": max(gaps),
            "seconds": statistics.median(took),
        }  # fmt: skip
        print(f"{name:24s} stands {cases[name]['gap_median_ms']:7.1f} ms (median), {cases[name]['gap_worst_ms']:7.1f} at most; "
              f"takes {cases[name]['seconds']:.2f} s")
    if options.json:
        arms.write_json(options.json, {"bench": "attach", "machine": arms.machine(), "arms": cases})


if __name__ == "__main__":
    main()
