# SPDX-License-Identifier: Apache-2.0
"""Keyword categories on recordings of tagged CPU tensors: the tables of two older tools, on the tags of their own samples, without what these tools lost or counted twice."""
from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from places import FAKE, ROOT, VRAMSCOPE

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")
pytest.importorskip("torch")

KIB = 1024
TAGGED = """\
import sys
sys.path.insert(0, {python!r})
import torch, vramscope
tags = {tags!r}
kept = []
def allocate():
    for name, size in tags:
        kept.append(torch.empty(size, dtype=torch.uint8))
        vramscope.tag(kept[-1], name)
allocate()
nameless = torch.empty(3 << 10, dtype=torch.uint8)
vramscope.mark("all")
"""

GROW = """\
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
def grow():
    pointer = ctypes.c_uint64()
    assert cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(40 << 20)) == 0
grow()
time.sleep(0.5)
"""

# What the MXNet GPU memory profiler wrote for a translation model; KiB for its MiB.
MXNET_TAGS = [
    ("in_arg:encoder_rnn_i2h_weight", 512 * KIB),
    ("arg_grad:encoder_rnn_i2h_weight", 512 * KIB),
    ("in_arg:embed_weight", 1024 * KIB),
    ("optimizer_state:mean:embed_weight", 1024 * KIB),
    ("data_entry:decoder_rnn_l0_t3_i2h_oedge0", 2048 * KIB),
    ("head_grad:data_entry:softmax_oedge0", 256 * KIB),
    ("workspace:dot-inl.h+362:dot-inl.h+400:DotForwardEx", 128 * KIB),
    ("unknown:_zeros", 5 * KIB),
    ("optimizer_state:in_arg_weird", 64 * KIB),
]
MXNET_ROWS = sum(size for _, size in MXNET_TAGS)

# Its user's two dictionaries.
MXNET_KEYWORDS = """\
[layer]
title = "Layer"
over = ["tag"]
[[layer.category]]
name = "RNN"
keywords = ["rnn"]
[[layer.category]]
name = "Embed"
keywords = ["embed"]

[data]
title = "Data structure"
over = ["tag"]
[[data.category]]
name = "Parameters"
keywords = ["in_arg", "arg_grad", "optimizer_state"]
[[data.category]]
name = "Data Entries"
keywords = ["data_entry"]
[[data.category]]
name = "Workspace"
keywords = ["workspace"]
"""

# The TBD annotations of MXNet 0.12, with the two tags that TBD's own analyzer dropped.
TBD_TAGS = [
    ("in_arg:source_target_embed_weight", 1048576),
    ("arg_grad:encoder_rnn_i2h_weight", 1048576),
    ("forward_features:decoder_rnn_l0_t3_i2h", 2097152),
    ("workspace:dot-inl", 524288),
    ("_optimizer_weight_update_decoder_rnn_weight", 524288),
    ("(source)", 64),
    ("source", 64),
    ("grad of data", 64),
    ("RNN", 64),
    ("warning!,ctx_source_unclear", 96),
    ("untagged", 96),
    ("aux_state:bn0_moving_var", 128),
]


def vramscope(*arguments: str | Path, status: int = 0) -> str:
    """What vramscope prints; the error line instead where `status` is not 0."""
    done = subprocess.run(
        [VRAMSCOPE, *arguments], capture_output=True, text=True, timeout=60,
        env={**os.environ, "LC_ALL": "C.UTF-8"},
    )
    assert done.returncode == status, done.stderr
    if status:
        assert done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
        return done.stderr
    return done.stdout


def record(directory: Path, tags) -> Path:
    program = directory / "tagged.py"
    program.write_text(TAGGED.format(tags=tags, python=str(ROOT / "python")))
    trace = directory / "tagged.vram"
    subprocess.run(
        [VRAMSCOPE, "run", "--cpu", "--no-report", "-o", trace, "--", sys.executable, program],
        check=True, timeout=120, capture_output=True, cwd=directory,
    )
    return trace


@pytest.fixture(scope="module")
def mxnet(tmp_path_factory) -> Path:
    return record(tmp_path_factory.mktemp("mxnet"), MXNET_TAGS)


@pytest.fixture(scope="module")
def tbd(tmp_path_factory) -> Path:
    return record(tmp_path_factory.mktemp("tbd"), TBD_TAGS)


