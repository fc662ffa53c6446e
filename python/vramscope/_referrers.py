# SPDX-License-Identifier: Apache-2.0
"""Who still refers to a tensor: chains of names from the tensor to a variable, for finding leaks."""

from __future__ import annotations

import gc
import html
import inspect
import os
import sys
import threading
import time
import types
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple

from . import _tensors
from ._mem_report import readable_size

_SECONDS = 5.0
_OBJECTS = 20000
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Referrers:
    """The answer: ``chains``, each from the tensor outwards, shortest first."""

    def __init__(self, what: str, chains: List[List[str]], others: List[str], complete: bool) -> None:
        self.what = what
        self.chains = chains
        self.others = others  # what has the tensor's memory without being a Python reference
        self.complete = complete

    def text(self) -> str:
        lines = [f"{self.what} is referred to by"]
        lines += ["  " + " <- ".join(chain) for chain in self.chains]
        lines += ["  " + other for other in self.others]
        if len(lines) == 1:
            lines.append("  nothing that Python knows of" if self.complete else "  nothing that was found in time")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<vramscope referrers: {len(self.chains)} chains>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"


class _Link:
    """An object on the way, and how the one before it is reached from it."""

    __slots__ = ("thing", "label", "inner")

    def __init__(self, thing: Any, label: str, inner: "Optional[_Link]") -> None:
        self.thing = thing
        self.label = label
        self.inner = inner

    def chain(self) -> List[str]:
        labels: List[str] = []
        link: Optional[_Link] = self
        while link is not None:
            if link.label:
                labels.append(link.label)
            link = link.inner
        return labels[::-1]


def find(torch: Any, tensor: Any, limit: int, depth: int) -> Referrers:
    with _tensors.looking(torch):
        what = _describe(torch, tensor)
        others = _memory_shared_with(torch, tensor)
        search = _Search(limit, depth)
        search.run(tensor)
        chains, complete = search.chains, search.complete
    return Referrers(what, chains, others, complete)


def _describe(torch: Any, tensor: Any) -> str:
    shape = _tensors.shape_of(tensor)
    memory = _tensors.memory_of(torch, tensor)
    size = "" if memory is None else f", {readable_size(memory.bytes)}"
    return f"{type(tensor).__name__} {shape} {str(tensor.dtype).replace('torch.', '')} on {tensor.device}{size}"


def _memory_shared_with(torch: Any, tensor: Any) -> List[str]:
    own = _tensors.memory_of(torch, tensor)
    if own is None or own.place[2] == 0:
        return []
    found: Dict[str, int] = {}
    there = _tensors.live(torch)
    for other in there.tensors:
        if other is not tensor and not _tensors.is_wrapper(other):
            place = _tensors.memory_of(torch, other)
            if place is not None and place.place == own.place:
                label = f"{type(other).__name__} {_tensors.shape_of(other)}, which shares its storage"
                found[label] = found.get(label, 0) + 1
    for saved in _tensors.saved_by_autograd(torch, there):
        place = _tensors.memory_of(torch, saved.tensor)
        if saved.node != "AccumulateGrad" and place is not None and place.place == own.place:
            label = f"autograd: {saved.node} keeps it as '{saved.what}' for a backward"
            found[label] = found.get(label, 0) + 1
    return [label if count == 1 else f"{label} ({count} times)" for label, count in found.items()]


class _Search:
    """Breadth first, from the tensor outwards, until variables and modules; within bounds."""

    def __init__(self, limit: int, depth: int) -> None:
        self._limit = limit
        self._depth = depth
        self.chains: List[List[str]] = []
        self.complete = True
        self._seen: Set[int] = set()
        self._frames = _running_frames()
        self._modules: Dict[int, str] = {}
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType):
                self._modules.setdefault(id(module.__dict__), name)  # __main__ can stand there twice

    def run(self, tensor: Any) -> None:
        ends = time.monotonic() + _SECONDS
        frontier = {id(tensor): _Link(tensor, "", None)}
        self._seen.add(id(tensor))
        for _ in range(self._depth):
            for chain in self._in_frames(frontier):
                self._end(chain)
            things = [link.thing for link in frontier.values()]
            outer: Dict[int, _Link] = {}
            own = {id(things), id(frontier), id(outer), id(self.__dict__), id(self.chains)}
            for referrer in _referrers_of(things):
                if len(self.chains) >= self._limit or len(self._seen) > _OBJECTS or time.monotonic() > ends:
                    self.complete = False
                    return
                if id(referrer) in own or id(referrer) in self._seen:
                    continue
                link = self._step(referrer, frontier)
                if link is not None:
                    self._seen.add(id(referrer))
                    outer[id(referrer)] = link
            if not outer:
                return
            frontier = outer
            del things  # it would be a referrer of what comes next
        # What is still open is as far as was asked for.
        for link in frontier.values():
            self._end([*link.chain(), "..."])

    def _end(self, chain: List[str]) -> None:
        if len(self.chains) < self._limit and chain not in self.chains:
            self.chains.append(chain)

    def _step(self, referrer: Any, frontier: Dict[int, _Link]) -> Optional[_Link]:
        """The referrer as the next object on the way; None where the way ends with it."""
        kind = type(referrer)
        if kind is types.FrameType:
            runs = any(referrer is frame for frame in self._frames)
            return None if runs else self._frame(referrer, frontier)
        inner = next((frontier[id(each)] for each in gc.get_referents(referrer) if id(each) in frontier), None)
        if inner is None:
            return None
        if kind is dict:
            key = next((key for key, value in list(referrer.items()) if value is inner.thing), None)
            module = self._modules.get(id(referrer))
            if module is not None:
                self._end([*inner.chain(), f"global '{key}' of {module}"])
                return None
            return _Link(referrer, f"item {_short(key)} of a dict", inner)
        label = _label(referrer, inner)
        before = inner.inner
        if type(inner.thing) is dict and before is not None and _owns(referrer, inner.thing):
            # An object and its dictionary are one step for people.
            name = inner.label[len("item ") : -len(" of a dict")]
            if isinstance(referrer, type):
                self._end([*before.chain(), f"attribute {name} of class {referrer.__qualname__}"])
                return None
            label, inner = f"attribute {name} of {_kind(referrer)}", before
        elif kind is types.FunctionType and inner.thing is referrer.__closure__ and before is not None:
            # So are a function, the tuple of its closure, and the cell in it.
            names = zip(referrer.__code__.co_freevars, referrer.__closure__)
            name = next((repr(name) for name, cell in names if cell is before.thing), "a variable")
            if before.inner is not None:
                label, inner = f"{name} of function {referrer.__qualname__}", before.inner
        return _Link(referrer, label, inner)

    def _frame(self, frame: Any, frontier: Dict[int, _Link]) -> Optional[_Link]:
        """A frame that has ended, which a traceback keeps."""
        for name, link in _locals_of(frame, frontier):
            return _Link(frame, f"local '{name}' of {_place(frame)}, which ended and is kept by a traceback", link)
        return None

    def _in_frames(self, frontier: Dict[int, _Link]) -> Iterator[List[str]]:
        for frame in self._frames:
            if frame.f_code.co_name != "<module>":  # its variables are globals
                for name, link in _locals_of(frame, frontier):
                    yield [*link.chain(), f"local '{name}' of {_place(frame)}"]


