# SPDX-License-Identifier: Apache-2.0
"""Names for instants, parts and memory of a program."""

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
    """Names this instant; ``vramscope report --at mark:NAME`` shows the memory at it.

    Does nothing if the process is not recorded. Marks named ``iteration`` or ``iteration N`` divide the run
    into iterations.

    ::

        vramscope.mark("epoch-3")
    """
    probe = _probe.current
    if probe is not None:
        probe.before_mark()
        probe.mark(_encoded(name))


class scope:
    """Gives all allocations of a block a name, which ``vramscope report --by module`` shows.

    ::

        with vramscope.scope("load"):
            ...

        @vramscope.scope("load")
        def load(): ...

    Scopes nest: an inner one is named ``outer/inner``. One object can be entered many times, also recursively.
    A scope belongs to its thread. Around a generator or a coroutine it covers all that the thread allocates until
    the scope is closed. Does nothing if the process is not recorded.
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

    `memory` is a torch tensor or storage, any object with ``data_ptr()`` or ``__cuda_array_interface__``, or an
    address as an int. The name stays until the memory is freed or gets another name. Does nothing if the process is
    not recorded.

    ::

        vramscope.tag(kv_cache, "kv-cache")
    """
    probe = _probe.current
    if probe is None:
        return
    try:
        address, requested = _memory_of(memory)
    except Exception:  # a tensor without a storage: fake, meta, sparse, functional
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
    """The address and the requested bytes (0: unknown) of `memory`; the address is None for other objects."""
    if isinstance(memory, int):
        return memory, 0
    storage = getattr(memory, "untyped_storage", None)
    if storage is not None:  # the whole storage, also for a view
        memory = storage()
    pointer = getattr(memory, "data_ptr", None)
    if pointer is not None:
        size = getattr(memory, "nbytes", None)  # tensors have a number, storages a function
        return pointer(), int(size()) if callable(size) else 0
    interface = getattr(memory, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0]), 0
    return None, 0
