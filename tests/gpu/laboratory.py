# SPDX-License-Identifier: Apache-2.0
"""The group `laboratory` of tests/gpu/run.py: MemReporter and Courtesy beside NVML, in processes of their own."""

import json
import pathlib
import sys

import residual

PROGRAM = pathlib.Path(__file__).resolve().parent / "programs" / "laboratory.py"
LINE_PROFILER = PROGRAM.with_name("line_profiler.py")
MIB = 1 << 20


def case(name, recorded=False, program=PROGRAM):
    def run(bench):
        # The command of cases.py, which knows its time limits.
        import cases

        command = [sys.executable, program, name]
        if recorded:
            trace = bench.folder / f"laboratory-{name}.vram"
            command = [bench.program, "run", "--no-report", "-o", trace, "--", *command]
        output = cases.run(command, bench.environment, bench.limit(180))
        lines = residual.prefixed(output, "RESULT")
        if not lines:
            return {"problems": [f"the program printed no result: {output[-300:]}"]}
        return json.loads(lines[-1])

    return run


def all_cases():
    yield "reporter", case("reporter")
    yield "reporter, recorded", case("recorded", recorded=True)
    yield "the old guide", case("guide")
    yield "nothing is initialised", case("untouched")
    yield "courtesy in a training", case("courtesy")
    yield "courtesy of 8 GiB", case("large")
    yield "courtesy and CUDA graphs", case("refused")
    yield "courtesy and a full GPU", case("full")
    yield "lines: the old guide", case("guide", program=LINE_PROFILER)
    yield "lines beside PyTorch's counters", case("lines", program=LINE_PROFILER)
    yield "lines: cost", case("cost", program=LINE_PROFILER)


def mib(value):
    return "-" if value is None else f"{value / MIB:.1f}"


def print_table(results):
    print("MiB of a report: tensors, autograd alone, blocks without a tensor, reserved, outside, total, NVML; seconds")
    for name, result in results.items():
        for when, figure in result.items():
            if not isinstance(figure, dict) or "reserved" not in figure:
                continue
            outside = sum(size for _, size in figure["outside"])
            blocks = sum(block[1] for block in figure["blocks"])
            values = (figure["tensors"], figure["autograd"], blocks, figure["reserved"], outside)
            cells = "".join(f"{mib(value):>10s}" for value in (*values, figure["total"], figure["nvml"]))
            print(f"{name + ', ' + when:46s}{cells} {figure['seconds']:7.3f}")
    for name, result in results.items():
        for when, figure in result.items():
            if isinstance(figure, dict) and "moved" in figure:
                nvml = " -> ".join(mib(value) for value in figure["nvml"])
                print(f"{name}, {when}: {mib(figure['moved'])} MiB moved, NVML {nvml}, {figure['seconds']} s")
            elif isinstance(figure, dict) and "GiB_per_second" in figure:
                print(f"{name}: {mib(figure['bytes'])} MiB, {figure['seconds']} s, {figure['GiB_per_second']} GiB/s")
            elif isinstance(figure, str):
                print(f"{name}, {when}: {figure}")
    print()
