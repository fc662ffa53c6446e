# SPDX-License-Identifier: Apache-2.0
"""MemReporter in programs of their own: figures of pytorch_memlab's guide, tensors of every kind, and what the
program can tell of it, which is nothing."""
from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import types

import hosts
import package
import pytest
import warm_torch

VRAMSCOPE = package.VRAMSCOPE
FAKE = package.BUILD / "fake_cuda"
pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

HEAD = """
import gc, json, sys, warnings, weakref
import torch
torch.set_num_threads(1)
from vramscope import MemReporter
"""

# Tensors of the CPU as if they were of a GPU: the caching allocator has a block for each storage, and some more.
ON_A_GPU = """
from vramscope import _mem_reporter, _tensors, _torch_blocks
MORE, SEGMENT, PENDING, NVML = [], 64 << 20, 0, None
memory_of = _tensors.memory_of
def on_gpu(torch, tensor):
    found = memory_of(torch, tensor)
    return found and found._replace(place=("cuda", *found.place[1:])) if found and found.place[0] == "cpu" else found
_tensors.memory_of = on_gpu
def caches(torch):
    there = _tensors.live(torch)
    every = there.tensors + [saved.tensor for saved in _tensors.saved_by_autograd(torch, there)]
    every += [g for g in map(_tensors.gradient_of, there.tensors) if g is not None]
    storages = {m.place[2]: m.bytes for m in (memory_of(torch, t) for t in every) if m and m.place[2]}
    blocks = [(address, -(-size // 512) * 512, size, "active_allocated", "") for address, size in storages.items()]
    blocks += [(10 + i, size, size, "active_allocated", line) for i, (size, line) in enumerate(MORE)]
    if PENDING: blocks.append((5, PENDING, PENDING, "active_pending_free", ""))
    cache = _torch_blocks.Cache(0)
    for address, size, requested, state, line in blocks:
        entry = {"state": state, "size": size, "requested_size": requested}
        if line: entry["frames"] = [{"filename": "/x/train.py", "line": int(line), "name": "step"}]
        _torch_blocks._add(cache, entry, address, 0, False)
    cache.reserved = SEGMENT
    cache.fragmentation = SEGMENT - sum(block[1] for block in blocks)
    return {0: cache}
_torch_blocks.caches = caches
_torch_blocks.is_ready = lambda torch: True
_torch_blocks.uuid_of = lambda torch, index: UUID
UUID = None
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> dict[str, str]:
    return package.make(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def warm(environment, tmp_path_factory):
    process = warm_torch.Warm(environment, tmp_path_factory.mktemp("programs"))
    yield process
    process.close()


@pytest.fixture
def run(warm):
    def run_program(code: str, status: int = 0) -> str:
        done = warm.run(code)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    return run_program


@pytest.fixture
def run_recorded(tmp_path, environment):
    def run_program(code: str, *options: str, **more: str) -> str:
        path = tmp_path / "program.py"
        path.write_text(code)
        command = [VRAMSCOPE, "run", *options, "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, path]
        done = subprocess.run(
            command, cwd=tmp_path, env={**environment, **more}, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_program


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
    assert "The allocated memory on cuda:0: 6.00M (6.00M as asked for, 508.00B rounding)" in text
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


KINDS = HEAD + """
warnings.simplefilter("ignore")
class Raises:
    @property
    def __class__(self): raise RuntimeError("class")
    def __getattr__(self, name): raise RuntimeError(name)
    def __eq__(self, other): raise RuntimeError("eq")
class Meta(type):
    def __eq__(self, other): raise RuntimeError("eq")
    __hash__ = None
    def __subclasscheck__(self, other): raise RuntimeError("subclass")
    def __instancecheck__(self, other): raise RuntimeError("instance")
class RaisingClass(metaclass=Meta): pass
class Proxied: pass
gone = Proxied()
things = [Raises(), RaisingClass, RaisingClass(), __import__("weakref").proxy(gone)]
del gone

class Wrapper(torch.Tensor):
    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, device=inner.device)
        made.inner = inner
        return made
    def __tensor_flatten__(self): return ["inner"], None
    @classmethod
    def __torch_dispatch__(cls, function, kinds, arguments, named=None): raise RuntimeError("dispatched")
    @classmethod
    def __torch_function__(cls, function, kinds, arguments=(), named=None): raise RuntimeError("function")
class Subclass(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, kinds, arguments=(), named=None): raise RuntimeError("function")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)
        self.register_buffer("wrapped", Wrapper(torch.ones(33)))
        self.embedding = torch.nn.Embedding(64, 8, sparse=True)
    def forward(self, x): return self.norm(self.embedding(x))
