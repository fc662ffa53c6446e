// SPDX-License-Identifier: Apache-2.0
// What the program reads and writes: weights, pictures, results. Whatever is wrong with a file is a
// std::runtime_error that says which and what.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "layers.h"

namespace vgg19 {

// Parameters by torchvision's names: "features.0.weight", "classifier.6.bias".
using Weights = std::map<std::string, std::vector<float>>;

// A file that weights.py wrote (the format is described there), with all parameters of `layers`.
Weights ReadWeights(const std::string& path, const std::vector<Layer>& layers);

// The same numbers on every machine, of a size that keeps the layers' outputs near 1.
Weights RandomWeights(const std::vector<Layer>& layers);

// `batch` pictures of 3 x size x size: from a .npy file (float32, pictures x 3 x size x size, taken
// as it is) or a binary .ppm, which is scaled and normalised as torchvision's weights want it.
// Fewer pictures than `batch` are repeated.
std::vector<float> ReadPictures(const std::string& path, int batch, int size);

std::vector<float> RandomPictures(int batch, int size);

// rows x columns of float32 as .npy.
void WriteNpy(const std::string& path, const std::vector<float>& values, size_t columns);

}  // namespace vgg19
