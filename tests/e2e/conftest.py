# SPDX-License-Identifier: Apache-2.0
"""How the tests start, whoever starts them; what tests of several files have from here."""
from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    # A shell starts what runs in its background with interrupts ignored, and every child inherits that: the tests
    # that interrupt programs would find nothing interrupted.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A directory that other users can enter: each start of pytest closes the one that `tmp_path` is in."""
    with tempfile.TemporaryDirectory(prefix="vramscope-test-") as directory:
        path = Path(directory)
        path.chmod(0o755)
        yield path