with torch._C.DisableTorchFunction():
    net = Net()
    subclass = torch.ones(17).as_subclass(Subclass)
optimizer = torch.optim.SGD(net.norm.parameters(), momentum=0.9)
net(torch.arange(4)).sum().backward()
optimizer.step()
other = [torch.nn.Parameter(torch.ones(7))]
stranger = torch.optim.Adam(other)
other[0].grad = torch.ones(7)
stranger.step()
coo, csr = torch.eye(5).to_sparse(), torch.eye(5).to_sparse_csr()
nested = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)])
jagged = torch.nested.nested_tensor([torch.ones(3, 4), torch.ones(2, 4)], layout=torch.jagged)
quantized = torch.quantize_per_channel(torch.ones(4, 4), torch.ones(4), torch.zeros(4), 0, torch.qint8)
meta, onednn = torch.empty(30, device="meta"), torch.ones(4, 4).to_mkldnn()
from torch._subclasses.fake_tensor import FakeTensorMode
fake_mode = FakeTensorMode()
with fake_mode: fake = torch.empty(1000, 1000)
lazy = torch._lazy_clone(torch.ones(64))
bare = torch.ones(77).untyped_storage()
empty = torch.ones(99)[:0]
reporter = MemReporter(net)
"""


def test_tensors_of_every_kind(run):
    found = json.loads(run(KINDS + """
reporter.add_optimizer(stranger)
print(reporter.snapshot().to_json())
"""))
    assert found["schema"] == "vramscope.tensors/1"
    assert [device["device"] for device in found["devices"]] == ["cpu", "meta"]
    rows = {row["name"]: row for row in found["devices"][0]["rows"]}
    kinds = {name: row["kind"] for name, row in rows.items()}
    for name, kind in {
        "norm.weight": "parameter", "norm.weight.grad": "gradient", "norm.running_mean": "buffer",
        "wrapped.inner": "buffer", "embedding.weight.grad.values": "gradient",
        "SGD.norm.weight.momentum_buffer": "optimizer state", "Adam.param0.exp_avg": "optimizer state",
    }.items():
        assert kinds[name] == kind, sorted(rows)
    assert "wrapped" not in rows
    shapes = [(row["shape"], row["storage_bytes"], row["dtype"]) for row in rows.values()]
    for expected in (
        ([17], 68, "float32"),  # a subclass
        ([33], 132, "float32"),  # inside of a wrapper
        (["nested", 20], 80, "float32"),
        ([4, 4], 16, "qint8"),
        ([0], 396, "float32"),  # an empty view keeps its storage
        ([64], 256, "float32"),
    ):
        assert expected in shapes, expected
    names = " ".join(rows)
    assert ".crow_indices" in names and ".indices" in names and ".q_scales" in names
    assert [row["storage_bytes"] for row in rows.values() if row["kind"] == "storage"] == [308]
    assert not [row for row in rows.values() if row["shape"] == [1000, 1000]], "fake tensors have no memory"
    assert [row["bytes"] for row in found["devices"][1]["rows"] if row["shape"] == [30]] == [0]
    assert sum(row["bytes"] for row in rows.values()) == found["devices"][0]["total"]


def test_the_program_cannot_tell(run):
    out = run(KINDS + """
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function, kinds, arguments=(), named=None): raise RuntimeError("dispatch mode")
class Function(TorchFunctionMode):
    def __torch_function__(self, function, kinds, arguments=(), named=None): raise RuntimeError("function mode")

with warnings.catch_warnings():
    warnings.simplefilter("error")
    for mode in (fake_mode, Dispatch(), Function(), torch.inference_mode(), torch.device("meta")):
        with mode: reporter.snapshot()
    torch.func.vmap(lambda t: (reporter.snapshot(), t * 2)[1])(torch.ones(3, 4))
    torch.func.grad(lambda t: (reporter.snapshot(), t.sum())[1])(torch.ones(3))
assert torch._C._is_cow_tensor(lazy), "a lazy copy was made real"
assert not torch.cuda.is_initialized() and gc.isenabled()

# Nothing is kept, and no garbage is collected.
big = torch.ones(1000, 1000)
class Cycle: pass
cycle = Cycle(); cycle.me, cycle.tensor = cycle, torch.ones(123)
watch = weakref.ref(cycle)
del cycle
from vramscope import _tensors
live, collects = _tensors.live, []
_tensors.live = lambda torch: (collects.append(gc.isenabled()), live(torch))[1]
report = reporter.snapshot()
_tensors.live = live
assert collects == [False] and gc.isenabled(), "garbage is the program's"
gc.collect()
alive = weakref.ref(big)
del big
gc.collect()
assert alive() is None, "kept alive"

