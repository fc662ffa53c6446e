# SPDX-License-Identifier: Apache-2.0
"""Compares logits of example_vgg19 with those of PyTorch's VGG-19 on the same weights and pictures.

    pytorch.py --weights FILE --image FILE.npy LOGITS.npy...

One line for each file: the largest difference, as a share of PyTorch's largest logit. Exit status 1
if one is above the tolerance. PyTorch computes on the CPU, in float32.
"""

import argparse
import sys
import warnings

import numpy
import torch
import weights as weights_file

TOLERANCE = 1e-4


def build():
    """torchvision's VGG-19, or, without torchvision, the same from torch.nn."""
    try:
        from torchvision.models import vgg19

        return vgg19(weights=None, init_weights=False)
    except ImportError:
        pass
    nn = torch.nn
    convolutions = {index: (inputs, outputs) for index, inputs, outputs in weights_file.CONVOLUTIONS}
    features = []
    for index in range(37):
        if index in convolutions:
            features.append(nn.Conv2d(*convolutions[index], kernel_size=3, padding=1))
        elif index - 1 in convolutions:
            features.append(nn.ReLU())
        else:
            features.append(nn.MaxPool2d(2))
    fc6, fc7, fc8 = (nn.Linear(inputs, outputs) for _, inputs, outputs in weights_file.LINEARS)
    model = nn.Module()
    model.features = nn.Sequential(*features)
    model.avgpool = nn.AdaptiveAvgPool2d(7)
    model.classifier = nn.Sequential(
        fc6, nn.ReLU(), nn.Dropout(), fc7, nn.ReLU(), nn.Dropout(), fc8
    )
    model.forward = lambda x: model.classifier(model.avgpool(model.features(x)).flatten(1))
    return model


def logits_of(weights, pictures):
    model = build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the arrays are read-only, and only read
        model.load_state_dict({name: torch.from_numpy(values) for name, values in weights.items()})
        pictures = torch.from_numpy(pictures)
    model.eval()
    with torch.inference_mode():
        return model(pictures).numpy()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("logits", nargs="+")
    args = parser.parse_args()

    expected = logits_of(weights_file.read(args.weights), numpy.load(args.image))
    failed = False
    for path in args.logits:
        logits = numpy.load(path)
        pictures = len(logits)  # of a smaller batch: the first ones
        error = float(numpy.abs(logits - expected[:pictures]).max() / numpy.abs(expected[:pictures]).max())
        # Written so that NaN fails.
        passed = error <= TOLERANCE
        failed |= not passed
        same = (logits.argmax(1) == expected[:pictures].argmax(1)).sum()
        print(
            f"pytorch {path}: largest difference {error:.1e}, {TOLERANCE:.0e} allowed;"
            f" the same class for {same} of {pictures} pictures{'' if passed else '  too large'}"
        )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
