// SPDX-License-Identifier: Apache-2.0
#include "probe/session/config.h"

#include <cstring>

namespace vramscope::probe {
namespace {

bool Is(const char* word, size_t size, const char* name) {
  return std::strlen(name) == size && std::memcmp(word, name, size) == 0;
}

}  // namespace

bool ReadConfig(const char* directory, const char* options, Config* config) {
  if (directory == nullptr || directory[0] != '/')
    return false;
  const size_t size = std::strlen(directory);
  // Room for "/PID.NANOSECONDS.vrl" must be left.
  if (size + 64 > sizeof config->directory)
    return false;
  std::memcpy(config->directory, directory, size + 1);
  while (options != nullptr && *options != '\0') {
    const char* comma = std::strchr(options, ',');
    const size_t length =
        comma != nullptr ? static_cast<size_t>(comma - options) : std::strlen(options);
    if (Is(options, length, "cpu"))
      config->cpu = true;
    if (Is(options, length, "no-python"))
      config->python = false;
    if (Is(options, length, "native"))
      config->native = true;
    if (Is(options, length, "paused"))
      config->paused = true;
    if (Is(options, length, "unpooled"))
      config->unpooled = true;
    options = comma != nullptr ? comma + 1 : nullptr;
  }
  return true;
}

}  // namespace vramscope::probe
