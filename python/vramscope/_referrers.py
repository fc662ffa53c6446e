# SPDX-License-Identifier: Apache-2.0
"""Finds references that keep a tensor alive: chains of names from the tensor to a variable."""

from __future__ import annotations

import collections
import functools
import gc
import html
import inspect
import os
import sys
import threading
import time
import types
from typing import Any, Counter, Deque, Dict, List, Optional, Set, Tuple

from . import _tensors
from ._mem_report import readable_size

_SECONDS = 5.0
_OBJECTS = 20000
# At most this many autograd graphs that keep a tensor are shown.
_GRAPHS = 3
# At most this many chains for each direct referrer.
_ROUTES = 3
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Referrers:
    """The result: ``chains``, each from the tensor outwards, shortest first."""

    def __init__(self, what: str, chains: List[List[str]], others: List[str], complete: bool) -> None:
        self.what = what
        self.chains = chains
        self.others = others  # holders of the memory that are not Python references
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


def find(torch: Any, tensor: Any, limit: int, depth: int) -> Referrers:
    with _tensors.looking(torch):
        what = _describe(torch, tensor)
        others = _memory_shared_with(torch, tensor, depth)
        search = _Search(limit, depth)
        search.run(tensor)
        chains, complete = search.chains, search.complete
    return Referrers(what, chains, others, complete)


def _describe(torch: Any, tensor: Any) -> str:
    shape = _tensors.shape_of(tensor)
    memory = _tensors.memory_of(torch, tensor)
    size = "" if memory is None else f", {readable_size(memory.bytes)}"
    return f"{type(tensor).__name__} {shape} {str(tensor.dtype).replace('torch.', '')} on {tensor.device}{size}"


def _memory_shared_with(torch: Any, tensor: Any, depth: int) -> List[str]:
    own = _tensors.memory_of(torch, tensor)
    if own is None or own.place[2] == 0:
        return []
    found: Dict[str, int] = {}
    there = _tensors.live(torch)
    cpp_alone = _tensors.held_by_cpp_alone(torch, there.tensors)
    for other, is_no_reference in zip(there.tensors, cpp_alone):
        if other is not tensor and not is_no_reference and not _tensors.is_wrapper(other):
            if _tensors.gradient_of(other) is tensor:
                label = f"{type(other).__name__} {_tensors.shape_of(other)}, whose gradient it is"
                found[label] = found.get(label, 0) + 1
            place = _tensors.memory_of(torch, other)
            if place is not None and place.place == own.place:
                label = f"{type(other).__name__} {_tensors.shape_of(other)}, which shares its storage"
                found[label] = found.get(label, 0) + 1
    keepers = []
    for saved in _tensors.saved_by_autograd(torch, there):
        place = _tensors.memory_of(torch, saved.tensor)
        if place is not None and place.place == own.place:
            label = f"autograd: {saved.node} keeps it as '{saved.what}' for a backward"
            found[label] = found.get(label, 0) + 1
            keepers.append(saved.keeper)
    ends = [end for end in _tensors.ends_of_graphs(there, keepers) if end is not tensor]
    del there  # this variable would be a referrer of everything
    labels = [label if count == 1 else f"{label} ({count} times)" for label, count in found.items()]
    return labels + _graphs(ends, depth)


def _graphs(ends: List[Any], depth: int) -> List[str]:
    """The holders of the tensors at the ends of graphs, which keep the graphs; removes them from the list."""
    labels: List[str] = []
    while ends and len(labels) < _GRAPHS:
        end = ends.pop()
        search = _Search(1, depth)
        search.run(end)
        chain = f": {' <- '.join(search.chains[0])}" if search.chains else ""
        labels.append(f"autograd: this graph is of {type(end).__name__} {_tensors.shape_of(end)}{chain}")
    if ends:
        labels.append(f"autograd: and of {len(ends)} more")
    return labels


