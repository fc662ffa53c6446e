# SPDX-License-Identifier: Apache-2.0
"""What keeps the tensors of this process alive: the shortest way from a variable to each.

The probe walks the objects (src/probe/hooks/torch/holders.h), and this module names what it found. Neither runs code of
the program: no method, property, comparison or repr of its objects.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import json
import os
import sys
import threading
import types
from typing import Any, Dict, Iterator, List, Optional, Tuple

from . import _files, _probe, _tensors
from ._referrers import _attribute_of, _dictionary_of, _kind, _locals_of, _short

# Numbers of holders.h: how a way begins, and how one object leads to the next.
_NOWHERE, _MODULE, _FRAME, _HELD = range(4)
_REFERENCE, _GRAPH, _SAVED, _GRADIENT = range(4)

_OWN_MODULES = "_vramscope_attached"
_CACHE = type(functools.lru_cache(maxsize=None)(lambda: None))
_INDEXED = (list, tuple, collections.deque)
_SUSPENDED = {
    types.GeneratorType: ("generator", "gi_frame"),
    types.CoroutineType: ("coroutine", "cr_frame"),
    types.AsyncGeneratorType: ("asynchronous generator", "ag_frame"),
}
_RAW = "_raw_saved_"
# PyTorch's modules keep their parts in these.
_PARTS = ("_parameters", "_buffers", "_modules")
Step = List[Any]  # an object or None, a name or None, how it is led to


def find(probe: "_probe.Probe", groups: int, seconds: float, with_cpu: bool) -> Dict[str, Any]:
    """The holders of this process's tensors as plain data: see docs/REPORT_SCHEMA.md."""
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    arguments = [
        gc.get_objects,
        gc.get_referents,
        _graph_getters(torch),
        vars(torch).get("_vramscope_sized") if torch is not None else None,
        int(seconds * 1e9),
        groups,
        int(with_cpu),
        _OWN_MODULES,
    ]
    with _quiet(torch):
        answer = probe.find_holders(arguments)
    if answer is None:
        raise RuntimeError("PyTorch's tensors cannot be read at the moment: try again")
    found, statistics = answer
    try:
        rows = []
        while found:
            # One at a time: what a group's steps refer to is let go at once.
            rows.append(_row(probe, found.pop(0), tensor, bool(statistics[3])))
    finally:
        probe.forget_holders()
    names = ("objects_seen", "objects", "walk_ns", "complete", "tensors_left", "bytes_left", "tensors", "bytes")
    return {"groups": rows, **dict(zip(names, statistics)), "complete": bool(statistics[3])}


def write(probe: "_probe.Probe", path: str, groups: int, seconds: float, with_cpu: bool) -> None:
    text = json.dumps(find(probe, groups, seconds, with_cpu))
    with _files.open_text(path) as file:
        file.write(text)


@contextlib.contextmanager
def _quiet(torch: Any) -> Iterator[None]:
    if getattr(torch, "_C", None) is not None:
        with _tensors.looking(torch):
            yield
        return
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _graph_getters(torch: Any) -> Optional[List[Any]]:
    """What reads autograd's graphs without code of the program; None where PyTorch is not as expected."""
    try:
        base = torch._C.TensorBase
        function = torch._C._FunctionBase
        return [
            base.__dict__["grad_fn"].__get__,
            function,
            function.__dict__["next_functions"].__get__,
            function.__dict__["_raw_saved_tensors"].__get__,
            dir,
        ]
    except (AttributeError, KeyError):
        return None


def _row(probe: "_probe.Probe", group: List[Any], tensor: Any, complete: bool) -> Dict[str, Any]:
    size, count, device, begins, place, steps = group
    way = _Way(begins, steps, count > 1, tensor)
    through = probe.bytes_of_holder(place) if complete and begins != _NOWHERE else -1
    return {
        "way": way.text,
        "kind": way.kind,
        "root": way.root,
        "bytes": size,
        "tensors": count,
        "device": device,
        "root_bytes": None if through < 0 else through,
    }


