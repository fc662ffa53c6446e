# SPDX-License-Identifier: Apache-2.0
"""Names that programs give: scopes, tags, marks and pools, from C, NVTX and Python."""
from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from places import BUILD, DUMP, FAKE, HOSTS, PROBE, ROOT, VRAMSCOPE

NVTX_HOST = HOSTS / "nvtx_ranges"
LSTM = BUILD / "bin" / "example_lstm_scopes"

# Losses and name kinds by number (losses.def, enums.h).
TABLE_RESET, SCOPE_TOO_DEEP = 5, 19
TAG, POOL = 0, 5
NO_DEVICE = -3

pytestmark = pytest.mark.skipif(not DUMP.exists(), reason="the probe is not built")


def dump(path: Path) -> list[dict]:
    done = subprocess.run([str(DUMP), str(path)], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def losses(path: Path) -> tuple[int, ...]:
    return struct.unpack_from("<32Q", path.read_bytes(), 80)


def probe_environment(directory: Path, options: str = "cpu", **extra: str) -> dict[str, str]:
    return {
        **os.environ,
        "LD_PRELOAD": str(PROBE),
        "VRAMSCOPE_DIR": str(directory),
        "VRAMSCOPE_OPTIONS": options,
        "NVTX_INJECTION64_PATH": str(PROBE),
        **extra,
    }


def run(command: list[str], directory: Path, **extra: str) -> list[Path]:
    """Runs it without and with the probe, to the same outcome; the live files of its processes."""
    plain = subprocess.run(command, capture_output=True, timeout=120, env={**os.environ, **extra})
    recorded = subprocess.run(command, capture_output=True, timeout=120, env=probe_environment(directory, **extra))
    assert plain.returncode == 0, plain.stderr.decode()
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    return sorted(directory.glob("*.vrl"))


def scopes_host(case: str, directory: Path) -> Path:
    (only,) = run([str(HOSTS / "scopes"), case], directory)
    return only


def scope_by_size(records: list[dict], kind: str = "BlockAlloc") -> dict[int, str]:
    """The scope that allocations of each size are in; one size must have one scope."""
    found: dict[int, set[str]] = {}
    for record in records:
        if record["record"] == kind:
            found.setdefault(record["size"], set()).add(record.get("in", ""))
    assert all(len(scopes) == 1 for scopes in found.values()), found
    return {size: scopes.pop() for size, scopes in found.items()}


def test_events_are_in_the_scopes_around_them(tmp_path):
    assert scope_by_size(dump(scopes_host("balanced", tmp_path))) == {
        101: "", 102: "outer", 103: "outer/inner", 104: "outer", 105: "outer/temporary", 106: "",
    }


def test_pops_without_pushes_and_nameless_scopes(tmp_path):
    assert scope_by_size(dump(scopes_host("unbalanced", tmp_path))) == {
        201: "", 202: "(no name)", 203: "(no name)/left open",
    }


def test_deep_scopes_stay_balanced_and_are_counted(tmp_path):
    path = scopes_host("deep", tmp_path)
    kept = "/".join(str(level) for level in range(64))
    assert scope_by_size(dump(path)) == {301: kept, 302: kept, 303: kept.rpartition("/")[0], 304: ""}
    assert losses(path)[SCOPE_TOO_DEEP] == 200 - 64


def test_long_names_are_cut_between_characters(tmp_path):
    records = dump(scopes_host("long", tmp_path))
    (scope,) = [r["name"] for r in records if r["record"] == "Scope"]
    (tag,) = [r for r in records if r["record"] == "Name"]
    (mark,) = [r["name"] for r in records if r["record"] == "Mark"]
    # The dump shows bytes as characters.
    expected = ("x" + "ä" * 511).encode().decode("latin-1")
    assert scope == tag["name"] == mark == expected
    assert (tag["kind"], tag["size"], tag["device"]) == (TAG, 5, NO_DEVICE)
    assert scope_by_size(records) == {401: expected, 402: ""}


def test_scopes_go_along_through_fork(tmp_path):
    parent, child = sorted(
        (scope_by_size(dump(path)) for path in run([str(HOSTS / "scopes"), "fork"], tmp_path)), key=min
    )
    assert parent == {501: "before fork", 505: "before fork", 506: ""}
    assert child == {502: "before fork", 503: "before fork/child", 504: ""}


def test_a_hundred_thousand_names_need_bounded_tables(tmp_path):
    path = scopes_host("many", tmp_path)
    records = dump(path)
    names = [r["in"] for r in records if r["record"] == "BlockAlloc" and r["size"] == 600]
    assert names == [f"name {i}" for i in range(100000)]
    assert scope_by_size([r for r in records if r.get("size") == 601]) == {601: "name 7"}
    assert losses(path)[TABLE_RESET] == 100000 // 3072


def test_scopes_of_sixteen_threads(tmp_path):
    records = dump(scopes_host("threads", tmp_path))
    scopes = scope_by_size(records)
    # The last thread has a stream of one that ended within a scope, which is not its own.
    assert scopes == {700: "", **{1000 + i: f"thread {i}/inner" for i in range(17)}}
    assert sum(r["record"] == "BlockAlloc" for r in records) == 17 * 8000


def test_a_scope_is_said_anew_in_each_chunk(tmp_path):
    path = scopes_host("chunks", tmp_path)
    assert path.stat().st_size > 1 << 20
    assert scope_by_size(dump(path)) == {800: "all the time"}


def test_scopes_are_followed_while_paused(tmp_path):
    assert scope_by_size(dump(scopes_host("paused", tmp_path))) == {901: "around", 903: "begun in the pause", 904: ""}


def test_scopes_in_signal_handlers(tmp_path):
    assert scope_by_size(dump(scopes_host("signals", tmp_path))) == {1101: "outer/inner", 1102: ""}


# ---- NVTX


def on_the_stand_in(directory: Path) -> dict[str, str]:
    return {"LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(directory / "books")}


needs_nvtx_host = pytest.mark.skipif(
    not (NVTX_HOST.exists() and (FAKE / "libcuda.so.1").exists()),
    reason="there are no NVTX headers, or the stand-in driver is not built",
)


@needs_nvtx_host
def test_nvtx_ranges_are_scopes(tmp_path):
    live = tmp_path / "live"
    live.mkdir()
    (path,) = run([str(NVTX_HOST)], live, **on_the_stand_in(tmp_path))
    records = dump(path)
    scopes = {size >> 10: scope.encode("latin-1").decode() for size, scope in scope_by_size(records, "Alloc").items()}
    assert scopes == {
        1: "step",
        2: "step/" + "n" * 200,
        3: "step/Größe 你 😀",
        4: "",
        5: "€" * 341,  # 1024 bytes
        6: "registered/plain",
        7: "plain",  # the other domain's range was ended around it
        8: "plain",
        9: "",
        10: "",  # a range of the process is not a scope
        11: "",
        12: "with payload",
        13: "",
        14: "(no name)",
        15: "",  # a library's own step
        16: "",
    }
    assert [r["name"] for r in records if r["record"] == "Mark"] == ["plain", "iteration 1", "wide mark"]
    threads = [(r["stream"], r["name"]) for r in records if r["record"] == "Thread"]
    assert threads == [(1, "nvtx_ranges"), (2, "nvtx_ranges"), (2, "data loader")]


@needs_nvtx_host
def test_without_the_probe_preloaded_nvtx_has_no_tool(tmp_path):
    """A child that lost LD_PRELOAD, but not the variable, loads the probe: it must not half record."""
    environment = probe_environment(tmp_path, **on_the_stand_in(tmp_path))
    del environment["LD_PRELOAD"]
    assert subprocess.run([str(NVTX_HOST)], env=environment, capture_output=True, timeout=60).returncode == 0
    assert list(tmp_path.glob("*.vrl")) == []


@needs_nvtx_host
@pytest.mark.parametrize("tool, scopes", [("", {"step"}), ("/no/such/tool.so", set())])
def test_another_nvtx_tool_is_left_alone(tmp_path, tool, scopes):
    trace = tmp_path / "nvtx.vram"
    environment = {**os.environ, **on_the_stand_in(tmp_path), "NVTX_INJECTION64_PATH": tool}
    done = subprocess.run(
        [str(VRAMSCOPE), "run", "--no-report", "-o", str(trace), "--", sys.executable, "-c",
         f"import os, subprocess; print(os.environ['NVTX_INJECTION64_PATH']); subprocess.run([{str(NVTX_HOST)!r}])"],
        capture_output=True, text=True, timeout=120, env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == (tool or str(PROBE))
    marks = subprocess.run(
        [str(VRAMSCOPE), "report", str(trace), "--at", "mark:iteration 1"], capture_output=True, text=True, timeout=60
    )
    assert (marks.returncode == 0) == bool(scopes)


def test_ranges_of_pythons_nvtx_package(tmp_path):
    pytest.importorskip("nvtx")
    pytest.importorskip("torch")
    code = """
import nvtx, torch
with nvtx.annotate("load"):
    kept = torch.zeros(54321, dtype=torch.uint8)
with nvtx.annotate("train", domain="mine"):
    with nvtx.annotate("step"):
        more = torch.zeros(65432, dtype=torch.uint8)
"""
    (path,) = run([sys.executable, "-c", code], tmp_path)
    found = {r["size"]: r.get("in", "") for r in dump(path) if r["record"] == "BlockAlloc"}
    assert (found[54321], found[65432]) == ("load", "train/step")


# ---- Python

PYTHON_PROGRAM = """
import sys
sys.path.insert(0, {python!r})
import vramscope, torch

def make(size):
    return torch.zeros(size, dtype=torch.uint8)

before = make(10001)
with vramscope.scope("model"):
    a = make(10002)
    with vramscope.scope("größe"):
        b = make(10003)

@vramscope.scope("inside")
def recurse(depth):
    "what it does"
    kept.append(make(10010 + depth))
    if depth:
        recurse(depth - 1)

kept = []
recurse(2)
assert (recurse.__name__, recurse.__doc__) == ("recurse", "what it does")
try:
    with vramscope.scope("fails"):
        make(10004)
        raise KeyError("passes through")
except KeyError as error:
    assert error.args == ("passes through",)
after = make(10005)

vramscope.tag(a, "weights/a")
view = b[100:200]
vramscope.tag(view, "a view names its storage")
vramscope.tag(b.untyped_storage(), "storage")
vramscope.tag(4096, "address")

class Array:
    __cuda_array_interface__ = {{"data": (8192, False), "shape": (3,), "typestr": "<f4", "version": 3}}

class Pointer:
    def data_ptr(self):
        return 12288

vramscope.tag(Array(), "array")
vramscope.tag(Pointer(), "pointer")
vramscope.tag(torch.empty(3, device="meta"), "nothing to name")
vramscope.tag(0, "null")
vramscope.mark("iteration 1")
print(a.data_ptr(), b.data_ptr())
"""


def test_scopes_and_tags_of_python(tmp_path):
    pytest.importorskip("torch")
    command = [sys.executable, "-W", "error", "-c", PYTHON_PROGRAM.format(python=str(ROOT / "python"))]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert plain.returncode == 0, plain.stderr
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=probe_environment(tmp_path))
    assert done.returncode == 0, done.stderr
    a, b = map(int, done.stdout.split())
    (path,) = tmp_path.glob("*.vrl")
    records = dump(path)
    found = {r["size"]: r.get("in", "") for r in records if r["record"] == "BlockAlloc" and 10000 < r["size"] < 10020}
    assert found == {
        10001: "",
        10002: "model",
        10003: "model/größe".encode().decode("latin-1"),
        10012: "inside",
        10011: "inside/inside",
        10010: "inside/inside/inside",
        10004: "fails",
        10005: "",
    }
    tags = [(r["address"], r["name"], r["size"]) for r in records if r["record"] == "Name" and r["kind"] == TAG]
    assert tags == [
        (a, "weights/a", 10002),
        (b, "a view names its storage", 10003),
        (b, "storage", 10003),
        (4096, "address", 0),
        (8192, "array", 0),
        (12288, "pointer", 0),
    ]
    assert [r["name"] for r in records if r["record"] == "Mark"] == ["iteration 1"]


def test_a_tag_of_something_else_is_one_warning(tmp_path):
    code = f"import sys; sys.path.insert(0, {str(ROOT / 'python')!r})\nimport vramscope\nvramscope.tag('text', 'x')"
    command = [sys.executable, "-c", code]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (plain.returncode, plain.stderr) == (0, ""), "without a probe it does not even look"
    recorded = subprocess.run(command, capture_output=True, text=True, timeout=60, env=probe_environment(tmp_path))
    assert recorded.returncode == 0
    assert "tag() takes a tensor, an array or an address, not str" in recorded.stderr


# ---- pools


@pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
def test_blocks_of_a_pool_are_on_the_device_of_their_memory(tmp_path):
    live = tmp_path / "live"
    live.mkdir()
    (path,) = run([str(HOSTS / "driver_blocks")], live, **on_the_stand_in(tmp_path), VRAMSCOPE_FAKE_DEVICES="2")
    records = dump(path)
    blocks = [(r["name"], r["device"], r["size"], r["requested"]) for r in records if r["record"] == "PoolBlock"]
    assert blocks == [
        ("no device", NO_DEVICE, 8, 8),
        ("on the first", 0, 8192, 5000),
        (None, 1, 8192, 0),
    ]
    assert [r["device"] for r in records if r["record"] == "BlockFree"] == [1, 0]
    (pool,) = [r for r in records if r["record"] == "PoolCreate"]
    names = [(r["kind"], r["address"], r["name"]) for r in records if r["record"] == "Name"]
    assert names == [(POOL, pool["pool"], "scratch")]


# ---- the example


def layer_names(layer: str, steps: int) -> set[str]:
    parameters = {f"lstm/{layer}/{linear}/{kind}" for linear in ("i2h", "h2h") for kind in ("weight", "bias")}
    names = {parameter + what for parameter in parameters for what in ("", "/gradient", "/momentum")}
    names |= {f"lstm/{layer}/t{t}/{kind}" for t in range(steps) for kind in ("gates", "gates/gradient", "cell", "hidden")}
    return names | {f"lstm/{layer}/cell/gradient", f"lstm/{layer}/hidden/gradient"}


@pytest.mark.skipif(
    not (LSTM.exists() and (FAKE / "libcuda.so.1").exists()), reason="the examples or the stand-in driver are not built"
)
def test_every_block_of_the_lstm_example_has_its_name(tmp_path):
    live = tmp_path / "live"
    live.mkdir()
    model = "lstm first inputs=40 units=64\nlstm second inputs=64 units=32"
    command = [str(LSTM), "--no-verify", "--iterations", "3", "--model", model]
    (path,) = run(command, live, **on_the_stand_in(tmp_path))
    records = dump(path)
    blocks = [r for r in records if r["record"] == "PoolBlock"]
    others = {f"input/t{t}" for t in range(12)} | {"input/target", "loss/gradient"}
    others |= {"lstm/one", "lstm/state before the first step"}
    assert {r["name"] for r in blocks} == layer_names("first", 12) | layer_names("second", 12) | others
    assert all(r["device"] == 0 and r["native"] != 0 for r in blocks)

    # What was asked for is what the description says; the pool takes more.
    sizes = {r["name"]: (r["requested"], r["size"]) for r in blocks}
    assert sizes["lstm/first/i2h/weight"] == (4 * 64 * 40 * 4, 48 << 10)
    assert sizes["lstm/second/h2h/bias/momentum"] == (4 * 32 * 4, 4 << 10)
    assert all(r["requested"] <= r["size"] for r in blocks)

    # The scopes say the same path as the names.
    scopes = {r["name"]: r.get("in", "") for r in blocks}
    assert scopes["lstm/second/h2h/weight"] == "lstm/second/h2h"
    assert scopes["lstm/first/i2h/bias/gradient"] == scopes["lstm/first/i2h/bias/momentum"] == "lstm/first/i2h"
    assert scopes["lstm/first/t3/gates"] == "lstm/first"
    assert scopes["loss/gradient"] == "loss"

    # Blocks are used again under other names, come back once each, and lie in what the driver gave.
    names_at: dict[int, set[str]] = {}
    live_blocks: dict[int, str] = {}
    slabs = {r["address"]: r["size"] for r in records if r["record"] == "Alloc"}
    for record in records:
        if record["record"] == "PoolBlock":
            assert record["address"] not in live_blocks
            assert any(0 <= record["address"] - slab < size for slab, size in slabs.items())
            live_blocks[record["address"]] = record["name"]
            names_at.setdefault(record["address"], set()).add(record["name"])
        elif record["record"] == "BlockFree":
            assert record["device"] == 0
            del live_blocks[record["address"]]
    assert live_blocks == {}
    assert max(len(names) for names in names_at.values()) > 2
    assert [r["name"] for r in records if r["record"] == "Mark"] == ["iteration"] * 3 + ["trained"]


# ---- the launcher


@pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
def test_unpooled_switches_caches_off_and_says_so(tmp_path):
    trace = tmp_path / "unpooled.vram"
    code = """
import os
for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "XLA_PYTHON_CLIENT_ALLOCATOR", "MXNET_GPU_MEM_POOL_TYPE"):
    print(os.environ.get(name))
"""
    command = [str(VRAMSCOPE), "run", "--unpooled", "--cpu", "--no-report", "-o", str(trace), "--"]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_ALLOCATOR": "vmm"}
    for name in ("PYTORCH_NO_CUDA_MEMORY_CACHING", "MXNET_GPU_MEM_POOL_TYPE"):
        environment.pop(name, None)
    done = subprocess.run(
        [*command, sys.executable, "-c", code], capture_output=True, text=True, timeout=60, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", "vmm", "Unpooled"], "what the user has set stays"
    done = subprocess.run(
        [*command, str(HOSTS / "scopes"), "balanced"], capture_output=True, timeout=60, env=environment
    )
    info = subprocess.run([str(VRAMSCOPE), "info", str(trace)], capture_output=True, text=True, timeout=60)
    assert "unpooled the frameworks' memory caches are off" in " ".join(info.stdout.split())


@pytest.mark.skipif(
    not (LSTM.exists() and VRAMSCOPE.exists() and (FAKE / "libcuda.so.1").exists()),
    reason="vramscope, the examples or the stand-in driver are not built",
)
def test_the_lstm_example_reports_by_scope_and_by_name(tmp_path):
    trace = tmp_path / "lstm.vram"
    environment = {**os.environ, **on_the_stand_in(tmp_path)}
    done = subprocess.run(
        [str(VRAMSCOPE), "run", "--no-report", "-o", str(trace), "--", str(LSTM), "--no-verify"],
        capture_output=True, text=True, timeout=120, env=environment,
    )
    assert done.returncode == 0, done.stderr

    def rows(*arguments: str) -> dict[str, int]:
        shown = subprocess.run(
            [str(VRAMSCOPE), "report", str(trace), "--json", "--at", "mark:trained", *arguments],
            capture_output=True, text=True, timeout=60, check=True,
        )
        found = json.loads(shown.stdout)
        assert all(entry["holds"] for entry in found["invariants"])
        return {row["path"][0]: row["bytes"] for row in found["rows"]}

    tags, modules = rows("--by", "tag"), rows("--by", "module")
    block = 384 << 10  # which the pool takes for 4 * 192 * 96 floats
    for what in ("", "/gradient", "/momentum"):
        assert tags["lstm/l0/i2h/weight" + what] == block
    assert sum(size for name, size in tags.items() if name.startswith("lstm/l0/i2h/")) == modules["lstm/l0/i2h"]
