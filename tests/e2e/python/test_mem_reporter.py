# SPDX-License-Identifier: Apache-2.0
"""MemReporter in programs of their own: figures of pytorch_memlab's guide, what a GPU's total consists of, and errors."""
from __future__ import annotations

import contextlib
import json
import os

import hosts
import pytest
from mem_reporter_program import (
    HEAD,
    ON_A_GPU,
    environment,  # noqa: F401 (a fixture)
    run,  # noqa: F401 (a fixture)
    run_recorded,  # noqa: F401 (a fixture)
    warm,  # noqa: F401 (a fixture)
)
from places import FAKE, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")


def rows_of(text: str) -> list[tuple[str, str, str]]:
    """Name, size and memory of each row, where the columns of the old tool stand."""
    rows = []
    for line in text.splitlines():
        name, size, memory = line[:40].rstrip(), line[40:60].strip(), line[60:70].strip()
        if size.startswith("("):
            rows.append((name, size, memory))
    return rows


def test_the_guides_first_example(run):
    text = run(HEAD + ON_A_GPU + """
linear = torch.nn.Linear(1024, 1024)
MemReporter().report()
""")
    lines = text.splitlines()
    assert lines[0] == f"{'Element type':<40}{'Size':>20}{'Used MEM':>10}"
    assert lines[1] == "-" * 79 and lines[2] == "Storage on cuda:0"
    assert rows_of(text) == [("Parameter0", "(1024, 1024)", "4.00M"), ("Parameter1", "(1024,)", "4.00K")]
    assert "Total Tensors: 1049600 \tUsed Memory: 4.00M" in lines
    assert "The allocated memory on cuda:0: 4.00M" in lines
    assert "differs" not in text


def test_before_and_after_backward(run):
    text = run(HEAD + ON_A_GPU + """
linear = torch.nn.Linear(1024, 1024)
inp = torch.Tensor(512, 1024)
reporter = MemReporter(linear)
out = linear(inp).mean()
reporter.report()
out.backward()
reporter.report()
""")
    weight, bias = ("weight", "(1024, 1024)", "4.00M"), ("bias", "(1024,)", "4.00K")
    rest = [("Tensor0", "(512, 1024)", "2.00M"), ("Tensor1", "(1,)", "512.00B")]
    gradients = [("weight.grad", "(1024, 1024)", "4.00M"), ("bias.grad", "(1024,)", "4.00K")]
    assert rows_of(text) == [weight, bias, *rest, weight, gradients[0], bias, gradients[1], *rest]
    assert "Total Tensors: 1573889 \tUsed Memory: 6.00M" in text
    assert "The allocated memory on cuda:0: 6.00M (6.00M requested, 508.00B rounding)" in text
    assert "Total Tensors: 2623489 \tUsed Memory: 10.01M" in text
    assert "The allocated memory on cuda:0: 10.01M" in text


def test_storages_that_are_shared_count_once(run):
    text = run(HEAD + ON_A_GPU + """
linear, linear2 = torch.nn.Linear(1024, 1024), torch.nn.Linear(1024, 1024)
linear2.weight = linear.weight
container = torch.nn.Sequential(linear, linear2)
inp = torch.Tensor(512, 1024)
out = container(inp).mean()
out.backward()
MemReporter(container).report(verbose=True)
print("LSTM")
del linear, linear2, container, inp, out
# A GPU's LSTM keeps its weights in one storage.
lstm = torch.nn.LSTM(1024, 1024)
parameters = list(lstm.parameters())
flat = torch.cat([p.detach().flatten() for p in parameters])
begin = 0
for p in parameters:
    p.data = flat[begin : begin + p.numel()].view(p.shape)
    begin += p.numel()
del flat, p
inp = torch.Tensor(10, 10, 1024)
MemReporter(lstm).report(verbose=True)
MemReporter(lstm).report()
""")
    tied, lstm = text.split("LSTM\n")
    assert [row[0] for row in rows_of(tied)] == [
        "0.weight", "0.weight.grad", "0.bias", "0.bias.grad", "1.bias", "1.bias.grad", "Tensor0", "Tensor1",
    ]
    assert "Total Tensors: 2625537 \tUsed Memory: 10.02M" in tied
    owner = ("weight_ih_l0", "(4096, 1024)", "32.03M")
    assert rows_of(lstm)[:5] == [
        owner,
        ("weight_hh_l0(->weight_ih_l0)", "(4096, 1024)", "0.00B"),
        ("bias_ih_l0(->weight_ih_l0)", "(4096,)", "0.00B"),
        ("bias_hh_l0(->weight_ih_l0)", "(4096,)", "0.00B"),
        ("Tensor0", "(10, 10, 1024)", "400.00K"),
    ]
    assert rows_of(lstm)[5:7] == [owner, ("weight_hh_l0", "(4096, 1024)", "0.00B")]
    assert lstm.count("Total Tensors: 8499200 \tUsed Memory: 32.42M") == 2


