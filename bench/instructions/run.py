# SPDX-License-Identifier: Apache-2.0
"""Counts the recorder's instructions for one event, under callgrind: exact where times on a shared machine are not.

Counted is what the probe executes, and the C library for it; not what PyTorch, the driver and the program do.

    .venv/bin/python bench/instructions/run.py --build build                 prints them, beside those of bench/results
    .venv/bin/python bench/instructions/run.py --build build --functions     and what each function has of them
    .venv/bin/python bench/instructions/run.py --build build --write         puts them into bench/results
    .venv/bin/python bench/instructions/run.py --build build --check         fails where one grew by more than 5 %
"""

import argparse
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
RESULTS = ROOT / "bench" / "results" / "instructions.json"
MAY_GROW = 1.05
PAIRS = 4000
PROBE = "libvramscope_probe.so"
# The interposed functions, which the recorder calls for the program.
PROGRAMS_OWN = re.compile(r"lib(c10|c10_cuda|cuda|torch\w*|python[\d.]*)\.so|/python[\d.]*$")
# Left out, as how many events share it depends on the machine's speed, and on where a span ends: the pair of clocks
# that is written ten times a second, and the change to the next span or chunk, checksums included.
SHARED = ("vramscope::probe::Stream::AppendAnchor()", "vramscope::probe::Stream::NextSpan(unsigned long)")


class Profile:
    """One profile that callgrind wrote: what the probe's functions cost, and how many events came in."""

    def __init__(self, path):
        self.name = ""
        self.events = 0
        self.by_function = collections.Counter()
        names = {"ob": {}, "fn": {}}
        ob = fn = cob = cfn = None
        call_count = None
        for line in path.read_text(encoding="utf-8").splitlines():
            key, equals, value = line.partition("=")
            if line.startswith("desc: Trigger: Client Request: "):
                self.name = line.rpartition("Request: ")[2]
            elif equals and key == "ob":
                ob = self._named(names["ob"], value)
            elif equals and key == "fn":
                fn, cob, cfn = self._named(names["fn"], value), None, None
            elif equals and key == "cob":
                cob = self._named(names["ob"], value)
            elif equals and key == "cfn":
                cfn = self._named(names["fn"], value)
            elif equals and key == "calls":
                call_count = int(value.split()[0])
            elif fn is not None and line[:1] in "+-*0123456789" and line:
                cost = int(line.split()[1])
                if call_count is None:
                    self._self_cost(ob, fn, cost)
                else:
                    self._call(ob, cob or ob, cfn, call_count, cost)
                    call_count = cob = None

    @staticmethod
    def _named(known, text):
        """callgrind writes `(number) name` once, and `(number)` from then on."""
        number, _, name = text.partition(" ")
        return known.setdefault(number, name)

    def _self_cost(self, ob, fn, cost):
        if ob.endswith(PROBE):
            self.by_function[fn] += cost

    def _call(self, ob, callee_ob, callee, count, cost):
        into, out_of = callee_ob.endswith(PROBE), ob.endswith(PROBE)
        if into and not out_of:
            self.events += count
        elif out_of and into and callee in SHARED:
            self.by_function["shared by many events: left out"] -= cost
        elif out_of and not into and not PROGRAMS_OWN.search(callee_ob):
            self.by_function[f"{callee} ({pathlib.Path(callee_ob).name})"] += cost

    def instructions_per_event(self):
        return sum(self.by_function.values()) / self.events


def compile_events(folder):
    """The program, and the library for Python."""
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-O2", "-g", "-fPIC", os.fspath(HERE / "events.c")]
    stand_in = folder / "stand_in"
    stand_in.mkdir()
    for arguments in (
        ["-DSTAND_IN", "-shared", "-Wl,-soname,libc10.so", "-o", stand_in / "libc10.so"],
        ["-o", folder / "events", "-L", stand_in, "-l:libc10.so", f"-Wl,-rpath,{stand_in}", "-ldl"],
        ["-shared", "-Wl,-z,lazy", "-o", folder / "libevents.so", "-ldl"],
    ):
        subprocess.run([*command, *map(os.fspath, arguments)], check=True)
    return folder / "events", folder / "libevents.so"


def count(command, build, folder, options):
    """Runs it under callgrind, recorded; the profile of each part of it that is counted."""
    live, out = folder / "live", folder / "profiles"
    for directory in (live, out):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": os.fspath(build / "lib" / PROBE),
        "LD_LIBRARY_PATH": os.fspath(build / "fake_cuda"),
        "VRAMSCOPE_DIR": os.fspath(live),
        "VRAMSCOPE_OPTIONS": options,
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        ["valgrind", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}/profile", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"instructions: {command[0]} under valgrind ended with {done.returncode}: {done.stderr[-2000:]}")
    profiles = [Profile(path) for path in out.glob("profile.*")]
    return [profile for profile in profiles if profile.name and profile.name != "not counted"]


def conditions():
    """What the figures depend on besides the probe's source."""
    import torch

    compiler = os.environ.get("CXX", "c++")
    version = subprocess.run([compiler, "-dumpfullversion"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "compiler": f"{compiler} {version}",
        "python": ".".join(map(str, sys.version_info[:2])),
        "torch": torch.__version__,
        "machine": os.uname().machine,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--functions", action="store_true", help="what each function has of an event")
    parser.add_argument("--write", action="store_true", help=f"put the figures into {RESULTS.relative_to(ROOT)}")
    parser.add_argument("--check", action="store_true", help="fail where a figure grew by more than 5 %%")
    args = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("instructions: there is no valgrind; tools/setup.sh --tests installs it")
    build = args.build.resolve()
    with tempfile.TemporaryDirectory(prefix="vramscope-bench-") as folder:
        folder = pathlib.Path(folder)
        program, library = compile_events(folder)
        profiles = count([program, str(PAIRS)], build, folder, "cpu")
        profiles += count([sys.executable, HERE / "program.py", library, str(PAIRS)], build, folder, "cpu")

    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"events": {}}
    figures = {profile.name: round(profile.instructions_per_event(), 1) for profile in profiles}
    grown = []
    print(f"{'instructions per event':46s} {'now':>8s} {'recorded':>9s}")
    for profile in profiles:
        figure = figures[profile.name]
        before = known["events"].get(profile.name, {}).get("now")
        print(f"{profile.name:46s} {figure:8.1f} {before or '-':>9}")
        if before is not None and figure > before * MAY_GROW:
            grown.append(f"{profile.name}: {figure} instructions an event, {before} in {RESULTS.relative_to(ROOT)}")
        if args.functions:
            for function, cost in profile.by_function.most_common(25):
                if abs(cost) / profile.events >= 0.1:
                    print(f"    {cost / profile.events:8.1f}  {function}")

    here = conditions()
    if args.write:
        rows = {
            name: {"first": known["events"].get(name, {}).get("first", figure), "now": figure}
            for name, figure in figures.items()
        }
        content = {"bench": "instructions", "conditions": here, "pairs": PAIRS, "events": rows}
        RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if args.check:
        if set(figures) != set(known["events"]):
            sys.exit(f"instructions: {RESULTS.relative_to(ROOT)} is of other events; run.py --write makes it anew")
        if here != known["conditions"]:
            print(f"not compared: recorded with {known['conditions']}, this is {here}")
        elif grown:
            sys.exit("instructions: " + "; ".join(grown))
    return 0


if __name__ == "__main__":
    sys.exit(main())
