# SPDX-License-Identifier: Apache-2.0
"""MemReporter: every live tensor, and all other GPU memory of the process."""

from __future__ import annotations

import contextlib
import gc
import os
import warnings
import weakref
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Union

from . import _ledger, _nvml, _referrers, _tensors, _torch_blocks
from ._mem_report import Blocks, DeviceReport, Part, Report, Row

# The caching allocator rounds requests up to a multiple of this.
_GRAIN = 512
# A report names at most this many of the nodes that keep one storage.
_HOLDERS = 4


class MemReporter:
    """Lists every live tensor with the memory of its storage, and all other GPU memory of the process::

        reporter = MemReporter(model)
        reporter.report()
        before = reporter.snapshot()
        ...
        print(before.diff(reporter.snapshot()))

    Parameters, gradients and buffers of `model` and the state of its optimizers have names; other tensors have a
    class and a number. The reporter keeps neither the model nor any tensor alive, and does not change the allocator.
    With ``pre_collect=True`` it collects garbage first.
    """

    def __init__(self, model: Any = None, pre_collect: bool = False) -> None:
        torch = _tensors.torch_or_error("MemReporter")
        if model is not None and not isinstance(model, torch.nn.Module):
            raise TypeError(f"vramscope: MemReporter takes a torch.nn.Module, not {type(model).__name__}")
        self.pre_collect = pre_collect
        #: Filled by get_stats(): device -> (name, size, number of elements, bytes) of each tensor.
        self.device_tensor_stat: Dict[Any, List[Tuple[str, Tuple[Any, ...], int, int]]] = {}
        self._model = None if model is None else weakref.ref(model)
        self._optimizers: "List[weakref.ref[Any]]" = []
        # Numbers of unnamed tensors. The key contains more than the id, because Python reuses ids.
        self._numbered: Dict[int, Tuple[Tuple[Any, ...], str]] = {}
        self._next_number = 0
        self._taken: Optional[Report] = None

    # ---- the API ----

    def report(self, verbose: bool = False, device: Any = None) -> Report:
        """Prints the report and returns it. A notebook shows it as a table.

        `device` limits the report to one device, for example ``"cuda:0"``. `verbose` shows which tensor shares a
        storage. If `device` is a GPU and PyTorch finds none, this warns, prints nothing and returns a report without
        devices. A ValueError names a device that does not exist.
        """
        torch = _tensors.torch_or_error("MemReporter")
        only = None if device is None else _device_name(torch, device)
        if _is_of_no_gpu(torch, only):
            return Report({})
        found = self.snapshot().shown(verbose, only)
        print(found.text())
        return found

    def snapshot(self) -> Report:
        """Returns the report without printing it."""
        torch = _tensors.torch_or_error("MemReporter")
        if self.pre_collect:
            gc.collect()
        with _tensors.looking(torch):
            devices = _Look(torch, self).devices
        _add_what_is_recorded(torch, devices)
        return Report(devices)

    def add_optimizer(self, optimizer: Any) -> None:
        """Names the state of an optimizer with parameters outside the model. Other optimizers are found."""
        torch = _tensors.torch_or_error("MemReporter")
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TypeError(
                f"vramscope: add_optimizer takes a torch.optim.Optimizer, not {type(optimizer).__name__}"
            )
        if all(known() is not optimizer for known in self._optimizers):
            self._optimizers.append(weakref.ref(optimizer))

    def referrers(self, tensor: Any, limit: int = 10, depth: int = 8) -> "_referrers.Referrers":
        """Prints what still refers to a tensor: variables, attributes, containers, other tensors, autograd."""
        torch = _tensors.torch_or_error("MemReporter")
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"vramscope: referrers takes a tensor, not {type(tensor).__name__}")
        found = _referrers.find(torch, tensor, limit, depth)
        print(found.text())
        return found

    # ---- single steps, for programs written for pytorch_memlab ----

    def collect_tensor(self) -> None:
        """Collects all tensors; `get_stats` returns the result."""
        self._taken = self.snapshot()

    def get_stats(self) -> Dict[Any, List[Tuple[str, Tuple[Any, ...], int, int]]]:
        """Name, size, number of elements and bytes of each tensor, by device."""
        torch = _tensors.torch_or_error("MemReporter")
        if self._taken is None:
            self.collect_tensor()
        assert self._taken is not None
        self.device_tensor_stat = {
            torch.device(name): [(row.label(True), row.shape, row.numel, row.bytes) for row in device.rows]
            for name, device in self._taken.devices.items()
        }
        return self.device_tensor_stat

    def print_stats(self, verbose: bool = False, target_device: Any = None) -> None:
        """Prints the result of `collect_tensor`."""
        torch = _tensors.torch_or_error("MemReporter")
        if self._taken is None:
            self.collect_tensor()
        assert self._taken is not None
        only = None if target_device is None else _device_name(torch, target_device)
        if _is_of_no_gpu(torch, only):
            return
        print(self._taken.shown(verbose, only).text())

    # ---- names ----

    def _known_optimizers(self, torch: Any, found: List[Any], parameters: Set[int]) -> List[Any]:
        """The added optimizers, and those of the process that train the model, in a stable order."""
        for optimizer in found:
            if any(optimizer is known() for known in self._optimizers):
                continue
            with contextlib.suppress(Exception):
                groups = optimizer.param_groups
                if any(id(parameter) in parameters for group in groups for parameter in group["params"]):
                    self._optimizers.append(weakref.ref(optimizer))
        return [optimizer for optimizer in (known() for known in self._optimizers) if optimizer is not None]

    def _number(self, tensor: Any, look: Tuple[Any, ...], seen: Dict[int, Tuple[Tuple[Any, ...], str]]) -> str:
        known = self._numbered.get(id(tensor))
        if known is None or known[0] != look:
            known = (look, f"{type(tensor).__name__}{self._next_number}")
            self._next_number += 1
        seen[id(tensor)] = known
        return known[1]