def test_what_autograd_alone_holds_is_there(run):
    """pytorch_memlab's "failed example": 2 MiB that it could not see."""
    text = run(HEAD + ON_A_GPU + """
linear = torch.nn.Linear(1024, 1024)
inp = torch.Tensor(512, 1024)
reporter = MemReporter(linear)
out = linear(inp * (inp + 2)).mean()
reporter.report()
a = reporter.snapshot()
print(json.dumps([a.devices["cuda:0"].tensor_bytes + a.devices["cuda:0"].autograd_bytes, caches(torch)[0].allocated]))

# Never a Python object: both halves of what a loss in C++ keeps. And modified in place, which _saved_self refuses.
x = torch.ones(1000, requires_grad=True)
y = x.exp()
y.add_(1)
loss = torch.nn.functional.cross_entropy(torch.randn(64, 100, requires_grad=True), torch.zeros(64, dtype=torch.long))
rows = {row.name: row for row in reporter.snapshot().rows}
print(json.dumps([[n, r.storage_bytes] for n, r in rows.items() if r.kind == "autograd"]))
print([r.saved_by for r in rows.values() if r.shape == (1000,) and "Exp" in r.saved_by])
out.backward()
assert linear.weight.grad is not None
assert not [row for row in reporter.snapshot().rows if "Addmm" in row.name + row.saved_by], "the graph is gone"
""")
    assert ("AddmmBackward0.mat1", "(512, 1024)", "2.00M") in rows_of(text)
    assert "Held by autograd alone" in text
    assert "Used Memory: 8.00M" in text and "The allocated memory on cuda:0: 8.00M" in text
    sums, alone, in_place = text.splitlines()[-3:]
    assert len(set(json.loads(sums))) == 1
    assert dict(json.loads(alone))["LogSoftmaxBackward0.result"] == 64 * 100 * 4
    assert in_place == "['ExpBackward0.result']"


