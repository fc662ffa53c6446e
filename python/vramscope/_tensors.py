# SPDX-License-Identifier: Apache-2.0
"""Lists every live tensor of this process, and the tensors that only autograd keeps. Changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import sys
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

# Identity of a storage: device type, device number, address.
Place = Tuple[str, int, int]


def torch_or_error(name: str) -> Any:
    """The torch module. Raises a clear error if torch is missing."""
    try:
        import torch
    except ImportError as error:
        raise RuntimeError(
            f"vramscope: {name} needs PyTorch, which this Python does not have ({error}); "
            "use the Python that has torch"
        ) from None
    return torch


class Memory(NamedTuple):
    """The memory of a dense tensor."""

    place: Place
    bytes: int  # of the storage
    storage: int  # id of the storage


@contextlib.contextmanager
def looking(torch: Any) -> Iterator[None]:
    """Inside, modes and tensor subclasses of the program are off, and no garbage is collected.

    A garbage collection would free the program's unreachable tensors: the figures before and after a report would
    differ.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with contextlib.ExitStack() as stack:
            for guard in ("DisableTorchFunction", "_DisableTorchDispatch"):
                found = getattr(torch._C, guard, None)
                if found is not None:
                    stack.enter_context(found())
            yield
    finally:
        if collects:
            gc.enable()


@dataclasses.dataclass
class Live:
    """Strong references to all objects found. Drop them as soon as possible."""

    tensors: List[Any]
    storages: List[Any]  # storages that are Python objects
    nodes: List[Any]  # autograd nodes that are Python objects
    optimizers: List[Any]
    is_frozen: bool  # gc.freeze() was called; it hides older objects, including the torch module


_TENSOR, _STORAGE, _NODE, _OPTIMIZER, _OTHER = range(5)


def live(torch: Any) -> Live:
    """All objects of the process that can hold the memory of a tensor."""
    optimizer = getattr(sys.modules.get("torch.optim.optimizer"), "Optimizer", None)
    left_out = [
        getattr(sys.modules.get(module), name, None)
        for module, name in (
            ("torch._subclasses.fake_tensor", "FakeTensor"),
            ("torch._subclasses.functional_tensor", "FunctionalTensor"),
        )
    ]

    def kind_of(cls: type) -> int:
        # Use the real base classes: isinstance() can run code of a proxy object.
        bases = type.__dict__["__mro__"].__get__(cls)
        for base in bases:
            if base is torch.Tensor:
                return _OTHER if any(one in bases for one in left_out if one is not None) else _TENSOR
            if base is torch.UntypedStorage:
                return _STORAGE
            if base is optimizer:
                return _OPTIMIZER
            if "next_functions" in base.__dict__ and "register_prehook" in base.__dict__:
                return _NODE
        return _OTHER

    found: Tuple[List[Any], ...] = ([], [], [], [], [])
    known: Dict[int, int] = {}
    is_frozen, module = True, torch.__dict__
    for thing in gc.get_objects():
        if thing is module:
            is_frozen = False
        cls = type(thing)
        kind = known.get(id(cls))
        if kind is None:
            try:
                kind = kind_of(cls)
            except Exception:  # the program may have strange metaclasses
                kind = _OTHER
            known[id(cls)] = kind
        if kind != _OTHER:
            found[kind].append(thing)
    return Live(found[_TENSOR], found[_STORAGE], found[_NODE], found[_OPTIMIZER], is_frozen)


@dataclasses.dataclass
class Saved:
    """A tensor that an autograd node saves for its backward."""

    tensor: Any
    node: str  # "MulBackward0"
    what: str  # "self": the node's name for it
    keeper: Any  # the node itself

    @property
    def holder(self) -> str:
        return f"{self.node}.{self.what}"


def can_see_saved(torch: Any) -> bool:
    """Whether this PyTorch shows saved tensors without running unpack hooks of the program (2.7 and later)."""
    return hasattr(torch._C._autograd.SavedTensor, "data")


def saved_by_autograd(torch: Any, there: Live) -> Iterator[Saved]:
    """The tensors saved by the graphs of live tensors. Tensors packed by a hook stay packed."""
    if not can_see_saved(torch):
        return
    waiting = list(there.nodes)
    for tensor in there.tensors:
        with contextlib.suppress(Exception):
            if tensor.grad_fn is not None:
                waiting.append(tensor.grad_fn)
    # Holds the node, so that its id is not reused meanwhile.
    seen: Dict[int, Any] = {}
    attributes: Dict[int, List[str]] = {}
    while waiting:
        node = waiting.pop()
        if node is None or id(node) in seen:
            continue
        seen[id(node)] = node
        cls = type(node)
        names = attributes.get(id(cls))
        if names is None:
            names = attributes[id(cls)] = [name for name in dir(cls) if name.startswith("_raw_saved_")]
        for name in names:
            with contextlib.suppress(Exception):  # the backward has already freed the graph
                raw = getattr(node, name)
                for each in raw if isinstance(raw, (tuple, list)) else (raw,):
                    tensor = _unhooked(torch, each)
                    if tensor is not None:
                        yield Saved(tensor, _name_of(node), name[len("_raw_saved_") :], node)
        with contextlib.suppress(Exception):
            if cls.__name__ == "AccumulateGrad":
                yield Saved(node.variable, "AccumulateGrad", "variable", node)
        with contextlib.suppress(Exception):
            waiting.extend(edge[0] for edge in node.next_functions)


