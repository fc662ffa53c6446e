# SPDX-License-Identifier: Apache-2.0
"""Names out of PyTorch programs that know nothing of vramscope: whether they are true, and whether
the program can tell that they were taken. Programs run on the CPU, plain and with the probe."""
from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("VRAMSCOPE_BUILD", ROOT / "build"))
PROBE = BUILD / "lib" / "libvramscope_probe.so"
DUMP = BUILD / "bin" / "vramscope_dump"

pytestmark = pytest.mark.skipif(not (PROBE.exists() and DUMP.exists()), reason="the probe is not built")

PARAMETER, GRADIENT, BUFFER, STATE = 1, 2, 3, 4


class Process:
    """What one process recorded."""

    def __init__(self, records: list[dict]) -> None:
        self.records = records
        self.notes = {r["key"]: r["value"] for r in self.of("Runtime")}
        self.gone = [r["object"] for r in self.of("ModuleGone")]
        # address of a module -> (path, class, address of its root), the last word counting
        self.modules = {r["object"]: (r["path"] or "", r["type"], r["root"]) for r in self.of("Module")}
        self._stacks = {(r["stream"], r["id"]): r for r in self.of("PyStack")}

    def of(self, *kinds: str) -> list[dict]:
        return [r for r in self.records if r["record"] in kinds]

    def names(self, kind: int) -> set[tuple]:
        """(name, address, bytes) or, of optimizer state, (name, state, address, bytes)."""
        found = [r for r in self.of("Name") if r["kind"] == kind]
        if kind == STATE:
            return {(r["name"], r["detail"], r["address"], r["size"]) for r in found}
        return {(self._in_whole(r), r["address"], r["size"]) for r in found}

    def _in_whole(self, name: dict) -> str:
        """While a model is built, slowly, its parts can have names as roots of their own."""
        path, _, root = self.modules.get(name["owner"], ("", "", name["owner"]))
        return name["name"] if root == name["owner"] else ".".join(filter(None, (path, name["name"])))

    def objects(self, event: dict) -> list[int]:
        """Addresses of the modules that ran, the outermost first."""
        found, stack = [], self._stacks.get((event["stream"], event["stack"]))
        while stack is not None:
            if stack["object"]:
                found.insert(0, stack["object"])
            stack = self._stacks.get((event["stream"], stack["parent"]))
        return found

    def paths(self, event: dict) -> list[str]:
        return [self.modules[address][0] for address in self.objects(event)]

    def allocs(self, size: int) -> list[dict]:
        return [r for r in self.of("BlockAlloc") if r["size"] == size]


def program(text: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(text)]


def plain(command: list[str], **more) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=300, **more)


def recorded(command: list[str], directory: Path, options: str = "cpu") -> tuple[subprocess.CompletedProcess, list[Process]]:
    """The program's outcome with the probe, and its processes, the one that recorded most first."""
    environment = {**os.environ, "LD_PRELOAD": str(PROBE), "VRAMSCOPE_DIR": str(directory), "VRAMSCOPE_OPTIONS": options}
    done = plain(command, env=environment)
    processes = []
    for path in directory.glob("*.vrl"):
        dump = subprocess.run([str(DUMP), str(path)], capture_output=True, text=True, check=True)
        processes.append(Process([json.loads(line) for line in dump.stdout.splitlines()]))
    return done, sorted(processes, key=lambda process: -len(process.records))


def record(text: str, directory: Path, options: str = "cpu") -> tuple[dict, Process]:
    """Of a program that prints one JSON object and nothing else: the object, and what was recorded."""
    done, processes = recorded(program(text), directory, options)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout), processes[0]


def same_with_and_without(text: str, directory: Path) -> tuple[str, Process]:
    command = program(text)
    without = plain(command)
    done, processes = recorded(command, directory)
    assert without.returncode == 0, without.stderr
    assert (done.returncode, done.stdout) == (without.returncode, without.stdout)
    assert without_stamps(done.stderr) == without_stamps(without.stderr)
    return done.stdout, processes[0]


