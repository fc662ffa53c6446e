# SPDX-License-Identifier: Apache-2.0
"""PyTorch Memory Profiler's interface: ``from vramscope.compat.pytorch_mem_profiler import *``.

The names, arguments, table and CSV columns are the old ones; the figures come from a recording, and are of the
iteration, not summed up over the epoch. Modules may return tuples, dictionaries and None. What stood before the
recording began is a row of its own: import this before torch and there is none.
"""

from __future__ import annotations

# Before torch, on purpose: importing this begins the recording where torch is not there yet.
from .._iterations import OUTPUT_DIR, IterationProfiler

import os
from datetime import datetime
from typing import Any, Union

import torch

# What a star import of the old module gave.
__all__ = ["MB", "OUTPUT_DIR", "datetime", "getDataPtr", "getTensorSize", "memory_profiler", "os", "torch"]


def getDataPtr(tensor: Any) -> int:
    """The address at which a tensor's storage begins: equal for all tensors that share it."""
    return int(tensor.untyped_storage().data_ptr())


def getTensorSize(tensor: Any, scale: str = "MB") -> int:
    """The size of a tensor's storage, in MB (10**6 bytes) or, with the scale "B", in bytes."""
    size = int(tensor.untyped_storage().nbytes())
    if scale == "MB":
        return MB(size)
    if scale == "B":
        return size
    print(f"ERROR: unknown scale in getTensorSize: {scale}")
    raise SystemExit


def MB(B: float) -> int:
    """Bytes as the nearest number of MB (10**6 bytes)."""
    return round(float(B) / 1000000.0)


class memory_profiler(IterationProfiler):
    """`IterationProfiler` as the old tool printed: in MB, on standard output and into the same CSV columns.

    The CSV's columns of the old tool are in MB; those behind them, which it did not have, are exact bytes.
    """

    def __init__(self, model: Any, print_period: int = 1, csv: bool = False) -> None:
        if print_period < 1:
            print("ERROR: Please use a print period larger than zero!")
            raise SystemExit
        super().__init__(model, print_period, csv)

    @staticmethod
    def _line(label: str, size: Union[int, str], listed: bool) -> str:
        left = f"  {label:.<43s}" if listed else f"{label:.<45s}"
        return f"{left}{size:.>8s}" if isinstance(size, str) else f"{left}{MB(size):.>5d} MB"

    @staticmethod
    def _csv_figure(size: int) -> int:
        return MB(size)

    @staticmethod
    def _extra_column(name: str) -> str:
        return f"{name}_bytes"
