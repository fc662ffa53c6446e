# SPDX-License-Identifier: Apache-2.0
"""What the training examples share: the device, reproducible mode, marks, and digests of results.

`--marks` prints, at the very instant of a mark, what PyTorch's caching allocator says of itself, so
that a report `--at mark:NAME` can be compared with it to the byte. `--digest` prints a hash of all
losses and trained weights, so that runs with and without a profiler can be compared bit by bit.
`--hold` keeps everything live for a while at the end, for a look from outside (nvidia-smi).
"""

import hashlib
import json
import os
import time

try:
    import vramscope
except ImportError:
    vramscope = None


def prepare_deterministic():
    """Must run before torch is imported: cuBLAS reads its workspace setting once."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def add_arguments(parser):
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument(
        "--deterministic", action="store_true", help="bit-reproducible kernels, at some cost"
    )
    parser.add_argument(
        "--marks", action="store_true", help="print the allocator's own totals at each mark"
    )
    parser.add_argument(
        "--digest", action="store_true", help="print a hash of the losses and trained weights"
    )
    parser.add_argument(
        "--hold", type=float, default=0.0, metavar="SECONDS", help="stay that long at the end"
    )


def select_device(args):
    import torch

    if args.deterministic:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    name = args.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(name)


def mark(args, device, name, at):
    """Names this instant in a recording, if `at`; beside it, PyTorch's own figures with --marks."""
    if not at:
        return
    if vramscope is not None:
        vramscope.mark(name)
    if args.marks and device.type == "cuda":
        import torch

        totals = {
            "mark": name,
            "memory_allocated": torch.cuda.memory_allocated(device),
            "memory_reserved": torch.cuda.memory_reserved(device),
        }
        print("MARK " + json.dumps(totals), flush=True)


def finish(args, losses, model):
    """What stands at the end of a training: the pause of --hold, the line of --digest."""
    if args.hold > 0:
        print("HOLD", flush=True)
        time.sleep(args.hold)
    if not args.digest:
        return
    import torch

    digest = hashlib.sha256()
    digest.update(torch.stack(losses).cpu().numpy().tobytes())
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().tobytes())
    print("DIGEST " + digest.hexdigest(), flush=True)
