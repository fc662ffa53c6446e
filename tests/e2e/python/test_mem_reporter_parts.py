# SPDX-License-Identifier: Apache-2.0
"""Parts of MemReporter that need no program: the allocator's snapshot, and what NVML says of this process."""
from __future__ import annotations

import subprocess
import sys
import types

import pytest
from mem_reporter_program import (
    environment,  # noqa: F401 (a fixture)
)
from places import FAKE, ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")


@pytest.fixture
def parts(environment, monkeypatch):
    """The package's modules, imported from the tree."""
    monkeypatch.syspath_prepend(str(ROOT / "python"))
    from vramscope import _nvml, _torch_blocks

    return types.SimpleNamespace(nvml=_nvml, blocks=_torch_blocks)


def torch_with(segments, backend="native", traces=True):
    def snapshot(**named):
        if named and not traces:
            raise TypeError("memory_snapshot() got an unexpected keyword argument 'include_traces'")
        return segments

    stats = {"allocated_bytes.all.current": 70, "reserved_bytes.all.current": 100}
    cuda = types.SimpleNamespace(
        is_initialized=lambda: True, get_allocator_backend=lambda: backend, memory_snapshot=snapshot,
        device_count=lambda: 1, memory_stats=lambda device: stats,
    )
    return types.SimpleNamespace(cuda=cuda)


def test_the_allocators_snapshot(parts):
    def block(state, size, requested, **more):
        return {"state": state, "size": size, "requested_size": requested, **more}

    segments = [
        {"device": 0, "address": 1 << 20, "total_size": 2048, "stream": 7, "segment_pool_id": (0, 0), "blocks": [
            block("active_allocated", 512, 4), block("inactive", 1024, 0),
            block("active_pending_free", 512, 500)]},
        {"device": 0, "address": 2 << 20, "total_size": 4096, "stream": 0, "blocks": [block("inactive", 4096, 0)]},
        {"device": 1, "address": 3 << 20, "total_size": 512, "stream": 0, "segment_pool_id": (0, 1), "blocks": [
            block("active_allocated", 512, 512, frames=[
                {"filename": "/site-packages/torch/nn/modules/linear.py", "line": 1, "name": "forward"},
                {"filename": "/home/me/train.py", "line": 12, "name": "step"}])]},
    ]
    for traces in (True, False):
        found = parts.blocks.caches(torch_with(segments, traces=traces))
        first, second = found[0], found[1]
        assert (first.allocated, first.requested, first.pending) == (512, 4, 512)
        assert (first.cached, first.fragmentation, first.reserved) == (4096, 1024, 6144)
        assert first.block_at((1 << 20) + 511).stream == 7 and first.block_at((1 << 20) + 512) is None
        assert first.block_at((1 << 20) + 1600).pending and first.block_at(0) is None
        assert second.blocks[0].private and second.blocks[0].line == "train.py:12 in step"
    other = parts.blocks.caches(torch_with([], backend="cudaMallocAsync"))
    assert (other[0].complete, other[0].allocated, other[0].cached) == (False, 70, 30)


def test_nvml_is_one_line_where_it_is_not_there(parts, tmp_path, environment):
    code = "from vramscope import _nvml; print(_nvml.process_bytes('GPU-1'))"
    books = {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    for more, said in (
        ({}, "NVML is not installed"),
        (books, "NVML has no GPU GPU-1"),
        ({**books, "VRAMSCOPE_FAKE_NVML_ERROR": "18"}, "nvmlInit_v2 says 18"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**environment, **more}, capture_output=True, text=True, timeout=60
        )
        assert "bytes=None" in done.stdout and said in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize(
    "listed, at_least, bytes_, remark",
    [
        ([("own", 100), (1, 200)], 0, 100, ""),
        ([("own", (1 << 64) - 1)], 0, None, "does not say"),
        ([(1, 200)], 150, 200, "the only process"),
        ([(1, 200), (2, 100)], 150, 200, "the only process"),
        ([(1, 200), (2, 300)], 150, None, "--pid=host"),
        ([], 0, None, "lists no process"),
    ],
)
def test_which_process_is_this_one(parts, monkeypatch, listed, at_least, bytes_, remark):
    import os

    rows = [parts.nvml._Process(pid=os.getpid() if pid == "own" else pid, used=used) for pid, used in listed]
    monkeypatch.setattr(parts.nvml, "_open", lambda: types.SimpleNamespace(device=lambda uuid: None))
    monkeypatch.setattr(parts.nvml, "_processes", lambda library, device: rows)
    monkeypatch.setattr(parts.nvml, "_own_numbers", lambda: [os.getpid()])
    reading = parts.nvml.process_bytes("GPU-x", at_least)
    assert reading.bytes == bytes_ and remark in reading.remark