# What hooks packed is not unpacked: a checkpoint would compute again.
ran = []
def block(x):
    ran.append(1)
    return (x * 2).exp()
x = torch.ones(64, requires_grad=True)
y = checkpoint(block, x, use_reentrant=False)
with torch.autograd.graph.saved_tensors_hooks(lambda t: ("packed", t.numpy()), lambda p: ran.append(2)):
    z = x.exp()
reporter.snapshot()
assert ran == [1], ran
y.sum().backward()
assert ran == [1, 1] and x.grad is not None

# In the middle of a forward, and of a backward.
sizes = []
linear = torch.nn.Sequential(torch.nn.Linear(50, 60), torch.nn.ReLU(), torch.nn.Linear(60, 5))
linear[1].register_forward_hook(lambda *_: sizes.append(MemReporter(linear).snapshot()))
out = linear(torch.ones(20, 50))
assert any(row.shape == (20, 60) for row in sizes[0].rows)
out.register_hook(lambda g: sizes.append(reporter.snapshot()))
out.sum().backward()
assert len(sizes) == 2
print("fine")
""")
    assert out.split()[-1] == "fine"


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


def test_the_difference_of_two_reports(run):
    out = run(HEAD + """
net = torch.nn.Linear(100, 100)
optimizer = torch.optim.Adam(net.parameters())
reporter = MemReporter(net)
kept, steady = [], torch.ones(10)
def step():
    loss = net(torch.ones(5, 100)).sum()
    loss.backward(); optimizer.step(); optimizer.zero_grad()
before = reporter.snapshot()
step()
after = reporter.snapshot()
found = before.diff(after)
print(json.dumps(found.to_dict()["changes"]))
kept += [torch.ones(7, 11) for _ in range(3)]
steady = torch.ones(10)
net.weight.data = torch.ones(200, 100)
net.bias.data = torch.ones(100, dtype=torch.float16)
leak = after.diff(reporter.snapshot())
print(json.dumps([[c.what, c.name, c.shape, c.count, c.bytes] for c in leak.changes]))
print(leak.text())
# Two optimizers of a kind are two.
steady = reporter.snapshot()
second = torch.optim.Adam(net.parameters())
net.weight.grad, net.bias.grad = torch.ones(200, 100), torch.ones(100, dtype=torch.float16)
second.step(); second.zero_grad()
names = {change.name for change in steady.diff(reporter.snapshot()).changes}
assert {"Adam2.weight.exp_avg", "Adam2.bias.exp_avg_sq"} <= names and not any("Adam." in name for name in names), names
assert not after.diff(after) and leak and "+924.00B" in leak._repr_html_()
back = reporter.snapshot()
del kept[:]
print(json.dumps([[c.what, c.count, c.bytes] for c in back.diff(reporter.snapshot()).changes]))
""")
    lines = out.splitlines()
    first = {(change["what"], change["name"]): change["bytes"] for change in json.loads(lines[0])}
    assert first == {
        ("came", f"Adam.{parameter}.{name}"): size
        for parameter, full in (("weight", 40000), ("bias", 400))
        for name, size in (("step", 4), ("exp_avg", full), ("exp_avg_sq", full))
    }
    assert json.loads(lines[1]) == [
        ["grew", "weight", "(100, 100) -> (200, 100)", 0, 40000], ["came", "Tensor", "(7, 11)", 3, 924],
        ["shrank", "bias", "(100,)", 0, -200],
    ]
    assert "shrank  bias (100,), float32 -> float16" in out
    assert "Changes on cpu" in out and "came  +3 Tensor (7, 11), float32" in out
    assert json.loads(lines[-1]) == [["went", -3, -924]]


def test_who_still_refers_to_a_tensor(run):
    out = run(HEAD + """
import __main__
reporter = MemReporter()
class Trainer:
    shared = None
    def __init__(self): self.history = []
class Slots:
    __slots__ = ("kept",)
def chains(t): return reporter.referrers(t)
def local():
    secret = torch.ones(3)
    trainer = Trainer()
    trainer.history.append({"loss": secret})
    return chains(secret)
local()
print("==")
leaked = torch.ones(4)
cache = {"a": [leaked]}
again = leaked
Trainer.shared = leaked
slots = Slots(); slots.kept = leaked
def closure():
    inside = leaked
    return lambda: inside
