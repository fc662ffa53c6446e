# SPDX-License-Identifier: Apache-2.0
"""Tensors that graphs of torch.compile(mode="reduce-overhead") make: from addresses, without the allocator.

The compiler's own classes, on the CPU: "replaying" computes into memory that no allocator of PyTorch knows.
"""
from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from places import VRAMSCOPE

pytest.importorskip("torch._inductor.cudagraph_trees")

PROGRAM = """
import json, mmap, ctypes, torch, vramscope
from torch import nn
from torch._inductor import cudagraph_trees as trees

pool = mmap.mmap(-1, 1 << 20)
base = ctypes.addressof(ctypes.c_char.from_buffer(pool))

torch._C._set_cached_tensors_enabled(True)

def tensor_at(content, storage=None):
    storage = storage or trees.CUDAGraphNode.create_storage(None, content)
    return torch.empty(0).set_(storage, 0, content["size"])

def node_of(**outputs):
    node = trees.CUDAGraphNode.__new__(trees.CUDAGraphNode)
    node._reconstruct_from_tensor_metadata = tensor_at
    node.outputs_metadata = [None] + [
        {"data_ptr": base + offset, "nbytes": 4 * rows * columns, "device": torch.device("cpu"), "size": (rows, columns)}
        for offset, rows, columns in outputs.values()
    ]
    count = len(node.outputs_metadata)
    node.output_storage_alias = [trees.UnaliasedStorage] * count
    node.unaliased_in_all_paths = [metadata is not None for metadata in node.outputs_metadata]
    node.static_output_tensors = [None] * count
    node.outputs_weakrefs = [None] * count
    node.cached_tensor_outputs = []
    node.user_visible_output_idxs = ()  # from PyTorch 2.14 on
    return node

nodes = [node_of(y=(0, 32, 96)), node_of(gx=(1 << 16, 32, 64), gw=(0, 64, 96))]  # the gradient has the place of the activation

def run(self, inputs, function_id):
    if fails:
        raise KeyError("of the program")
    self.current_node = nodes[function_id]
    self.path_state = trees.ExecutionState.EXECUTION if recorded else trees.ExecutionState.RECORDING
    outputs = self.current_node.reconstruct_outputs()[1:]
    for output, value in zip(outputs, inputs):
        output.copy_(value)
    return outputs

trees.CUDAGraphTreeManager._run = run
manager = trees.CUDAGraphTreeManager.__new__(trees.CUDAGraphTreeManager)
manager.device_index = -1
recorded, fails = True, False

class Compiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        (y,) = manager._run([x.detach() @ weight.detach()], function_id=0)
        return y
    @staticmethod
    def backward(ctx, g):
        x, weight = ctx.saved_tensors
        gx, gw = manager._run([g @ weight.T, x.T @ g], 1)
        return None, gw

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 96))
    def forward(self, x):
        return Compiled.apply(x, self.weight)

model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

TRAINING = """
x = torch.randn(32, 64)
model(x)  # the agent looks
def at(instant, activation):
    vramscope.mark(instant)
    gradient = model.weight.grad
    print(json.dumps([instant, activation, 0 if gradient is None else gradient.untyped_storage().nbytes()]))
for step in range(3):
    y = model(x)
    loss = (y * y).sum()
    at(f"forward {step}", 32 * 96 * 4)
    del y
    loss.backward()
    at(f"backward {step}", 0)
    optimizer.step()
    at(f"step {step}", 0)
    optimizer.zero_grad()
    at(f"zero {step}", 0)
"""


def run(tmp_path: Path, text: str, head: str = PROGRAM) -> tuple[Path, subprocess.CompletedProcess]:
    program, trace = tmp_path / "program.py", tmp_path / "x.vram"
    program.write_text(head + text)
    command = [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", sys.executable, program]
    return trace, subprocess.run(command, capture_output=True, text=True, timeout=300)


def report(trace: Path, *options: str) -> dict:
    command = [VRAMSCOPE, "report", trace, "--json", *options]
    return json.loads(subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout)


def test_they_are_gradients_and_activations_at_each_instant(tmp_path):
    trace, done = run(tmp_path, TRAINING)
    assert done.returncode == 0, done.stderr
    marks = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(marks) == 12
    for mark, activation, gradient in marks:
        rows = report(trace, "--at", f"mark:{mark}", "--by", "category,parameter,line")["rows"]
        found = {tuple(row["path"][:2]): row["bytes"] for row in rows if row["path"][0] in ("gradient", "retained")}
        assert found == ({("gradient", "weight"): gradient} if gradient else {}), mark
        outputs = [row for row in rows if row["path"][0] == "activation" and row["bytes"] == 32 * 96 * 4]
        assert sum(row["bytes"] for row in outputs) == activation, mark
        # Where the program calls the model, not a line of the compiler or of vramscope.
        assert all(row["path"][2].startswith("program.py:") for row in rows if row["path"][0] in ("activation", "gradient")), rows
    assert not report(trace)["losses"]


def test_recorded_graphs_and_errors_are_left_to_the_program(tmp_path):
    """While a graph is recorded, the allocator gives out the memory."""
    more = "fails = True\nmodel(x)\n"
    trace, done = run(tmp_path, "model(torch.randn(32, 64))\nrecorded = False\n" + TRAINING + more)
    assert (done.returncode, done.stderr.count("KeyError: 'of the program'")) == (1, 1)
    assert all(row["path"][0] != "gradient" for row in report(trace, "--at", "mark:backward 1", "--by", "category")["rows"])


def test_another_version_of_the_compiler_is_said(tmp_path):
    head = PROGRAM.partition("trees.CUDAGraphTreeManager._run")[0]
    text = head + "del trees.CUDAGraphTreeManager\nmodel = nn.Linear(4, 4)\nmodel(torch.ones(2, 4))\n"
    trace, done = run(tmp_path, text, "")
    assert done.returncode == 0, done.stderr
    assert [loss["name"] for loss in report(trace)["losses"]] == ["module and parameter names not recorded"]
