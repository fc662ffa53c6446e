# SPDX-License-Identifier: Apache-2.0
"""What XLA refuses of its own pool, of which the driver never hears: JAX's error tells of it, and of what the pool has."""
from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from places import FAKE, HOSTS, MIB, VRAMSCOPE
from refusals import PRELUDE, head

# As much of JAX as the probe looks at: the error of XLA, and a client with one device and the arrays on it.
STAND_IN_JAX = """
import ctypes, sys, types
{flavour}
sys.modules["jaxlib.xla_extension" if error.__name__ == "XlaRuntimeError" else "jaxlib._jax"] = types.SimpleNamespace(**{{error.__name__: error}})
class Device:
    local_hardware_id = 0
    def memory_stats(self):
        return {{"bytes_limit": 3000 << 20, "bytes_in_use": 2900 << 20, "largest_free_block_bytes": 60 << 20}}
device = Device()
class Array:
    def __init__(self, *shape):
        self.shape, self.dtype = shape, type("float32", (), {{"itemsize": 4, "__str__": lambda self: "float32"}})()
        self.sharding = types.SimpleNamespace(device_set={{device}}, shard_shape=lambda shape: shape)
    def is_deleted(self):
        return False
class Client:
    platform = "cuda"
    live = [Array(1 << 20, 128) for _ in range(5)] + [Array(7)]
    def local_devices(self):
        return [device]
    def live_arrays(self):
        return self.live
sys.modules["jax._src.xla_bridge"] = types.SimpleNamespace(_backends={{"cuda": Client()}})
ctypes.CDLL({library!r})
for _ in range(1000):
    pass  # the interpreter processes the request
"""
NEW = """
class JaxRuntimeError(RuntimeError):
    def __init__(self, message, code=8):
        self.code = code
        super().__init__(message)
error = JaxRuntimeError
"""
OLD = 'error = type("XlaRuntimeError", (RuntimeError,), {})'


