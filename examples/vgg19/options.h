// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace vgg19 {

struct Options {
  std::string algorithm = "cudnn";
  int batch = 1;
  int size = 224;
  bool resident = false;
  bool check = false;
  std::string weights;
  std::string image;
  std::string output;
  int repeat = 1;
  double seconds = 0;
  double hold_seconds = 0;
  bool fft_exact_size = false;
  bool fft_automatic_workspace = false;
};

// Ends the program, with what is wrong, where the arguments cannot be meant.
Options ParseOptions(int argc, char** argv);

}  // namespace vgg19