@pytest.fixture(scope="module")
def mxnet_keywords(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("keywords") / "mxnet.toml"
    path.write_text(MXNET_KEYWORDS)
    return path


def load(trace: Path, *arguments: str | Path) -> dict:
    return json.loads(vramscope("report", trace, "--at", "mark:all", "--json", *arguments))


def of(found: dict, dictionary: str) -> tuple[dict, dict]:
    """A dictionary's table of the CPU, and its categories by name."""
    (table,) = [t for t in found["tables"] if t["dictionary"] == dictionary and t["device"] == -1]
    categories = {
        c["category"]: c["bytes"] for c in found["categories"] if c["dictionary"] == dictionary and c["device"] == -1
    }
    return table, categories


def test_overlapping_keywords_count_once(mxnet, mxnet_keywords):
    found = load(mxnet, "--keywords", mxnet_keywords, "--expected-sum", "cpu=6144K")
    assert found["schema"] == "vramscope.keywords/1"
    layer, categories = of(found, "layer")
    assert categories["RNN"] == 3072 * KIB and categories["Embed"] == 2048 * KIB
    rest = layer["row_bytes"] - MXNET_ROWS  # what torch and the program need besides
    assert 3 * KIB <= rest < 64 * KIB
    assert categories["Others"] == layer["others_bytes"] == 453 * KIB + rest
    data, categories = of(found, "data")
    assert categories["Parameters"] == 3136 * KIB, "the old tool counts optimizer_state:in_arg_weird twice"
    assert categories["Data Entries"] == 2304 * KIB and categories["Workspace"] == 128 * KIB
    assert categories["Others"] == 5 * KIB + rest
    for table, of_table in (of(found, "layer"), of(found, "data")):
        assert sum(of_table.values()) == table["row_bytes"]
        assert table["row_bytes"] + table["untrackable_bytes"] == table["expected_bytes"] == 6144 * KIB
    assert found["overlaps"] == []


def test_rows_that_several_categories_match_are_listed(mxnet, tmp_path):
    path = tmp_path / "overlap.toml"
    path.write_text(
        '[o]\nover = ["tag"]\n[[o.category]]\nname = "First"\nkeywords = ["Optimizer_State"]\n'
        '[[o.category]]\nname = "Second"\nkeywords = ["in_arg", "embed"]\n'
    )
    found = load(mxnet, "--keywords", path)
    listed = {tuple(overlap["names"]): overlap for overlap in found["overlaps"]}
    assert set(listed) == {("optimizer_state:mean:embed_weight",), ("optimizer_state:in_arg_weird",)}
    assert all(overlap["categories"] == ["First", "Second"] for overlap in listed.values())
    _, categories = of(found, "o")
    assert categories["First"] == 1088 * KIB and categories["Second"] == 1536 * KIB
    text = vramscope("report", mxnet, "--at", "mark:all", "--keywords", path)
    assert "Matched by several categories: 2 rows, 1.06 MiB" in text and "First, not Second" in text


def test_an_expected_sum_below_the_rows_is_negative(mxnet, mxnet_keywords):
    found = load(mxnet, "--keywords", mxnet_keywords, "--expected-sum", "1M")
    table, categories = of(found, "layer")
    assert table["expected_from"] == "given"
    assert table["untrackable_bytes"] == 1024 * KIB - table["row_bytes"] < 0
    assert sum(categories.values()) == table["row_bytes"], "Untrackable is no part of Others"
    text = vramscope("report", mxnet, "--at", "mark:all", "--keywords", mxnet_keywords, "--expected-sum", "1M")
    line = next(line for line in text.splitlines() if line.startswith("  Untrackable"))
    assert re.fullmatch(r"  Untrackable +-[\d,]+\.\d +-[\d.]+ %", line), line


def test_without_an_expected_sum_nothing_is_untrackable(mxnet, mxnet_keywords):
    found = load(mxnet, "--keywords", mxnet_keywords)
    table, _ = of(found, "layer")
    assert table["expected_bytes"] is table["untrackable_bytes"] is table["expected_from"] is None
    assert "Untrackable" not in vramscope("report", mxnet, "--keywords", mxnet_keywords)


def test_the_tbd_table_gives_what_the_tool_gave_and_drops_nothing(tbd):
    found = load(tbd, "--keywords", "tbd")
    table, categories = of(found, "tbd")
    others = categories.pop("Others")
    assert {name: size for name, size in categories.items() if size} == {
        "Weights": 1048576,
        "Weight Gradients": 1048576,
        "RNN Layer": 2097152,
        "Workspace": 524288,
        "Optimizer State": 524288,
        "Source": 128,
        "Unknown (From C++ side)": 96,
        "Unknown (From Python Side)": 96,
        "Auxiliary State": 128,
    }
    assert others + sum(categories.values()) == table["row_bytes"]
    unmatched = {e["name"]: e["bytes"] for e in found["entries"] if e["category"] == "Others" and e["device"] == -1}
    assert unmatched["grad of data"] == 64, "a tag keeps what stands behind a space"
    assert unmatched["RNN"] == 64
    groups = {group["group"]: group["bytes"] for group in found["groups"] if group["device"] == -1}
    assert groups == {
        "Total Weights": 2097152,
        "Total Unknown tags": 192,
        "Total Forward tags": 2097152 + 2 * 524288 + 128 + 128,
    }


def test_the_ready_data_structures_sort_both_tools_tags(mxnet, tbd):
    _, categories = of(load(mxnet, "--keywords", "data-structures"), "data-structures")
    assert categories["Parameters"] == 1536 * KIB
    assert categories["Gradients"] == 768 * KIB
    assert categories["Optimizer state"] == 1088 * KIB
    assert categories["Activations"] >= 2048 * KIB
    _, categories = of(load(tbd, "--keywords", "data-structures"), "data-structures")
    assert categories["Parameters"] == categories["Gradients"] - 64 == 1048576


def test_csv_sums_to_the_expected_sum(mxnet, mxnet_keywords):
    arguments = ("--keywords", mxnet_keywords, "--expected-sum", "cpu=1G")
    table = list(csv.DictReader(io.StringIO(
        vramscope("report", mxnet, "--at", "mark:all", "--csv", *arguments), newline="")))
    for dictionary in ("layer", "data"):
        rows = [row for row in table if row["dictionary"] == dictionary and row["device"] == "cpu"]
        assert sum(int(row["bytes"]) for row in rows) == 1 << 30
        names = {row["name"]: row for row in rows}
        assert int(names["in_arg:embed_weight"]["bytes"]) == 1024 * KIB
        assert names["in_arg:embed_weight"]["dimension"] == "tag"
    entries = load(mxnet, *arguments)["entries"]
    assert len([row for row in table if row["category"] != "Untrackable"]) == len(entries)


def test_top_keeps_the_sums(mxnet, mxnet_keywords):
    full, cut = load(mxnet, "--keywords", mxnet_keywords), load(mxnet, "--keywords", mxnet_keywords, "--top", "1")
    assert full["categories"] == cut["categories"]
    rnn = [e for e in cut["entries"] if e["category"] == "RNN"]
    assert [e["name"] for e in rnn] == ["data_entry:decoder_rnn_l0_t3_i2h_oedge0", "(rest)"]
    assert sum(e["bytes"] for e in rnn) == 3072 * KIB


@pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built")
def test_a_gpu_has_nvmls_sum_and_stacks_of_what_has_no_name(tmp_path):
    program = tmp_path / "grow.py"
    program.write_text(GROW)
    trace = tmp_path / "grow.vram"
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(tmp_path / "books")}
    subprocess.run(
        [VRAMSCOPE, "run", "--no-report", "-o", trace, "--", sys.executable, program],
        check=True, timeout=120, capture_output=True, env=environment,
    )
    arguments = ("--keywords", "layers", "--keywords", "data-structures")
    found = json.loads(vramscope("report", trace, "--json", *arguments))
    (device,) = [d for d in found["devices"] if d["kind"] == "gpu"]
    for table in found["tables"]:
        if table["device"] == 0:
            assert table["expected_from"] == "nvml" and table["expected_bytes"] == device["nvml_bytes"]
            assert table["untrackable_bytes"] == device["nvml_bytes"] - device["ledger_bytes"]
    (stack,) = [s for s in found["unnamed"] if s["device"] == 0]
    assert stack["bytes"] == 40 << 20 and stack["count"] == 1
    assert [frame.split(" ")[-1] for frame in stack["stack"]] == ["grow", "<module>"]
    text = vramscope("report", trace, *arguments)
    assert "Without module, parameter, tag or category\n        40.0        1  grow.py:9 in grow\n" in text