def record(tmp_path: Path, text: str, flavour: str = NEW, status: int = 0, packages: str = "") -> subprocess.CompletedProcess:
    library = tmp_path / "jaxlib_stand_in.so"
    shutil.copy(HOSTS / "libplugin.so", library)
    program = tmp_path / "program.py"
    prelude = tmp_path / "site-packages" / "allocator.py"
    prelude.parent.mkdir(exist_ok=True)
    prelude.write_text(PRELUDE + (STAND_IN_JAX.format(library=str(library), flavour=flavour) if not packages else ""))
    program.write_text("from allocator import *\nalloc(3000 * MIB)\n" + textwrap.dedent(text))
    environment = {
        **os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books"),
        "PYTHONPATH": f"{prelude.parent}:{packages}", "VRAMSCOPE_FAKE_TOTAL_MIB": "4800",
    }
    done = subprocess.run(
        [VRAMSCOPE, "run", "--no-report", "-o", tmp_path / "x.vram", "--", sys.executable, program],
        env=environment, capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == status, done.stderr
    return done


def report(tmp_path: Path, *words: str) -> str:
    done = subprocess.run([VRAMSCOPE, "report", tmp_path / "x.vram", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("flavour", [NEW, OLD])
def test_its_line_and_what_the_pool_has(tmp_path, flavour):
    done = record(
        tmp_path,
        """
        def attend():
            raise error("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.50GiB.")
        try:
            attend()
        except RuntimeError as caught:
            print(caught, type(caught).__name__, caught.args)
        """,
        flavour,
    )
    said = "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 1.50GiB."
    name = "XlaRuntimeError" if flavour == OLD else "JaxRuntimeError"
    assert done.stdout == f"{said} {name} ('{said}',)\n"
    text = report(tmp_path, "--oom")
    assert "1.50 GiB requested at program.py" in head(text) and "in attend" in head(text), text
    assert "cause: XLA's pool is full: 2.83 GiB of its 2.93 GiB are in use" in head(text), text
    assert "2.50 GiB, is in 5 of float32[1048576,128]" in head(text), text
    assert "XLA_PYTHON_CLIENT_MEM_FRACTION" in text and "donate_argnums" in text, text
    assert "Out of memory on gpu0: 1.50 GiB" in done.stderr and (tmp_path / "x.oom-1").read_text() == text
    (why,) = json.loads(report(tmp_path, "--oom", "--json"))["explained"]
    assert why["requested_bytes"] == 1536 * MIB and why["xla_pool"]["limit_bytes"] == 3000 * MIB
    assert why["xla_pool"]["arrays"][0] == {"shape": "float32[1048576,128]", "bytes": 5 * 512 * MIB, "count": 5}


def test_other_errors_and_a_client_that_cannot_be_asked(tmp_path):
    done = record(
        tmp_path,
        """
        import signal
        def raised(text):
            try:
                raise error(text)
            except RuntimeError as caught:
                print(caught)
        raised("INTERNAL: failed to allocate 7 bytes")
        Client.platform = "cpu"
        raised("RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.")
        Client.platform = "cuda"
        def broken(self):
            raise ValueError("broken")
        Client.live_arrays = broken
        # Not ours to hide: it could be a signal handler's.
        try:
            error("RESOURCE_EXHAUSTED: Out of memory allocating 6 bytes.")
        except ValueError as caught:
            print(caught)
        sys.modules.pop("jax._src.xla_bridge")
        raised("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.")
        """,
    )
    assert done.stdout.splitlines() == [
        "INTERNAL: failed to allocate 7 bytes", "RESOURCE_EXHAUSTED: Out of memory allocating 5 bytes.", "broken",
        "RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.",
    ]
    (refusal,) = json.loads(report(tmp_path, "--oom", "--json"))["refusals"]
    assert refusal["requested_bytes"] == 7


def test_many_refusals_and_children(tmp_path):
    """A program that tries smaller and smaller batches, in a forked child too."""
    record(
        tmp_path,
        """
        def attempt(count):
            for i in range(count):
                try:
                    raise error(f"RESOURCE_EXHAUSTED: Out of memory allocating {9000 + i} bytes.")
                except RuntimeError:
                    pass
        attempt(100)
        child = os.fork()
        if child == 0:
            cuda.cuInit(0)
            attempt(3)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        """,
    )
    refusals = json.loads(report(tmp_path, "--oom", "--json"))["refusals"]
    assert [refusal["requested_bytes"] for refusal in refusals[:100]] == list(range(9000, 9100))


@pytest.mark.skipif(importlib.util.find_spec("jax") is None and "JAX_PACKAGES" not in os.environ, reason="no JAX")
def test_jax_itself(tmp_path):
    """XLA's CPU client, taken for a GPU's: JAX_PACKAGES names a site-packages that has JAX, if ours has none."""
    done = record(
        tmp_path,
        """
        import jax, jax.numpy as jnp
        from jax._src import xla_bridge
        kept = [jnp.ones((1000, 300 + i)) for i in (0, 0, 1)]
        class Gpu:
            def __init__(self, client):
                self.platform, self.local_devices, self.live_arrays = "cuda", client.local_devices, client.live_arrays
        xla_bridge._backends["cuda"] = Gpu(xla_bridge._backends["cpu"])
        def attend(x):
            return jnp.broadcast_to(x, (1 << 44,)).block_until_ready()
        try:
            attend(jnp.float32(1))
        except jax.errors.JaxRuntimeError as error:
            print(type(error).__name__, error)
        """,
        packages=os.environ.get("JAX_PACKAGES", "none"),
    )
    assert done.stdout.startswith("JaxRuntimeError RESOURCE_EXHAUSTED: Out of memory"), done.stdout
    text = report(tmp_path, "--oom")
    assert "64.0 TiB requested at program.py" in head(text) and "in attend" in head(text), text
