// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>

namespace vgg19 {

namespace {

constexpr char kUsage[] =
    R"(usage: example_vgg19 [OPTION...]
VGG-19's forward pass, with one of five ways to convolve.

  --algorithm NAME   cudnn (default), direct, im2col, fft, winograd
  --batch N          pictures at once (default 1)
  --size N           their height and width, from 32 (default 224)
  --resident         weights and activations stay on the device. The default is the old way: each
                     layer copies its input and weights in, computes, copies out and frees
  --weights FILE     of weights.py (default: random, always the same)
  --image FILE       .ppm, or .npy of float32 N x 3 x size x size (default: random)
  --output FILE      the logits as .npy
  --check            compare every layer with the CPU; exit status 1 if one is off
  --repeat N         forward passes (default 1)
  --seconds S        ... until so many seconds are over
  --hold S           keep what each layer has S seconds longer, so that slow samplers see it
  --fft-size exact   transforms of height + 2, whatever that is; default: the next size whose only
                     prime factors are 2, 3, 5 and 7
  --fft-workspace automatic
                     cuFFT allocates what its plans need; default: the program does, by name
)";

[[noreturn]] void Fail(const std::string& what) {
  std::fprintf(stderr, "vgg19: %s; --help shows the options\n", what.c_str());
  std::exit(2);
}

double Number(const std::string& option, const std::string& text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value >= least && value <= most)) {
    Fail(option + " takes a number from " + std::to_string(static_cast<int>(least)) + " to " +
         std::to_string(static_cast<int>(most)) + ", not '" + text + "'");
  }
  return value;
}

int Integer(const std::string& option, const std::string& text, int least, int most) {
  const double value = Number(option, text, least, most);
  if (value != std::floor(value)) {
    Fail(option + " takes a whole number, not '" + text + "'");
  }
  return static_cast<int>(value);
}

std::string OneOf(const std::string& option,
                  const std::string& text,
                  const std::initializer_list<const char*>& names) {
  std::string list;
  for (const char* const name : names) {
    if (text == name) {
      return text;
    }
    list += list.empty() ? name : std::string(", ") + name;
  }
  Fail(option + " takes one of " + list + ", not '" + text + "'");
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options options;
  const std::map<std::string, std::function<void()>> flags = {
      {"--resident", [&] { options.resident = true; }},
      {"--check", [&] { options.check = true; }},
      {"--help",
       [] {
         std::fputs(kUsage, stdout);
         std::exit(0);
       }},
  };
  using Value = const std::string&;
  const std::map<std::string, std::function<void(Value, Value)>> values = {
      {"--algorithm",
       [&](Value name, Value text) {
         options.algorithm = OneOf(name, text, {"cudnn", "direct", "im2col", "fft", "winograd"});
       }},
      {"--batch", [&](Value name, Value text) { options.batch = Integer(name, text, 1, 1024); }},
      {"--size", [&](Value name, Value text) { options.size = Integer(name, text, 32, 1024); }},
      {"--repeat",
       [&](Value name, Value text) { options.repeat = Integer(name, text, 1, 1000000); }},
      {"--seconds",
       [&](Value name, Value text) { options.seconds = Number(name, text, 0, 86400); }},
      {"--hold",
       [&](Value name, Value text) { options.hold_seconds = Number(name, text, 0, 3600); }},
      {"--weights", [&](Value, Value text) { options.weights = text; }},
      {"--image", [&](Value, Value text) { options.image = text; }},
      {"--output", [&](Value, Value text) { options.output = text; }},
      {"--fft-size",
       [&](Value name, Value text) {
         options.fft_exact_size = OneOf(name, text, {"smooth", "exact"}) == "exact";
       }},
      {"--fft-workspace",
       [&](Value name, Value text) {
         options.fft_automatic_workspace = OneOf(name, text, {"named", "automatic"}) == "automatic";
       }},
  };

  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (const auto flag = flags.find(name); flag != flags.end()) {
      flag->second();
    } else if (const auto value = values.find(name); value == values.end()) {
      Fail("there is no option '" + name + "'");
    } else if (i + 1 == argc) {
      Fail(name + " takes a value");
    } else {
      value->second(name, argv[++i]);
    }
  }
  return options;
}

}  // namespace vgg19
