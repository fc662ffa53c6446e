# SPDX-License-Identifier: Apache-2.0
"""MemReporter and Courtesy on a real GPU: one case a run, named on the command line.

It prints one line, RESULT and a JSON object: figures, and the "problems" that were found.
"""

import gc
import json
import os
import pathlib
import subprocess
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples"))

import torch
import train_gpt2
from torch import nn
from vramscope import Courtesy, MemReporter, _nvml, _torch_blocks

MIB = 1 << 20
NVML_BYTES = 2 * MIB
problems = []
figures = {}


def expect(holds, what):
    if not holds:
        problems.append(what)


def nvml_now():
    """NVML's figure of this process, asked for without the reporter."""
    reading = _nvml.process_bytes(_torch_blocks.uuid_of(torch, 0), torch.cuda.memory_reserved())
    if reading.bytes is None:
        raise RuntimeError(f"NVML does not say what this process uses: {reading.remark}")
    return reading.bytes


def smi_now():
    """nvidia-smi's figure of this process in MiB, or None where it does not list it by its number."""
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    for line in done.stdout.splitlines():
        words = line.split(",")
        if words[0].strip() == str(os.getpid()) and words[1].strip().isdigit():
            return int(words[1])
    return None


def check_report(when, reporter):
    """The report's sums beside the allocator's and NVML's own figures; it must not change any."""
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()
    began = time.perf_counter()
    report = reporter.snapshot()
    seconds = time.perf_counter() - began
    after = torch.cuda.memory_stats()
    changed = [name for name in before if before[name] != after.get(name)]
    expect(not changed, f"{when}: the report changed memory_stats: {changed[:4]}")
    gpu = report.devices["cuda:0"]
    own, smi = nvml_now(), smi_now()
    inside = gpu.tensor_bytes + gpu.autograd_bytes + gpu.block_bytes
    figures[when] = {
        "tensors": gpu.tensor_bytes,
        "autograd": gpu.autograd_bytes,
        "blocks": [[b.count, b.bytes, b.what, b.line] for b in gpu.blocks[:6]],
        "allocated": gpu.allocated,
        "pending": gpu.pending,
        "cached": gpu.cached,
        "fragmentation": gpu.fragmentation,
        "reserved": gpu.reserved,
        "outside": [[part.name, part.bytes] for part in gpu.outside],
        "total": gpu.total,
        "nvml": own,
        "nvidia_smi_mib": smi,
        "rows": len(gpu.rows),
        "seconds": round(seconds, 3),
        "remarks": gpu.remarks,
    }
    expect(inside == gpu.allocated, f"{when}: rows sum to {inside}, allocated is {gpu.allocated}")
    expect(
        gpu.allocated == torch.cuda.memory_allocated(),
        f"{when}: allocated {gpu.allocated} is not PyTorch's {torch.cuda.memory_allocated()}",
    )
    parts = gpu.allocated + gpu.pending + gpu.cached + gpu.fragmentation
    expect(
        parts == gpu.reserved == torch.cuda.memory_reserved(),
        f"{when}: parts {parts}, reserved {gpu.reserved}, PyTorch's {torch.cuda.memory_reserved()}",
    )
    expect(
        abs(gpu.total - own) <= NVML_BYTES, f"{when}: the total {gpu.total} is {gpu.total - own} off NVML's {own}"
    )
    expect(
        smi is None or abs(gpu.total - smi * MIB) <= NVML_BYTES + MIB,
        f"{when}: the total {gpu.total} is not nvidia-smi's {smi} MiB",
    )
    expect("differs" not in report.text(), f"{when}: the text says that something differs")
    return report