class _Look:
    """One scan of the process. It holds tensors while it runs, and only plain data afterwards."""

    def __init__(self, torch: Any, reporter: MemReporter) -> None:
        self._torch = torch
        self._reporter = reporter
        self.devices: Dict[str, DeviceReport] = {}
        self._owners: Dict[_tensors.Place, Row] = {}
        self._storages: Set[int] = set()  # the storages of tensors
        # Holds each listed tensor, so that its id is not reused.
        self._listed: Dict[int, Any] = {}
        self._numbers: Dict[int, Tuple[Tuple[Any, ...], str]] = {}
        self._caches = _torch_blocks.caches(torch)
        self._cached_by_torch = _torch_blocks.is_ready(torch) and not os.environ.get(
            "PYTORCH_NO_CUDA_MEMORY_CACHING"
        )
        try:
            self._look()
            self._account()
        finally:
            reporter._numbered = self._numbers
        self.devices = dict(sorted(self.devices.items(), key=_device_order))

    def _look(self) -> None:
        there = _tensors.live(self._torch)
        self._is_frozen = there.is_frozen
        cpp_alone = _tensors.held_by_cpp_alone(self._torch, there.tensors)
        for tensor, name, kind in self._named(there):
            self._add(tensor, name, kind)
        left = []
        for tensor, alone in zip(there.tensors, cpp_alone):
            if id(tensor) in self._listed:
                continue
            if alone:
                left.append(tensor)
            else:
                self._add_unnamed(tensor)
        for saved in _tensors.saved_by_autograd(self._torch, there):
            self._add_saved(saved)
        for storage in there.storages:
            self._add_storage(storage)
        for tensor in left:
            if not self._is_known(tensor):
                self._add_unnamed(tensor)

    # ---- names of tensors ----

    def _named(self, there: _tensors.Live) -> Iterator[Tuple[Any, str, str]]:
        """All named tensors in the order of the model; each gradient follows its tensor."""
        model = self._reporter._model() if self._reporter._model is not None else None
        names: Dict[int, str] = {}
        if model is not None:
            with contextlib.suppress(Exception):  # a module may have arbitrary attributes
                for name, parameter in model.named_parameters():
                    names[id(parameter)] = name
                    yield from self._with_gradient(parameter, name, "parameter")
            with contextlib.suppress(Exception):
                for name, buffer in model.named_buffers():
                    yield from self._whole(buffer, name, "buffer")
        kinds: Dict[str, int] = {}
        for optimizer in self._reporter._known_optimizers(self._torch, there.optimizers, set(names)):
            kind = type(optimizer).__name__
            kinds[kind] = kinds.get(kind, 0) + 1
            with contextlib.suppress(Exception):
                yield from self._state_of(optimizer, kind if kinds[kind] == 1 else f"{kind}{kinds[kind]}", names)

    def _state_of(self, optimizer: Any, kind: str, names: Dict[int, str]) -> Iterator[Tuple[Any, str, str]]:
        numbers = {
            id(parameter): f"param{number}"
            for number, parameter in enumerate(
                parameter for group in optimizer.param_groups for parameter in group["params"]
            )
        }
        for parameter, state in list(optimizer.state.items()):
            owner = names.get(id(parameter)) or numbers.get(id(parameter), "")
            for name, tensor in _tensors_in(self._torch, state, ".".join(filter(None, (kind, owner)))):
                yield from self._whole(tensor, name, "optimizer state")

    def _whole(self, tensor: Any, name: str, kind: str) -> Iterator[Tuple[Any, str, str]]:
        yield tensor, name, kind
        if _tensors.is_wrapper(tensor):
            for attribute, inner in _tensors.inner_tensors(tensor):
                yield from self._whole(inner, f"{name}.{attribute}", kind)

    def _with_gradient(self, tensor: Any, name: str, kind: str) -> Iterator[Tuple[Any, str, str]]:
        yield from self._whole(tensor, name, kind)
        gradient = _tensors.gradient_of(tensor)
        if gradient is not None:
            yield from self._whole(gradient, f"{name}.grad", "gradient")

    # ---- rows ----

    def _add_unnamed(self, tensor: Any) -> None:
        if _tensors.is_wrapper(tensor):
            return  # its inner tensors have their own rows
        first = next(iter(self._places(tensor)), None)
        if first is None:
            return
        look = (type(tensor).__name__, first[2], _tensors.shape_of(tensor))
        self._add(tensor, self._reporter._number(tensor, look, self._numbers), "tensor")
        gradient = _tensors.gradient_of(tensor)
        if gradient is not None and id(gradient) not in self._listed:
            name = self._numbers[id(tensor)][1]
            for part, part_name, kind in self._whole(gradient, f"{name}.grad", "gradient"):
                self._add(part, part_name, kind)

    def _places(self, tensor: Any) -> Iterator[Tuple[str, Any, _tensors.Place, int]]:
        """The dense parts of a tensor that have memory, or are on no real device."""
        try:
            parts = _tensors.pieces(self._torch, tensor)
        except Exception:
            return
        for suffix, part in parts:
            found = _tensors.memory_of(self._torch, part)
            if found is None:
                continue
            place, size, storage = found
            self._storages.add(storage)
            if place[2] == 0 and size and place[0] != "meta":
                continue  # a wrapper or a fake tensor
            if size or _tensors.numel_of(part):
                yield suffix, part, place, size

    def _add(self, tensor: Any, name: str, kind: str) -> None:
        if id(tensor) in self._listed:
            return
        self._listed[id(tensor)] = tensor
        if _tensors.is_wrapper(tensor):
            return
        for suffix, part, place, size in self._places(tensor):
            self._add_row(
                Row(
                    device=_device_text(place),
                    name=name + suffix,
                    kind=kind,
                    type=type(tensor).__name__,
                    dtype=str(part.dtype).replace("torch.", ""),
                    shape=_tensors.shape_of(part),
                    numel=_tensors.numel_of(part),
                    bytes=0,
                    storage_bytes=size,
                    address=place[2],
                ),
                place,
            )

    def _add_row(self, row: Row, place: _tensors.Place) -> None:
        self._device(row.device).rows.append(row)
        if place[2] == 0:
            return
        key, size, row.line, row.external = self._memory_at(place, row.storage_bytes)
        owner = self._owners.get(key)
        if owner is None:
            self._owners[key] = row
            row.bytes = size
        else:
            row.owner = owner.name

    def _memory_at(self, place: _tensors.Place, size: int) -> Tuple[_tensors.Place, int, str, bool]:
        """The identity of this memory, its bytes, its line, and whether another library allocated it."""
        kind, index, address = place
        if kind != "cuda" or not self._cached_by_torch:
            return place, size, "", False
        cache = self._caches.get(index)
        if cache is not None and not cache.complete:
            return place, -(-size // _GRAIN) * _GRAIN, "", False
        block = cache.block_at(address) if cache is not None else None
        if block is None:
            return place, size, "", True
        return (kind, index, block.address), block.bytes, block.line, False

    def _add_saved(self, saved: _tensors.Saved) -> None:
        if _tensors.is_wrapper(saved.tensor):
            return
        for _, part, place, size in self._places(saved.tensor):
            if place[2] == 0:
                continue
            key = self._memory_at(place, size)[0]
            owner = self._owners.get(key)
            if owner is None:
                self._add_row(
                    Row(
                        device=_device_text(place),
                        name=saved.holder,
                        kind="autograd",
                        type=type(saved.tensor).__name__,
                        dtype=str(part.dtype).replace("torch.", ""),
                        shape=_tensors.shape_of(part),
                        numel=_tensors.numel_of(part),
                        bytes=0,
                        storage_bytes=size,
                        address=place[2],
                    ),
                    place,
                )
                owner = self._owners[key]
            if saved.node != "AccumulateGrad" and owner.saved_by.count(",") < _HOLDERS - 1:
                known = owner.saved_by.split(", ") if owner.saved_by else []
                if saved.holder not in known:
                    owner.saved_by = ", ".join([*known, saved.holder])

    def _add_storage(self, storage: Any) -> None:
        """Adds a storage that the program holds without a tensor."""
        found = None if storage._cdata in self._storages else _tensors.memory_of_storage(storage)
        if found is None or found.place[2] == 0 or found.bytes == 0:
            return
        place, size, _ = found
        if self._memory_at(place, size)[0] in self._owners:
            return
        look = ("UntypedStorage", place, size)
        name = self._reporter._number(storage, look, self._numbers)
        device = _device_text(place)
        self._add_row(
            Row(device, name, "storage", type(storage).__name__, "uint8", (size,), size, 0, size, place[2]), place
        )

    def _is_known(self, tensor: Any) -> bool:
        places = list(self._places(tensor))
        return all(place[2] == 0 or self._memory_at(place, size)[0] in self._owners for _, _, place, size in places)

    def _device(self, name: str) -> DeviceReport:
        return self.devices.setdefault(name, DeviceReport(name))

    # ---- memory of the allocator and of the process ----

    def _account(self) -> None:
        for index in _torch_blocks.devices_in_use(self._torch):
            self._device(f"cuda:{index}")
        for index, cache in self._caches.items():
            device = self._device(f"cuda:{index}")
            device.allocated = cache.allocated
            device.requested = cache.requested
            device.pending = cache.pending
            device.cached = cache.cached
            device.fragmentation = cache.fragmentation
            device.reserved = cache.reserved
            self._blocks_without_tensor(device, cache)
        for name, device in self.devices.items():
            if name.startswith("cuda:") and _torch_blocks.is_ready(self._torch):
                if device.reserved is None:
                    device.reserved = device.tensor_bytes + device.autograd_bytes
                    device.allocated = device.requested = device.reserved
                self._process(device, int(name[5:]))
        if self._is_frozen:
            for device in self.devices.values():
                device.remarks.append("gc.freeze() hides what was there before it: tensors without a name are missing")
        if not _tensors.can_see_saved(self._torch):
            for device in self.devices.values():
                device.remarks.append("what autograd alone holds cannot be seen in PyTorch before 2.7")

    def _blocks_without_tensor(self, device: DeviceReport, cache: _torch_blocks.Cache) -> None:
        if not cache.complete:
            rest = cache.allocated - device.tensor_bytes - device.autograd_bytes
            if rest > 0:
                device.blocks.append(Blocks(1, rest, "this allocator does not show its blocks", ""))
            return
        workspaces = _cublas_workspaces()
        alike: Dict[Tuple[int, str, str], int] = {}
        for block in cache.blocks:
            if block.private:
                device.private += block.bytes
            if block.pending or ("cuda", cache.device, block.address) in self._owners:
                continue
            what = ""
            if block.private:
                what = "of a CUDA graph or memory pool"
            elif block.requested in workspaces:
                what = "as large as a workspace of cuBLAS"
            # The addresses are replaced by lines later.
            key = (block.bytes, what, block.line or f"@{block.address}")
            alike[key] = alike.get(key, 0) + 1
        device.blocks = [Blocks(count, size * count, what, line) for (size, what, line), count in alike.items()]

    def _process(self, device: DeviceReport, index: int) -> None:
        uuid = _torch_blocks.uuid_of(self._torch, index)
        if uuid is None:
            why = "this PyTorch does not say which GPU it is"
            device.remarks.append(f"what the process uses in all is not known: {why}")
            return
        reading = _nvml.process_bytes(uuid, device.reserved or 0)
        device.nvml = reading.bytes
        if reading.bytes is None:
            device.remarks.append(f"what the process uses in all is not known: {reading.remark}")
        elif reading.remark:
            device.remarks.append(f"nvidia-smi's figure is that of {reading.remark}")


# ---- facts from the recording ----


def _add_what_is_recorded(torch: Any, devices: Dict[str, DeviceReport]) -> None:
    live = _ledger.session()
    lines: Dict[int, str] = {}
    outside: Dict[str, _ledger.Outside] = {}
    problem = ""
    if live is not None:
        try:  # a report without names is still a report
            with _ledger.read(live) as trace:
                if any(device.nvml is not None for device in devices.values()):
                    outside = _ledger.outside_pytorch(trace)
                lines = _ledger.lines_of(trace, _addresses(devices))
        except Exception as error:
            problem = str(error).splitlines()[0] if str(error) else type(error).__name__
    if problem:
        for device in devices.values():
            device.remarks.append(f"the recording could not be read: {problem}")
    for name, device in devices.items():
        for row in device.rows:
            row.line = row.line or lines.get(row.address, "")
        device.blocks = _together(device.blocks, lines)
        if device.nvml is None:
            continue
        index = int(name[5:])
        rest = device.nvml - (device.reserved or 0)
        ledger = outside.get(_nvml.bare(_torch_blocks.uuid_of(torch, index) or ""))
        if ledger is None:
            device.outside = [Part("Libraries and the driver", rest)]
            if live is None:
                device.remarks.append("under 'vramscope run' libraries and the driver are told apart")
            continue
        beside = ledger.pytorch_bytes - (device.reserved or 0)
        unexplained = rest - beside - sum(ledger.rows.values())
        if unexplained < 0 and not ledger.has_rm_internal and ledger.rows.get(_ledger.CONTEXT, 0) > -unexplained:
            ledger.rows[_ledger.CONTEXT] += unexplained
            unexplained = 0
        parts = sorted(ledger.rows.items(), key=lambda item: -item[1])
        if beside:
            parts.append(("PyTorch, besides its allocator", beside))
        if unexplained:
            parts.append(("Not explained", unexplained))
        device.outside = [Part(part, size) for part, size in parts]


def _addresses(devices: Dict[str, DeviceReport]) -> Set[int]:
    found = {row.address for device in devices.values() for row in device.rows if row.bytes and not row.line}
    for device in devices.values():
        found |= {int(blocks.line[1:]) for blocks in device.blocks if blocks.line.startswith("@")}
    return found


def _together(blocks: List[Blocks], lines: Dict[int, str]) -> List[Blocks]:
    """Groups blocks of one size and one line, largest first."""
    alike: Dict[Tuple[int, str, str], int] = {}
    for one in blocks:
        line = lines.get(int(one.line[1:]), "") if one.line.startswith("@") else one.line
        key = (one.bytes // one.count, one.what, line)
        alike[key] = alike.get(key, 0) + one.count
    found = [Blocks(count, size * count, what, line) for (size, what, line), count in alike.items()]
    return sorted(found, key=lambda one: -one.bytes)


# ---- helpers ----


def _tensors_in(torch: Any, value: Any, name: str, depth: int = 0) -> Iterator[Tuple[str, Any]]:
    """The tensors of an optimizer's state, at any nesting."""
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth < 4 and isinstance(value, dict):
        for key, inner in list(value.items()):
            yield from _tensors_in(torch, inner, f"{name}.{key}", depth + 1)
    elif depth < 4 and isinstance(value, (list, tuple)):
        for key, inner in enumerate(value):
            yield from _tensors_in(torch, inner, f"{name}.{key}", depth + 1)


def _device_text(place: _tensors.Place) -> str:
    kind, index, _ = place
    return kind if kind in ("cpu", "meta") else f"{kind}:{index}"


def _device_order(item: Tuple[str, DeviceReport]) -> Tuple[int, str, int]:
    kind, _, index = item[0].partition(":")
    return ({"cpu": 1, "meta": 2}.get(kind, 0), kind, int(index or 0))


def _device_name(torch: Any, device: Any) -> str:
    """The report's name of `device`. Raises an error if the device does not exist."""
    try:
        wanted = torch.device("cuda", device) if type(device) is int else torch.device(device)
    except TypeError:
        raise ValueError(f"vramscope: {device!r} is not a device: use a GPU's number, 'cuda:0' or 'cpu'") from None
    except RuntimeError as error:
        raise ValueError(f"vramscope: {device!r} is not a device: {str(error).splitlines()[0]}") from None
    if wanted.type == "cuda" and torch.cuda.is_available():
        count = torch.cuda.device_count()
        if wanted.index is not None and wanted.index >= count:
            raise ValueError(f"vramscope: {wanted} does not exist: PyTorch finds {count} GPUs")
    if wanted.type in ("cpu", "meta"):
        return str(wanted.type)
    index = wanted.index
    if index is None:
        index = torch.cuda.current_device() if _torch_blocks.is_ready(torch) else 0
    return f"{wanted.type}:{index}"


def _is_of_no_gpu(torch: Any, device: Optional[str]) -> bool:
    """Whether `device` is a GPU on a machine without one. Warns instead of raising, so that the program can continue."""
    if device is None or not device.startswith("cuda:") or torch.cuda.is_available():
        return False
    warnings.warn(
        f"vramscope: no report of {device}: PyTorch finds no GPU", RuntimeWarning, stacklevel=3
    )
    return True


def _cublas_workspaces() -> Set[int]:
    """Sizes of PyTorch's cuBLAS workspaces: on Hopper, on older GPUs, and as set by the environment variable."""
    sizes = {8 * 4096 * 1024, (2 * 4096 + 8 * 16) * 1024}
    words: Union[List[str], List[int]] = os.environ.get("CUBLAS_WORKSPACE_CONFIG", "").strip(":").split(":")
    with contextlib.suppress(ValueError):
        numbers = [int(word) for word in words]
        sizes.add(sum(size * count * 1024 for size, count in zip(numbers[::2], numbers[1::2])))
    return sizes
