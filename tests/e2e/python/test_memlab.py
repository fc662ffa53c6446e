# SPDX-License-Identifier: Apache-2.0
"""vramscope.memlab: programs of pytorch_memlab with a changed import, or with none changed."""
from __future__ import annotations

import package
import pytest
import warm_torch
from places import VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    environment = package.make(tmp_path_factory.mktemp("package"))
    process = warm_torch.Warm(environment, tmp_path_factory.mktemp("programs"))

    def run_program(code: str) -> str:
        done = process.run(code)
        assert done.returncode == 0, done.stderr
        return done.stdout

    yield run_program
    process.close()


def test_importing_is_light(tmp_path):
    import subprocess
    import sys

    code = (
        "import sys, vramscope, vramscope.memlab; vramscope.memlab.install_alias();"
        "from vramscope import Courtesy, MemReporter; assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=package.make(tmp_path), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_old_names(run):
    run("""
import math, sys
import vramscope
from vramscope import memlab
memlab.install_alias()
memlab.install_alias()
import pytorch_memlab, pytorch_memlab.courtesy, pytorch_memlab.utils
from pytorch_memlab import Courtesy, MemReporter
from pytorch_memlab.mem_reporter import MemReporter as again, PYTORCH_MIN_ALLOCATE
assert pytorch_memlab is memlab and MemReporter is again is vramscope.MemReporter
assert Courtesy is pytorch_memlab.courtesy.Courtesy is vramscope.Courtesy
sizes = (0, 512, 40 << 10, 2 << 20, 10 * 1049625, 3 << 40, math.nan)
assert [pytorch_memlab.utils.readable_size(n) for n in sizes] == [
    "0.00B", "512.00B", "40.00K", "2.00M", "10.01M", "3.00T", ""]
# In an installation without the line profiler, the rest works.
sys.modules["vramscope._line_profiler"] = None
names = ("LineProfiler", "profile", "profile_every", "set_target_gpu", "clear_global_line_profiler")
for name in names:
    assert name in memlab.__all__
    for module in (memlab, memlab.line_profiler):
        try: getattr(module, name)
        except ImportError as error: assert str(error).startswith(f"vramscope: {name} is missing: this"), error
        else: raise AssertionError(name)
del sys.modules["vramscope._line_profiler"]
from pytorch_memlab import *
from pytorch_memlab.line_profiler.line_profiler import DEFAULT_COLUMNS
from pytorch_memlab.line_profiler.extension import load_ipython_extension
for name in names:
    assert getattr(memlab, name) is getattr(memlab.line_profiler, name) is globals()[name]
from pytorch_memlab.line_profiler.profile import global_line_profiler
assert isinstance(global_line_profiler, LineProfiler)
import pytorch_memlab.line_profiler.profile
assert pytorch_memlab.line_profiler.profile is profile, "the function is not hidden by the module"
try: memlab.nothing
except AttributeError: pass
else: raise AssertionError
""")


def test_the_original_is_not_replaced_under_a_program(run):
    out = run("""
import sys, types
sys.modules["pytorch_memlab"] = types.ModuleType("pytorch_memlab")
from vramscope import memlab
try: memlab.install_alias()
except RuntimeError as error: print(error)
""")
    assert out.startswith("vramscope: pytorch_memlab is already imported; ")


def test_programs_of_the_old_guide(run):
    out = run("""
from vramscope.memlab import MemReporter
import torch
linear = torch.nn.Linear(1024, 1024)
inp = torch.Tensor(512, 1024)
optimizer = torch.optim.Adam(linear.parameters())
out = linear(inp * (inp + 3) * (inp + 2)).mean()
reporter = MemReporter(linear)
reporter.report()
out.backward()
optimizer.step()
reporter.add_optimizer(optimizer)
reporter.report(verbose=True, device=torch.device("cpu"))
""")
    assert f"{'weight':<40}{'(1024, 1024)':>20}{'4.00M':>10}" in out.splitlines()
    assert f"{'Adam.weight.exp_avg':<40}{'(1024, 1024)':>20}{'4.00M':>10}" in out.splitlines()