def ends_of_graphs(there: Live, keepers: List[Any]) -> List[Any]:
    """The live tensors at the ends of the graphs with these nodes. They keep the nodes alive."""
    ends: Dict[int, List[Any]] = {}
    waiting: List[Any] = []
    for tensor in there.tensors:
        with contextlib.suppress(Exception):
            node = tensor.grad_fn
            if node is not None:
                ends.setdefault(id(node), []).append(tensor)
                waiting.append(node)
    seen: Dict[int, Any] = {}
    users: Dict[int, List[int]] = {}  # the nodes that use the result of a node
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen[id(node)] = node
        with contextlib.suppress(Exception):
            for edge in node.next_functions:
                if edge[0] is not None:
                    users.setdefault(id(edge[0]), []).append(id(node))
                    waiting.append(edge[0])
    found: List[Any] = []
    above = {id(node) for node in keepers}
    open_ids = list(above)
    while open_ids:
        number = open_ids.pop()
        if number not in users:
            found += ends.get(number, [])
        for user in users.get(number, ()):
            if user not in above:
                above.add(user)
                open_ids.append(user)
    return found


def _unhooked(torch: Any, saved: Any) -> Optional[Any]:
    if saved is None:
        return None
    data = saved.data
    return data if isinstance(data, torch.Tensor) else None


def _name_of(node: Any) -> str:
    name = type(node).__name__
    if name != "CppFunction":
        return name
    return str(node.name()).rsplit("::", 1)[-1]


def is_wrapper(tensor: Any) -> bool:
    """Whether the tensor only wraps other tensors (DTensor, quantised wrappers)."""
    return hasattr(type(tensor), "__tensor_flatten__")


def inner_tensors(tensor: Any) -> List[Tuple[str, Any]]:
    """Name and tensor of each part of a wrapper."""
    try:
        names = tensor.__tensor_flatten__()[0]
        return [(name, getattr(tensor, name)) for name in names]
    except Exception:
        return []


def pieces(torch: Any, tensor: Any) -> List[Tuple[str, Any]]:
    """The dense tensors with a tensor's memory, each with the suffix of its name."""
    layout = tensor.layout
    if layout is torch.strided or layout is torch.jagged:
        parts = [("", tensor)]
        if tensor.is_quantized and str(tensor.qscheme()).startswith("torch.per_channel"):
            parts += [(".q_scales", tensor.q_per_channel_scales())]
            parts += [(".q_zero_points", tensor.q_per_channel_zero_points())]
        return parts
    if layout is torch.sparse_coo:
        return [(".indices", tensor._indices()), (".values", tensor._values())]
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return [
            (".crow_indices", tensor.crow_indices()),
            (".col_indices", tensor.col_indices()),
            (".values", tensor.values()),
        ]
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return [
            (".ccol_indices", tensor.ccol_indices()),
            (".row_indices", tensor.row_indices()),
            (".values", tensor.values()),
        ]
    return []


def memory_of(torch: Any, tensor: Any) -> Optional[Memory]:
    """The memory of a dense tensor; None if it has none (functorch's wrappers, mkldnn)."""
    try:
        storage = tensor.untyped_storage()
        size = int(storage.nbytes())
        # data_ptr() would copy memory that is shared copy-on-write.
        read = getattr(torch._C, "_data_address", None)
        address = int(read(tensor)) if read is not None else int(storage.data_ptr())
        device = tensor.device
        return Memory((device.type, device.index or 0, address), size, storage._cdata)
    except Exception:
        return None


def memory_of_storage(storage: Any) -> Optional[Memory]:
    """The memory of a storage without a tensor. Avoids data_ptr(), which would copy copy-on-write memory."""
    try:
        device = storage.device
        place = (device.type, device.index or 0, int(storage.data_ptr()))
        return Memory(place, int(storage.nbytes()), storage._cdata)
    except Exception:
        return None


def shape_of(tensor: Any) -> Tuple[Any, ...]:
    """The shape: numbers, or text for symbolic sizes; (1,) for a scalar, as printed."""
    try:
        sizes = tuple(size if type(size) is int else str(size) for size in tensor.size())
    except Exception:  # a nested tensor has no single shape
        return ("nested", numel_of(tensor))
    return sizes or (1,)


def numel_of(tensor: Any) -> int:
    try:
        return int(tensor.numel())
    except Exception:
        return 0


def gradient_of(tensor: Any) -> Optional[Any]:
    """The tensor's gradient, or None. Skips non-leaf tensors without retained gradient: PyTorch would warn."""
    try:
        if tensor.is_leaf or tensor.retains_grad:
            return tensor.grad
    except Exception:
        pass
    return None


def held_by_cpp_alone(torch: Any, tensors: List[Any]) -> List[bool]:
    """For each tensor of a list that holds the only known references: whether no other Python object refers to it.

    A tensor keeps its Python object while C++ uses it. In recent versions of PyTorch the reference of C++ then counts
    as one reference of that object; in older ones it does not.
    """
    if _version(torch) < (2, 11):
        return [False] * len(tensors)

    def counts(things: List[Any]) -> List[int]:
        return [sys.getrefcount(thing) for thing in things]

    one_reference = counts([object()])[0]
    return [
        count == one_reference + 1 and _use_count(tensor) > 1
        for count, tensor in zip(counts(tensors), tensors)
    ]


def _use_count(tensor: Any) -> int:
    try:
        return int(tensor._use_count())
    except Exception:
        return 0


def _version(torch: Any) -> Tuple[int, int]:
    try:
        major, minor = torch.__version__.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        return 0, 0


def cpu_bytes() -> int:
    """Bytes of the CPU tensors that Python holds. Each storage counts once."""
    torch = sys.modules.get("torch")
    if torch is None:
        return 0
    storages = {}
    with looking(torch):
        for tensor in live(torch).tensors:
            memory = memory_of(torch, tensor)
            if memory is not None and memory.place[0] == "cpu":
                storages[memory.storage] = memory.bytes
    return sum(storages.values())