function = closure()
chains(leaked)
print("==")
def fails():
    lost = torch.ones(5)
    raise ValueError
try: fails()
except ValueError as error: caught = error
caught.__traceback__.tb_next.tb_frame.f_locals
chains([row for row in gc.get_objects() if type(row) is torch.Tensor and row.shape == (5,)][0])
print("==")
x = torch.ones(6, requires_grad=True)
h = x * 2
def alone():
    # Held by a cycle that nobody has, and by what is no variable of Python.
    cycle = Trainer()
    cycle.me, cycle.kept = cycle, torch.ones(9)
    return weakref.ref(cycle.kept)
kept = alone()
chains(kept())
context = __import__("contextvars").ContextVar("context")
context.set(torch.ones(10))
chains(context.get())
print("==")
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(2, 2)))
net = Net()
net.inner(torch.ones(2)).sum().backward()
held = [(net.inner[0][0].weight,), {net.inner[0][0].weight}, {"k": net.inner[0][0].weight}]
chains(net.inner[0][0].weight)
chains(net.inner[0][0].weight.grad)
print("==")
z = h * h
view = h[:2]
chains(h)
chains(h)
# The names of a frame's variables are read without keeping what they refer to.
def keeps_nothing():
    mine = torch.ones(8)
    watch = weakref.ref(mine)
    reporter.referrers(mine)
    del mine
    return watch() is None
print("==")
assert keeps_nothing()
reporter.referrers(torch.ones(2))
""")
    local, globals_, traceback, unknown, module, graph, nothing = out.split("==\n")
    assert local.startswith("Tensor (3,) float32 on cpu, 12.00B is referred to by\n")
    assert "  local 'secret' of local() at program.py:" in local
    assert (
        "item 'loss' of a dict <- item 0 of a list <- attribute 'history' of Trainer <- local 'trainer' of local()"
        in local
    )
    for chain in (
        "  global 'leaked' and 'again' of __main__\n",
        "  item 0 of a list <- item 'a' of a dict <- global 'cache' of __main__\n",
        "  attribute 'shared' of class Trainer\n",
        "  attribute 'kept' of Slots <- global 'slots' of __main__\n",
        "global 'function' of __main__\n",
    ):
        assert chain in globals_, (chain, globals_)
    assert "local 'lost' of fails() at program.py:" in traceback and "kept by a traceback" in traceback
    assert "kept by a traceback <- ValueError <- global 'caught' of __main__" in traceback, traceback
    assert "of a dict" not in traceback, "a frame's own copy of its variables"
    assert "attribute 'kept' of Trainer <- a cycle, which a garbage collection ends" in unknown, unknown
    assert "<- Context <- nothing that Python knows of" in unknown, unknown
    assert "tuple" not in unknown, "the arguments of calls under way"
    for chain in (
        "  parameter 'weight' of Linear <- module '0' of Sequential <- module '0' of Sequential <- module 'inner' of Net"
        " <- global 'net' of __main__\n",
        "  item 0 of a tuple <- item 0 of a list <- global 'held' of __main__\n",
        "  item of a set <- item 1 of a list <- global 'held' of __main__\n",
        "  item 'k' of a dict <- item 2 of a list <- global 'held' of __main__\n",
        "  Parameter (2, 2), whose gradient it is\n",
    ):
        assert chain in module, (chain, module)
    for line in (
        "autograd: MulBackward0 keeps it as 'self' for a backward",
        "autograd: this graph is of Tensor (6,): global 'z' of __main__",
        "Tensor (2,), which shares its storage",
    ):
        assert graph.count(line) == 2, (line, graph)
    assert graph.count("shares its storage") == 2, "what autograd keeps is told as such"
    assert "chains() at" not in nothing and "nothing that Python knows of" in nothing


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
        ("MemReporter().report(device='gpu')", "ValueError: vramscope: 'gpu' is no device: "),
        ("MemReporter().snapshot().diff(3)", "TypeError: vramscope: diff takes a later report, not int"),
        ("MemReporter().report(device=['cpu'])", "ValueError: vramscope: ['cpu'] is no device: a GPU's number, "),
        ("MemReporter().referrers(3)", "TypeError: vramscope: referrers takes a tensor, not int"),
        ("MemReporter().add_optimizer(3)", "TypeError: vramscope: add_optimizer takes a torch.optim.Optimizer, not int"),
        ("sys.modules['torch'] = None; MemReporter()", "RuntimeError: vramscope: MemReporter looks at PyTorch's tensors"),
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
        f"True vramscope: no report of cuda:{index}: PyTorch finds no GPU here" for index in (7, 0, 0)
    ]


# ---- parts that need no program ----


@pytest.fixture
def parts(environment, monkeypatch):
    """The package's modules, imported from the tree."""
    monkeypatch.syspath_prepend(str(package.ROOT / "python"))
    from vramscope import _nvml, _torch_blocks

    return types.SimpleNamespace(nvml=_nvml, blocks=_torch_blocks)


