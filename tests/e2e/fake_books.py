# SPDX-License-Identifier: Apache-2.0
"""What the stand-in driver and the stand-in NVML wrote into their books, of the first device (tests/fake_cuda/books.h)."""
from __future__ import annotations

import struct
from pathlib import Path

# books.h asserts all three.
FAKE_PROCESS_LISTS_AT = 160
FAKE_PROCESSES_AT = 168
FAKE_PROCESS = struct.Struct("<IIqq")
FAKE_MAX_PROCESSES = 64


def process_lists(books: Path) -> int:
    """How often NVML was asked for the processes."""
    return struct.unpack_from("<I", books.read_bytes(), FAKE_PROCESS_LISTS_AT)[0]


def last_process(books: Path) -> tuple[int, int]:
    """process_bytes and device_bytes of the process that came last."""
    data = books.read_bytes()
    rows = [FAKE_PROCESS.unpack_from(data, FAKE_PROCESSES_AT + i * FAKE_PROCESS.size) for i in range(FAKE_MAX_PROCESSES)]
    _, has_context, process_bytes, device_bytes = [row for row in rows if row[0] != 0][-1]
    assert has_context in (0, 1)
    return process_bytes, device_bytes
