# SPDX-License-Identifier: Apache-2.0
"""Where what is tested stands."""
from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("VRAMSCOPE_BUILD", ROOT / "build"))
VRAMSCOPE = Path(os.environ.get("VRAMSCOPE_BIN", BUILD / "bin" / "vramscope"))
DUMP = BUILD / "bin" / "vramscope_dump"
PROBE = BUILD / "lib" / "libvramscope_probe.so"
HOSTS = BUILD / "hosts"
FAKE = Path(os.environ.get("VRAMSCOPE_FAKE_CUDA", BUILD / "fake_cuda"))
MIB = 1 << 20
