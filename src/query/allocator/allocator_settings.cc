// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/allocator_settings.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

namespace vramscope::query {
namespace {

constexpr uint64_t kRoundingBytes = 512;

// Keys that PyTorch knows and that move no segment here.
constexpr std::string_view kKeysWithoutEffect[] = {
    "release_lock_on_cudamalloc",        "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse", "throw_on_cudamalloc_oom",
    "pinned_use_cuda_host_register",     "pinned_use_hip_host_register",
    "pinned_num_register_threads",       "pinned_use_background_threads",
    "pinned_reserve_segment_size_mb",    "pinned_free_catch_all",
    "pinned_max_round_threshold_mb",     "pinned_max_cached_size_mb"};

util::Status BadValue(std::string_view key, std::string_view value, std::string_view wanted) {
  return util::Status::Error(std::string(key) + ": '" + std::string(value) + "' is not " +
                             std::string(wanted));
}

bool ParseNumber(std::string_view text, uint64_t* number) {
  const auto end = std::from_chars(text.data(), text.data() + text.size(), *number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size();
}

util::Status ParseMebibytes(std::string_view key,
                            std::string_view value,
                            uint64_t fewest,
                            uint64_t* bytes) {
  uint64_t mebibytes = 0;
  if (!ParseNumber(value, &mebibytes) || mebibytes < fewest || mebibytes > UINT64_MAX / kMebibyte)
    return BadValue(key, value, "a whole number of at least " + std::to_string(fewest));
  *bytes = mebibytes * kMebibyte;
  return {};
}

bool IsDivisions(uint64_t number) {
  return number == 0 || (number <= 32768 && std::has_single_bit(number));
}

size_t IntervalOf(uint64_t mebibytes) {
  return std::min<size_t>(std::bit_width(std::max<uint64_t>(mebibytes, 1)) - 1, 15);
}

// The inside of "[256:1,512:2,>:8]".
util::Status ParseDivisionList(std::string_view list,
                               const AllocatorRules& rules,
                               std::array<uint32_t, 16>* divisions) {
  divisions->fill(0);
  size_t last = 0;
  bool is_first = true;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view entry = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const size_t colon = entry.find(':');
    uint64_t number = 0;
    if (colon == std::string_view::npos || !ParseNumber(entry.substr(colon + 1), &number) ||
        !IsDivisions(number))
      return BadValue("roundup_power2_divisions", entry, "SIZE:N with a power of two");
    const std::string_view size = entry.substr(0, colon);
    const auto value = static_cast<uint32_t>(number);
    if (size == ">") {
      const size_t begin = rules.rest_begins_after_last ? last + 1 : last;
      std::fill(divisions->begin() + static_cast<ptrdiff_t>(std::min<size_t>(begin, 16)),
                divisions->end(), value);
      continue;
    }
    uint64_t mebibytes = 0;
    if (!ParseNumber(size, &mebibytes) || !std::has_single_bit(mebibytes))
      return BadValue("roundup_power2_divisions", entry, "SIZE:N with a power of two");
    last = IntervalOf(mebibytes);
    if (is_first)
      std::fill_n(divisions->begin(), last, value);
    (*divisions)[last] = value;
    is_first = false;
  }
  return {};
}

util::Status ParseDivisions(std::string_view value,
                            const AllocatorRules& rules,
                            std::array<uint32_t, 16>* divisions) {
  if (value.size() >= 2 && value.front() == '[' && value.back() == ']')
    return ParseDivisionList(value.substr(1, value.size() - 2), rules, divisions);
  uint64_t number = 0;
  if (!ParseNumber(value, &number) || !IsDivisions(number))
    return BadValue("roundup_power2_divisions", value, "a power of two");
  divisions->fill(static_cast<uint32_t>(number));
  return {};
}

util::Status ParseThreshold(std::string_view value, double* threshold) {
  double number = 0;
  const auto end = std::from_chars(value.data(), value.data() + value.size(), number);
  if (end.ec != std::errc() || end.ptr != value.data() + value.size() ||
      !(number > 0 && number < 1))
    return BadValue("garbage_collection_threshold", value, "a number between 0 and 1");
  *threshold = number;
  return {};
}

util::Status ParseOne(std::string_view key,
                      std::string_view value,
                      const AllocatorRules& rules,
                      AllocatorSettings* out) {
  if (key == "max_split_size_mb") {
    // Older versions refuse the size of a large segment itself.
    const uint64_t fewest = out->large_segment_bytes / kMebibyte;
    return ParseMebibytes(key, value, rules.has_large_segment_size ? fewest : fewest + 1,
                          &out->max_split_bytes);
  }
  if (key == "max_non_split_rounding_mb")
    return ParseMebibytes(key, value, 0, &out->max_non_split_rounding_bytes);
  if (key == "large_segment_size_mb" && rules.has_large_segment_size)
    return {};  // read before the others
  if (key == "garbage_collection_threshold")
    return ParseThreshold(value, &out->garbage_collection_threshold);
  if (key == "roundup_power2_divisions")
    return ParseDivisions(value, rules, &out->roundup_divisions);
  if (key == "expandable_segments") {
    if (value != "True" && value != "False")
      return BadValue(key, value, "True or False");
    out->expandable_segments = value == "True";
    return {};
  }
  if (key == "backend") {
    return value == "native" ? util::Status() : BadValue(key, value, "native, which is modelled");
  }
  if (std::find(std::begin(kKeysWithoutEffect), std::end(kKeysWithoutEffect), key) ==
      std::end(kKeysWithoutEffect))
    return util::Status::Error("'" + std::string(key) + "' is no setting of PyTorch's allocator");
  return {};
}

using Pair = std::pair<std::string, std::string>;

// Commas inside of brackets do not end a pair.
util::Result<std::vector<Pair>> SplitSettings(std::string_view text) {
  std::vector<Pair> pairs;
  std::string part;
  int depth = 0;
  const auto take = [&]() -> util::Status {
    const size_t colon = part.find(':');
    if (colon == std::string::npos)
      return util::Status::Error("'" + part + "' is not KEY:VALUE");
    pairs.emplace_back(part.substr(0, colon), part.substr(colon + 1));
    part.clear();
    return {};
  };
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r')
      continue;
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != ',' || depth > 0) {
      part += c;
    } else if (!part.empty()) {
      VRAMSCOPE_RETURN_IF_ERROR(take());
    }
  }
  if (!part.empty())
    VRAMSCOPE_RETURN_IF_ERROR(take());
  return pairs;
}

}  // namespace

