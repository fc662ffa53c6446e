# SPDX-License-Identifier: Apache-2.0
"""Built on a new machine, the program and the reader start on one whose C library is of 2018, as the probe does."""
from __future__ import annotations

import re
import subprocess

import pytest
from places import BUILD, VRAMSCOPE

BINARIES = ("bin/vramscope", "lib/libvramscope_read.so")

pytestmark = pytest.mark.skipif(not VRAMSCOPE.exists(), reason="vramscope is not built")


def readelf(option: str, binary: str) -> str:
    path = BUILD / binary
    return subprocess.run(["readelf", "--wide", option, path], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("binary", BINARIES)
def test_nothing_newer_than_glibc_2_28_is_needed(binary):
    versions = readelf("--version-info", binary)
    newer = {v for v in re.findall(r"GLIBC_([\d.]+)", versions) if tuple(map(int, v.split("."))) > (2, 28)}
    assert not newer, "cmake/glibc.cmake has what calls of newer functions lead to"
    assert "GLIBC_2." in versions and "GLIBC_ABI" not in versions


@pytest.mark.parametrize("binary", BINARIES)
def test_the_cpp_library_is_inside(binary):
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic", binary)))
    loader = {name for name in needed if name.startswith("ld-linux")}
    assert needed - loader <= {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0"}
