# SPDX-License-Identifier: Apache-2.0
"""Names out of PyTorch programs that know nothing of vramscope: whether they are true. Programs run on the CPU;
whether they can tell that names were taken is in test_torch_unnoticed.py."""
from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections import Counter

import pytest
from places import BUILD, DUMP, PROBE
from recorded_program import BUFFER, GRADIENT, PARAMETER, STATE, Process, plain, program, record, recorded, tuples

pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not (PROBE.exists() and DUMP.exists()), reason="the probe is not built")


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


def until_last_step(process):
    """All but the look at the end of the program."""
    last = max(at for at, r in enumerate(process.records) if r["record"] == "Step")
    return process.records[: last + 1]


def test_gradients_are_named_in_each_step(many):
    said, process = many
    expected = {(name, *place) for name, places in said["gradients"].items() for place in places}
    assert expected and process.names(GRADIENT) == expected
    steps = sum(1 for r in until_last_step(process) if r["record"] == "Name" and (r["kind"], r["name"]) == (GRADIENT, "wte.weight"))
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
    for r in until_last_step(process):
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
        import gc, json, time, torch
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
        time.sleep(1)  # the agent has rested
        train()
        adapters = nn.ModuleDict()
        for i in range(5):
            adapters[f"task{i}"] = nn.Linear(4, 4)  # not in an optimizer
            optimizer.zero_grad()
            adapters[f"task{i}"](model(torch.randn(2, 16))).sum().backward()
            optimizer.step()
        print(json.dumps({
            "old": old, "modules": {id(m): n for n, m in model.named_modules()},
            "adapters": [[a.weight.grad.data_ptr(), a.weight.grad.untyped_storage().nbytes()] for a in adapters.values()],
            "parameters": [[n, p.data_ptr(), p.untyped_storage().nbytes()] for n, p in model.named_parameters()],
        }))
        """,
        tmp_path,
    )
    assert said["old"] in process.gone
    assert {int(a): p for a, p in said["modules"].items()}.items() <= {a: m[0] for a, m in process.modules.items()}.items()
    assert tuples(said["parameters"]) <= process.names(PARAMETER)
    assert tuples(said["adapters"]) <= {(address, size) for _, address, size in process.names(GRADIENT)}


def test_copies_that_dataparallel_makes_have_the_places_of_their_originals(tmp_path):
    """As torch.nn.parallel.replicate makes them, which wants GPUs."""
    said, process = record(
        """
        import json, torch
        from torch import nn

        class DataParallel(nn.Module):
            def __init__(self, module):
                super().__init__()
                self.module = module
            def forward(self, x):
                originals = list(self.module.modules())
                copies = [m._replicate_for_data_parallel() for m in originals]
                for original, copy in zip(originals, copies):
                    for name, child in original._modules.items():
                        setattr(copy, name, copies[originals.index(child)])
                    for name, parameter in original._parameters.items():
                        setattr(copy, name, parameter.clone())
                made.append(copies)
                return copies[0](x)

        made = []
        model = nn.Sequential(nn.Sequential(nn.Linear(16, 16), nn.ReLU()), nn.Linear(16, 4))
        parallel = DataParallel(model)
        for i in range(20):
            parallel(torch.randn(2, 16)).sum().backward()
        paths = [n for n, _ in model.named_modules()]
        print(json.dumps({"root": id(model), "copies": {id(m): n for copies in made for m, n in zip(copies, paths)}}))
        """,
        tmp_path,
    )
    copies = {int(address): path for address, path in said["copies"].items()}
    found = {address: process.modules[address] for address in copies if address in process.modules}
    assert len(found) > 4
    assert {address: (path, root) for address, (path, _, root) in found.items()} == {
        address: (copies[address], said["root"]) for address in found
    }


FLAT = """
    import warnings
    import torch, torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import FullyShardedDataParallel

    warnings.simplefilter("ignore")

    class Views(nn.Sequential):
        pass

    class Whole(nn.Sequential):
        pass

    class Momentum(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self):
            for p in self.param_groups[0]["params"]:
                self.state[p]["momentum"].mul_(0.9).add_(p.grad)
                p.add_(self.state[p]["momentum"], alpha=-0.1)

    def layers():
        return nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10, bias=False)

    def parts(flat, model):
        first = 0
        for p in model.parameters():
            yield p, flat[first : first + p.numel()].view(p.shape)
            first += p.numel()

    def flatten(model, weights, gradients):
        for p, part in parts(weights, model):
            p.data = part.copy_(p.data)
        for p, part in parts(gradients, model):
            p.grad = part

    count = 64 * 256 + 256 + 256 * 10
    views, whole = Views(*layers()), Whole(*layers())
    flatten(views, torch.zeros(count), torch.zeros(count))
    first = Momentum(views.parameters(), {})
    moments = torch.zeros(count)
    for p, part in parts(moments, views):
        first.state[p]["momentum"] = part
    flat = nn.Parameter(torch.zeros(count))
    flat.grad = torch.zeros(count)
    flatten(whole, flat.data, flat.grad)
    second = torch.optim.Adam([flat])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    sharded = FullyShardedDataParallel(nn.Sequential(*layers()), device_id=torch.device("cpu"))
    third = torch.optim.Adam(sharded.parameters())
    for model, optimizer in (views, first), (whole, second), (sharded, third):
        for _ in range(2):
            optimizer.zero_grad(set_to_none=model is sharded)
            model(torch.randn(4, 64)).square().mean().backward()
            optimizer.step()
    dist.destroy_process_group()
"""


def test_flat_buffers_are_shared_out_by_bytes(tmp_path):
    """Views of flat weights, gradients and state; a flat parameter that the optimizer has as a whole; FSDP1's."""
    trace = tmp_path / "flat.vram"
    command = [BUILD / "bin" / "vramscope", "run", "--cpu", "--no-report", "-o", trace, "--", *program(FLAT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    by = [BUILD / "bin" / "vramscope", "report", trace, "--at", "end", "--by", "category,module,parameter", "--json"]
    found = Counter()
    for row in json.loads(subprocess.run(by, check=True, capture_output=True, timeout=60).stdout)["rows"]:
        found[tuple(row["path"])] += row["bytes"]
    for model, states in ("Views", 1), ("Whole", 2), ("Sequential", 2):
        for name, count in ("0.weight", 64 * 256), ("0.bias", 256), ("2.weight", 256 * 10):
            for category, copies in ("parameter", 1), ("gradient", 1), ("optimizer state", states):
                assert found[category, f"{model}.{name[0]}", f"{model}.{name}"] == 4 * copies * count, found


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
    def forward():  # no arguments, so the first object of its frame has no name
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
