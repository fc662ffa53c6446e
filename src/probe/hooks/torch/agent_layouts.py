# SPDX-License-Identifier: Apache-2.0
# The second half of agent.py: whether PyTorch's objects look as expected, asked once, of objects of our own. What does
# not stays unread, and its names are missing alone.


def calibrate(torch):
    module = torch.nn.Module
    ok = frames_are_as_expected() and use_frames(
        "_wrapped_call_impl" if "_wrapped_call_impl" in module.__dict__ else "_call_impl",
        module,
        module.__mro__,
        getattr(module.__dict__.get("_apply"), "__code__", None),
        cell_of(module),
        module,
    )
    say(note, "module names", "verified against the interpreter" if ok else "off: frames are not as expected")
    if not ok:
        say(lost, "modules")
    tensors = in_private(calibrate_tensors, torch) or 0
    say(note, "tensor names", "verified against PyTorch" if tensors else "off: tensors are not as expected")
    if not tensors:
        say(lost, "modules")
    else:
        if not in_private(calibrate_sparse, torch):
            say(note, "sparse gradients", "off: sparse tensors are not as expected")
            say(lost, "modules")
        if not in_private(calibrate_parts, torch):
            say(note, "flat buffers", "have all names: views are not as expected")
            say(lost, "modules")
    nodes = in_private(calibrate_nodes, torch) or 0
    say(
        note,
        "autograd nodes",
        (
            "off: nodes are not as expected",
            "of the forward pass only: nodes are not as expected",
            "verified against PyTorch",
        )[nodes],
    )
    if nodes != 2:
        say(lost, "autograd")


def say(function, *arguments):
    said.append((function, arguments))
    function(*arguments)


def in_private(function, torch):
    """Calls it so that its tensors are not recorded; None where it fails."""
    collector = modules.get("gc")
    collects = collector is not None and collector.isenabled()
    # What the collector frees belongs to the program, and would be missed.
    if collects:
        collector.disable()
    suppress(1)
    try:
        with torch.inference_mode(False), torch.enable_grad():
            return function(torch)
    except Exception as error:
        if not is_ours(error.__traceback__):
            raise
        return None
    finally:
        suppress(0)
        if collects:
            collector.enable()


def cell_of(content):
    return (lambda: content).__closure__[0]


def frames_are_as_expected():
    def forward(self):
        return is_first_argument(self)

    return all([forward(thing) for thing in ((1,), [forward], {})])


def empty(torch, size, device="cpu", **more):
    return torch.empty(size, device=device, dtype=torch.float32, **more)


def calibrate_tensors(torch):
    first, second = empty(torch, 3, requires_grad=True), empty(torch, 70, requires_grad=True)
    first.grad, second.grad = empty(torch, 3), empty(torch, 70)
    # Memory that PyTorch does not own, so that the pointer to it is told from the one to its owner.
    foreign = torch.frombuffer(bytearray(20), dtype=torch.uint8)
    samples = []
    for tensor in (first, second, foreign, empty(torch, 5, "meta")):
        storage = tensor.untyped_storage()
        gradient = tensor.grad._cdata if tensor.requires_grad else 0
        kind = 0 if tensor.device.type == "cpu" else META
        samples.append((tensor, tensor._cdata, storage._cdata, storage.data_ptr(), storage.nbytes(), gradient, kind))
    base = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
    return use_tensors(samples, (base, torch.Tensor, torch.nn.Parameter))


def calibrate_sparse(torch):
    samples, alive = [], []
    for count in (2, 3):
        indices, values = torch.zeros(1, count, dtype=torch.int64, device="cpu"), empty(torch, count)
        # Not torch.sparse_coo_tensor: whatever it is told, PyTorch 2.11 warns once of checks that are left out.
        make = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors
        tensor = make(1, 0, (5,), indices, values, dtype=values.dtype, layout=torch.sparse_coo, device="cpu")
        parts = (indices, values)
        samples.append((tensor._cdata, *(part.untyped_storage()._cdata for part in parts)))
        alive.append(tensor)
    return use_sparse(samples)


def calibrate_parts(torch):
    """Views whose numbers are nothing else's, with c10's numbers of their types."""
    samples, alive = [], []
    for dtype, number, first, rows, columns in (("float32", 6, 7, 3, 5), ("int16", 2, 11, 2, 7), ("float64", 7, 13, 3, 3)):
        flat = torch.empty(40, dtype=getattr(torch, dtype), device="cpu")
        view = flat[first : first + rows * columns].view(rows, columns)
        samples.append((view._cdata, first, rows * columns, number))
        alive.append(view)
    return use_parts(samples)


def calibrate_nodes(torch):
    tensor = empty(torch, 3, requires_grad=True)
    nodes = [tensor.neg().grad_fn for _ in range(3)]
    return use_nodes([(node, node._sequence_nr()) for node in nodes])