def test_the_total_is_what_nvml_says(run):
    text = run(HEAD + ON_A_GPU + """
from vramscope import _nvml
UUID = "x"
_nvml.process_bytes = lambda uuid, at_least: _nvml.ProcessBytes(at_least + (500 << 20), "")
MORE = [(32 << 20, ""), (1 << 20, "42"), (1 << 20, "42")]
PENDING = 1 << 19
linear = torch.nn.Linear(1024, 1024)
report = MemReporter(linear).report()
gpu = report.devices["cuda:0"]
assert gpu.total == gpu.nvml == (564 << 20), (gpu.total, gpu.nvml)
assert gpu.allocated + gpu.pending + gpu.fragmentation == gpu.reserved == 64 << 20
assert [(b.count, b.bytes, b.what, b.line) for b in gpu.blocks] == [
    (1, 32 << 20, "as large as a workspace of cuBLAS", ""), (2, 2 << 20, "", "train.py:42 in step")]
html = report._repr_html_()
assert "<td>4.00M</td>" in html and "564.00M" in html
""")
    for line in (
        f"{'Tensors':<60}{'4.00M':>10}",
        f"{'Blocks without a tensor':<60}{'34.00M':>10}",
        f"{'Freed, still in use by a stream':<60}{'512.00K':>10}",
        f"{'Reserved by PyTorch':<60}{'64.00M':>10}",
        f"{'Libraries and the driver':<60}{'500.00M':>10}",
        f"{'Used by this process (nvidia-smi)':<60}{'564.00M':>10}",
        f"{'  2 of 1.00M, train.py:42 in step':<60}{'2.00M':>10}",
    ):
        assert line in text.splitlines(), line


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_the_rest_of_the_process_is_told_apart_by_the_recording(run_recorded, tmp_path, seed):
    """A driver, a context and an allocation that are not PyTorch's, on the stand-in GPU; alone, and beside others."""
    machine = {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    beside = hosts.neighbour({**os.environ, **machine}, seed) if seed is not None else contextlib.nullcontext()
    slowly = {"VRAMSCOPE_FAKE_DELAY_US": "cuDevicePrimaryCtxRetain:150000"} if seed is not None else {}
    with beside:
        text = run_recorded(HEAD + ON_A_GPU + """
import ctypes, time
cuda, nvml = ctypes.CDLL("libcuda.so.1"), __import__("vramscope._nvml")._nvml
device, context, pointer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0 and cuda.cuCtxSetCurrent(context) == 0
SEGMENT = 0
caches = lambda torch: {0: _torch_blocks.Cache(0)}
_torch_blocks.caches = caches
UUID = next(iter(nvml._open().devices))
for size in (512 << 20, 64 << 20):
    cuda.cuMemFree_v2(pointer)
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0
# NVML's list of processes is read now and then; when it is asked for again, what was read is written.
lists = ctypes.CDLL("libnvidia-ml.so.1").FakeProcessLists
before = lists()
while lists() - before < 2:
    time.sleep(0.01)
gpu = MemReporter().report().devices["cuda:0"]
print(json.dumps([gpu.total, gpu.nvml, [[part.name, part.bytes] for part in gpu.outside]]))
""", **machine, **slowly)
    total, nvml, parts = json.loads(text.splitlines()[-1])
    assert total == nvml > 64 << 20
    names = dict(parts)
    assert sorted(names) == ["application: allocated", "driver-owned: context"], names
    assert names == {"application: allocated": 64 << 20, "driver-owned: context": 518 << 20}


def test_a_recording_knows_the_lines(run_recorded):
    found = json.loads(run_recorded(HEAD + """
def make():
    kept = torch.randn(300, 300)
    x = torch.randn(64, 200, requires_grad=True)
    return kept, x, (x.exp() + 1).sin()
kept = make()
report = MemReporter().snapshot()
text, page = report.text(), report._repr_html_()
assert "Tensor0, program" not in text and "Tensor0, program.py:8 in make" in report.text(verbose=True), text
sums = [f'colspan="2">{name}</th>' for name in ("Tensors", "Held by autograd alone")]
assert all(one in page for one in sums), page
for shown in (text, page):
    assert shown.index("Held by autograd alone") < shown.index(", program.py:10 in make"), shown
print(report.to_json())
""", "--cpu"))
    lines = {tuple(row["shape"]): row["line"] for row in found["devices"][0]["rows"] if row["kind"] == "tensor"}
    assert lines[(300, 300)] == "program.py:8 in make"
    alone = [(row["name"], row["line"]) for row in found["devices"][0]["rows"] if row["kind"] == "autograd"]
    assert {line for _, line in alone} == {"program.py:10 in make"} and len(alone) == 2, alone


def test_old_steps_and_what_they_leave(run):
    out = run(HEAD + """
linear = torch.nn.Linear(10, 10)
reporter = MemReporter(linear, pre_collect=True)
reporter.collect_tensor()
stats = reporter.get_stats()
assert stats is reporter.device_tensor_stat
print(stats[torch.device("cpu")])
reporter.print_stats(verbose=True, target_device=torch.device("cpu"))
returned = reporter.report(device="cpu")
assert "weight" in str(returned) and repr(returned).startswith("<vramscope memory report: 2 tensors")
gc.freeze()
assert "(gc.freeze() hides what was there before it: tensors without a name are missing)" in str(reporter.snapshot())
gc.unfreeze()
assert "freeze" not in str(reporter.snapshot())
long = torch.nn.ModuleDict({"b" * 40: torch.nn.Linear(2, 2), "a" * 65: torch.nn.Linear(2, 2)})
print("LONG"); MemReporter(long).report()
del linear
gc.collect()
reporter.report()
""")
    assert out.startswith("[('weight', (10, 10), 100, 400), ('bias', (10,), 10, 40)]\n")
    long = out.split("LONG\n")[1].splitlines()
    assert f"{'b' * 40}.weight{'(2, 2)':>22}{'16.00B':>10}" in long, "longer names have what sizes do not need"
    at = long.index("a" * 65 + ".bias")
    assert long[at + 1] == f"{'(2,)':>69}{'8.00B':>10}", "the longest have a line, and columns stay columns"
    assert max(map(len, long)) == 79


@pytest.mark.parametrize(
    "code, said",
    [
        ("MemReporter('model')", "TypeError: vramscope: MemReporter takes a torch.nn.Module, not str"),
        ("MemReporter().report(device='gpu')", "ValueError: vramscope: 'gpu' is not a device: "),
        ("MemReporter().snapshot().diff(3)", "TypeError: vramscope: diff takes a later report, not int"),
        ("MemReporter().report(device=['cpu'])", "ValueError: vramscope: ['cpu'] is not a device: use a GPU's number, "),
        ("MemReporter().referrers(3)", "TypeError: vramscope: referrers takes a tensor, not int"),
        ("MemReporter().add_optimizer(3)", "TypeError: vramscope: add_optimizer takes a torch.optim.Optimizer, not int"),
        ("sys.modules['torch'] = None; MemReporter()", "RuntimeError: vramscope: MemReporter needs PyTorch, which"),
    ],
)
def test_errors_are_one_line(run, code, said):
    error = run(HEAD + code, status=1)
    assert error.splitlines()[-1].startswith(said), error


def test_a_gpu_that_is_not_there_is_a_warning(run):
    """So that a program goes on where a continuous integration has no GPU."""
    out = run(HEAD + """
import warnings
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    found = MemReporter().report(device="cuda:7")
    MemReporter().report(device=0)
    MemReporter().print_stats(target_device="cuda:0")
assert not found.devices and not found.rows and found.to_json()
for one in said: print(one.filename == __file__, one.message)
""")
    assert out.splitlines() == [
        f"True vramscope: no report of cuda:{index}: PyTorch finds no GPU" for index in (7, 0, 0)
    ]
