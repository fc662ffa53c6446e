# SPDX-License-Identifier: Apache-2.0
"""A second, independent reader of the live file (docs/FORMAT.md), small enough to be believed.

Tests compare it with what the product says.
"""
from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from pathlib import Path

_MAGIC = b"VRAMLIVE"
_RECORDS_DEF = Path(__file__).resolve().parents[2] / "src" / "format" / "records.def"
_NAMES = {
    int(number, 16): name
    for name, number in re.findall(r"VRAMSCOPE_RECORD\((\w+), (0x[0-9a-f]+),", _RECORDS_DEF.read_text())
}
_PAGE = 4096
_CHUNK_MAGIC = 0x4B435356


def _records(committed: bytes):
    at = 0
    while at < len(committed):
        kind, length = committed[at], committed[at + 1]
        at += 2
        if length == 0xFF:
            (length,) = struct.unpack_from("<I", committed, at)
            at += 4
        yield _NAMES.get(kind, f"type {kind}"), committed[at : at + length]
        at += length


class LiveFile:
    """Counts of records of one `.vrl` file, in all and by stream (a thread's chunks)."""

    def __init__(self, path: Path) -> None:
        data = path.read_bytes()
        assert data[:8] == _MAGIC, path
        self.pid = struct.unpack_from("<I", data, 20)[0]
        self.counts: Counter[str] = Counter()
        self.by_stream: dict[int, Counter[str]] = defaultdict(Counter)
        self.texts: list[bytes] = []
        at = _PAGE
        while at + 64 <= len(data):
            magic, size, stream, _ = struct.unpack_from("<IIII", data, at)
            if magic != _CHUNK_MAGIC:
                at += _PAGE
                continue
            (committed,) = struct.unpack_from("<I", data, at + 32)
            for name, payload in _records(data[at + 64 : at + 64 + committed]):
                self.counts[name] += 1
                self.by_stream[stream][name] += 1
                if name in ("Runtime", "Mark"):
                    self.texts.append(payload)
            at += size


def read_directory(directory: Path) -> list[LiveFile]:
    """Every process's file of a live directory; without the launcher's own, and those that were just being made."""
    files = [path for path in sorted(directory.glob("*.vrl")) if path.name != "launcher.vrl"]
    begun = {path: path.read_bytes()[:8].rstrip(b"\0") for path in files}
    return [LiveFile(path) for path in files if begun[path] == _MAGIC or not _MAGIC.startswith(begun[path])]