@pytest.mark.parametrize(
    ("keywords", "says"),
    [
        ("[a\n", ":1:3: "),
        ("[a]\n[[a.category]]\nname = \"x\"\nkeywords = [\"y\"]\nkeyword = 1\n", ":5:1: unknown key 'keyword': did you mean keywords?"),
        ("[a]\nover = [\"colour\"]\n", ":2:9: unknown dimension 'colour'"),
        ("[a]\n[[a.category]]\nname = \"x\"\nkeywords = []\n", ":4:12: keywords is empty"),
        ("", "has no dictionary"),
    ],
)
def test_a_bad_file_is_one_line(mxnet, tmp_path, keywords, says):
    path = tmp_path / "bad.toml"
    path.write_text(keywords)
    error = vramscope("report", mxnet, "--keywords", path, status=2)
    assert f"{path}" in error and says in error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--keywords", "layer"), "layers, data-structures, tbd"),
        (("--keywords", "/nowhere/x.toml"), "/nowhere/x.toml"),
        (("--keywords", "tbd", "--keywords", "tbd"), "rename one"),
        (("--keywords", "tbd", "--by", "tag"), "cannot be used together"),
        (("--expected-sum", "1G"), "use --keywords too"),
        (("--keywords", "tbd", "--expected-sum", "much"), "is not a size"),
        (("--keywords", "tbd", "--expected-sum", "gpu7=1G"), "no device 'gpu7'"),
        (("--keywords", "tbd", "--expected-sum", "9999999T"), "use a size below 1 EiB"),
    ],
)
def test_bad_options_are_one_line(mxnet, arguments, says):
    assert says in vramscope("report", mxnet, *arguments, status=2)


def test_text_is_80_columns_wide(mxnet):
    text = vramscope("report", mxnet, "--at", "mark:all", "--keywords", "layers", "--keywords", "data-structures")
    # Names are never cut.
    wide = [line for line in text.splitlines() if len(line) > 80]
    assert all(any(tag in line for tag, _ in MXNET_TAGS) or line.startswith("Trace: ") for line in wide), wide
    assert "  Layer " in text and "  Data structure " in text
