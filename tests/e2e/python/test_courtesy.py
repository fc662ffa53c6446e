# SPDX-License-Identifier: Apache-2.0
"""Courtesy on CPU tensors: the same algorithm as on a GPU, whose tensors a program must not find changed."""
from __future__ import annotations

import package
import pytest
import warm_torch
from places import VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

HEAD = """
import gc, os, sys, warnings, weakref
import torch
torch.set_num_threads(1)
from vramscope import Courtesy, MemReporter, _courtesy, _tensors
def courtesy(**more): return Courtesy(device_type="cpu", **more)
def size(t): return t.untyped_storage().nbytes()
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    environment = package.make(tmp_path_factory.mktemp("package"))
    process = warm_torch.Warm(environment, tmp_path_factory.mktemp("programs"))

    def run_program(code: str, status: int = 0) -> str:
        done = process.run(HEAD + code)
        assert done.returncode == status, done.stderr
        return done.stdout if status == 0 else done.stderr

    yield run_program
    process.close()


def test_a_training_does_not_notice(run):
    """Between forward and backward, where only autograd has the activations; and between the steps."""
    run("""
def train(yields):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.ReLU(), torch.nn.Linear(400, 10))
    net[2].bias.requires_grad_(False)  # a parameter without a gradient
    optimizer = torch.optim.Adam(net.parameters())
    losses = []
    for step in range(4):
        hidden = net[0](torch.randn(32, 300))
        view = hidden[:, :5]
        loss = (net[2](net[1](hidden)) ** 2).mean() + view.sum()
        del hidden
        if yields:
            versions = [view._version, loss._version] + [p._version for p in net.parameters()]
            one = courtesy()
            moved = one.yield_memory()
            assert moved == one.bytes_away > 4 * 300 * 400
            assert size(net[0].weight) == size(view) == size(loss) == 0
            rows = {r.name: r for r in MemReporter(net).snapshot().rows}
            assert rows["0.weight"].bytes == 0 and rows["0.weight"].shape == (400, 300)
            there = _tensors.live(torch)
            assert all(size(s.tensor) == 0 for s in _tensors.saved_by_autograd(torch, there))
            del there
            one.restore()
            assert one.bytes_away == 0 and not _courtesy._holding
            assert versions == [view._version, loss._version] + [p._version for p in net.parameters()]
            assert view._base is None or view.untyped_storage().data_ptr() == view._base.untyped_storage().data_ptr()
        loss.backward()
        if yields:
            with courtesy(), courtesy():
                assert size(net[0].weight.grad) == 0
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().clone())
        del view, loss
    return losses + [p.detach().clone() for p in net.parameters()]
plain, yielding = train(False), train(True)
assert all(torch.equal(a, b) for a, b in zip(plain, yielding))
""")


def test_levels(run):
    run("""
early = torch.arange(1000.0)
one = courtesy()
with one:
    late = torch.arange(500.0)
    with one:
        assert size(early) == size(late) == 0
    assert size(early) == 0 and size(late) == 2000 and torch.equal(late, torch.arange(500.0))
assert torch.equal(early, torch.arange(1000.0))
# As old programs call it: twice away, once back.
one.yield_memory(); assert one.yield_memory() == 0
one.restore(); one.restore()
assert torch.equal(early, torch.arange(1000.0)) and one.bytes_away == 0
# Moved away by one and back by another that moved less: each restores its own.
first, second = courtesy(), courtesy()
first.yield_memory()
third = torch.ones(10)
second.yield_memory()
second.restore()
assert size(third) == 40 and size(early) == 0
first.restore()
assert torch.equal(early, torch.arange(1000.0))
try:
    with courtesy():
        raise KeyError("mine")
except KeyError:
    pass
assert torch.equal(early, torch.arange(1000.0))
""")


def test_what_is_dropped_meanwhile_is_gone(run):
    run("""
keep, drop = torch.arange(10.0), torch.ones(1000)
watch = weakref.ref(drop)
one = courtesy()
one.yield_memory()
del drop
gc.collect()
assert watch() is None
one.restore()
assert torch.equal(keep, torch.arange(10.0))
# A deleted Courtesy still keeps the moved memory.
courtesy().yield_memory()
gc.collect()
(lost,) = _courtesy._holding
lost.restore()
assert torch.equal(keep, torch.arange(10.0))
""")


def test_what_cannot_be_moved_is_refused_before_anything_is(run):
    out = run("""
import numpy
ours, foreign = torch.arange(100.0), torch.from_numpy(numpy.ones(50))
one = courtesy()
try:
    one.yield_memory()
except RuntimeError as error:
    print(error)
assert size(ours) == 400 and one.bytes_away == 0
try:
    one.__enter__()
except RuntimeError:
    pass
one.restore()
assert one.yield_memory(partial=True) >= 400 and size(ours) == 0 and foreign.sum() == 50
one.restore()
with courtesy(partial=True):
    assert size(ours) == 0