AllocatorRules RulesOf(std::string_view pytorch_version) {
  // "2.13.0+cu130": 213.
  uint64_t major = 0;
  uint64_t minor = 0;
  const char* const end = pytorch_version.data() + pytorch_version.size();
  const auto first = std::from_chars(pytorch_version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.' ||
      std::from_chars(first.ptr + 1, end, minor).ec != std::errc())
    return {};
  const uint64_t version = major * 100 + minor;
  AllocatorRules rules;
  rules.full_fraction_limits = version < 210;
  rules.rest_begins_after_last = version >= 210;
  rules.newest_scope_first = version >= 211;
  rules.fallback_before_release = version >= 211;
  rules.has_large_segment_size = version >= 211;
  rules.has_no_split = version >= 211;
  rules.scope_is_capture = version < 213;
  return rules;
}

uint64_t AllocatorSettings::Round(uint64_t requested_bytes) const {
  if (requested_bytes < kRoundingBytes)
    return kRoundingBytes;
  const uint32_t divisions = roundup_divisions[IntervalOf(requested_bytes / kMebibyte)];
  if (divisions > 1 && requested_bytes > kRoundingBytes * divisions &&
      !std::has_single_bit(requested_bytes)) {
    const uint64_t step = std::bit_floor(requested_bytes) / divisions;
    return (requested_bytes + step - 1) / step * step;
  }
  return (requested_bytes + kRoundingBytes - 1) / kRoundingBytes * kRoundingBytes;
}

util::Status ApplyAllocatorSettings(std::string_view text,
                                    const AllocatorRules& rules,
                                    AllocatorSettings* settings) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<Pair> pairs, SplitSettings(text));
  AllocatorSettings next;
  next.expandable_segments = settings->expandable_segments;
  next.large_segment_bytes = settings->large_segment_bytes;
  for (const auto& [key, value] : pairs) {
    if (key == "large_segment_size_mb" && rules.has_large_segment_size)
      VRAMSCOPE_RETURN_IF_ERROR(ParseMebibytes(key, value, 11, &next.large_segment_bytes));
  }
  next.max_non_split_rounding_bytes = next.large_segment_bytes;
  for (const auto& [key, value] : pairs)
    VRAMSCOPE_RETURN_IF_ERROR(ParseOne(key, value, rules, &next));
  *settings = next;
  return {};
}

}  // namespace vramscope::query
