# SPDX-License-Identifier: Apache-2.0
"""`vramscope dump --holders`: what keeps the tensors of a running program alive."""
from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import VRAMSCOPE
from test_attach import running, vramscope

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")

# Ten leaks, each of the given KiB, and a function that waits with one more tensor. With `torch` and
# `tensor(KiB)` from the lines before.
LEAKS = """
import functools, gc, select, sys, threading
losses = [tensor(1) for _ in range(1000)]
def make():
    captured = tensor(2000)
    def handler():
        return captured
    return handler
handler = make()
@functools.lru_cache(maxsize=None)
def features(number):
    return tensor(3000)
features(1)
def fail():
    activation = tensor(4000)
    raise ValueError("x")
try:
    fail()
except ValueError as e:
    error = e
class Model:
    def __init__(self):
        self._forward_hooks = {}
model = Model()
def watch(model):
    seen = [tensor(5000)]
    def hook(module, arguments, result):
        seen.append(result)
    model._forward_hooks[0] = hook
watch(model)
weights = tensor(6000)
local, ready, stop = threading.local(), threading.Event(), threading.Event()
def worker():
    local.buffer = tensor(7000)
    ready.set()
    stop.wait()
thread = threading.Thread(target=worker)
thread.start()
ready.wait()
def numbers():
    held = tensor(8000)
    yield 1
    yield held
generator = numbers()
next(generator)
class Cache:
    last = tensor(9000)
things = (losses, handler, features, error, model, weights, local, generator, Cache)
def counts():
    return [sys.getrefcount(thing) for thing in things] + [sys.getrefcount(losses[7]), sys.getrefcount(Cache.last)]
def run():
    mine = tensor(10000)
    before = counts()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        step()
    print("same counts" if counts() == before else (before, counts()))
"""

TORCH = """
import hashlib, torch
torch.set_num_threads(1)
def tensor(kib): return torch.ones(kib * 256)
"""
TORCH_STEPS = """
torch.manual_seed(0)
scale = torch.ones(1, requires_grad=True)
def graph():
    saved = tensor(11000)
    return (saved * scale).sum()
total = graph()
def train():
    layer = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(layer.parameters())
    while True:
        loss = layer(torch.randn(8, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        yield loss.item()
def results():
    torch.manual_seed(0)
    digest = hashlib.sha256()
    for number, loss in enumerate(train()):
        digest.update(repr(loss).encode())
        yield number, digest.hexdigest()
observed, last = results(), None
def step():
    global last
    last = next(observed)
run()
print("same results" if next(found for found in results() if found[0] == last[0]) == last else "others")
stop.set()
"""
STAND_IN = """
import sys, types
class Tensor:
    __slots__ = "size",
    def __init__(self, size): self.size = size
torch = types.ModuleType("torch")
torch._vramscope_sized = [Tensor, Tensor.size.__get__]
sys.modules["torch"] = torch
def tensor(kib): return Tensor(kib << 10)
def step(): pass
"""

PLANTED = {
    1000: ("global", r"__main__\.losses\[\*\]"),
    2000: ("closure", r"__main__\.handler closure 'captured'"),
    3000: ("lru_cache", r"__main__\.features lru_cache"),
    4000: ("exception traceback", r"__main__\.error\.__traceback__ <string>:\d+ fail\(\) local 'activation'"),
    5000: ("hook", r"__main__\.model\._forward_hooks\[0\] closure 'seen'\[0\]"),
    6000: ("global", r"__main__\.weights"),
    7000: ("thread local", r"__main__\.local\.buffer"),
    8000: ("generator", r"__main__\.generator generator numbers\(\) local 'held'"),
    9000: ("class attribute", r"__main__\.Cache\.last"),
    10000: ("local", r"<string>:\d+ run\(\) local 'mine'"),
}
GRAPH = {11000: ("autograd graph", r"__main__\.total autograd graph \(MulBackward0\.\w+\)")}


def check(found: dict, planted: dict[int, tuple[str, str]]) -> None:
    groups = {group["bytes"] >> 10: group for group in found["groups"] if group["bytes"] >= 1 << 20 or group["tensors"] > 1}
    for kib, (kind, way) in planted.items():
        group = groups.get(kib)
        assert group is not None, (kib, found)
        assert group["kind"] == kind and re.fullmatch(way, group["way"]), group
        assert 0 <= group["root_bytes"] - group["bytes"] < 64, group  # the graph's own result
    assert groups[1000]["tensors"] == 1000
    assert found["complete"] and found["tensors_left"] == 0


