# SPDX-License-Identifier: Apache-2.0
"""How well `vramscope sample` keeps to its times, and what it costs: readings within one period of their time, CPU.

Samples a command that sleeps, or the one that is named, and reads the sampler's own CPU time just before its end.

    python3 bench/sampler.py --build build --seconds 60 --period 1ms --json build/sampler.json
    python3 bench/sampler.py --build build -- python3 examples/train_gpt2.py --steps 2000
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import arms


def cpu_seconds(pid):
    """User and system time of all its threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(command, trace, sampled):
    """CPU time and wall time of the sampler while the command ran."""
    begin = time.monotonic()
    used, until = 0.0, begin
    with subprocess.Popen([*command, "--", *sampled], env=arms.environment(), stdin=subprocess.DEVNULL) as process:
        # After the command ends, the recording is finished, which does not count as sampling.
        while process.poll() is None and not trace.exists():
            children = pathlib.Path(f"/proc/{process.pid}/task/{process.pid}/children")
            try:
                if time.monotonic() - begin > 1 and not children.read_text().split():
                    break
                used, until = cpu_seconds(process.pid), time.monotonic()
            except OSError:
                break
            time.sleep(0.05)
        status = process.wait()
    if status != 0:
        sys.exit(f"bench: the sampled command ended with {status}")
    return used, until - begin


def pace(vramscope, trace):
    info = subprocess.run([vramscope, "info", trace], capture_output=True, text=True, check=True).stdout
    found = re.search(r"readings +(\d+); (\d+) later than their time .* (\d+) left out; the latest by (.*)", info)
    if found is None:
        sys.exit("bench: the recording does not say how its readings kept to their times")
    readings, late, left_out = map(int, found.groups()[:3])
    return readings, late, left_out, found.group(4)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=arms.ROOT / "build")
    parser.add_argument("--period", default="1ms")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--json", type=pathlib.Path, help="write the result there")
    parser.add_argument("command", nargs="*", help="what to sample (default: sleep)")
    args = parser.parse_args()
    vramscope = args.build / "bin" / "vramscope"
    sampled = args.command or ["sleep", str(args.seconds)]
    with tempfile.TemporaryDirectory(prefix="vramscope-bench-") as folder:
        trace = pathlib.Path(folder) / "sampled.vram"
        command = [vramscope, "sample", "--no-report", "-i", args.period, "-o", trace]
        cpu, wall = measure(command, trace, sampled)
        readings, late, left_out, latest = pace(vramscope, trace)
        size = trace.stat().st_size
    in_time = (readings - late) / (readings + left_out)
    share = cpu / wall
    print(
        f"{readings} readings in {wall:.1f} s, {in_time:.4%} within one period of their time "
        f"({late} later, {left_out} left out, the latest by {latest}); {share:.2%} of a core; {size} bytes",
        file=sys.stderr,
    )
    result = {
        "bench": "sampler", "machine": arms.machine(), "period": args.period, "seconds": wall, "readings": readings,
        "late": late, "left_out": left_out, "latest": latest, "in_time": in_time, "cpu_share": share,
        "file_bytes": size, "command": sampled,
    }
    arms.write_json(args.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