class _Search:
    """A bounded search from the tensor outwards to variables, modules and classes."""

    def __init__(self, limit: int, depth: int) -> None:
        self._limit = limit
        self._depth = depth
        self.chains: List[List[str]] = []
        self.complete = True
        self._things: Dict[int, Any] = {}  # every visited object, by id
        self._holders: Dict[int, List[int]] = {}  # the referrers of an object
        self._variables: Dict[int, List[str]] = {}  # variables of running functions that are the object
        self._asked: Set[int] = set()  # objects with known referrers
        self._frames = _running_frames()
        self._modules: Dict[int, str] = {}
        for name, module in list(sys.modules.items()):
            if isinstance(module, types.ModuleType):
                self._modules.setdefault(id(module.__dict__), name)  # __main__ can be listed twice

    def run(self, tensor: Any) -> None:
        self._look(tensor)
        self._tell(id(tensor))

    # ---- the search ----

    def _look(self, tensor: Any) -> None:
        ends = time.monotonic() + _SECONDS
        self._things[id(tensor)] = tensor
        frontier, ends_met = {id(tensor)}, 0
        # One displayed step is up to three references: an object, its dictionary, a dictionary in that.
        for _ in range(3 * self._depth):
            ends_met += self._look_in_frames(frontier)
            inside = [self._things[number] for number in frontier]
            own = {id(inside), id(self._things), id(self.__dict__), id(self._frames)}
            outer: Set[int] = set()
            for referrer in _referrers_of(inside):
                if len(self._things) > _OBJECTS or time.monotonic() > ends:
                    self.complete = False
                    return
                if id(referrer) in own or any(referrer is frame for frame in self._frames):
                    continue
                reached = frontier.intersection(map(id, gc.get_referents(referrer)))
                for number in reached:
                    self._holders.setdefault(number, []).append(id(referrer))
                if reached and id(referrer) not in self._things:
                    self._things[id(referrer)] = referrer
                    if self._is_end(referrer):
                        ends_met += 1
                    else:
                        outer.add(id(referrer))
            self._asked |= frontier
            if not outer or ends_met >= self._limit:
                return
            frontier = outer
            del inside  # this variable would be a referrer of the next objects

    def _look_in_frames(self, frontier: Set[int]) -> int:
        found = 0
        for frame in self._frames:
            if frame.f_code.co_name != "<module>":  # a module's variables are globals
                for name, number in _locals_of(frame, frontier):
                    self._variables.setdefault(number, []).append(f"local '{name}' of {_place(frame)}")
                    found += 1
        return found

    def _is_end(self, thing: Any) -> bool:
        return id(thing) in self._modules or isinstance(thing, type)

    # ---- the chains ----

    def _tell(self, tensor: int) -> None:
        """The shortest chains first. An object is in a few of them at most, which bounds their number."""
        paths: Deque[Tuple[int, ...]] = collections.deque([(tensor,)])
        visits = collections.Counter({tensor: 1})
        open_ends: List[Tuple[int, ...]] = []
        told: Set[int] = set()
        routes: Counter[int] = collections.Counter()
        while paths and len(self.chains) < self._limit:
            path = paths.popleft()
            if len(path) > 1 and routes[path[1]] == _ROUTES:
                continue
            # List every variable that is the tensor, but only one chain to each other referrer.
            variables = self._variables.get(path[-1], [])[: None if len(path) == 1 else 1]
            is_end = self._is_end(self._things[path[-1]])
            for end in variables:
                self._end(path, [end])
            if is_end:
                self._end(path, [])
            if variables or is_end:
                told.update(path[1:])
                routes.update(path[1:2])
            if is_end:
                continue
            holders = [number for number in self._holders.get(path[-1], ()) if number not in path]
            for number in holders:
                if visits[number] < self._limit and not self._is_copy(path, number):
                    visits[number] += 1
                    paths.append((*path, number))
            if not holders and not variables and len(path) > 1:
                open_ends.append(path)
        self.complete = self.complete and not paths
        for path in open_ends:
            # A tuple without referrers holds the arguments of a call.
            if type(self._things[path[-1]]) is tuple and path[-1] not in self._holders:
                continue
            if told.isdisjoint(path[1:]):
                told.update(path[1:])
                self._end(path, [self._why_it_ends(path[-1])])

    def _is_copy(self, path: Tuple[int, ...], holder: int) -> bool:
        """Whether a path ends in the dictionary of a frame's variables, which repeats the variables."""
        has_a_frame = isinstance(self._things[holder], _WITH_A_FRAME)
        return has_a_frame and len(path) > 1 and holder in self._holders.get(path[-2], ())

    def _why_it_ends(self, last: int) -> str:
        if last not in self._asked:
            return "..."
        return "a cycle, which a garbage collection ends" if last in self._holders else "nothing that Python knows of"

    def _end(self, path: Tuple[int, ...], end: List[str]) -> None:
        chain = [*self._labels([self._things[number] for number in path]), *end]
        if len(chain) > self._depth + 1:
            chain = [*chain[: self._depth], "..."]
        if len(self.chains) < self._limit and chain not in self.chains:
            self.chains.append(chain)

    def _labels(self, path: List[Any]) -> List[str]:
        """Describes how each object of a path refers to the one before, joined into displayed steps."""
        labels: List[str] = []
        at, last = 1, len(path) - 1
        while at <= last:
            inner, thing = path[at - 1 : at + 1]
            outer = path[at + 1] if at < last else None
            if isinstance(thing, dict):
                key = _key_of(thing, inner)
                if id(thing) in self._modules:
                    labels.append(f"global {key} of {self._modules[id(thing)]}")
                elif isinstance(outer, type):
                    labels.append(f"attribute {key} of class {outer.__qualname__}")
                    at += 1
                elif outer is not None and _dictionary_of(outer) is thing:
                    self._add_attribute(labels, key, inner, outer)
                    at += 1
                else:
                    labels.append(f"{'item ' + key if key else 'a key'} of {_a(thing)}")
            elif isinstance(thing, types.CellType) and isinstance(path[min(at + 2, last)], types.FunctionType):
                function = path[at + 2]  # the tuple of the closure is between them
                names = zip(function.__code__.co_freevars, function.__closure__ or ())
                name = next((repr(name) for name, cell in names if cell is thing), "a variable")
                labels.append(f"{name} of function {function.__qualname__}")
                at += 2
            elif not isinstance(thing, types.TracebackType):  # the frame of a traceback already names it
                name = _attribute_of(thing, inner)
                if name:
                    self._add_attribute(labels, name, inner, thing)
                else:
                    labels.append(_label(thing, inner))
            at += 1
        return labels

    @staticmethod
    def _add_attribute(labels: List[str], name: str, value: Any, thing: Any) -> None:
        what = _OF_A_MODULE.get(name)
        if what and labels and type(value) is dict and _is_module(thing):
            labels[-1] = labels[-1].replace("item", what).replace(" of a dict", f" of {_kind(thing)}")
        else:
            labels.append(f"attribute {name} of {_kind(thing)}")


