# SPDX-License-Identifier: Apache-2.0
"""``pytorch_memlab.line_profiler.extension``."""

from ... import load_ipython_extension

__all__ = ["load_ipython_extension"]