def without_stamps(log: str) -> str:
    """PyTorch's own warnings, without the time and the process that they begin with."""
    return re.sub(r"^([A-Z])\d{4} [\d:.]+ \d+ ", r"\1 ", log, flags=re.MULTILINE)


# ---- the names are true -----------------------------------------------------------------------------

MANY = """
    import json, torch
    from torch import nn
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    def place(tensor):
        storage = tensor.untyped_storage()
        return [storage.data_ptr(), storage.nbytes()]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(16, 16)
            self.register_buffer("scale", torch.ones(16))
        def forward(self, x):
            self.extra = torch.empty(12345)
            return self.fc(x) * self.scale

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = nn.Embedding(11, 16)
            self.blocks = nn.ModuleList([Block(), Block()])
            self.rnn = nn.LSTM(16, 16)
            self.head = nn.Linear(16, 11, bias=False)
            self.head.weight = self.wte.weight
            self.unused = nn.Linear(3, 3)
        def forward(self, x):
            x = self.wte(x)
            for block in self.blocks:
                x = block(x)
            x, _ = self.rnn(x)
            return self.head(x)

    class Helper(nn.Module):
        def forward(self, x):
            return x + torch.zeros(54321).sum()

    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(16, 16)
            self.helpers = [Helper()]
        def forward(self, x):
            return self.helpers[0](self.first(x))

    torch.manual_seed(0)
    model, other = Tied(), Listed()
    free = torch.zeros(77, requires_grad=True)
    first = torch.optim.Adam(model.parameters())
    second = torch.optim.SGD([{"params": other.parameters()}, {"params": [free]}], lr=0.1, momentum=0.9)
    gradients = {}
    for i in range(5):
        first.zero_grad()
        second.zero_grad()
        loss = model(torch.randint(11, (4, 5))).square().mean() + other(torch.randn(4, 16)).mean() + free.sum()
        loss.backward()
        for name, parameter in [*model.named_parameters(), *other.named_parameters(), ("param_groups.1.0", free)]:
            if parameter.grad is not None:
                gradients.setdefault(name, []).append(place(parameter.grad))
        first.step()
        second.step()

    wrapped = nn.Sequential(checkpoint_wrapper(nn.Linear(16, 16)), nn.DataParallel(nn.Linear(16, 16)))
    compiled = torch.compile(wrapped, backend="eager")
    inner = [wrapped[0]._checkpoint_wrapped_module, wrapped[1].module]
    nn.DataParallel(wrapped)(torch.randn(2, 16))

    names = {id(p): n for m in (model, other) for n, p in m.named_parameters()}
    names[id(free)] = "param_groups.1.0"
    print(json.dumps({
        "roots": [id(model), id(other), id(wrapped)],
        "modules": {id(m): n for root in (model, other) for n, m in root.named_modules()},
        "helper": id(other.helpers[0]),
        "wrapped": [id(wrapped), id(inner[0]), id(inner[1])],
        "parameters": [[n, *place(p)] for m in (model, other) for n, p in m.named_parameters(remove_duplicate=False)],
        "buffers": [[n, *place(b)] for n, b in model.named_buffers()],
        "free": place(free),
        "gradients": gradients,
        "state": [[names[id(p)], key, *place(value)] for o in (first, second)
                  for p, state in o.state.items() for key, value in state.items() if isinstance(value, torch.Tensor)],
        "optimizers": [[id(first), "Adam"], [id(second), "SGD"]],
    }))
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> tuple[dict, Process]:
    return record(MANY, tmp_path_factory.mktemp("many"))


def tuples(rows: list[list]) -> set[tuple]:
    return {tuple(row) for row in rows}


def test_the_layouts_are_verified(many):
    _, process = many
    assert {key: process.notes.get(key) for key in ("module names", "tensor names", "autograd nodes")} == {
        "module names": "verified against the interpreter",
        "tensor names": "verified against PyTorch",
        "autograd nodes": "verified against PyTorch",
    }


def test_every_module_has_its_path(many):
    said, process = many
    assert {int(a): p for a, p in said["modules"].items()}.items() <= {a: m[0] for a, m in process.modules.items()}.items()
    model, other, _ = said["roots"]
    assert process.modules[model] == ("", "Tied", model)
    assert process.modules[other] == ("", "Listed", other)


def test_a_module_in_a_plain_list_is_named_below_its_caller(many):
    said, process = many
    assert process.modules[said["helper"]] == ("Helper", "Helper", said["roots"][1])


def test_wrappers_are_no_part_of_a_path(many):
    said, process = many
    root, checkpointed, parallel = said["wrapped"]
    assert [process.modules[a] for a in said["wrapped"]] == [
        ("", "Sequential", root), ("0", "Linear", root), ("1", "Linear", root)]


def test_allocations_carry_the_modules_that_run(many):
    _, process = many
    assert {tuple(process.paths(event)) for event in process.allocs(12345 * 4)} == {
        ("", "blocks.0"), ("", "blocks.1")}
    assert {tuple(process.paths(event)) for event in process.allocs(54321 * 4)} == {("", "Helper")}


def test_the_path_goes_down_to_the_layer(many):
    _, process = many
    seen = {tuple(process.paths(e)) for e in process.of("BlockAlloc") if set(process.objects(e)) <= set(process.modules)}
    assert {("", "wte"), ("", "blocks.1", "blocks.1.fc"), ("", "rnn"), ("", "head"), ("", "first")} <= seen


def test_parameters_and_buffers_have_their_names_and_places(many):
    said, process = many
    found = process.names(PARAMETER)
    assert tuples(said["parameters"]) <= found
    assert ("param_groups.1.0", *said["free"]) in found, "one that no module has is named by its optimizer"
    assert tuples(said["buffers"]) == process.names(BUFFER)


def test_tied_weights_have_both_names(many):
    said, process = many
    places = {name: place for name, *place in process.names(PARAMETER)}
    assert places["wte.weight"] == places["head.weight"]


def test_gradients_are_named_in_each_step(many):
    said, process = many
    expected = {(name, *place) for name, places in said["gradients"].items() for place in places}
    assert expected and process.names(GRADIENT) == expected
    steps = sum(1 for r in process.of("Name") if r["kind"] == GRADIENT and r["name"] == "wte.weight")
    assert steps == 5


def test_optimizer_state_is_named_by_its_parameter(many):
    said, process = many
    assert tuples(said["state"]) <= process.names(STATE)
    assert {"exp_avg", "exp_avg_sq", "step", "momentum_buffer"} == {detail for _, detail, _, _ in process.names(STATE)}


def test_names_belong_to_the_root_of_their_model(many):
    said, process = many
    owners = {r["name"]: r["owner"] for r in process.of("Name")}
    model, other, _ = said["roots"]
    assert owners["rnn.weight_ih_l0"] == model
    assert owners["first.weight"] == other
    assert owners["param_groups.1.0"] == 0


def test_steps_begin_and_end(many):
    said, process = many
    steps = [(r["kind"], r["optimizer"], r["name"]) for r in process.of("Step")]
    assert steps == 5 * [(kind, *optimizer) for optimizer in said["optimizers"] for kind in (0, 1)]


def test_names_lie_inside_the_step(many):
    _, process = many
    inside = False
    for r in process.records:
        if r["record"] == "Step":
            inside = r["kind"] == 0
        elif r["record"] == "Name" and r["kind"] in (GRADIENT, STATE):
            assert inside


def test_backward_is_joined_to_forward(tmp_path):
    said, process = record(
        """
        import json, torch
        x = torch.ones(1000, requires_grad=True)
        torch.empty(1)
        y = x.exp()
        n = y.grad_fn._sequence_nr()
        z = torch.cat([y, x])
        m = z.grad_fn._sequence_nr()
        z.backward(torch.ones(2000))
        print(json.dumps({"exp": n, "cat": m}))
        """,
        tmp_path,
    )
    allocs = [r["sequence"] for r in process.allocs(4000)]
    # An operator makes its node first and its output then, when the thread's next number is one more.
    assert 2 * (said["exp"] + 1) + 1 in allocs, "the output of exp"
    assert 2 * said["exp"] + 2 in allocs, "in exp's backward"
    assert 2 * said["cat"] + 2 not in allocs, "cat's backward makes views"
    assert process.allocs(8000)[0]["sequence"] == 2 * (said["cat"] + 1) + 1


def test_modules_replaced_during_training(tmp_path):
    said, process = record(
        """
        import gc, json, torch
        from torch import nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body, self.head = nn.Linear(16, 16), nn.Linear(16, 4)
            def forward(self, x):
                return self.head(torch.relu(self.body(x)))

        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        def train():
            for i in range(3):
                optimizer.zero_grad()
                model(torch.randn(2, 16)).sum().backward()
                optimizer.step()
        train()
        old = id(model.head)
        model.head = None
        gc.collect()
        keep = [nn.Linear(1, 1) for i in range(3)]
        model.head = nn.Sequential(nn.Linear(16, 32), nn.Linear(32, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train()
        model.body.weight = nn.Parameter(torch.randn(16, 16))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train()
        print(json.dumps({
            "old": old, "modules": {id(m): n for n, m in model.named_modules()},
            "parameters": [[n, p.data_ptr(), p.untyped_storage().nbytes()] for n, p in model.named_parameters()],
        }))
        """,
        tmp_path,
    )
    assert said["old"] in process.gone
    assert {int(a): p for a, p in said["modules"].items()}.items() <= {a: m[0] for a, m in process.modules.items()}.items()
    assert tuples(said["parameters"]) <= process.names(PARAMETER)


def test_a_thread_that_trains_while_the_main_thread_waits(tmp_path):
    said, process = record(
        """
        import json, threading, torch
        from torch import nn
        said = {}
        def train():
            model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for i in range(3):
                optimizer.zero_grad()
                model(torch.randn(2, 16)).sum().backward()
                optimizer.step()
            said["modules"] = {id(m): n for n, m in model.named_modules()}
            said["parameters"] = [[n, p.data_ptr(), p.untyped_storage().nbytes()] for n, p in model.named_parameters()]
        thread = threading.Thread(target=train)
        thread.start()
        thread.join()
        print(json.dumps(said))
        """,
        tmp_path,
    )
    assert {int(a): p for a, p in said["modules"].items()}.items() <= {a: m[0] for a, m in process.modules.items()}.items()
    assert tuples(said["parameters"]) <= process.names(PARAMETER)


def test_a_forked_child_names_its_own(tmp_path):
    done, processes = recorded(
        program(
            """
            import os, torch
            from torch import nn
            model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
            model(torch.randn(2, 16))
            child = os.fork()
            if child == 0:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                model(torch.randn(2, 16)).sum().backward()
                optimizer.step()
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
            """
        ),
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert len(processes) == 2
    for process in processes:
        assert {path for path, _, _ in process.modules.values()} == {"", "0", "1"}
        assert {name for name, _, _ in process.names(PARAMETER)} == {"0.weight", "0.bias", "1.weight", "1.bias"}
    assert {name for p in processes for name, _, _ in p.names(GRADIENT)} == {"0.weight", "0.bias", "1.weight", "1.bias"}


def test_a_program_without_torch_has_no_agent(tmp_path):
    done, processes = recorded(program("import sys; print(len(sys.modules))"), tmp_path)
    assert done.stdout == plain(program("import sys; print(len(sys.modules))")).stdout
    assert [p for p in processes if "module names" in p.notes] == []


# ---- the program cannot tell ------------------------------------------------------------------------


def test_weights_and_random_numbers_are_bit_identical(tmp_path):
    _, process = same_with_and_without(
        """
        import hashlib, torch
        from torch import nn
        torch.use_deterministic_algorithms(True)
        torch.manual_seed(3)
        torch.set_num_threads(1)
        model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 8))
        optimizer = torch.optim.AdamW(model.parameters())
        for i in range(50):
            optimizer.zero_grad()
            model(torch.randn(16, 64)).square().mean().backward()
            optimizer.step()
        digest = hashlib.sha256()
        for value in [*model.state_dict().values(), torch.get_rng_state()]:
            digest.update(value.numpy().tobytes())
        print(digest.hexdigest())
        """,
        tmp_path,
    )
    assert process.names(STATE)


def test_torch_compile_sees_nothing(tmp_path):
    out, process = same_with_and_without(
        """
        import torch
        from torch import nn
        from torch._dynamo.utils import counters
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        plain = torch.optim.SGD(model.parameters(), lr=0.1)
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        for i in range(5):
            plain.zero_grad()
            compiled(torch.ones(2, 16)).sum().backward()
            plain.step()
        adam = torch.optim.Adam(model.parameters())
        step = torch.compile(lambda: adam.step(), backend="eager")
        for i in range(5):
            adam.zero_grad()
            model(torch.ones(2, 16)).sum().backward()
            step()
        whole = torch.compile(adam.step, backend="eager")
        for i in range(3):
            whole()
        def train(x):
            plain.zero_grad()
            model(x).sum().backward()
            plain.step()
        broken = torch.compile(train, backend="eager")
        for i in range(3):
            broken(torch.ones(2, 16))
        print(dict(counters["stats"]), dict(counters["graph_break"]), dict(counters["frames"]),
              dict(counters["recompiles"]), dict(counters["unimplemented"]))
        """,
        tmp_path,
    )
    assert "'unique_graphs'" in out
    assert {"0", "2"} <= {path for path, _, _ in process.modules.values()}
    assert {name for name, _, _ in process.names(PARAMETER)} == {"0.weight", "0.bias", "2.weight", "2.bias"}


def test_a_mode_sees_only_what_the_program_does(tmp_path):
    _, process = same_with_and_without(
        """
        import torch
        from torch import nn
        from torch.overrides import TorchFunctionMode
        from torch.utils._python_dispatch import TorchDispatchMode
        log = []
        class Functions(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                log.append(str(getattr(func, "__name__", func)))
                return func(*args, **(kwargs or {}))
        class Operators(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                log.append(str(func))
                return func(*args, **(kwargs or {}))
        for mode in (Functions(), Operators()):
            with mode:
                model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
                optimizer = torch.optim.Adam(model.parameters(), foreach=False)
                for i in range(3):
                    optimizer.zero_grad()
                    model(torch.ones(2, 16)).sum().backward()
                    optimizer.step()
        model(torch.ones(2, 16))
        print(len(log), *log)
        """,
        tmp_path,
    )
    assert {"", "0", "1", "2"} <= {path for path, _, _ in process.modules.values()}


def test_a_thread_gets_no_state_for_transforms(tmp_path):
    """Where a thread has one (peek_interpreter_stack makes it), each node of its graph copies it from then on."""
    out, process = same_with_and_without(
        """
        import collections, ctypes, os, torch
        from torch import nn
        library = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so"))
        accessor = library._ZN2at9functorch20functorchTLSAccessorEv
        accessor.restype = ctypes.c_void_p
        has_state = lambda: ctypes.c_void_p.from_address(accessor()).value is not None
        model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(3):
            optimizer.zero_grad()
            model(torch.ones(2, 16)).sum().backward()
            optimizer.step()
        print(has_state())
        torch._C._functorch.peek_interpreter_stack()
        print(has_state())
        later = nn.Sequential(collections.OrderedDict(late=nn.Linear(16, 8)))
        later(torch.vmap(lambda row: row * 2)(torch.ones(2, 16)))
        """,
        tmp_path,
    )
    assert out.split() == ["False", "True"]
    assert {"", "0", "1", "2", "late"} <= {path for path, _, _ in process.modules.values()}


def test_a_default_device_does_not_keep_names_away(tmp_path):
    said, process = record(
        """
        import json, torch
        from torch import nn
        torch.set_default_device("cpu")
        model = nn.Sequential(nn.Linear(16, 16))
        model(torch.ones(2, 16))
        print(json.dumps([[n, p.data_ptr(), p.untyped_storage().nbytes()] for n, p in model.named_parameters()]))
        """,
        tmp_path,
    )
    assert tuples(said) <= process.names(PARAMETER)


def test_nothing_is_kept_alive_or_marked(tmp_path):
    out, process = same_with_and_without(
        """
        import gc, sys, weakref, torch
        from torch import nn
        gc.collect()
        gc.disable()
        model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
        optimizer = torch.optim.Adam(model.parameters())
        for i in range(4):
            optimizer.zero_grad()
            model(torch.ones(2, 16)).sum().backward()
            optimizer.step()
        weight = model[0].weight
        print(weakref.getweakrefcount(weight), sys.getrefcount(weight), sys.getrefcount(optimizer.param_groups))
        torch.utils.swap_tensors(weight, nn.Parameter(torch.zeros(16, 16)))
        print([len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules()], sorted(vars(model[0])))
        dead = [weakref.ref(thing) for thing in (*model.modules(), model[0].weight)]
        gone = weakref.ref(optimizer)
        del weight, model, optimizer
        gc.collect()
        print([ref() for ref in dead], gone())
        """,
        tmp_path,
    )
    assert out.startswith("0 ")
    assert {path for path, _, _ in process.modules.values()} == {"", "0", "1"}
    assert set(process.modules) == set(process.gone)


def test_tracers_do_not_see_the_agent(tmp_path):
    out, process = same_with_and_without(
        """
        import sys
        files = set()
        def trace(frame, event, arg):
            files.add(frame.f_code.co_filename)
            return trace
        import torch
        from torch import nn
        sys.settrace(trace)
        sys.setprofile(lambda frame, event, arg: files.add(frame.f_code.co_filename))
        model = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
        for i in range(3):
            model(torch.ones(2, 16))
        sys.settrace(None)
        sys.setprofile(None)
        print(sorted(file for file in files if "vramscope" in file))
        """,
        tmp_path,
    )
    assert out == "[]\n"
    assert process.modules


def test_exceptions_of_signal_handlers_reach_the_program(tmp_path):
    out, process = same_with_and_without(
        """
        import signal, torch
        from torch import nn
        class Tick(Exception):
            pass
        raised = caught = 0
        def handler(number, frame):
            global raised, armed
            if armed:
                armed = False  # one for each try: another could come on the way to `except`
                raised += 1
                raise Tick
        armed = False
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0007, 0.0007)
        while raised < 100:
            model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(20)])
            try:
                armed = True
                model(torch.ones(2, 4))
                armed = False
            except Tick:
                caught += 1
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(raised - caught)
        """,
        tmp_path,
    )
    assert out == "0\n"
    assert process.modules


def test_data_loader_workers_and_their_parent(tmp_path):
    out, process = same_with_and_without(
        """
        import torch
        from torch import nn
        from torch.utils.data import DataLoader, TensorDataset
        if __name__ == "__main__":
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(16, 4))
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            loader = DataLoader(TensorDataset(torch.randn(32, 16)), batch_size=8, num_workers=2)
            for epoch in range(2):
                for (batch,) in loader:
                    optimizer.zero_grad()
                    model(batch).sum().backward()
                    optimizer.step()
            print(float(model[0].weight.sum()))
        """,
        tmp_path,
    )
    assert {path for path, _, _ in process.modules.values()} == {"", "0"}
    assert len([r for r in process.of("Step") if r["kind"] == 0]) == 8


# ---- frames, in every Python that is at hand, with something that only looks like PyTorch ----------

LOOKALIKE = """
    import ctypes
    import _ctypes


    class nn:
        class Module:
            def __init__(self):
                self.__dict__.update(_modules={}, _parameters={}, _buffers={})

            def _wrapped_call_impl(self, *args):
                return self._call_impl(*args)

            def _call_impl(self, *args):
                return self.forward(*args)

            __call__ = _wrapped_call_impl


    try:
        _ctypes.dlopen("libtorch_lookalike.so", 1)  # there is none; the probe looks at the name
    except OSError:
        pass
    report = ctypes.CDLL(None)._ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE
    report.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_uint16]


    def block(size):
        # A block of the first GPU.
        report(size, size, 0, 0, 1)
        report(size, -size, 0, 0, 1)
