# SPDX-License-Identifier: Apache-2.0
"""LineProfiler on a real GPU beside PyTorch's own counters: one case a run, named on the command line.

It prints one line, RESULT and a JSON object: figures, and the "problems" that were found.
"""

import json
import statistics
import sys
import time

import torch
from vramscope import LineProfiler

ALLOCATED, ACTIVE, RESERVED = "allocated_bytes.all.peak", "active_bytes.all.peak", "reserved_bytes.all.peak"
problems = []
figures = {}


def expect(holds, what):
    if not holds:
        problems.append(what)


def lines_of(profiler, function, columns):
    (table,) = profiler.display(function, columns).to_dict()["functions"]
    return {line["line"]: [line[name] for name in columns] for line in table["lines"] if line[columns[0]] is not None}


def guide():
    """The table of pytorch_memlab's guide; nothing is initialised or reset for it."""

    def inner():
        torch.nn.Linear(100, 100).cuda()

    def outer():
        linear = torch.nn.Linear(100, 100).cuda()
        linear2 = torch.nn.Linear(100, 100).cuda()
        inner()
        return linear, linear2

    profiler = LineProfiler(outer, inner)
    profiler.enable()
    expect(not torch.cuda.is_initialized(), "CUDA was initialised by it")
    outer()
    profiler.disable()
    text = str(profiler.display())
    figures["guide"] = text
    rows = [line.split()[:2] for line in text.splitlines() if line.count("K ") and not line.startswith("Peak")]
    wanted = [["40.00K", "2.00M"], ["80.00K", "2.00M"], ["120.00K", "2.00M"]]
    expect(rows[:3] == wanted, f"outer has {rows[:3]}")
    # What outer() returned is dropped at once, so this is what inner() saw.
    expect(["120.00K", "2.00M"] in rows[4:], f"inner has {rows[4:]}")
    peak = torch.cuda.max_memory_allocated()
    with LineProfiler(inner):
        pass
    expect(torch.cuda.max_memory_allocated() == peak == 120 << 10, "PyTorch's peak was changed")


def step_of_mlp(layers=48, width=64, batch=8):
    made = []
    for _ in range(layers):
        made += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    model = torch.nn.Sequential(*made).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.randn(batch, width, device="cuda")

    def step():
        out = model(data)
        loss = out.square().mean()
        del out
        loss.backward()
        optimizer.step()
        scratch = torch.empty(3 << 20, device="cuda")
        del scratch
        optimizer.zero_grad(set_to_none=True)

    return step


def lines():
    """Peaks of each line, beside PyTorch's counters that a trace function resets at each line."""
    step = step_of_mlp()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    with LineProfiler(step, torch.nn.Sequential.forward) as profiler:
        step()
    found = lines_of(profiler, step, [ALLOCATED, ACTIVE, RESERVED])

    reference, last = {}, [None]

    def local(frame, event, argument):
        stats = torch.cuda.memory_stats()
        if last[0] is not None:
            reference[last[0]] = [stats[name] for name in (ALLOCATED, ACTIVE, RESERVED)]
        torch.cuda.reset_peak_memory_stats()
        last[0] = frame.f_lineno
        return local

    def called(frame, event, argument):
        return local(frame, event, argument) if frame.f_code is step.__code__ else None

    sys.settrace(called)
    step()
    sys.settrace(None)
    figures["lines compared"] = len(reference)
    expect(len(reference) >= 8 and set(reference) == set(found), f"lines {sorted(found)}, not {sorted(reference)}")
    for line, wanted in reference.items():
        expect(found.get(line) == wanted, f"line {line}: {found.get(line)}, PyTorch has {wanted}")
    growth = lines_of(profiler, step, ["growth"])
    # The loss is there until its variable goes.
    expect(sorted(growth.values())[-2:] == [[0], [512]], f"growth of a step at rest: {growth}")


def cost():
    """Steps with and without the profiler, in turns."""
    step = step_of_mlp()

    def timed(count=100):
        times = []
        for _ in range(count):
            began = time.perf_counter_ns()
            step()
            torch.cuda.synchronize()
            times.append(time.perf_counter_ns() - began)
        return statistics.median(times)

    timed()
    profiler = LineProfiler(step, torch.nn.Sequential.forward)
    with profiler:
        timed(10)  # the first executions of each line are sampled
    ratios = []
    for _ in range(5):
        plain = timed()
        with profiler:
            profiled = timed()
        ratios.append(profiled / ((plain + timed()) / 2))
    ratio = statistics.median(ratios)
    figures["cost"] = f"{ratio:.3f}x of a step of {plain / 1e3:.0f} us, Python {sys.version.split()[0]}"
    # Before 3.12 all calls are traced.
    expect(ratio <= (1.05 if sys.version_info >= (3, 12) else 2.0), f"a step takes {ratio:.3f}x")


CASES = {function.__name__: function for function in (guide, lines, cost)}

if __name__ == "__main__":
    try:
        CASES[sys.argv[1]]()
    except Exception as error:
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        problems.append(f"{type(error).__name__} at {where.filename}:{where.lineno}: {error}")
    print("RESULT " + json.dumps({**figures, "problems": problems}))
