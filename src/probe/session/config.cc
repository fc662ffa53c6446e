// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "probe/session/session.h"

namespace vramscope::probe {
namespace {

bool Is(const char* word, size_t size, const char* name) {
  return std::strlen(name) == size && std::memcmp(word, name, size) == 0;
}

// Copies what is behind "session=", which is never half of it.
void ReadSession(const char* word, size_t size, char* session) {
  constexpr char kName[] = "session=";
  constexpr size_t kNameSize = sizeof kName - 1;
  if (size <= kNameSize || std::memcmp(word, kName, kNameSize) != 0)
    return;
  if (size - kNameSize >= kMaxSessionBytes)
    return;
  std::memcpy(session, word + kNameSize, size - kNameSize);
  session[size - kNameSize] = '\0';
}

// The number after `name` in "name=NUMBER"; "name" alone means no bound. 0 for another word.
uint64_t BoundOf(const char* word, size_t size, const char* name) {
  const size_t name_size = std::strlen(name);
  if (size < name_size || std::memcmp(word, name, name_size) != 0)
    return 0;
  if (size == name_size)
    return UINT64_MAX;
  uint64_t bytes = 0;
  if (word[name_size] != '=')
    return 0;
  for (size_t i = name_size + 1; i < size; ++i) {
    if (word[i] < '0' || word[i] > '9' || bytes > UINT64_MAX / 16)
      return 0;
    bytes = bytes * 10 + static_cast<uint64_t>(word[i] - '0');
  }
  return bytes;
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
    if (Is(options, length, "await-report"))
      config->await_report = true;
    ReadSession(options, length, config->session);
    if (const uint64_t bound = BoundOf(options, length, "overflow"); bound != 0)
      config->overflow_bytes = bound;
    if (const uint64_t bound = BoundOf(options, length, "ring"); bound != 0)
      config->ring_bytes = bound;
    if (const uint64_t bound = BoundOf(options, length, "pid"); bound <= UINT32_MAX)
      config->outer_pid = bound != 0 ? static_cast<uint32_t>(bound) : config->outer_pid;
    options = comma != nullptr ? comma + 1 : nullptr;
  }
  return true;
}

}  // namespace vramscope::probe