"""

BLOCKS = """
    import json, torch

    class Inner(torch.nn.Module):
        def forward(self, size):
            hold = lambda: self  # `self` lives in a cell
            torch.block(size)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self._modules["inner"] = Inner()
        def forward(self, size):
            torch.block(size)
            self._modules["inner"](size + 1)

    class NoModule:
        def forward(self, size):
            torch.block(size)

    model = Outer()
    for i in range(20):
        model(1000)
    model.forward(2000)
    NoModule().forward(3000)

    class Kept:
        def __del__(self):
            torch.block(4000)
    kept = Kept()
    def forward():  # no arguments: what its frame has first is nobody's
        global kept
        model
        del kept
    forward()
    print(json.dumps([id(model), id(model._modules["inner"])]))
"""

PYTHONS = [sys.executable, *filter(None, os.environ.get("VRAMSCOPE_TEST_PYTHONS", "").split(os.pathsep))]


@pytest.fixture(params=PYTHONS, ids=lambda path: path.replace("/", "_"), scope="module")
def lookalike(request, tmp_path_factory) -> tuple[list[int], Process]:
    directory = tmp_path_factory.mktemp("lookalike")
    (directory / "torch.py").write_text(textwrap.dedent(LOOKALIKE))
    (directory / "blocks.py").write_text(textwrap.dedent(BLOCKS))
    done, processes = recorded([request.param, str(directory / "blocks.py")], directory, "")
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout), processes[0]


def test_modules_are_seen_in_the_frames(lookalike):
    (outer, inner), process = lookalike
    assert process.notes["module names"] == "verified against the interpreter"
    assert process.modules == {outer: ("", "Outer", outer), inner: ("inner", "Inner", outer)}
    assert {tuple(process.objects(event)) for event in process.allocs(1000)[1:]} == {(outer,)}
    assert {tuple(process.objects(event)) for event in process.allocs(1001)[1:]} == {(outer, inner)}
    assert [process.objects(event) for event in process.allocs(2000)] == [[outer]], "forward, called directly"
    assert [process.objects(event) for event in process.allocs(3000)] == [[]], "forward of something else"
    assert [process.objects(event) for event in process.allocs(4000)] == [[]], "forward without arguments"


def test_what_is_not_as_expected_is_missing_alone(lookalike):
    _, process = lookalike
    assert process.notes["tensor names"].startswith("off: ")
    assert process.notes["autograd nodes"].startswith("off: ")
    assert process.names(PARAMETER) == set()
    assert {event["sequence"] for event in process.of("BlockAlloc")} == {0}


def test_the_first_gpu_blocks_of_each_kind_have_native_stacks(lookalike):
    _, process = lookalike
    seen = Counter()
    for event in process.of("BlockAlloc"):
        kind = (event["stack"], event["size"])
        assert (event["native"] != 0) == (seen[kind] < 3)
        seen[kind] += 1
    assert len(seen) >= 4 and max(seen.values()) > 10
