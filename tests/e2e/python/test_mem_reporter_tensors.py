# SPDX-License-Identifier: Apache-2.0
"""MemReporter and tensors of every kind: each is found, compared and traced to who refers to it, and the program can
tell nothing of that."""
from __future__ import annotations

import json

import pytest
from mem_reporter_program import (
    HEAD,
    environment,  # noqa: F401 (a fixture)
    run,  # noqa: F401 (a fixture)
    warm,  # noqa: F401 (a fixture)
)
from places import VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")


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
    # Held by an unreachable cycle, and by a holder that is not a Python variable.
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
