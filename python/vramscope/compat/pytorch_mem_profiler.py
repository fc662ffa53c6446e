# SPDX-License-Identifier: Apache-2.0
"""PyTorch Memory Profiler's interface: ``from vramscope.compat.pytorch_mem_profiler import *``.

Names, arguments, table and CSV columns are those of the old tool. The figures come from a recording and cover one
iteration; they are not summed over the epoch. Modules may return tuples, dictionaries and None. Memory allocated
before the recording is one row; import this module before torch to avoid it.
"""

from __future__ import annotations

# Must come before torch: this import begins the recording if torch is not imported.
from .._iterations import OUTPUT_DIR, IterationProfiler

import os
from datetime import datetime
from typing import Any, Union

import torch

# The names of a star import of the old module.
__all__ = ["MB", "OUTPUT_DIR", "datetime", "getDataPtr", "getTensorSize", "memory_profiler", "os", "torch"]


def getDataPtr(tensor: Any) -> int:
    """The address of a tensor's storage, equal for all tensors that share it."""
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
    """Bytes rounded to MB (10**6 bytes)."""
    return round(float(B) / 1000000.0)


class memory_profiler(IterationProfiler):
    """`IterationProfiler` with the output of the old tool: MB on standard output, and the same CSV columns.

    CSV columns of the old tool are in MB. The new columns after them are exact bytes.
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