def torch_with(segments, backend="native", traces=True):
    def snapshot(**named):
        if named and not traces:
            raise TypeError("memory_snapshot() got an unexpected keyword argument 'include_traces'")
        return segments

    stats = {"allocated_bytes.all.current": 70, "reserved_bytes.all.current": 100}
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, get_allocator_backend=lambda: backend, memory_snapshot=snapshot,
        device_count=lambda: 1, memory_stats=lambda device: stats,
    )
    return types.SimpleNamespace(cuda=cuda)


def test_the_allocators_snapshot(parts):
    def block(state, size, requested, **more):
        return {"state": state, "size": size, "requested_size": requested, **more}

    segments = [
        {"device": 0, "address": 1 << 20, "total_size": 2048, "stream": 7, "segment_pool_id": (0, 0), "blocks": [
            block("active_allocated", 512, 4), block("inactive", 1024, 0),
            block("active_pending_free", 512, 500)]},
        {"device": 0, "address": 2 << 20, "total_size": 4096, "stream": 0, "blocks": [block("inactive", 4096, 0)]},
        {"device": 1, "address": 3 << 20, "total_size": 512, "stream": 0, "segment_pool_id": (0, 1), "blocks": [
            block("active_allocated", 512, 512, frames=[
                {"filename": "/site-packages/torch/nn/modules/linear.py", "line": 1, "name": "forward"},
                {"filename": "/home/me/train.py", "line": 12, "name": "step"}])]},
    ]
    for traces in (True, False):
        found = parts.blocks.caches(torch_with(segments, traces=traces))
        first, second = found[0], found[1]
        assert (first.allocated, first.requested, first.pending) == (512, 4, 512)
        assert (first.cached, first.fragmentation, first.reserved) == (4096, 1024, 6144)
        assert first.block_at((1 << 20) + 511).stream == 7 and first.block_at((1 << 20) + 512) is None
        assert first.block_at((1 << 20) + 1600).pending and first.block_at(0) is None
        assert second.blocks[0].private and second.blocks[0].line == "train.py:12 in step"
    other = parts.blocks.caches(torch_with([], backend="cudaMallocAsync"))
    assert (other[0].complete, other[0].allocated, other[0].cached) == (False, 70, 30)


def test_nvml_is_one_line_where_it_is_not_there(parts, tmp_path, environment):
    code = "from vramscope import _nvml; print(_nvml.process_bytes('GPU-1'))"
    books = {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    for more, said in (
        ({}, "NVML is not on this machine"),
        (books, "NVML has no GPU GPU-1"),
        ({**books, "VRAMSCOPE_FAKE_NVML_ERROR": "18"}, "nvmlInit_v2 says 18"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment, **more}, capture_output=True, text=True, timeout=60
        )
        assert "bytes=None" in done.stdout and said in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "listed, at_least, bytes_, remark",
    [
        ([("own", 100), (1, 200)], 0, 100, ""),
        ([("own", (1 << 64) - 1)], 0, None, "does not say"),
        ([(1, 200)], 150, 200, "the only process"),
        ([(1, 200), (2, 100)], 150, 200, "the only process"),
        ([(1, 200), (2, 300)], 150, None, "--pid=host"),
        ([], 0, None, "lists no process"),
    ],
)
def test_which_process_is_this_one(parts, monkeypatch, listed, at_least, bytes_, remark):
    import os

    rows = [parts.nvml._Process(pid=os.getpid() if pid == "own" else pid, used=used) for pid, used in listed]
    monkeypatch.setattr(parts.nvml, "_open", lambda: types.SimpleNamespace(device=lambda uuid: None))
    monkeypatch.setattr(parts.nvml, "_processes", lambda library, device: rows)
    monkeypatch.setattr(parts.nvml, "_own_numbers", lambda: [os.getpid()])
    reading = parts.nvml.process_bytes("GPU-x", at_least)
    assert reading.bytes == bytes_ and remark in reading.remark
