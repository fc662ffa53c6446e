# SPDX-License-Identifier: Apache-2.0
"""Names that a program gives to its memory and to its parts."""

from __future__ import annotations

import functools
import warnings
from types import TracebackType
from typing import Any, Callable, Optional, Tuple, Type, TypeVar, Union

from . import _probe

_Function = TypeVar("_Function", bound=Callable[..., Any])


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "replace")


def mark(name: str) -> None:
    """Names this instant: `vramscope report --at mark:NAME` shows it. Nothing without a probe.

    Marks named ``iteration``, or ``iteration`` and anything behind it, divide the run into iterations.
    """
    probe = _probe.current
    if probe is not None:
        probe.mark(_encoded(name))


class scope:
    """What this thread allocates inside carries the name: ``with scope("load"):`` or ``@scope("load")``.

    Scopes nest: the name of an inner one is ``outer/inner``. One object can be entered again and again, also
    within itself. A scope belongs to its thread, so around code that switches tasks (a generator, a coroutine)
    it covers what the thread does until it is closed.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = _encoded(name)

    def __enter__(self) -> "scope":
        probe = _probe.current
        if probe is not None:
            probe.scope_push(self._name)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        probe = _probe.current
        if probe is not None:
            probe.scope_pop()

    def __call__(self, function: _Function) -> _Function:
        @functools.wraps(function)
        def inside(*arguments: Any, **named: Any) -> Any:
            with self:
                return function(*arguments, **named)

        return inside  # type: ignore[return-value]


def tag(memory: Any, name: str) -> None:
    """Names the memory of a tensor or array, or the allocation that begins at an address.

    `memory` is a torch tensor or storage, anything with ``data_ptr()`` or ``__cuda_array_interface__``, or an int.
    The name stays with the memory until that is freed or gets another one. Nothing without a probe.
    """
    probe = _probe.current
    if probe is None:
        return
    try:
        address, requested = _memory_of(memory)
    except Exception:  # a tensor without storage of its own: fake, meta, sparse, functional
        return
    if address is None:
        warnings.warn(
            f"vramscope: tag() takes a tensor, an array or an address, not {type(memory).__name__}",
            RuntimeWarning,
            stacklevel=2,
        )
    elif address > 0:
        probe.tag(address, _encoded(name), requested)


def _memory_of(memory: Any) -> Tuple[Union[int, None], int]:
    """Where the memory begins, None where `memory` is nothing of the kind, and the bytes asked for (0: unknown)."""
    if isinstance(memory, int):
        return memory, 0
    storage = getattr(memory, "untyped_storage", None)
    if storage is not None:  # the whole storage, also for a view into the middle of it
        memory = storage()
    pointer = getattr(memory, "data_ptr", None)
    if pointer is not None:
        size = getattr(memory, "nbytes", None)  # a number of tensors, a function of storages
        return pointer(), int(size()) if callable(size) else 0
    interface = getattr(memory, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0]), 0
    return None, 0
