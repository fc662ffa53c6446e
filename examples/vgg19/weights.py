# SPDX-License-Identifier: Apache-2.0
"""Writes VGG-19's weights, in torchvision's layout, into a plain file:  weights.py FILE [--random]

torchvision's pretrained weights, or, where these cannot be had (no torchvision, no network), random
ones: always the same for a --seed.

The file, little-endian:

    8 bytes   "VGG19W01"
    uint32    number of tensors
    for each tensor
        uint32    length of its name, then the name: "features.0.weight"
        uint32    number of dimensions, then as many uint32
    zeros     up to the next multiple of 64
    float32   the values of all tensors in that order, each in C order
"""

import argparse
import struct
import sys

import numpy

MAGIC = b"VGG19W01"
# torchvision's index of each convolution in `features`, inputs, outputs.
CONVOLUTIONS = [
    *((0, 3, 64), (2, 64, 64)),
    *((5, 64, 128), (7, 128, 128)),
    *((10, 128, 256), (12, 256, 256), (14, 256, 256), (16, 256, 256)),
    *((19, 256, 512), (21, 512, 512), (23, 512, 512), (25, 512, 512)),
    *((28, 512, 512), (30, 512, 512), (32, 512, 512), (34, 512, 512)),
]
LINEARS = [(0, 512 * 7 * 7, 4096), (3, 4096, 4096), (6, 4096, 1000)]


def shapes():
    """Name and shape of every parameter, in torchvision's order."""
    for index, inputs, outputs in CONVOLUTIONS:
        yield f"features.{index}.weight", (outputs, inputs, 3, 3)
        yield f"features.{index}.bias", (outputs,)
    for index, inputs, outputs in LINEARS:
        yield f"classifier.{index}.weight", (outputs, inputs)
        yield f"classifier.{index}.bias", (outputs,)


def random_weights(seed):
    """Weights that keep the variance of what passes through ReLUs (He et al., 2015)."""
    random = numpy.random.default_rng(seed)
    weights = {}
    for name, shape in shapes():
        limit = (6 / numpy.prod(shape[1:])) ** 0.5 if len(shape) > 1 else 0.1
        weights[name] = (random.random(shape, dtype=numpy.float32) * 2 - 1) * numpy.float32(limit)
    return weights


def pretrained_weights():
    """torchvision's, downloaded or from its cache; an ImportError or OSError where there are none."""
    from torchvision.models import VGG19_Weights, vgg19

    state = vgg19(weights=VGG19_Weights.IMAGENET1K_V1).state_dict()
    return {name: tensor.numpy() for name, tensor in state.items()}


def write(path, weights):
    header = MAGIC + struct.pack("<I", len(weights))
    for name, values in weights.items():
        header += struct.pack("<I", len(name)) + name.encode()
        header += struct.pack(f"<I{values.ndim}I", values.ndim, *values.shape)
    with open(path, "wb") as file:
        file.write(header + bytes(-len(header) % 64))
        for values in weights.values():
            file.write(numpy.ascontiguousarray(values, dtype="<f4").tobytes())


def read(path):
    """Name -> array of such a file; nothing is copied."""
    data = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    if data[:8].tobytes() != MAGIC:
        raise ValueError(f"{path}: is not a file of weights.py")
    at = 8

    def number():
        nonlocal at
        at += 4
        return int(data[at - 4 : at].view("<u4")[0])

    shapes_there = {}
    for _ in range(number()):
        length = number()
        name = data[at : at + length].tobytes().decode()
        at += length
        shapes_there[name] = tuple(number() for _ in range(number()))
    at += -at % 64
    weights = {}
    for name, shape in shapes_there.items():
        size = 4 * int(numpy.prod(shape))
        weights[name] = data[at : at + size].view("<f4").reshape(shape)
        at += size
    return weights


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file")
    parser.add_argument("--random", action="store_true", help="do not ask for torchvision's")
    parser.add_argument("--seed", type=int, default=19)
    args = parser.parse_args()

    weights = None
    if not args.random:
        try:
            weights = pretrained_weights()
        except (ImportError, OSError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            print(f"weights.py: no pretrained weights ({reason}); these are random", file=sys.stderr)
    if weights is None:
        weights = random_weights(args.seed)
    if [(name, values.shape) for name, values in weights.items()] != list(shapes()):
        print("weights.py: this torchvision's VGG-19 has other parameters", file=sys.stderr)
        return 2
    write(args.file, weights)
    return 0


if __name__ == "__main__":
    sys.exit(main())
