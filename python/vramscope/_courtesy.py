# SPDX-License-Identifier: Apache-2.0
"""Courtesy: moves the tensors of this process from the GPU to host memory for a while, and back."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
import threading
import time
import warnings
from types import TracebackType
from typing import Any, Dict, Iterator, List, Optional, Set, Tuple, Type

from . import _tensors, _torch_blocks
from ._mem_report import readable_size

# All copies go through two pinned buffers of this size; the rest of the host memory can be swapped.
_CHUNK = 32 << 20
# An error lists at most this many reasons, and the number of the others.
_SHOWN_REASONS = 5

# Keeps moved storages alive if their Courtesy is deleted: the host copy is the only one.
_holding: "Set[Courtesy]" = set()


@dataclasses.dataclass(eq=False)
class _Away:
    """A storage with its bytes in host memory."""

    storage: Any  # torch.multiprocessing's weak reference: the program may drop the tensor meanwhile
    bytes: int
    device: int
    stream: int  # the stream of the allocation
    host: Any  # a uint8 tensor


@dataclasses.dataclass
class _Obstacle:
    """Memory that cannot be moved."""

    bytes: int
    reason: str


class Courtesy:
    """Moves the memory of all CUDA tensors to the host and back, in place::

        courtesy = Courtesy()
        courtesy.yield_memory()   # other programs can use the GPU now
        ...
        courtesy.restore()

        with Courtesy():          # the same
            ...

    Tensors, views, gradients and tensors saved by autograd stay valid, because only their storages are emptied and
    filled again. No thread may use a tensor meanwhile.

    Some memory cannot be moved: allocations without a storage, and addresses that CUDA graphs or other processes use.
    By default nothing is moved then, and a RuntimeError lists the reasons. With ``partial=True`` the rest is moved.
    The CUDA context and library workspaces stay on the GPU. Without a GPU, Courtesy warns and does nothing.

    `device_type` "cpu" moves CPU tensors instead; it frees nothing and serves tests.
    """

    def __init__(self, partial: bool = False, device_type: str = "cuda") -> None:
        if device_type not in ("cuda", "cpu"):
            raise ValueError(f"vramscope: Courtesy moves 'cuda' or 'cpu' tensors, not {device_type!r}")
        self.partial = partial
        self._kind = device_type
        self._levels: List[List[_Away]] = []  # one list for each yield_memory()
        self._blocks: List[int] = []  # for each active `with`, the number of levels before it
        self._lock = threading.RLock()

    @property
    def bytes_away(self) -> int:
        """Bytes that are now in host memory."""
        return sum(away.bytes for level in self._levels for away in level)

    def yield_memory(self, partial: Optional[bool] = None) -> int:
        """Moves the memory to the host; returns the bytes moved. Memory moved before stays on the host."""
        torch = _tensors.torch_or_error("Courtesy")
        partial = self.partial if partial is None else partial
        with self._lock:
            if not self._is_possible(torch):
                return 0
            with _tensors.looking(torch):
                level = self._take(torch, partial)
            self._levels.append(level)
            if self._kind == "cuda":
                torch.cuda.empty_cache()
            return sum(away.bytes for away in level)

    def restore(self) -> None:
        """Moves everything back. If the GPU is full, the rest stays on the host, unharmed."""
        with self._lock:
            self._restore_from(0)

    def __enter__(self) -> "Courtesy":
        self._blocks.append(len(self._levels))
        try:
            self.yield_memory()
        except BaseException:
            self._blocks.pop()
            raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        with self._lock:
            self._restore_from(self._blocks.pop())

    # ---- to the host ----

    def _is_possible(self, torch: Any) -> bool:
        inside = getattr(torch._C, "_current_graph_task_id", lambda: -1)()
        if inside != -1:
            raise RuntimeError("vramscope: yield_memory() cannot run inside a backward pass: call it before or after")
        if self._kind == "cpu":
            return True
        if not torch.cuda.is_available():
            # The program may also run on machines without a GPU.
            warnings.warn(
                "vramscope: Courtesy does nothing: PyTorch finds no GPU",
                RuntimeWarning,
                stacklevel=_outside(),
            )
            return False
        if not _torch_blocks.is_ready(torch):
            return False  # nothing is allocated yet
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError(
                "vramscope: yield_memory() cannot run while a CUDA graph is captured: call it before or after"
            )
        return True

    def _take(self, torch: Any, partial: bool) -> List[_Away]:
        storages = _storages(torch, self._kind)
        if self._kind == "cuda":
            self._settle(torch, storages)
        movable, obstacles = self._sort(torch, storages)
        if obstacles and not partial:
            raise RuntimeError(_refusal(obstacles))
        total = sum(storage.nbytes() for storage, _, _ in movable)
        room = _host_room()
        if room is not None and total > room:
            raise MemoryError(
                f"vramscope: {readable_size(total)} do not fit into host memory, which has {readable_size(room)} "
                "free; no memory was moved"
            )
        # Copy everything first, which changes nothing. Emptying storages afterwards cannot fail for lack of memory.
        level: List[_Away] = []
        with _Progress("to the host", total) as progress:
            carrier = _Carrier(torch, self._kind, progress)
            for storage, device, stream in movable:
                host = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu")
                away = _Away(_weak(torch, storage), storage.nbytes(), device, stream, host)
                carrier.out(_bytes_of(torch, storage, self._kind, device), host)
                level.append(away)
            carrier.flush()
        _holding.add(self)
        try:
            for storage, _, _ in movable:
                storage.resize_(0)
        except BaseException:
            self._levels.append(level)
            self._restore_from(len(self._levels) - 1)
            raise
        return level

    @staticmethod
    def _settle(torch: Any, storages: Dict[int, Any]) -> None:
        """Waits for the GPU and frees the workspaces of cuBLAS, which its next use creates again."""
        caches = _torch_blocks.caches(torch)
        for device in sorted({*caches, *(storage.device.index or 0 for storage in storages.values())}):
            torch.cuda.synchronize(device)
        # A captured CUDA graph uses its workspaces by address.
        clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
        if clear is not None and not any(block.private for cache in caches.values() for block in cache.blocks):
            clear()

    def _sort(self, torch: Any, storages: Dict[int, Any]) -> Tuple[List[Tuple[Any, int, int]], List[_Obstacle]]:
        """The movable storages with device and stream, and the reasons for the others."""
        caches = _torch_blocks.caches(torch) if self._kind == "cuda" else {}
        shared = _shared_with_processes()
        movable, obstacles = [], []
        taken: Set[Tuple[int, int]] = set()
        for identity, storage in storages.items():
            device, address = storage.device.index or 0, storage.data_ptr()
            cache = caches.get(device)
            block = cache.block_at(address) if cache is not None else None
            reason = ""
            if identity in shared or (self._kind == "cpu" and storage.is_shared()):
                reason = "shared with another process"
            elif cache is not None and cache.complete and block is None:
                reason = "memory that is not PyTorch's (CuPy, DLPack, another process)"
            elif block is not None and block.private:
                reason = "of a CUDA graph or memory pool, which rely on its address"
            elif not storage.resizable() or (block is not None and block.address != address):
                reason = "memory that its storage does not own (NumPy, DLPack, from_blob)"
            elif (device, address) in taken:
                reason = "memory that two storages share"
            if block is not None:
                taken.add((device, block.address))
            taken.add((device, address))
            if reason:
                obstacles.append(_Obstacle(storage.nbytes(), reason))
            else:
                movable.append((storage, device, block.stream if block is not None else 0))
        # Restoring goes from the end: the largest first, while the GPU still has large free ranges.
        movable.sort(key=lambda entry: entry[0].nbytes())
        for device, cache in caches.items():
            if not cache.complete:
                known = sum(s.nbytes() for s in storages.values() if (s.device.index or 0) == device)
                if cache.allocated > known:
                    reason = "in PyTorch's allocator, which does not show its blocks, and not of a tensor"
                    obstacles.append(_Obstacle(cache.allocated - known, reason))
            for block in cache.blocks:
                if not block.pending and (device, block.address) not in taken:
                    reason = "a block of PyTorch's allocator that no tensor explains"
                    if block.private:
                        reason = "a block of a CUDA graph or memory pool that no tensor explains"
                    obstacles.append(_Obstacle(block.bytes, reason + (f", {block.line}" if block.line else "")))
        return movable, obstacles

    # ---- back ----

    def _restore_from(self, first: int) -> None:
        torch = _tensors.torch_or_error("Courtesy")
        total = sum(away.bytes for level in self._levels[first:] for away in level)
        with _tensors.looking(torch), _Progress("to the GPU", total) as progress:
            carrier = _Carrier(torch, self._kind, progress)
            while len(self._levels) > first:
                level = self._levels[-1]
                while level:
                    self._bring_back(torch, level[-1], carrier)
                    level.pop()
                self._levels.pop()
        if not self._levels:
            _holding.discard(self)

    def _bring_back(self, torch: Any, away: _Away, carrier: "_Carrier") -> None:
        storage = torch.UntypedStorage._new_with_weak_ptr(away.storage.cdata)
        if storage is None:
            return  # the program dropped its tensors
        if storage.nbytes() not in (0, away.bytes):
            warnings.warn(
                f"vramscope: a storage of {away.bytes} bytes was resized while its memory was away; it is not restored",
                RuntimeWarning,
                stacklevel=5,
            )
            return
        with _on(torch, self._kind, away):
            if storage.nbytes() == 0:
                try:
                    storage.resize_(away.bytes)
                except RuntimeError as error:
                    if self._kind == "cuda" and not isinstance(error, torch.cuda.OutOfMemoryError):
                        raise
                    raise RuntimeError(
                        f"vramscope: {self._kind}:{away.device} is full: {readable_size(self.bytes_away)} are still "
                        f"in host memory, unharmed: free memory on the device and call restore() again"
                    ) from error
            carrier.back(away.host, _bytes_of(torch, storage, self._kind, away.device))


def _outside() -> int:
    """The stacklevel of the first frame outside this file, as seen by the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        level, frame = level + 1, frame.f_back
    return level


