# SPDX-License-Identifier: Apache-2.0
"""Whether a PyTorch program can tell that names were taken out of it: it runs on the CPU, plain and with the probe,
and says the same."""
from __future__ import annotations

import pytest
from places import DUMP, PROBE
from recorded_program import PARAMETER, STATE, same_with_and_without

pytest.importorskip("torch")

pytestmark = pytest.mark.skipif(not (PROBE.exists() and DUMP.exists()), reason="the probe is not built")


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


def test_the_garbage_collector_counts_what_the_program_makes(tmp_path):
    """Models in reference cycles, each found, named and gone: the counts are the same at each, and so are the times at
    which the interpreter collects. Its lists of free objects are full: an object from them does not count, and the agent
    leaves some there."""
    same_with_and_without(
        """
        import gc, torch
        from torch import nn
        gc.collect()
        [[[], {}, *(tuple([0] * n) for n in range(1, 21))] for _ in range(100)]
        counts, before = [], [generation["collections"] for generation in gc.get_stats()]
        class Cycle(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 16))
                self.body.register_forward_hook(lambda module, arguments, output: self.note(output))
            def note(self, output):
                self.last = output
            def forward(self, x):
                return self.body(x)
        for i in range(40):
            model = Cycle()
            model(torch.ones(2, 16))
            counts.append(gc.get_count())
            if i % 10 == 9:
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                model.last.sum().backward()
                optimizer.step()
        print(counts, [generation["collections"] - n for generation, n in zip(gc.get_stats(), before)])
        """,
        tmp_path,
    )


def test_tracers_do_not_see_the_agent(tmp_path):
    out, process = same_with_and_without(
        """
        import sys
        files = set()
        def trace(frame, event, arg):
            files.add(frame.f_code.co_filename)
            return trace
        sys.settrace(trace)
        import torch
        from torch import nn
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