def _running_frames() -> List[Any]:
    """Of all threads, without our own: a frame of ours with a reference to itself would live on with all that it
    has, until garbage is collected."""
    starts = sys._current_frames()
    starts.pop(threading.get_ident(), None)
    caller: Any = sys._getframe(1)
    while caller is not None and _is_ours(caller):
        caller = caller.f_back
    found = []
    for start in [caller, *starts.values()]:
        while start is not None:
            found.append(start)
            start = start.f_back
    return found


def _is_ours(frame: Any) -> bool:
    return bool(frame.f_code.co_filename.startswith(_OWN_FOLDER))


def _referrers_of(things: List[Any]) -> List[Any]:
    """What refers to any of them, without what this search made itself."""
    found = gc.get_referrers(*things)
    # Where nobody but this list has it, it came into being for the call.
    alone = _counts([object()])[0]
    return [
        referrer
        for referrer, count in zip(found, _counts(found))
        if count > alone
        and type(referrer) not in (_Link, _Search)
        and not (type(referrer) is types.FrameType and _is_ours(referrer))
    ]


def _counts(things: List[Any]) -> List[int]:
    return [sys.getrefcount(thing) for thing in things]


def _locals_of(frame: Any, frontier: Dict[int, _Link]) -> List[Tuple[str, _Link]]:
    try:
        names = frame.f_locals
        found = [(name, frontier[id(value)]) for name, value in list(names.items()) if id(value) in frontier]
    except Exception:
        return []
    # Until Python 3.12 the frame keeps this copy of its variables, and with it what they referred to. It goes,
    # unless a debugger writes it back, or somebody else has it.
    copied = sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if copied and sys.gettrace() is None and frame.f_trace is None and sys.getrefcount(names) <= 3:
        names.clear()
    return found


def _place(frame: Any) -> str:
    code = frame.f_code
    return f"{code.co_name}() at {os.path.basename(code.co_filename)}:{frame.f_lineno}"


def _label(referrer: Any, inner: _Link) -> str:
    thing = inner.thing
    kind = type(referrer)
    if isinstance(referrer, (list, tuple)):
        index = next((index for index, each in enumerate(list(referrer)) if each is thing), None)
        return f"item {index} of a {kind.__name__}"
    if isinstance(referrer, types.CellType):
        return "a closure's variable"
    if isinstance(referrer, types.FunctionType):
        return f"function {referrer.__qualname__}"
    if isinstance(referrer, types.MethodType):
        return f"bound method {referrer.__func__.__qualname__}"
    if isinstance(referrer, (types.GeneratorType, types.CoroutineType)):
        return f"generator {referrer.__qualname__}"
    dictionary = _dictionary_of(referrer)
    if dictionary is not None:
        for name, value in list(dictionary.items()):
            if value is thing:
                return f"attribute '{name}' of {_kind(referrer)}"
    for cls in type.__dict__["__mro__"].__get__(kind):
        for name, member in cls.__dict__.items():
            if type(member) is types.MemberDescriptorType:
                try:
                    if member.__get__(referrer) is thing:
                        return f"attribute '{name}' of {_kind(referrer)}"
                except AttributeError:
                    pass
    return _kind(referrer)


def _dictionary_of(thing: Any) -> Optional[Dict[str, Any]]:
    """The object's own dictionary, without asking the object."""
    try:
        found = object.__getattribute__(thing, "__dict__")
    except Exception:
        return None
    return found if type(found) is dict else None


def _owns(thing: Any, dictionary: Any) -> bool:
    """Whether a dictionary that the object refers to is that of its attributes."""
    return isinstance(thing, type) or _dictionary_of(thing) is dictionary


def _kind(thing: Any) -> str:
    return type(thing).__name__


def _short(key: Any) -> str:
    if isinstance(key, (str, int, float, bytes, bool)) or key is None:
        text = repr(key)
    else:
        text = f"<{type(key).__name__}>"
    return text if len(text) <= 40 else text[:37] + "..."
