# SPDX-License-Identifier: Apache-2.0
"""The line profiler where the probe is missing: counters are read at the ends of lines. Ends with `ok`."""
from __future__ import annotations

import sys
import warnings

sys.path.insert(0, sys.argv[1])
import stand_in_torch  # noqa: F401
from stand_in_torch import Block

from vramscope import _paths
from vramscope._line_profiler import LineProfiler

KIB = 1 << 10


def missing():
    raise RuntimeError("vramscope: libvramscope_probe.so is missing from this installation")


def inner():
    a = Block(8 * KIB)
    del a
    return Block(4 * KIB)


def numbers():
    kept = Block(2 * KIB)
    yield kept
    got = inner()
    yield got


_paths.probe = missing
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    profiler = LineProfiler(inner, numbers, short := lambda: Block(KIB))
(warning,) = caught
assert str(warning.message).count("vramscope: ") == 1, warning
assert "at the end of each line" in str(warning.message) and "missing from this installation" in str(warning.message)
with profiler:
    result = list(numbers())
    short()
table = profiler.display(columns=["hits", "net", "gross", "allocated_bytes.all.peak"]).to_dict()
lines = {
    line["code"].strip(): tuple(line.values())[2:]
    for function in table["functions"]
    for line in function["lines"]
}
assert lines["a = Block(8 * KIB)"] == (1, 8 * KIB, 8 * KIB, 10 * KIB), lines
assert lines["del a"] == (1, -8 * KIB, 0, 10 * KIB), lines
assert lines["got = inner()"] == (1, 4 * KIB, 12 * KIB, 6 * KIB), lines
assert lines["yield kept"][0] == 1, lines
assert [lines[code][0] for code in lines if "lambda" in code] == [1], lines
assert sys.gettrace() is None
print("ok")