def test_ten_leaks_are_found_and_nothing_changes(tmp_path):
    pytest.importorskip("torch")
    with running(TORCH + LEAKS + TORCH_STEPS) as process:
        for _ in range(3):
            done = vramscope("dump", process.pid, "--cpu", "--holders", "20", "--walk", "60s", "--json", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            check(json.loads(done.stdout)["holders"], {**PLANTED, **GRAPH})
        text = vramscope("dump", process.pid, "--cpu", "--holders", "2", "--walk", "60s", cwd=tmp_path).stdout
        output, errors = process.communicate("\n", timeout=120)
    assert output == "same counts\nsame results\n" and errors == ""
    table = text.split("\nHolders of ")[1].splitlines()
    assert max(map(len, table)) <= 80 and len([line for line in table if "(other ways)" in line]) == 1
    assert any("autograd graph" in line for line in table)
    assert list(tmp_path.iterdir()) == []


def interpreters() -> dict[str, str]:
    found: dict[str, str] = {}
    for python in [sys.executable, *map(str, sorted(Path.home().glob(".pyenv/versions/3.*/bin/python")))]:
        asked = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2])"], capture_output=True, text=True, timeout=60
        )
        if asked.returncode == 0 and tuple(map(int, asked.stdout.split())) >= (3, 9):
            found[asked.stdout.strip().replace(" ", ".")] = python
    return found


@pytest.mark.parametrize("version", interpreters())
def test_every_python(tmp_path, version):
    """Without PyTorch, where objects of a class of the program's count as tensors."""
    with running(STAND_IN + LEAKS + "run()\nstop.set()\n", python=interpreters()[version]) as process:
        for _ in range(2):
            done = vramscope("dump", process.pid, "--holders", "20", "--walk", "60s", "--json", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            check(json.loads(done.stdout)["holders"], PLANTED)
        assert process.communicate("\n", timeout=120) == ("same counts\n", "")


OTHERS = """
cycle = [tensor(2000)]
cycle.append(cycle)
del cycle
gc.collect = None
gc.disable()
many = {number: [str(number)] for number in range(int(sys.argv[1]))}
class Strange:
    def __getattribute__(self, name): raise SystemExit(name)
    def __eq__(self, other): raise SystemExit("eq")
    def __hash__(self): return 1
    def __repr__(self): raise SystemExit("repr")
    def __len__(self): raise SystemExit("len")
    __bool__ = __len__
class Meta(type):
    def __getattribute__(self, name): raise SystemExit(name)
    def __instancecheck__(self, other): raise SystemExit("check")
    def __subclasscheck__(self, other): raise SystemExit("check")
class Odd(metaclass=Meta): pass
strange = Strange()
object.__setattr__(strange, "kept", tensor(3000))
keyed = {strange: tensor(4000)}
type.__setattr__(Odd, "kept", tensor(5000))
"""


def test_cycles_and_strange_classes(tmp_path):
    with running(STAND_IN + LEAKS + OTHERS + "run()\nstop.set()\n", "10") as process:
        done = vramscope("dump", process.pid, "--holders", "20", "--walk", "60s", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        output, errors = process.communicate("\n", timeout=120)
    assert (output, errors, process.returncode) == ("same counts\n", "", 0)
    found = json.loads(done.stdout)["holders"]
    ways = {group["way"]: group for group in found["groups"]}
    assert "__main__.keyed[<Strange>]" in ways and "__main__.strange.kept" in ways and "__main__.Odd.kept" in ways
    (garbage,) = [group for group in found["groups"] if group["kind"] == "garbage"]
    assert garbage["bytes"] == 2000 << 10 and garbage["root_bytes"] is None


def test_the_time_limit(tmp_path):
    with running(STAND_IN + LEAKS + OTHERS + "run()\nstop.set()\n", "300000") as process:
        done = vramscope("dump", process.pid, "--holders", "--walk", "1ms", "--json", cwd=tmp_path)
        text = vramscope("dump", process.pid, "--holders", "--walk", "1ms", cwd=tmp_path).stdout
        bad = vramscope("dump", process.pid, "--holders", "--walk", "1", cwd=tmp_path)
        assert process.communicate("\n", timeout=120)[0] == "same counts\n"
    found = json.loads(done.stdout)["holders"]
    assert not found["complete"] and found["objects_seen"] < found["objects"]
    assert 0 < found["tensors_left"] <= found["tensors"] and found["bytes_left"] > 0
    assert "(not reached in time)" in text
    assert bad.returncode == 2 and "--walk" in bad.stderr and list(tmp_path.iterdir()) == []


def test_without_leaks_and_without_tensors(tmp_path):
    pytest.importorskip("torch")
    trained = """
import select, sys, torch
model = torch.nn.Linear(300, 300)
optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)
model(torch.ones(300)).sum().backward()
optimizer.step()
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.01)[0]: pass
"""
    with running(trained) as process:
        found = json.loads(
            vramscope("dump", process.pid, "--cpu", "--holders", "--walk", "60s", "--json", cwd=tmp_path).stdout
        )["holders"]
        process.communicate("\n", timeout=60)
    large = [group for group in found["groups"] if group["bytes"] >= 300 * 300 * 4]
    assert sorted(group["way"] for group in large) == [
        "__main__.model.weight",
        "__main__.model.weight.grad",
        "__main__.optimizer.state[*]['momentum_buffer']",
    ]
    code = "import sys, select\nprint('ready', flush=True)\nwhile not select.select([sys.stdin], [], [], 0.01)[0]: pass\n"
    with running(code) as process:
        done = vramscope("dump", process.pid, "--holders", cwd=tmp_path)
        process.communicate("\n", timeout=60)
    assert done.returncode == 0 and "No tensor is alive there." in done.stdout
