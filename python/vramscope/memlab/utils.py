# SPDX-License-Identifier: Apache-2.0
"""``pytorch_memlab.utils``."""

from __future__ import annotations

from .._mem_report import readable_size

__all__ = ["readable_size"]
