# SPDX-License-Identifier: Apache-2.0
"""What is true of a training at named instants, told by the program itself.

Every program of this folder is an ordinary training loop around a Run. With `--oracle FILE` the Run
writes down, at each instant, the memory that the program's own objects hold, so that a recording can
be compared with it `--at mark:INSTANT`. Three modes, each for a process of its own:

  sums        the exact sums over the distinct storages of parameters, gradients, buffers, optimizer
              state and of the data that the program was given. For the recorded process: it reads
              pointers and sizes, and neither holds nor makes a tensor.
  saved       torch.autograd.graph.saved_tensors_hooks counts what autograd keeps; with the outputs
              that the program still holds, these are the activations. The hooks hand back the very
              tensor that they got, so that the memory of the program stays as it is. Beside them, as
              "others", stands what else Python holds: counters of a Trainer, the scale of a GradScaler.
  memtracker  torch.distributed._tools.mem_tracker.MemTracker says what the memory is for.

MemTracker's words and ours:

  its _MemRefType   our categories
  PARAM             parameter
  BUFFER            buffer
  GRAD              gradient
  OPT               optimizer state (and temporary, while a step runs: never so at these instants)
  ACT               activation, input, and temporary of forward: all that forward or the loop made
  TEMP              temporary: what backward made and nobody keeps
  OTH               nothing here: these programs are tracked from their first tensor on

It rounds GPU sizes up to 512 bytes, which are a category of their own for us (rounding); its own
constant for that is set to 1. It takes a storage for an activation until a module's first call shows
it a parameter. Scalars that an optimizer keeps on the CPU are on the CPU in both.

A recording knows how much was asked for where memory has a name. Of other memory on a GPU it knows
the allocator's block, which can be larger; what the allocator itself says of those blocks
("other_blocks") is what the comparison takes off.

A storage that has several roles has the first of: parameter, gradient, buffer, optimizer state, input. But a
sparse gradient can look for its indices into the batch itself, which stays an input.
"""

import argparse
import gc
import hashlib
import json
import os
import pathlib
import sys
import threading
import time
import weakref

if "--deterministic" in sys.argv:
    # cuBLAS reads it once.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch._subclasses.fake_tensor import is_fake

try:
    import vramscope
except ImportError:
    vramscope = None

# nn.Buffer came with PyTorch 2.5.
PLAIN = (torch.Tensor, torch.nn.Parameter, getattr(torch.nn, "Buffer", torch.nn.Parameter))
MODES = ("sums", "saved", "memtracker")
ROLES = ("parameter", "gradient", "buffer", "optimizer state", "input")


def _pointer(storage):
    """Where its bytes are; None where PyTorch before 2.3 finds an object whose storage went before it."""
    try:
        return storage.data_ptr()
    except RuntimeError:
        return None


def _storages(tensor):
    """The storages of a tensor; those of its parts where it only wraps others."""
    if type(tensor) not in PLAIN and hasattr(tensor, "__tensor_flatten__"):
        for name in tensor.__tensor_flatten__()[0]:
            part = getattr(tensor, name)
            # A DTensor's mesh is one of its parts.
            if isinstance(part, torch.Tensor):
                yield from _storages(part)
    elif tensor.layout == torch.sparse_coo:
        yield from _storages(tensor._indices())
        yield from _storages(tensor._values())
    elif tensor.layout == torch.strided and tensor.device.type != "meta":
        yield tensor.untyped_storage()


class _Books:
    """Distinct storages by role: address -> what is known of it."""

    def __init__(self):
        self.entries = {}

    def add(self, role, name, tensor):
        for storage in _storages(tensor):
            self.add_storage(role, name, tensor.device.type, storage)

    def add_storage(self, role, name, device, storage):
        if storage.nbytes() == 0:
            return
        entry = self.entries.setdefault(
            (device, storage.data_ptr()), {"role": role, "bytes": storage.nbytes(), "names": []}
        )
        # The first role stays: the callers come in the order of ROLES.
        if entry["role"] == role and name not in entry["names"]:
            entry["names"].append(name)

    def rows(self):
        return [
            {"device": device, "address": address, **entry}
            for (device, address), entry in self.entries.items()
        ]


def _tensors(value, path):
    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _tensors(inner, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _tensors(inner, f"{path}.{number}" if path else str(number))


class _Saved:
    """What autograd keeps, by storages that are still alive; holds none of them."""

    def __init__(self):
        self._alive = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, lambda tensor: tensor)
        self._hooks.__enter__()

    def _pack(self, tensor):
        for storage in _storages(tensor):
            key = storage._cdata
            if key not in self._alive and storage.nbytes() > 0:
                gone = lambda _, key=key: self._alive.pop(key, None)  # noqa: E731
                entry = (weakref.ref(storage, gone), str(tensor.device.type), storage.data_ptr())
                self._alive[key] = (*entry, storage.nbytes())
        return tensor

    def rows(self):
        return {(device, address): size for _, device, address, size in list(self._alive.values())}

    def stop(self):
        self._hooks.__exit__(None, None, None)


