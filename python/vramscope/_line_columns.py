# SPDX-License-Identifier: Apache-2.0
"""The columns of a line profile and their names."""

from __future__ import annotations

import collections.abc
from typing import Dict, Iterable, List, NamedTuple, Sequence, Tuple, Union

DEFAULT_COLUMNS = ("active_bytes.all.peak", "reserved_bytes.all.peak")

_METRICS = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
_POOLS = ("all", "large_pool", "small_pool")
_STATS = ("current", "peak", "allocated", "freed")

# Fields of torch.cuda.memory_stats() that the probe counts exactly for each line. (Active memory includes freed blocks
# that streams still use; the probe does not see these.)
_COUNTED: Dict[str, str] = {
    "reserved_bytes.all.current": "reserved",
    "reserved_bytes.all.peak": "peak_reserved",
}
for _metric in ("allocated_bytes", "active_bytes"):
    _COUNTED[f"{_metric}.all.current"] = "allocated"
    _COUNTED[f"{_metric}.all.peak"] = "peak_allocated"
    _COUNTED[f"{_metric}.all.allocated"] = "bytes_given"
    _COUNTED[f"{_metric}.all.freed"] = "bytes_back"
for _metric in ("allocation", "active"):
    _COUNTED[f"{_metric}.all.allocated"] = "blocks_given"
    _COUNTED[f"{_metric}.all.freed"] = "blocks_back"

# Columns that only vramscope has.
OWN_COLUMNS: Dict[str, str] = {"hits": "hits", "net": "net", "gross": "gross", "growth": "grown"}


class Column(NamedTuple):
    name: str
    heads: Tuple[str, str, str]
    field: str  # a field of the probe's figures; "" for sampled columns
    is_bytes: bool
    is_signed: bool

    @property
    def is_sampled(self) -> bool:
        return not self.field


def parse(names: Union[str, Iterable[str]]) -> List[Column]:
    """The columns of these names. Raises ValueError for an unknown one."""
    if isinstance(names, str):
        names = [names]
    if not isinstance(names, collections.abc.Iterable):
        raise TypeError(f"vramscope: {names!r} is not a list of columns")
    return [_column(str(name)) for name in names]


def _column(name: str) -> Column:
    if name in OWN_COLUMNS:
        return Column(name, (name, "", ""), OWN_COLUMNS[name], name != "hits", name == "net")
    parts = name.split(".")
    if len(parts) != 3:
        raise ValueError(
            f"vramscope: {name!r} is not a column. Each column name should have three dot-separated parts, {_options()}"
        )
    metric, pool, stat = parts
    if metric not in _METRICS or pool not in _POOLS or stat not in _STATS:
        raise ValueError(
            f"vramscope: {name!r} is not a column. The column names should be fields of torch.cuda.memory_stats(): "
            + _options()
        )
    field = _COUNTED.get(name, "")
    return Column(name, (metric, pool, stat if field else f"{stat}~"), field, "byte" in metric, False)


def _options() -> str:
    def one_of(words: Sequence[str]) -> str:
        return "{" + "|".join(words) + "}"

    return f"{one_of(_METRICS)}.{one_of(_POOLS)}.{one_of(_STATS)}, or one of {', '.join(OWN_COLUMNS)}"