# PyTorch's modules keep parts in three dictionaries. Show the parts as attributes.
_OF_A_MODULE = {"'_parameters'": "parameter", "'_buffers'": "buffer", "'_modules'": "module"}


def _is_module(thing: Any) -> bool:
    dictionary = _dictionary_of(thing) or {}
    return "_parameters" in dictionary and "_modules" in dictionary


def _running_frames() -> List[Any]:
    """The frames of all threads without our own. A frame of ours with a reference to itself would keep its objects
    until the next garbage collection."""
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
    """The referrers of any of the objects, without objects of this search."""
    found = gc.get_referrers(*things)
    # An object with no other referrer than this list was made by the call.
    alone = _counts([object()])[0]
    return [
        referrer
        for referrer, count in zip(found, _counts(found))
        if count > alone
        and type(referrer) is not _Search
        and not (type(referrer) is types.FrameType and _is_ours(referrer))
    ]


def _counts(things: List[Any]) -> List[int]:
    return [sys.getrefcount(thing) for thing in things]


def _locals_of(frame: Any, wanted: Set[int]) -> List[Tuple[str, int]]:
    """Name and id of those variables of a frame that are wanted."""
    try:
        names = frame.f_locals
        found = [(name, id(value)) for name, value in list(names.items()) if id(value) in wanted]
    except Exception:
        return []
    # Until Python 3.12 the frame keeps this copy of its variables alive. Clear it, unless a debugger or other code uses
    # it.
    copied = sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
    if copied and sys.gettrace() is None and frame.f_trace is None and sys.getrefcount(names) <= 3:
        names.clear()
    return found


def _place(frame: Any) -> str:
    code = frame.f_code
    return f"{code.co_name}() at {os.path.basename(code.co_filename)}:{frame.f_lineno}"