def _seen_by_python():
    """Storages of every tensor that a Python object is alive for."""
    found = {}
    for thing in gc.get_objects():
        # Asked of the type: isinstance would run code of lazy modules.
        if issubclass(type(thing), torch.Tensor) and not is_fake(thing):
            for storage in _storages(thing):
                if storage.nbytes() > 0:
                    found[(thing.device.type, storage.data_ptr())] = storage.nbytes()
    return found


def _numbers(outputs):
    """Python numbers that became tensors and which autograd keeps (`loss / 3`): no hook sees them."""
    found, nodes = {}, [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
        # Other objects are skipped: reading the saved tensors of checkpointing would recompute them.
        if node.name() in ("MulBackward0", "DivBackward0", "PowBackward0"):
            for name in ("_saved_self", "_saved_other", "_saved_exponent"):
                try:
                    value = getattr(node, name, None)
                except RuntimeError:
                    continue  # freed by backward
                if isinstance(value, torch.Tensor) and value.dim() == 0:
                    for storage in _storages(value):
                        found[(value.device.type, storage.data_ptr())] = storage.nbytes()
    return found


def _other_blocks(books):
    """What PyTorch's caching allocator says of its live blocks that vramscope has no name for, which
    are those that the books do not have and the inputs: the bytes of the blocks, and those that were
    asked for. The allocator rounds sizes up, and a large block can have a remainder that was not
    worth cutting off."""
    found = {"bytes": 0, "requested": 0}
    for segment in torch.cuda.memory_snapshot():
        if segment["device"] != torch.cuda.current_device():
            continue
        address = segment["address"]
        for block in segment["blocks"]:
            entry = books.entries.get(("cuda", address))
            if block["state"] == "active_allocated" and (entry is None or entry["role"] == "input"):
                found["bytes"] += block["size"]
                found["requested"] += block["requested_size"]
            address += block["size"]
    return found


def _sizes(storages, without):
    return sorted(
        [device, size] for (device, address), size in storages.items() if (device, address) not in without
    )


class _MemTracker:
    def __init__(self):
        from torch.distributed._tools import mem_tracker

        class Tracker(mem_tracker.MemTracker):
            def _pre_fw_hook(self, module, inputs):
                # A root's second call is an error to it, unless it has forgotten the first.
                parents = set(self._mod_tracker.parents) - {self._mod_tracker.get_known_fqn(module)}
                if not self._mod_tracker.is_bw and parents == {"Global"}:
                    self.memory_tracking.pop(module, None)
                super()._pre_fw_hook(module, inputs)

        mem_tracker._PYTORCH_MIN_ALLOCATE = 1
        self._tracker = Tracker()
        self._tracker.__enter__()

    def rows(self):
        found = {}
        for device, figures in self._tracker.get_tracker_snapshot("current").items():
            sums = found.setdefault(device.type, {})
            for kind, size in figures.items():
                # The total has a text for a name, the others an enumeration.
                name = getattr(kind, "name", "TOTAL")
                sums[name] = sums.get(name, 0) + size
        return found

    def stop(self):
        self._tracker.__exit__(None, None, None)


class Run:
    """One training: its options, its instants, and what it knows at them."""

    def __init__(self, description, steps=3, parser=None):
        parser = parser or argparse.ArgumentParser(description=description.splitlines()[0])
        parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
        parser.add_argument("--size", choices=("small", "full"), default="small")
        parser.add_argument("--steps", type=int, default=steps)
        parser.add_argument("--deterministic", action="store_true")
        parser.add_argument("--digest", action="store_true", help="print a hash of losses and weights")
        parser.add_argument("--oracle", type=pathlib.Path, help="write down what is true, there")
        parser.add_argument("--mode", choices=MODES, default="sums")
        parser.add_argument("--attach-at", type=int, metavar="STEP", help="wait there until somebody records this")
        self.args = parser.parse_args()
        self.device = torch.device(self.args.device)
        self.full = self.args.size == "full"
        if self.args.deterministic:
            torch.use_deterministic_algorithms(True)
            torch.backends.cudnn.benchmark = False
        torch.manual_seed(1729)
        self._models, self._optimizers, self._data = {}, {}, []
        self._losses, self._instants, self._step = [], [], 0
        mode = self.args.mode if self.args.oracle else None
        self._saved = _Saved() if mode == "saved" else None
        if self._saved is not None:
            # What the imports made holds no tensor of ours, and need not be searched at each instant.
            gc.freeze()
        self._memtracker = _MemTracker() if mode == "memtracker" else None
        self._writes = mode is not None

    def watch(self, **things):
        """The models and optimizers whose memory counts from here on; None for one that is gone."""
        for name, thing in things.items():
            kind = self._models if isinstance(thing, torch.nn.Module) else self._optimizers
            if thing is None:
                self._models.pop(name, None)
                self._optimizers.pop(name, None)
            else:
                kind[name] = thing

    def steps(self):
        for step in range(1, self.args.steps + 1):
            self._step = step
            yield step

    def data(self, *tensors):
        """What the program feeds its models with, as long as it lives. Handed back as it came."""
        alive = [entry for entry in self._data if entry[1]() is not None]
        self._data = alive + [
            (tensor.device.type, weakref.ref(storage))
            for tensor in tensors
            for storage in _storages(tensor)
        ]
        return tensors if len(tensors) != 1 else tensors[0]

    def at(self, instant, *live):
        """An instant with a name; `live` are the outputs that the program still holds."""
        rank = os.environ.get("RANK")
        name = f"{instant} {self._step}" + ("" if rank is None else f" of rank {rank}")
        if self.args.attach_at is not None:
            if self._step < self.args.attach_at:
                return
            self._await_recording()
        if vramscope is not None:
            vramscope.mark(name)
        if self._writes:
            self._instants.append(self._note(name, live))

    def _await_recording(self):
        self.args.attach_at = None
        print("ready", flush=True)
        while not vramscope.is_recording() or any(thread.name == "vramscope" for thread in threading.enumerate()):
            time.sleep(0.005)

    def loss(self, value):
        # A number: a kept tensor would be memory that no ordinary program holds.
        self._losses.append(value.item())

    def finish(self):
        """Ends the training: writes the oracle's file, prints the digest."""
        for helper in (self._saved, self._memtracker):
            if helper is not None:
                helper.stop()
        if self._writes:
            content = {
                "pid": os.getpid(),
                "mode": self.args.mode,
                "device": self.device.type,
                "names": self._names(),
                "instants": self._instants,
            }
            rank = os.environ.get("RANK")
            path = self.args.oracle if rank is None else self.args.oracle.with_suffix(f".{rank}.json")
            # Whole or not at all: others wait for it to appear.
            unfinished = path.with_suffix(f".{os.getpid()}")
            unfinished.write_text(json.dumps(content), encoding="utf-8")
            unfinished.replace(path)
        if self.args.digest:
            digest = hashlib.sha256()
            digest.update(" ".join(loss.hex() for loss in self._losses).encode())
            for model in self._models.values():
                for key, tensor in sorted(model.state_dict().items()):
                    digest.update(key.encode() + tensor.cpu().contiguous().numpy().tobytes())
            print("DIGEST " + digest.hexdigest(), flush=True)

    def _names(self):
        """model -> every name of a parameter."""
        return {
            key: [name for name, _ in model.named_parameters(remove_duplicate=False)]
            for key, model in self._models.items()
        }

    def _books(self):
        books = _Books()
        named = [
            (name, parameter)
            for model in self._models.values()
            for name, parameter in model.named_parameters(remove_duplicate=False)
        ]
        names = {id(parameter): name for name, parameter in reversed(named)}
        for name, parameter in named:
            books.add("parameter", name, parameter)
        given = {_pointer(storage) for _, reference in self._data if (storage := reference()) is not None}
        for name, parameter in named:
            if parameter.grad is not None:
                for storage in _storages(parameter.grad):
                    if storage.data_ptr() not in given:
                        books.add_storage("gradient", name, parameter.grad.device.type, storage)
        for model in self._models.values():
            for name, buffer in model.named_buffers(remove_duplicate=False):
                books.add("buffer", name, buffer)
        for optimizer in self._optimizers.values():
            for parameter, state in optimizer.state.items():
                for key, tensor in _tensors(state, ""):
                    books.add("optimizer state", f"{names.get(id(parameter), '?')} {key}", tensor)
        for number, (device, reference) in enumerate(self._data):
            storage = reference()
            if storage is not None:
                books.add_storage("input", f"data {number}", device, storage)
        return books

    def _note(self, name, live):
        note = {"mark": name, "time_ns": time.monotonic_ns()}
        if self._memtracker is not None:
            note["memtracker"] = self._memtracker.rows()
            return note
        books = self._books()
        note["storages"] = books.rows()
        if self.device.type == "cuda":
            note["other_blocks"] = _other_blocks(books)
        if self._saved is not None:
            kept = self._saved.rows()
            for tensor in live:
                for storage in _storages(tensor):
                    if storage.nbytes() > 0:
                        kept[(tensor.device.type, storage.data_ptr())] = storage.nbytes()
            kept.update(_numbers(live))
            note["activations"] = _sizes(kept, books.entries)
            note["others"] = _sizes(_seen_by_python(), {**books.entries, **kept})
        return note
