# SPDX-License-Identifier: Apache-2.0
"""The probe as an object file: what it needs from a machine and what it shows to a program."""
from __future__ import annotations

import re
import subprocess

import pytest
from places import PROBE

pytestmark = pytest.mark.skipif(not PROBE.exists(), reason="the probe is not built")


def readelf(*options: str) -> str:
    return subprocess.run(["readelf", "--wide", *options, PROBE], capture_output=True, text=True, check=True).stdout


def dynamic_symbols(defined: bool) -> set[str]:
    symbols = set()
    for line in readelf("--dyn-syms").splitlines():
        fields = line.split()
        if len(fields) >= 8 and fields[0].rstrip(":").isdigit() and (fields[6] != "UND") == defined:
            symbols.add(fields[7])
    return symbols


def test_it_needs_the_c_library_alone():
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic")))
    assert needed <= {"libc.so.6", "libdl.so.2", "libpthread.so.0", "ld-linux-x86-64.so.2"}


def test_it_loads_on_glibc_2_28():
    versions = {tuple(map(int, v.split("."))) for v in re.findall(r"GLIBC_([\d.]+)", readelf("--version-info"))}
    assert versions and max(versions) <= (2, 28)


def test_its_loader_may_be_as_old():
    """Packed relocations need glibc 2.36 (GLIBC_ABI_DT_RELR), and some old tools know no GNU hash alone."""
    dynamic = readelf("--dynamic")
    assert "RELR" not in dynamic
    assert "GLIBC_ABI" not in readelf("--version-info")
    assert "(GNU_HASH)" in dynamic or "(HASH)" in dynamic
    assert "(RUNPATH)" not in dynamic and "(RPATH)" not in dynamic


def test_nothing_of_the_cpp_runtime_gets_in():
    foreign = [s for s in dynamic_symbols(defined=False) if re.match(r"(_Z|__cxa_(?!finalize)|__gxx|_Unwind_Resume)", s)]
    assert foreign == [], "exceptions, RTTI, or destructors in static or thread storage"


def test_it_shows_only_what_it_stands_in_front_of():
    allowed = re.compile(
        r"cu[A-Z]\w*|vramscope_\w+|dlm?open|exit|__libc_start_main|_ZN3c10\d+\w+"
        r"|InitializeInjection(Nvtx2|NvtxExtension)?|kokkosp_\w+"
    )
    shown = {symbol.split("@")[0] for symbol in dynamic_symbols(defined=True)}
    assert shown and [symbol for symbol in shown if not allowed.fullmatch(symbol)] == []


def test_nothing_in_it_is_writable_and_executable():
    assert "TEXTREL" not in readelf("--dynamic")
    assert not re.search(r"\bRWE\b", readelf("--segments"))