class _Carrier:
    """Copies bytes between a device and the host in chunks. The next chunk is transferred while one is stored."""

    def __init__(self, torch: Any, kind: str, progress: "_Progress") -> None:
        self._torch = torch
        self._progress = progress
        self._buffers: List[Any] = []
        self._turn = 0
        self._waiting: Optional[Tuple[Any, Any, Any]] = None  # an event, the buffer, and the destination of its bytes
        if kind == "cuda":
            try:
                self._buffers = [torch.empty(_CHUNK, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
            except RuntimeError:  # no pinned memory is available; pageable memory is slower
                self._buffers = []

    def out(self, source: Any, host: Any) -> None:
        for begin, end in _chunks(source.numel()):
            if not self._buffers:
                host[begin:end].copy_(source[begin:end])
            else:
                buffer = self._buffers[self._turn][: end - begin]
                self._turn = 1 - self._turn
                with self._torch.cuda.device(source.device):
                    buffer.copy_(source[begin:end], non_blocking=True)
                    event = self._torch.cuda.Event()
                    event.record()
                self.flush()
                self._waiting = (event, buffer, host[begin:end])
            self._progress.add(end - begin)

    def flush(self) -> None:
        if self._waiting is not None:
            event, buffer, target = self._waiting
            event.synchronize()
            target.copy_(buffer)
            self._waiting = None

    def back(self, host: Any, target: Any) -> None:
        """Waits for the pending copies."""
        events: List[Any] = [None, None]
        for begin, end in _chunks(host.numel()):
            if not self._buffers:
                target[begin:end].copy_(host[begin:end])
            else:
                buffer = self._buffers[self._turn][: end - begin]
                if events[self._turn] is not None:
                    events[self._turn].synchronize()
                buffer.copy_(host[begin:end])
                target[begin:end].copy_(buffer, non_blocking=True)
                events[self._turn] = self._torch.cuda.Event()
                events[self._turn].record()
                self._turn = 1 - self._turn
            self._progress.add(end - begin)
        for event in events:
            if event is not None:
                event.synchronize()


class _Progress:
    """A progress line on a terminal, for work of more than a second."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = total
        self._done = 0
        self._next = time.monotonic() + 1.0
        self._shown = False

    def __enter__(self) -> "_Progress":
        return self

    def __exit__(self, *_: Any) -> None:
        if self._shown:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()

    def add(self, size: int) -> None:
        self._done += size
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + 0.2
        stream = sys.stderr
        if stream is not None and stream.isatty():
            self._shown = True
            done, total = readable_size(self._done), readable_size(self._total)
            stream.write(f"\rvramscope: {done} of {total} {self._what}\033[K")
            stream.flush()


def _chunks(size: int) -> Iterator[Tuple[int, int]]:
    for begin in range(0, size, _CHUNK):
        yield begin, min(begin + _CHUNK, size)


def _storages(torch: Any, kind: str) -> Dict[int, Any]:
    """All storages on devices of one type, by identity: of tensors, gradients and autograd, and without a tensor."""
    found: Dict[int, Any] = {}
    own = {
        away.host.untyped_storage()._cdata
        for courtesy in _holding
        for level in courtesy._levels
        for away in level
    }

    def add(storage: Any) -> None:
        try:
            if storage.device.type == kind and storage.nbytes() and storage.data_ptr() and storage._cdata not in own:
                found.setdefault(storage._cdata, storage)
        except Exception:  # the storage of a wrapper
            pass

    def add_tensor(tensor: Any) -> None:
        try:
            parts = [] if _tensors.is_wrapper(tensor) else _tensors.pieces(torch, tensor)
        except Exception:
            return
        for _, part in parts:
            if _tensors.memory_of(torch, part) is not None:
                add(part.untyped_storage())

    there = _tensors.live(torch)
    for tensor in there.tensors:
        add_tensor(tensor)
        gradient = _tensors.gradient_of(tensor)
        if gradient is not None:
            add_tensor(gradient)
    for saved in _tensors.saved_by_autograd(torch, there):
        add_tensor(saved.tensor)
    for storage in there.storages:
        add(storage)
    return found


def _bytes_of(torch: Any, storage: Any, kind: str, device: int) -> Any:
    """The bytes of a storage as a new tensor with its own version counter."""
    place = "cpu" if kind == "cpu" else f"{kind}:{device}"
    with torch.no_grad():
        return torch.empty(0, dtype=torch.uint8, device=place).set_(storage, 0, (storage.nbytes(),), (1,))


def _weak(torch: Any, storage: Any) -> Any:
    from torch.multiprocessing.reductions import StorageWeakRef

    return StorageWeakRef(storage)


def _on(torch: Any, kind: str, away: _Away) -> Any:
    """The stream of each allocation: the allocator reuses memory on its own stream only."""
    if kind == "cpu":
        return _NOTHING
    with torch.cuda.device(away.device):
        if away.stream == 0:
            return torch.cuda.stream(torch.cuda.default_stream(away.device))
        return torch.cuda.stream(torch.cuda.ExternalStream(away.stream, device=away.device))


class _Nothing:
    def __enter__(self) -> None:
        return None

    def __exit__(self, *_: Any) -> None:
        return None


_NOTHING = _Nothing()


def _shared_with_processes() -> Set[int]:
    """Storages that torch.multiprocessing shares with another process."""
    reductions = sys.modules.get("torch.multiprocessing.reductions")
    cache = getattr(reductions, "shared_cache", None)
    if cache is None:
        return set()
    return {reference.cdata for reference in list(cache.values()) if not reference.expired()}


def _refusal(obstacles: List[_Obstacle]) -> str:
    reasons: Dict[str, List[int]] = {}
    for obstacle in obstacles:
        entry = reasons.setdefault(obstacle.reason, [0, 0])
        entry[0] += 1
        entry[1] += obstacle.bytes
    ordered = sorted(reasons.items(), key=lambda item: -item[1][1])
    words = [f"{readable_size(size)} ({count}x) {reason}" for reason, (count, size) in ordered[:_SHOWN_REASONS]]
    if len(ordered) > _SHOWN_REASONS:
        words.append(f"{len(ordered) - _SHOWN_REASONS} more reasons")
    total = readable_size(sum(obstacle.bytes for obstacle in obstacles))
    return (
        f"vramscope: {total} cannot be moved, so nothing was: {'; '.join(words)}; "
        "Courtesy(partial=True) moves the rest"
    )


def _host_room() -> Optional[int]:
    """Available bytes of host memory, limited by the machine or the control group; None if unknown."""
    rooms = []
    for read in (_free_of_machine, _free_of_groups):
        try:
            room = read()
        except (OSError, ValueError):
            continue
        if room is not None:
            rooms.append(room)
    return min(rooms) if rooms else None


def _free_of_machine() -> Optional[int]:
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def _free_of_groups(root: str = "") -> Optional[int]:
    """Bytes left by the control groups (v1 or v2) of this process and by their ancestors."""
    rooms = []
    with open(f"{root}/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
        lines = file.read().splitlines()
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mount, limit, usage, cache = "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in controllers.split(","):
            mount, limit, usage = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
            cache = "total_inactive_file"
        else:
            continue
        # A container may show paths of the host. Skip missing folders, up to the container's own group.
        group = group.rstrip("/")
        while True:
            room = _room_in(f"{root}{mount}{group}", limit, usage, cache)
            if room is not None:
                rooms.append(room)
            if not group:
                break
            group = group.rpartition("/")[0]
    return min(rooms) if rooms else None


def _room_in(folder: str, limit: str, usage: str, cache: str) -> Optional[int]:
    def text(name: str) -> str:
        with open(f"{folder}/{name}", encoding="ascii") as file:
            return file.read()

    try:
        most, used = int(text(limit)), int(text(usage))  # "max" raises
    except (OSError, ValueError):
        return None
    # The kernel drops the file cache of a group when memory is needed.
    cached = 0
    with contextlib.suppress(OSError, ValueError):
        for line in text("memory.stat").splitlines():
            if line.startswith(cache + " "):
                cached = int(line.split()[1])
    return max(0, most - max(0, used - cached))
