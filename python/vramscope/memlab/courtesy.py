# SPDX-License-Identifier: Apache-2.0
"""``pytorch_memlab.courtesy``."""

from __future__ import annotations

from .._courtesy import Courtesy

__all__ = ["Courtesy"]