def _label(referrer: Any, thing: Any) -> str:
    """Describes how a referrer that is neither a dictionary nor an object with attributes refers to an object."""
    if isinstance(referrer, (list, tuple, collections.deque)):
        index = next((index for index, each in enumerate(list(referrer)) if each is thing), None)
        return f"item {index} of {_a(referrer)}"
    if isinstance(referrer, (set, frozenset)):
        return f"item of {_a(referrer)}"
    if isinstance(referrer, types.CellType):
        return "a closure's variable"
    if isinstance(referrer, types.FunctionType):
        return f"function {referrer.__qualname__}"
    if isinstance(referrer, types.MethodType):
        return f"bound method {referrer.__func__.__qualname__}"
    if type(referrer) is _CACHE:
        return f"the cache of {(_dictionary_of(referrer) or {}).get('__qualname__', 'a function')}()"
    if isinstance(referrer, types.FrameType):
        state = "is suspended" if referrer.f_code.co_flags & _SUSPENDS else "ended and is kept by a traceback"
        return f"{_local_in(referrer, thing)}{_place(referrer)}, which {state}"
    for kind, name, attribute in _SUSPENDED:
        if isinstance(referrer, kind):
            return f"{_local_in(getattr(referrer, attribute), thing)}{name} {referrer.__qualname__}"
    if isinstance(referrer, type):
        return f"class {referrer.__qualname__}"
    return _kind(referrer)


_CACHE = type(functools.lru_cache(maxsize=None)(lambda: None))
_SUSPENDS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_SUSPENDED = (
    (types.GeneratorType, "generator", "gi_frame"),
    (types.CoroutineType, "coroutine", "cr_frame"),
    (types.AsyncGeneratorType, "asynchronous generator", "ag_frame"),
)


_WITH_A_FRAME = (types.FrameType, *(kind for kind, _, _ in _SUSPENDED))


def _local_in(frame: Any, thing: Any) -> str:
    names = _locals_of(frame, {id(thing)}) if frame is not None else []
    return f"local '{names[0][0]}' of " if names else ""


def _key_of(dictionary: Any, thing: Any) -> str:
    """The keys of a value in a dictionary; empty if the object is itself a key."""
    return " and ".join([_short(key) for key, value in list(dict.items(dictionary)) if value is thing][:3])


def _attribute_of(referrer: Any, thing: Any) -> str:
    """The name of the attribute that holds the value. Runs no code of the object."""
    # Not isinstance(), which asks the object for its __class__.
    if issubclass(type(referrer), (type, types.FunctionType, types.MethodType)):
        return ""
    for name, value in list((_dictionary_of(referrer) or {}).items()):
        if value is thing:
            return repr(name)
    for cls in _bases_of(type(referrer)):
        for name, member in list(_names_in(cls).items()):
            if type(member) is types.MemberDescriptorType:
                try:
                    if member.__get__(referrer) is thing:
                        return repr(name)
                except AttributeError:
                    pass
    return ""


def _dictionary_of(thing: Any) -> Optional[Dict[str, Any]]:
    """The object's dictionary. Runs no code of the object."""
    for cls in _bases_of(type(thing)):
        member = _names_in(cls).get("__dict__")
        if member is not None:
            break
    else:
        return None
    if type(member) not in (types.GetSetDescriptorType, types.MemberDescriptorType):
        return None  # a property
    try:
        found = member.__get__(thing)
    except Exception:
        return None
    return found if type(found) is dict else None


# Classes as `type` sees them: a metaclass may have its own ways.
_class_name = type.__dict__["__name__"].__get__
_bases_of = type.__dict__["__mro__"].__get__
_names_in = type.__dict__["__dict__"].__get__


def _kind(thing: Any) -> str:
    return str(_class_name(type(thing)))


def _a(thing: Any) -> str:
    kind = _kind(thing)
    return f"{'an' if kind[:1] in 'AEIOUaeiou' else 'a'} {kind}"


def _short(key: Any) -> str:
    is_plain = key is None or type(key) in (str, int, float, bytes, bool)
    text = repr(key) if is_plain else f"<{_kind(key)}>"
    return text if len(text) <= 40 else text[:37] + "..."
