# SPDX-License-Identifier: Apache-2.0
"""``pytorch_memlab.mem_reporter``."""

from __future__ import annotations

from .._mem_report import RULE as LEN
from .._mem_report import readable_size
from .._mem_reporter import MemReporter

# Rounding of PyTorch's allocator, and its smallest request to the driver.
PYTORCH_MIN_ALLOCATE = 2**9
PYTORCH_MIN_CACHE = 2**20

__all__ = ["LEN", "MemReporter", "PYTORCH_MIN_ALLOCATE", "PYTORCH_MIN_CACHE", "readable_size"]