assert torch.equal(ours, torch.arange(100.0))
del foreign
shared = torch.ones(8).share_memory_()
try: one.yield_memory()
except RuntimeError as error: print(error)
""")
    first, second = out.splitlines()
    assert first == (
        "vramscope: 400.00B cannot be moved, so nothing was: 400.00B (1x) memory that its storage does not own "
        "(NumPy, DLPack, from_blob); Courtesy(partial=True) moves the rest"
    )
    assert "32.00B (1x) shared with another process" in second


def test_blocks_that_no_tensor_explains_are_refused(run):
    """The books of a GPU's allocator, beside storages of the CPU."""
    out = run("""
from vramscope import _torch_blocks
def cache_of(storages, extra, **more):
    cache = _torch_blocks.Cache(0)
    for s in storages:
        cache.blocks.append(_torch_blocks.Block(s.data_ptr(), -(-s.nbytes() // 512) * 512, s.nbytes(), 7, False, False, ""))
    cache.blocks += extra
    for name, value in more.items(): setattr(cache, name, value)
    return cache
class OnGpu:
    def __init__(self, storage): self.storage, self.device = storage, torch.device("cuda:0")
    def __getattr__(self, name): return getattr(self.storage, name)
def block(address, size, private=False, pending=False, line=""):
    return _torch_blocks.Block(address, size, size, 0, private, pending, line)
a, b = torch.ones(1000).untyped_storage(), torch.ones(10).untyped_storage()
one = Courtesy()
def sort(*extra, storages=(a, b), **more):
    _torch_blocks.caches = lambda torch: {0: cache_of([a, b], list(extra), **more)}
    return one._sort(torch, {s._cdata: OnGpu(s) for s in storages})
movable, obstacles = sort()
assert not obstacles and [(device, stream) for _, device, stream in movable] == [(0, 7), (0, 7)]
assert movable[-1][0].nbytes() == 4000, "the largest last: it comes back first"
assert not sort(block(64, 512, pending=True))[1]
movable, obstacles = sort(block(64, 32 << 20), block(1 << 30, 2 << 20, private=True, line="train.py:1 in step"))
assert len(movable) == 2
print(_courtesy._refusal(obstacles))
c = torch.ones(77).untyped_storage()
print([o.reason for o in sort(storages=(a, b, c))[1]])
print([o.reason for o in sort(block(b.data_ptr() - 64, 4096, private=True), storages=(a,))[1]])
print([(o.bytes, o.reason) for o in sort(complete=False, allocated=5000)[1]])
print([o.reason for o in sort(storages=(a,))[1]])
""")
    refusal, foreign, private, unknown, unnamed = out.splitlines()
    assert refusal == (
        "vramscope: 34.00M cannot be moved, so nothing was: 32.00M (1x) a block of PyTorch's allocator that no tensor "
        "explains; 2.00M (1x) a block of a CUDA graph or memory pool that no tensor explains, train.py:1 in step; "
        "Courtesy(partial=True) moves the rest"
    )
    assert foreign == "[\"memory that is not PyTorch's (CuPy, DLPack, another process)\"]"
    assert "a block of a CUDA graph or memory pool that no tensor explains" in private
    assert unknown.startswith("[(960, ")
    assert unnamed == "[\"a block of PyTorch's allocator that no tensor explains\"]"


def test_an_error_in_the_middle_leaves_everything_as_it_was(run):
    out = run("""
tensors = [torch.arange(float(n)) for n in (1000, 2000, 3000)]
def whole(): return all(torch.equal(t, torch.arange(float(len(t)))) for t in tensors)
one = courtesy()

# While bytes go out: nothing has changed.
real = _courtesy._Carrier.out
count = []
def fails(self, source, host):
    count.append(1)
    if len(count) == 2: raise MemoryError("host")
    real(self, source, host)
_courtesy._Carrier.out = fails
try: one.yield_memory()
except MemoryError: pass
_courtesy._Carrier.out = real
assert whole() and one.bytes_away == 0

# While storages are emptied.
real_sort = Courtesy._sort
class Stubborn:
    def __init__(self, storage): self.storage = storage
    def __getattr__(self, name): return getattr(self.storage, name)
    def resize_(self, n): raise RuntimeError("stubborn")
def sort(self, torch, storages):
    movable, obstacles = real_sort(self, torch, storages)
    movable[-1] = (Stubborn(movable[-1][0]), *movable[-1][1:])
    return movable, obstacles
Courtesy._sort = sort
real_bytes = _courtesy._bytes_of
_courtesy._bytes_of = lambda torch, s, *more: real_bytes(torch, getattr(s, "storage", s), *more)
try: one.yield_memory()
except RuntimeError as error: print(error)
Courtesy._sort = real_sort
assert whole() and one.bytes_away == 0

# No room when it comes back: the rest waits.
one.yield_memory()
class Full(torch.UntypedStorage): pass
weak = torch.UntypedStorage._new_with_weak_ptr
class NoRoom:
    def __init__(self, storage): self.storage = storage
    def __getattr__(self, name): return getattr(self.storage, name)
    def resize_(self, n):
        if n < 9000: raise RuntimeError("CUDA out of memory")
        self.storage.resize_(n)
torch.UntypedStorage._new_with_weak_ptr = staticmethod(lambda cdata: NoRoom(weak(cdata)))
try: one.restore()
except RuntimeError as error: print(error)
torch.UntypedStorage._new_with_weak_ptr = weak
assert torch.equal(tensors[2], torch.arange(3000.0)) and size(tensors[0]) == 0
one.restore()
assert whole()

# No room on the host.
_courtesy._host_room = lambda: 5000
try: one.yield_memory()
except MemoryError as error: print(error)
assert whole()
""")
    stubborn, full, host = out.splitlines()
    assert stubborn == "stubborn"
    assert full.startswith("vramscope: cpu:0 is full: ") and full.endswith("free memory on the device and call restore() again")
    assert "do not fit into host memory, which has 4.88K free; no memory was moved" in host


