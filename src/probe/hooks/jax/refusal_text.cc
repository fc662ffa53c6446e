// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/jax/refusal_text.h"

#include <cstring>

namespace vramscope::probe {
namespace {

constexpr char kRefused[] = "RESOURCE_EXHAUSTED";
// "Out of memory while trying to allocate 27.93GiB", "Failed to allocate request for ..."
constexpr char kAllocate[] = "allocat";
constexpr uint64_t kMost = uint64_t{1} << 60;
constexpr const char* kUnits = "KMGT";

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}

const char* Find(const char* from, const char* end, const char* what) {
  const size_t size = std::strlen(what);
  for (; from + size <= end; ++from) {
    if (std::memcmp(from, what, size) == 0)
      return from;
  }
  return nullptr;
}

// A number with its unit; moves `*at` behind both.
uint64_t ParseSize(const char** at, const char* end) {
  uint64_t whole = 0, part = 0, scale = 1;
  for (; *at < end && IsDigit(**at); ++*at)
    whole = whole < kMost / 10 ? whole * 10 + static_cast<uint64_t>(**at - '0') : kMost;
  if (*at + 1 < end && **at == '.' && IsDigit((*at)[1])) {
    for (++*at; *at < end && IsDigit(**at); ++*at) {
      if (scale < 1'000'000) {
        part = part * 10 + static_cast<uint64_t>(**at - '0');
        scale *= 10;
      }
    }
  }
  const char* unit = *at;
  while (unit < end && *unit == ' ')
    ++unit;
  int shift = 0;
  if (unit + 1 < end && unit[1] == 'i') {
    const char* const known = std::strchr(kUnits, *unit);
    shift = known != nullptr ? 10 * static_cast<int>(known - kUnits + 1) : 0;
  }
  if (shift != 0)
    *at = unit + 2;
  const uint64_t bytes = whole < (kMost >> shift) ? whole << shift : kMost;
  return bytes + ((part << shift) / scale);
}

}  // namespace

bool IsXlaRefusal(const char* text, size_t size_bytes, uint64_t* requested_bytes) {
  *requested_bytes = 0;
  const char* const end = text + size_bytes;
  const char* const refused = Find(text, end, kRefused);
  if (refused == nullptr)
    return false;
  const char* at = Find(refused, end, kAllocate);
  if (at == nullptr)
    return true;
  while (at < end && !IsDigit(*at) && *at != '\n')
    ++at;
  if (at == end || !IsDigit(*at))
    return true;
  *requested_bytes = ParseSize(&at, end);
  // "6.27GiB (6727663616B)"
  while (at < end && (*at == 'B' || *at == ' '))
    ++at;
  if (at + 1 < end && *at == '(' && IsDigit(at[1])) {
    ++at;
    const uint64_t exact = ParseSize(&at, end);
    if (at < end && *at == 'B')
      *requested_bytes = exact;
  }
  return true;
}

}  // namespace vramscope::probe
