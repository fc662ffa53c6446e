# SPDX-License-Identifier: Apache-2.0
"""Models whose tensors change without a word to anybody: what the program holds at each mark is what the report says."""
from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from places import VRAMSCOPE

pytest.importorskip("torch")

PRELUDE = """
import copy, json, sys, threading, time, torch, vramscope
from torch import nn

def size(tensors):
    return sum({t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}.values())

def mark(name, *models):
    said = {
        "parameter": size([p for model in models for p in model.parameters()]),
        "buffer": size([b for model in models for b in model.buffers()]),
    }
    print(json.dumps([name, said]), flush=True)
    vramscope.mark(name)
"""


def wrong(tmp_path: Path, text: str) -> dict[str, tuple]:
    """The marks of a program at which the report says something else: there (the truth, the report)."""
    program, trace = tmp_path / "program.py", tmp_path / "x.vram"
    program.write_text(PRELUDE + textwrap.dedent(text))
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", sys.executable, program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    marks = dict(json.loads(line) for line in done.stdout.splitlines())
    words = [VRAMSCOPE, "report", trace, "--json", *(word for mark in marks for word in ("--at", f"mark:{mark}"))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert len(marks) > 1
    found = {}
    for (mark, truth), report in zip(marks.items(), reports, strict=True):
        sums = {row["category"]: row["bytes"] for row in report["categories"]}
        said = {category: sums.get(category, 0) for category in truth}
        if said != truth:
            found[mark] = (truth, said)
    return found


def test_a_model_that_is_converted_again_and_again(tmp_path):
    """From the same lines, sooner than any look waits for, and to addresses that it had before."""
    found = wrong(
        tmp_path,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second = nn.Linear(256, 256), nn.Linear(256, 256)
                self.register_buffer("scale", torch.ones(256))
            def forward(self, x):
                return self.second(self.first(x) * self.scale)
        model = Model().eval()
        with torch.no_grad():
            model(torch.ones(8, 256))
            mark("first", model)
            for i in range(4):
                model.bfloat16()
                for _ in range(3):
                    model(torch.ones(8, 256, dtype=torch.bfloat16))
                mark(f"half {i}", model)
                model.float()
                for _ in range(3):
                    model(torch.ones(8, 256))
                mark(f"whole {i}", model)
        """,
    )
    assert found == {}


def test_models_that_are_converted_and_never_run(tmp_path):
    """Nothing allocates afterwards, or nothing at all: a state is assigned. And transforms alone run one."""
    found = wrong(
        tmp_path,
        """
        def make():
            return nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
        ran, other, mapped = make(), make(), make()
        for _ in range(3):
            torch.vmap(mapped)(torch.ones(3, 64))
            torch.zeros(9)
        mark("mapped", ran, other, mapped)
        copied = copy.deepcopy(ran)
        assigned = make()
        assigned.load_state_dict(other.state_dict(), assign=True)
        double, half, applied = make().double(), make().half(), make()._apply(lambda t: t + 1)
        mark("all", ran, other, copied, assigned, double, half, applied, mapped)
        """,
    )
    assert found == {}


def test_buffers_that_become_other_tensors(tmp_path):
    """In each forward, twice a step, so that every other one may lie where one did before; and between two steps."""
    found = wrong(
        tmp_path,
        """
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.fc, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(64)
                self.register_buffer("load", torch.zeros(5000))
                self.register_buffer("total", torch.zeros(3000))
            def forward(self, x):
                self.load = self.load + 1
                return self.norm(self.fc(x))
        model = Model()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for i in range(12):
            for _ in range(2):
                model(torch.ones(8, 64)).sum().backward()
            optimizer.step()
            mark(f"step {i}", model)
            optimizer.zero_grad()
            if i == 4:
                model.total = torch.zeros(7000)
        """,
    )
    assert found == {}


def test_tensors_that_become_others_in_inference(tmp_path):
    found = wrong(
        tmp_path,
        """
        model = nn.Sequential(nn.Linear(256, 256), nn.BatchNorm1d(256)).eval()
        def serve(seconds=0.5):
            until = time.monotonic() + seconds
            with torch.no_grad():
                while time.monotonic() < until:
                    model(torch.ones(8, 256))
        serve(1.5)  # nothing changes for so long that looks are rare
        mark("first", model)
        model.load_state_dict({name: value * 2 for name, value in model.state_dict().items()}, assign=True)
        serve()
        mark("second", model)
        model[0].weight.data = torch.ones(256, 256)
        serve()
        mark("third", model)
        """,
    )
    assert found == {}


def test_models_that_never_run(tmp_path):
    """An average, a target, one that is called as a function: they have names from the first steps on."""
    found = wrong(
        tmp_path,
        """
        model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 10))
        average, target = torch.optim.swa_utils.AveragedModel(model), copy.deepcopy(model)
        called = nn.Sequential(nn.Linear(64, 50), nn.Linear(50, 1))
        optimizer = torch.optim.Adam(model.parameters())
        for i in range(3):
            model(torch.ones(8, 64)).sum().backward()
            torch.func.functional_call(called, dict(called.named_parameters()), (torch.ones(8, 64),))
            optimizer.step()
            optimizer.zero_grad()
            average.update_parameters(model)
            mark(f"step {i}", model, average, target, called)
        """,
    )
    assert found == {}


def test_inference_in_a_thread_while_the_main_thread_waits(tmp_path):
    found = wrong(
        tmp_path,
        """
        first, second = nn.Linear(128, 128), nn.Linear(256, 256)
        def serve():
            with torch.no_grad():
                for i in range(20):
                    first(torch.ones(8, 128))
                    second(torch.ones(8, 256))
            mark("in the thread", first, second)
        thread = threading.Thread(target=serve)
        thread.start()
        thread.join()
        mark("afterwards", first, second)
        """,
    )
    assert found == {}