def gpt(batch=8):
    torch.manual_seed(1)
    shape = dict(layers=6, heads=8, width=512, context=256)
    model = train_gpt2.GPT(5000, **shape).cuda()
    tokens = torch.randint(5000, (batch, 257), device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    return model, tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def reporter(recorded=False):
    """Before and after backward, in the middle of a forward, and after an OutOfMemoryError."""
    model, tokens, targets = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    watching = MemReporter(model)
    seen = []
    for step in range(2):
        hook = model.blocks[3].register_forward_hook(
            lambda *_: seen.append(check_report(f"middle of forward {step}", watching))
        )
        loss = model(tokens, targets)
        hook.remove()
        forward = check_report(f"before backward {step}", watching)
        loss.backward()
        check_report(f"after backward {step}", watching)
        optimizer.step()
        stepped = check_report(f"after step {step}", watching)
        optimizer.zero_grad()
    rows = {row.name: row for row in stepped.devices["cuda:0"].rows}
    for name in ("tokens.weight", "blocks.0.attention.qkv.weight.grad", "AdamW.tokens.weight.exp_avg"):
        expect(name in rows, f"no row {name}")
    gpu = forward.devices["cuda:0"]
    expect(gpu.autograd_bytes > 20 * MIB, f"autograd alone holds {gpu.autograd_bytes} bytes before a backward")
    workspaces = sum(b.bytes for b in gpu.blocks if "cuBLAS" in b.what)
    rest = gpu.block_bytes - workspaces
    expect(
        rest <= 0.005 * gpu.allocated,
        f"{rest} bytes of {gpu.allocated} have no tensor: {[(b.count, b.bytes, b.line) for b in gpu.blocks[:5]]}",
    )
    expect(len(seen) == 2, "the forward hook ran twice")
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
        problems.append("1 PiB could be allocated")
    except torch.cuda.OutOfMemoryError:
        check_report("after an OutOfMemoryError", watching)
    if recorded:
        outside = dict(figures["after an OutOfMemoryError"]["outside"])
        expect(any("context" in name for name in outside), f"no row of the context: {outside}")
        unexplained = abs(outside.get("Not explained", 0))
        expect(unexplained <= 4 * MIB, f"{unexplained} bytes outside of PyTorch are not explained")
        lines = {row.line for row in gpu.rows if row.kind == "autograd"}
        expect(any("train_gpt2.py" in line for line in lines), f"what autograd holds has no lines: {sorted(lines)[:5]}")
    print(watching.report().text()[-1500:], file=sys.stderr)


def recorded():
    reporter(recorded=True)


def guide():
    """The figures of pytorch_memlab's guide, on a GPU."""
    linear = nn.Linear(1024, 1024).cuda()
    inp = torch.zeros(512, 1024, device="cuda")
    watching = MemReporter(linear)
    out = linear(inp).mean()
    before = check_report("linear, before backward", watching)
    out.backward()
    after = check_report("linear, after backward", watching)
    for report, expected in ((before, "6.00M"), (after, "10.01M")):
        expect(f"Used Memory: {expected}" in report.text(), f"not {expected}: {report.text()}")
    del out, linear, inp
    linear, inp = nn.Linear(1024, 1024).cuda(), torch.zeros(512, 1024, device="cuda")
    out = linear(inp * (inp + 2)).mean()
    lost = check_report("what the old tool lost", MemReporter(linear))
    expect("Used Memory: 8.00M" in lost.text(), f"not 8.00M: {lost.text()}")
    del out, linear, inp
    lstm = nn.LSTM(1024, 1024).cuda()
    watching = MemReporter(lstm)
    report = check_report("lstm", watching)
    rows = [(row.name, row.bytes, row.owner) for row in report.rows if row.device == "cuda:0"]
    expect(rows[0][:2] == ("weight_ih_l0", 33587200), f"the flat weight is {rows[:1]}")
    expect(
        [row[1:] for row in rows[1:4]] == [(0, "weight_ih_l0")] * 3, f"aliases are {rows[1:4]}"
    )
    out, _ = lstm(torch.zeros(10, 10, 1024, device="cuda"))
    check_report("lstm, before backward", watching)
    out.mean().backward()
    check_report("lstm, after backward", watching)


def untouched():
    """A program that has not used CUDA yet does not begin to."""
    kept = torch.ones(10)
    MemReporter().report()
    Courtesy().yield_memory()
    expect(not torch.cuda.is_initialized(), "a report initialised CUDA")
    expect(kept.sum() == 10, "a tensor changed")


def train(yields, steps=6):
    """Losses and weights; where `yields`, memory goes and comes back between forward and backward and between steps."""
    torch.manual_seed(3)
    model, tokens, targets = gpt()
    optimizer = torch.optim.AdamW(model.parameters())
    courtesy = Courtesy()
    losses = []
    for step in range(steps):
        loss = model(tokens, targets)
        if yields:
            away(courtesy, f"before backward {step}")
        loss.backward()
        if yields and step == 2:
            with courtesy:
                pass
        optimizer.step()
        optimizer.zero_grad()
        if yields and step == 3:
            away(courtesy, "between steps")
        losses.append(loss.detach().clone())
        del loss
    return [loss.cpu() for loss in losses] + [parameter.detach().cpu() for parameter in model.parameters()]


def away(courtesy, when):
    torch.cuda.synchronize()
    full, allocated = nvml_now(), torch.cuda.memory_allocated()
    began = time.perf_counter()
    moved = courtesy.yield_memory()
    out_seconds = time.perf_counter() - began
    empty, left = nvml_now(), torch.cuda.memory_reserved()
    expect(left == 0, f"{when}: PyTorch still has {left} bytes reserved")
    expect(moved >= 0.9 * (allocated - 40 * MIB), f"{when}: {moved} bytes were moved of {allocated}")
    free = torch.cuda.mem_get_info()[0]
    other = torch.empty(int(0.9 * free), dtype=torch.uint8, device="cuda")
    other.fill_(7)
    torch.cuda.synchronize()
    del other
    torch.cuda.empty_cache()
    began = time.perf_counter()
    courtesy.restore()
    back_seconds = time.perf_counter() - began
    figures[when] = {
        "moved": moved,
        "nvml": [full, empty, nvml_now()],
        "used_by_others_meanwhile": int(0.9 * free),
        "seconds": [round(out_seconds, 3), round(back_seconds, 3)],
    }
    fell = full - empty
    expect(fell >= moved, f"{when}: NVML's figure fell by {fell}, {moved} bytes were moved")


def courtesy():
    """The loss curve with and without; NVML's figure falls; another allocation has the memory meanwhile."""
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    first, second = train(False), train(False)
    same = all(torch.equal(a, b) for a, b in zip(first, second))
    expect(same, "two plain runs differ: the comparison proves nothing")
    gc.collect()
    torch.cuda.empty_cache()
    under = train(True)
    differ = [number for number, (a, b) in enumerate(zip(first, under)) if not torch.equal(a, b)]
    expect(not differ, f"results {differ[:8]} of {len(first)} differ with Courtesy")
    figures["losses"] = [float(loss) for loss in under[:6]]


def large():
    """Bytes and seconds of 8 GiB, in tensors of many sizes and on two streams."""
    side = torch.cuda.Stream()
    tensors = []
    torch.manual_seed(4)
    sizes = [2 << 30, 1 << 30, 3 << 29, 1 << 29, *[64 << 20] * 40, *[1 << 20] * 300, *[1000] * 2000]
    for number, size in enumerate(sizes):
        with torch.cuda.stream(side if number % 3 == 0 else torch.cuda.current_stream()):
            tensors.append(torch.randint(256, (size,), dtype=torch.uint8, device="cuda"))
    torch.cuda.synchronize()
    sums = [int(tensor.sum(dtype=torch.int64)) for tensor in tensors]

    def streams():
        blocks = _torch_blocks.caches(torch)[0]
        return [blocks.block_at(tensor.data_ptr()).stream for tensor in tensors]

    before = streams()
    taking = Courtesy()
    began = time.perf_counter()
    moved = taking.yield_memory()
    out_seconds = time.perf_counter() - began
    reserved = torch.cuda.memory_reserved()
    began = time.perf_counter()
    taking.restore()
    back_seconds = time.perf_counter() - began
    expect(reserved == 0, f"PyTorch still had {reserved} bytes reserved")
    expect(moved == sum(sizes), f"{moved} bytes were moved, not {sum(sizes)}")
    expect(streams() == before, "memory came back on other streams")
    expect(sums == [int(tensor.sum(dtype=torch.int64)) for tensor in tensors], "bytes changed")
    figures["large"] = {
        "bytes": moved,
        "seconds": [round(out_seconds, 2), round(back_seconds, 2)],
        "GiB_per_second": [round(moved / 2**30 / s, 2) for s in (out_seconds, back_seconds)],
    }


def refused():
    """A CUDA graph relies on addresses: nothing is moved, and the graph still works; partial moves the rest."""
    static = torch.zeros(1 << 20, device="cuda")
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        result = static * 2 + 1
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        result = static * 2 + 1
    other = torch.arange(1 << 20, device="cuda")
    taking = Courtesy()
    address = other.data_ptr()
    try:
        taking.yield_memory()
        problems.append("memory of a CUDA graph was yielded")
    except RuntimeError as error:
        figures["refusal"] = str(error)
        expect("CUDA graph" in str(error) and "nothing was" in str(error), f"the error says: {error}")
    expect(other.data_ptr() == address and taking.bytes_away == 0, "something was moved")
    graph.replay()
    expect(bool((result == 1).all()), "the graph computes something else")
    report = MemReporter().snapshot().devices["cuda:0"]
    expect(report.private > 0, "the report has no bytes of the graph")


def full():
    """Another process takes the memory meanwhile: restore says so, and works once it is free."""
    kept = torch.arange(64 << 20, device="cuda", dtype=torch.int64)
    taking = Courtesy()
    moved = taking.yield_memory()
    hog = (
        "import sys, torch; free = torch.cuda.mem_get_info()[0]; kept = []\n"
        "size = 1 << 30\n"
        "while size >= 1 << 20:\n"
        "    try: kept.append(torch.empty(size, dtype=torch.uint8, device='cuda'))\n"
        "    except torch.cuda.OutOfMemoryError: size //= 2\n"
        "print('full', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen([sys.executable, "-c", hog], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        expect(other.stdout.readline().strip() == "full", "the other process did not fill the GPU")
        try:
            taking.restore()
            problems.append("memory came back to a full GPU")
        except RuntimeError as error:
            figures["no room"] = str(error)
            expect("call restore() again" in str(error), f"the error says: {error}")
    finally:
        other.stdin.close()
        other.wait()
    expect(taking.bytes_away == moved, f"{taking.bytes_away} of {moved} bytes are still away")
    taking.restore()
    expect(bool((kept == torch.arange(64 << 20, device="cuda")).all()), "bytes changed")


CASES = {
    function.__name__: function for function in (reporter, recorded, guide, untouched, courtesy, large, refused, full)
}

if __name__ == "__main__":
    try:
        CASES[sys.argv[1]]()
    except Exception as error:
        import traceback

        where = traceback.extract_tb(error.__traceback__)[-1]
        problems.append(f"{type(error).__name__} at {where.filename}:{where.lineno}: {error}")
    print("RESULT " + json.dumps({**figures, "problems": problems}))