class _Way:
    """The text of a way: `__main__.losses[*]`."""

    def __init__(self, begins: int, steps: List[Step], many: bool, tensor: Any) -> None:
        self._many = many  # tensors have this way, with other indices
        self._tensor = tensor
        self._special = ""
        self._next_is = ""  # what the entries of a dictionary or tuple are: "attribute", "silent", "closure"
        self._function: Any = None
        self._suspended = ""
        self.text, usual, first = self._beginning(begins, steps)
        self.root = self.text
        for at in range(first, len(steps)):
            self.text += self._step(steps[at - 1][0], *steps[at])
        self.kind = self._special or usual

    def _beginning(self, begins: int, steps: List[Step]) -> Tuple[str, str, int]:
        """The text, its kind, and the first step that is not in it."""
        if begins == _NOWHERE:
            return "a cycle that Python's garbage collector will free", "garbage", 0
        if begins == _MODULE:
            name = steps[1][1]
            self._note(name)
            return f"{_module_of(steps[0][0])}.{name if type(name) is str else _short(name)}", "global", 2
        if begins == _FRAME:
            code, line = steps[0][:2]
            name = getattr(code, "co_qualname", code.co_name)
            return f"{os.path.basename(code.co_filename)}:{line} {name}() local '{steps[1][1]}'", "local", 2
        if len(steps) == 1:
            return "C++ only: no Python object refers to it", "C++", 1
        return f"held outside Python: {_kind_of(steps[0][0])}", "C++", 1

    def _note(self, name: Any, special: str = "") -> None:
        if not special and type(name) is str and "hook" in name:
            special = "hook"
        self._special = self._special or special

    def _step(self, parent: Any, child: Any, name: Any, link: int) -> str:
        if link == _GRADIENT:
            return ".grad"
        if link == _GRAPH:
            self._note(None, "autograd graph")
            return ""
        if link == _SAVED:
            what = name[len(_RAW) :] if name is not None and name.startswith(_RAW) else name or "saved tensor"
            return f" autograd graph ({'such as ' if self._many else ''}{_kind(parent)}.{what})"
        kind = type(parent)
        entries, self._next_is = self._next_is, ""
        if issubclass(kind, dict) and _dictionary_of(parent) is not child:
            return self._entry(entries, child, name)
        if entries == "closure":
            self._note(None, "closure")
            names = self._function.__code__.co_freevars
            place = next((place for place, cell in enumerate(parent) if cell is child), None)
            return f" closure '{names[place]}'" if place is not None else " closure"
        if issubclass(kind, _INDEXED):
            return self._index(parent, child)
        if issubclass(kind, (set, frozenset)):
            return "{*}"
        return self._reference(parent, kind, child)

    def _entry(self, entries: str, child: Any, name: Any) -> str:
        if entries == "thread local" and issubclass(type(child), dict) and type(name) is not str:
            self._next_is = "attribute"  # the variables of one thread
            return ""
        if entries == "silent":
            return ""
        if name is None:
            return " key"
        self._note(name)
        if type(name) is str and entries in ("attribute", "thread local"):
            return self._named(name, child)
        is_number = type(name) is not str or name[:1].isdigit()
        if entries == "part" and not is_number:
            return f".{name}"
        if is_number and self._many:
            return "[*]"
        return f"[{name}]" if entries == "part" else f"[{_short(name)}]"

    def _named(self, name: str, child: Any) -> str:
        if name in _PARTS and issubclass(type(child), dict):
            self._next_is = "part"
            return ""
        return f".{name}"

    def _index(self, parent: Any, child: Any) -> str:
        if self._many:
            return "[*]"
        for place, each in enumerate(list(parent)):
            if each is child:
                return f"[{place}]"
        return "[?]"

    def _reference(self, parent: Any, kind: type, child: Any) -> str:
        if kind is types.CellType or kind is types.TracebackType:
            return ""
        if kind is types.FunctionType and type(child) is tuple and child is parent.__closure__:
            self._next_is, self._function = "closure", parent
            return ""
        if kind is _CACHE and _dictionary_of(parent) is not child and type(child) is not types.FunctionType:
            self._note(None, "lru_cache")
            self._next_is = "silent"
            return " lru_cache"
        if kind is types.FrameType:
            place = "" if self._suspended else f" {_place(parent)}"
            self._suspended = ""
            return place + _local_in(parent, child)
        if kind in _SUSPENDED:
            word, attribute = _SUSPENDED[kind]
            self._note(None, "generator")
            if type(child) is types.FrameType:
                self._suspended = f" {word} {parent.__qualname__}()"  # up to Python 3.10 the frame is between
                return self._suspended
            return f" {word} {parent.__qualname__}(){_local_in(getattr(parent, attribute), child)}"
        if type(child) is types.TracebackType and issubclass(kind, BaseException):
            self._note(None, "exception traceback")
            return ".__traceback__"
        if issubclass(kind, type):
            if type(child) is dict:
                self._note(None, "class attribute")
                self._next_is = "attribute"
                return ""
            return f".{_attribute_of(parent, child).strip(chr(39)) or '?'}"
        if issubclass(kind, threading.local) and issubclass(type(child), dict):
            self._note(None, "thread local")
            self._next_is = "thread local"
            return ""
        if _dictionary_of(parent) is child:
            self._next_is = "attribute"
            return ""
        return self._attribute(parent, child)

    def _attribute(self, parent: Any, child: Any) -> str:
        name = _attribute_of(parent, child).strip("'")
        if name:
            self._note(name)
            return self._named(name, child)
        if self._tensor is not None and issubclass(type(parent), self._tensor) and issubclass(type(child), dict):
            self._note("hook")
            return "._backward_hooks"
        for name in ("__self__", "__func__", "__defaults__", "__kwdefaults__", "__globals__", "__context__", "__cause__"):
            if name in _BUILT_IN.get(type(parent), ()) and getattr(parent, name) is child:
                return f".{name}"
        return f" -> {_kind(child)}"


_BUILT_IN: Dict[type, Tuple[str, ...]] = {
    types.FunctionType: ("__defaults__", "__kwdefaults__", "__globals__"),
    types.MethodType: ("__self__", "__func__"),
    types.BuiltinFunctionType: ("__self__",),
}


def _module_of(variables: Any) -> str:
    for name, module in list(sys.modules.items()):
        if issubclass(type(module), types.ModuleType) and _dictionary_of(module) is variables:
            return name
    return "?"


def _place(frame: Any) -> str:
    code = frame.f_code
    name = getattr(code, "co_qualname", code.co_name)
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno} {name}()"


def _local_in(frame: Any, thing: Any) -> str:
    names = _locals_of(frame, {id(thing)}) if frame is not None else []
    return f" local '{names[0][0]}'" if names else ""


def _kind_of(thing: Any) -> str:
    return "tuple" if thing is None else _kind(thing)
