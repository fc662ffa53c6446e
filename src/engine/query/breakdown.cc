// SPDX-License-Identifier: Apache-2.0
#include "engine/query/breakdown.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>

namespace vramscope::engine {
namespace {

constexpr size_t kDimensions = static_cast<size_t>(Dimension::kLifetime) + 1;
const char kNone[] = "(none)";

// Sizes in steps of 16, from 1 KiB on; 0 is "no size of its own".
const char* const kSizeClasses[] = {
    kNone,
    "below 1 KiB",
    "1 KiB to 16 KiB",
    "16 KiB to 256 KiB",
    "256 KiB to 4 MiB",
    "4 MiB to 64 MiB",
    "64 MiB to 1 GiB",
    "1 GiB and more",
};
uint64_t SizeClass(uint64_t bytes) {
  const auto bits = static_cast<uint64_t>(std::bit_width(bytes));
  return bits <= 10 ? 1 : std::min<uint64_t>(7, 2 + (bits - 11) / 4);
}

const char* const kLifetimes[] = {
    kNone,         "below 1 ms",    "1 ms to 10 ms",  "10 ms to 100 ms", "0.1 s to 1 s",
    "1 s to 10 s", "10 s to 100 s", "100 s and more", "never freed",
};
uint64_t LifetimeClass(int64_t alloc_ns, int64_t free_ns) {
  if (free_ns == kNever)
    return 8;
  uint64_t index = 1;
  for (int64_t limit_ns = 1'000'000; index < 7 && free_ns - alloc_ns >= limit_ns; limit_ns *= 10)
    ++index;
  return index;
}

std::string HexText(uint64_t value) {
  static const char kDigits[] = "0123456789abcdef";
  std::string text;
  do {
    text.insert(text.begin(), kDigits[value & 15]);
    value >>= 4;
  } while (value != 0);
  return "0x" + text;
}

std::string DeviceText(const trace::Device& device) {
  switch (device.kind) {
    case trace::DeviceKind::kCpu:
      return "cpu";
    case trace::DeviceKind::kHost:
      return "host";
    case trace::DeviceKind::kGpu:
      break;
  }
  return "GPU " + std::to_string(device.index);
}

// "layer.0" is inside of "layer", "solve/jacobi" of "solve".
bool IsBelow(const std::string& text, const std::string& prefix) {
  return !prefix.empty() && text.size() > prefix.size() && text.starts_with(prefix) &&
         (text[prefix.size()] == '.' || text[prefix.size()] == '/');
}

}  // namespace

std::vector<std::string> LevelsOf(const std::string& owner,
                                  Part part,
                                  Category category,
                                  const std::string* trigger) {
  std::vector<std::string> levels;
  if (!owner.empty())
    levels.push_back(owner);
  const bool named =
      owner == "PyTorch" && part == Part::kAllocated && category != Category::kUnknown;
  levels.emplace_back(named ? CategoryName(category) : PartName(part));
  if (trigger != nullptr)
    levels.push_back(*trigger);
  return levels;
}

size_t Breakdown::KeyHash::operator()(const std::vector<uint64_t>& key) const noexcept {
  uint64_t hash = 0;
  for (const uint64_t value : key)
    hash = (std::rotl(hash, 23) ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

uint64_t Breakdown::Number(const Leaf& leaf, Dimension dimension) {
  const bool slack = IsSlack(leaf.part);
  switch (dimension) {
    case Dimension::kDevice:
      return static_cast<uint64_t>(leaf.device.value);
    case Dimension::kProcess:
    case Dimension::kRank:
      return leaf.process.value;
    case Dimension::kThread:
      return leaf.thread.value;
    case Dimension::kStream:
      return leaf.has_stream ? leaf.stream + 1 : 0;
    case Dimension::kOwner:
      // Rows without an owner are named by what they are.
      return leaf.owner != kNoOwner ? leaf.owner.value
                                    : uint64_t{1} << 32 | static_cast<uint64_t>(leaf.part);
    case Dimension::kApi:
      return leaf.is_block ? uint64_t{1} << 32 : leaf.api.value;
    case Dimension::kCategory:
      return static_cast<uint64_t>(leaf.category);
    case Dimension::kModule:
      return naming_.Module(naming_.Of(leaf));
    case Dimension::kParameter:
      return naming_.Parameter(naming_.Of(leaf));
    case Dimension::kPhase:
      return leaf.has_origin ? static_cast<uint64_t>(leaf.origin.phase) + 1 : 0;
    case Dimension::kIteration:
      return naming_.Iteration(naming_.Of(leaf));
    case Dimension::kTag:
      return naming_.Tag(naming_.Of(leaf));
    case Dimension::kLine:
      return frames_.Innermost(PlaceOf(leaf, naming_.facts())).value;
    case Dimension::kPython:
      return leaf.stack.value != 0 || !leaf.has_origin ? leaf.stack.value
                                                       : leaf.origin.forward.value;
    case Dimension::kNative:
      return leaf.native.value;
    case Dimension::kSizeClass:
      return slack || leaf.count != 1 ? 0 : SizeClass(leaf.bytes);
    case Dimension::kLifetime:
      return leaf.has_lifetime ? LifetimeClass(leaf.alloc_ns, leaf.free_ns) : 0;
  }
  return 0;
}

std::string Breakdown::StackText(trace::StackId stack) const {
  // Outermost first, as collapsed stacks are written.
  std::vector<std::string> frames;
  size_t left = trace_.stack_count();
  for (trace::StackId at = stack; at.value != 0 && left > 0; --left) {
    frames.push_back(DescribeFrame(trace_, trace_.stack(at).frame));
    at = trace_.stack(at).parent;
  }
  std::string text;
  for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame)
    text += (text.empty() ? "" : ";") + *frame;
  return text;
}

std::string Breakdown::Text(uint64_t number, Dimension dimension, const Leaf& leaf) {
  const bool has_process = leaf.process.value < trace_.processes().size();
  switch (dimension) {
    case Dimension::kDevice:
      return DeviceText(trace_.devices()[number]);
    case Dimension::kProcess:
      return has_process ? std::to_string(trace_.processes()[leaf.process.value].pid) : kNone;
    case Dimension::kRank: {
      const std::optional<int32_t> rank =
          has_process ? trace_.processes()[leaf.process.value].rank : std::nullopt;
      return rank ? std::to_string(*rank) : kNone;
    }
    case Dimension::kThread: {
      if (number == 0 || number >= trace_.threads().size())
        return kNone;
      const trace::Thread& thread = trace_.threads()[number];
      const std::string tid = std::to_string(thread.tid);
      return thread.name.empty() ? tid : thread.name + " (" + tid + ")";
    }
    case Dimension::kStream:
      return number == 0 ? kNone : HexText(number - 1);
    case Dimension::kOwner:
      return leaf.owner != kNoOwner ? ledger_.owners().name(leaf.owner) : PartName(leaf.part);
    case Dimension::kApi:
      if (leaf.is_block)
        return "caching allocator";
      return number == 0 ? kNone : std::string(trace_.string(leaf.api));
    case Dimension::kCategory:
      return CategoryName(static_cast<Category>(number));
    case Dimension::kLine:
      return DescribeFrame(trace_, trace::FrameId{static_cast<uint32_t>(number)});
    case Dimension::kPython:
    case Dimension::kNative:
      return number == 0 ? "(no stack)" : StackText(trace::StackId{static_cast<uint32_t>(number)});
    case Dimension::kSizeClass:
      return kSizeClasses[number];
    case Dimension::kLifetime:
      return kLifetimes[number];
    case Dimension::kPhase:
      return number == 0 ? kNone : PhaseName(static_cast<Phase>(number - 1));
    case Dimension::kModule:
    case Dimension::kParameter:
    case Dimension::kIteration:
    case Dimension::kTag:
      if (number != 0)
        return naming_.text(static_cast<uint32_t>(number));
      break;
  }
  return kNone;
}

const std::string& Breakdown::CachedText(uint64_t number, Dimension dimension, const Leaf& leaf) {
  texts_.resize(kDimensions);
  auto& texts = texts_[static_cast<size_t>(dimension)];
  const auto [found, added] = texts.try_emplace(number);
  if (added)
    found->second = Text(number, dimension, leaf);
  return found->second;
}

bool Breakdown::Matches(const ReportQuery::Where& where,
                        const std::string& text,
                        const Leaf& leaf) const {
  if (text == where.value)
    return true;
  switch (where.dimension) {
    case Dimension::kLine:
    case Dimension::kPython:
    case Dimension::kNative:
      return text.find(where.value) != std::string::npos;
    case Dimension::kModule:
      return IsBelow(text, where.value);
    case Dimension::kDevice: {
      const trace::Device& device = trace_.devices()[static_cast<size_t>(leaf.device.value)];
      const std::string index = std::to_string(device.index);
      return where.value == index ||
             (device.kind == trace::DeviceKind::kGpu && where.value == "gpu" + index);
    }
    case Dimension::kThread: {
      const size_t thread = leaf.thread.value;
      return thread != 0 && thread < trace_.threads().size() &&
             (std::to_string(trace_.threads()[thread].tid) == where.value ||
              trace_.threads()[thread].name == where.value);
    }
    default:
      return false;
  }
}

bool Breakdown::Add(const Leaf& leaf) {
  verdicts_.resize(query_.where.size());
  for (size_t i = 0; i < query_.where.size(); ++i) {
    const ReportQuery::Where& where = query_.where[i];
    const uint64_t number = Number(leaf, where.dimension);
    const auto [verdict, added] = verdicts_[i].try_emplace(number);
    if (added)
      verdict->second = Matches(where, CachedText(number, where.dimension, leaf), leaf);
    if (!verdict->second)
      return false;
  }
  std::vector<uint64_t> key{static_cast<uint64_t>(leaf.device.value), leaf.process.value};
  if (query_.by.empty()) {
    key.push_back(leaf.owner.value);
    key.push_back(static_cast<uint64_t>(leaf.part) << 8 | static_cast<uint64_t>(leaf.category));
    // Triggers are few and live as long as the ledger: their place tells them apart.
    key.push_back(reinterpret_cast<uintptr_t>(leaf.trigger));
  }
  for (const Dimension dimension : query_.by)
    key.push_back(Number(leaf, dimension));
  auto& [sum, path] = sums_[key];
  if (path.empty()) {
    if (query_.by.empty())
      path = LevelsOf(ledger_.owners().name(leaf.owner), leaf.part, leaf.category, leaf.trigger);
    for (size_t i = 0; i < query_.by.size(); ++i)
      path.push_back(CachedText(key[2 + i], query_.by[i], leaf));
  }
  sum.bytes += leaf.bytes;
  sum.count += leaf.count;
  return true;
}

std::vector<ReportRow> Breakdown::Take() {
  // Different numbers may have one text: two code objects of one line, two triggers of one name.
  std::map<std::tuple<uint64_t, uint64_t, std::vector<std::string>>, Sum> merged;
  for (auto& [key, value] : sums_) {
    Sum& sum = merged[{key[0], key[1], std::move(value.second)}];
    sum.bytes += value.first.bytes;
    sum.count += value.first.count;
  }
  sums_.clear();
  std::vector<ReportRow> rows;
  rows.reserve(merged.size());
  for (const auto& [key, sum] : merged) {
    ReportRow row;
    row.device = trace::DeviceId{static_cast<int16_t>(std::get<0>(key))};
    const uint64_t process = std::get<1>(key);
    if (process < trace_.processes().size())
      row.pid = trace_.processes()[process].pid;
    row.path = std::get<2>(key);
    row.bytes = sum.bytes;
    row.count = sum.count;
    rows.push_back(std::move(row));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const ReportRow& a, const ReportRow& b) {
    return a.device != b.device ? a.device < b.device : a.bytes > b.bytes;
  });
  if (query_.top == 0)
    return rows;
  std::vector<ReportRow> cut;
  uint64_t shown = 0;
  bool rest = false;
  for (ReportRow& row : rows) {
    if (cut.empty() || cut.back().device != row.device) {
      shown = 0;
      rest = false;
    }
    if (shown < query_.top) {
      ++shown;
      cut.push_back(std::move(row));
      continue;
    }
    if (!rest) {
      rest = true;
      ReportRow others;
      others.device = row.device;
      others.path = {"(rest)"};
      cut.push_back(std::move(others));
    }
    cut.back().bytes += row.bytes;
    cut.back().count += row.count;
  }
  return cut;
}

}  // namespace vramscope::engine