def test_the_limits_of_control_groups(run, tmp_path):
    """Of both versions, and of the groups above: a job's limit is rarely that of its innermost group."""

    def write(path: str, text: str) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    out = f"print(_courtesy._free_of_groups({str(tmp_path)!r}))"
    write("proc/self/cgroup", "1:cpu:/\n0::/slurm/job_7/step_0\n")
    write("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n")
    write("sys/fs/cgroup/slurm/job_7/step_0/memory.current", "100\n")
    assert run(out) == "None\n"
    write("sys/fs/cgroup/slurm/job_7/memory.max", "1000\n")
    write("sys/fs/cgroup/slurm/job_7/memory.current", "700\n")
    write("sys/fs/cgroup/slurm/job_7/memory.stat", "file 400\ninactive_file 250\nactive_file 150\n")
    assert run(out) == "550\n"
    # Version 1, in a container that shows only its own group.
    write("proc/self/cgroup", "5:cpuset,memory:/docker/abc\n4:pids:/docker/abc\n")
    write("sys/fs/cgroup/memory/memory.limit_in_bytes", "900\n")
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "800\n")
    write("sys/fs/cgroup/memory/memory.stat", "total_inactive_file 50\n")
    assert run(out) == "150\n"
    write("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n")
    assert run(out) == "0\n"


def test_chunks_through_two_buffers(run):
    """The pipeline of a GPU: a buffer is used again only after its bytes have been stored."""
    run("""
import contextlib, types
class Event:
    def record(self): self.recorded = True
    def synchronize(self): assert self.recorded
fake = types.SimpleNamespace(cuda=types.SimpleNamespace(Event=Event, device=lambda d: contextlib.nullcontext()))
_courtesy._CHUNK = 1000
with _courtesy._Progress("", 0) as progress:
    carrier = _courtesy._Carrier(fake, "cpu", progress)
    carrier._buffers = [torch.empty(1000, dtype=torch.uint8) for _ in range(2)]
    sources = [torch.randint(256, (n,), dtype=torch.uint8) for n in (1, 999, 1000, 1001, 2000, 7777, 5)]
    hosts = [torch.zeros_like(s) for s in sources]
    for source, host in zip(sources, hosts): carrier.out(source, host)
    assert not torch.equal(hosts[-1], sources[-1]), "the last one still travels"
    carrier.flush()
    assert all(torch.equal(a, b) for a, b in zip(sources, hosts))
    back = [torch.zeros_like(s) for s in sources]
    for host, target in zip(hosts, back):
        carrier.back(host, target)
        assert torch.equal(host, target)
    assert progress._done == 2 * sum(len(s) for s in sources)
""")


def test_without_a_gpu_it_warns_and_does_nothing(run):
    out = run("""
kept = torch.arange(10.0)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    assert Courtesy().yield_memory() == 0
    with Courtesy() as one:
        assert one.bytes_away == 0 and size(kept) == 40
    one.restore()
for one in said: print(one.filename == __file__, one.category.__name__, one.message)
""")
    assert out.splitlines() == [
        "True RuntimeWarning vramscope: Courtesy does nothing: PyTorch finds no GPU"
    ] * 2


def test_errors_are_one_line(run):
    for code, said in (
        ("Courtesy(device_type='tpu')", "ValueError: vramscope: Courtesy moves 'cuda' or 'cpu' tensors, not 'tpu'"),
        (
            "t = torch.ones(3, requires_grad=True)\nt.register_hook(lambda g: courtesy().yield_memory())\n"
            "t.sum().backward()",
            "RuntimeError: vramscope: yield_memory() cannot run inside a backward pass",
        ),
    ):
        error = run(code, status=1)
        assert error.splitlines()[-1].startswith(said), error


def test_progress_is_for_terminals(run):
    run("""
import io
class Terminal(io.StringIO):
    def isatty(self): return True
clock = [0.0]
_courtesy.time = type("Clock", (), {"monotonic": staticmethod(lambda: clock[0])})
for stream, expected in ((Terminal(), "\\rvramscope: 3.00K of 4.00K to the host\\x1b[K\\r\\x1b[K"), (io.StringIO(), "")):
    sys.stderr = stream
    clock[0] = 0.0
    with _courtesy._Progress("to the host", 4096) as progress:
        progress.add(1024)
        clock[0] = 2.0
        progress.add(2048)
    sys.stderr = sys.__stderr__
    assert stream.getvalue() == expected, stream.getvalue()
""")
