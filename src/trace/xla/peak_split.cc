// SPDX-License-Identifier: Apache-2.0
#include "trace/xla/peak_split.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace vramscope::trace {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 60;
// XLA's number of host memory.
constexpr uint64_t kHostColor = 5;

struct LiveRange {
  uint64_t begin = 0, last = 0;  // numbers of instructions
};

struct TemporaryValue {
  std::string_view instruction, index;  // "fusion.1", "{0}"
  uint64_t begin = 0, end = 0;          // bytes; allocations follow each other
  LiveRange live;
};

struct TemporaryBuffers {
  uint64_t bytes = 0;
  std::vector<TemporaryValue> values;
};

// "allocation 10: size 2621440, color 1, preallocated-temp:"; false: another kind.
bool ParseAllocation(std::string_view line, uint64_t* size_bytes) {
  uint64_t number = 0, color = 0;
  if (!TakePrefix("allocation ", &line) || !TakeCount(&number, &line) ||
      !TakePrefix(": size ", &line) || !TakeCount(size_bytes, &line))
    return false;
  if (TakePrefix(", color ", &line))
    (void)TakeCount(&color, &line);
  return color != kHostColor && line.find(", preallocated-temp") != std::string_view::npos;
}

// " value: <88 fusion.6{0} (phi) @0> (size=524288,offset=0): f32[512,256]{1,0}"
bool ParseValue(std::string_view line, uint64_t base, uint64_t size_bytes, TemporaryValue* value) {
  uint64_t number = 0, bytes = 0, offset = 0;
  if (!TakePrefix(" value: <", &line) || !TakeCount(&number, &line) || !TakePrefix(" ", &line))
    return false;
  const size_t end = line.find('>');
  if (end == std::string_view::npos)
    return false;
  const std::string_view name = line.substr(0, line.substr(0, end).find(' '));
  line.remove_prefix(end + 1);
  value->instruction = name.substr(0, name.find('{'));
  value->index = name.substr(value->instruction.size());
  if (value->index.empty())
    value->index = "{}";
  if (!TakePrefix(" (size=", &line) || !TakeCount(&bytes, &line) ||
      !TakePrefix(",offset=", &line) || !TakeCount(&offset, &line) || bytes > size_bytes ||
      offset > size_bytes - bytes)
    return false;
  value->begin = base + offset;
  value->end = value->begin + bytes;
  return true;
}

util::Result<TemporaryBuffers> ReadBuffers(std::string_view text, bool with_values) {
  TemporaryBuffers found;
  WholeLines lines(text);
  std::string_view line;
  if (!lines.Next(&line) || line != "BufferAssignment:")
    return util::Status::Error("its buffer assignment is none");
  uint64_t base = 0, size_bytes = 0;
  bool is_temporary = false;
  while (lines.Next(&line)) {
    if (line.starts_with("allocation ")) {
      base = found.bytes;
      is_temporary = ParseAllocation(line, &size_bytes);
      if (is_temporary && (size_bytes > kMostBytes || (found.bytes += size_bytes) > kMostBytes))
        return util::Status::Error("its buffer assignment is damaged");
      continue;
    }
    TemporaryValue value;
    if (!with_values || !is_temporary || !line.starts_with(" value: "))
      continue;
    if (!ParseValue(line, base, size_bytes, &value))
      return util::Status::Error("its buffer assignment is damaged");
    if (value.begin != value.end)
      found.values.push_back(value);
  }
  return found;
}

// "    fusion.6{0}:5-6", by what is before the colon.
std::unordered_map<std::string_view, LiveRange> ReadLiveRanges(std::string_view text) {
  std::unordered_map<std::string_view, LiveRange> ranges;
  WholeLines lines(text);
  bool is_in = false;
  for (std::string_view line; lines.Next(&line);) {
    if (!line.starts_with("    ")) {
      if (is_in)
        break;
      is_in = line == "  BufferLiveRange:";
      continue;
    }
    if (!is_in)
      continue;
    line.remove_prefix(4);
    const size_t colon = line.rfind(':');
    if (colon == std::string_view::npos)
      continue;
    LiveRange range;
    std::string_view numbers = line.substr(colon + 1);
    if (TakeCount(&range.begin, &numbers) && TakePrefix("-", &numbers) &&
        TakeCount(&range.last, &numbers) && range.begin <= range.last && range.last < UINT64_MAX)
      ranges[line.substr(0, colon)] = range;
  }
  return ranges;
}

// Bytes that at least one interval covers, as intervals come and go.
class Coverage {
 public:
  explicit Coverage(std::vector<uint64_t> bounds) : bounds_(std::move(bounds)) {
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    nodes_.resize(4 * bounds_.size());
  }
  void Change(uint64_t begin, uint64_t end, int32_t by) {
    const auto place = [this](uint64_t bound) {
      return static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), bound) -
                                 bounds_.begin());
    };
    Change(1, 0, bounds_.size() - 1, place(begin), place(end), by);
  }
  uint64_t bytes() const { return nodes_[1].bytes; }

 private:
  struct Node {
    int32_t covers = 0;
    uint64_t bytes = 0;
  };
  void Change(size_t node, size_t from, size_t to, size_t begin, size_t end, int32_t by) {
    if (begin >= to || end <= from)
      return;
    Node& here = nodes_[node];
    const size_t middle = from + (to - from) / 2;
    if (begin <= from && end >= to) {
      here.covers += by;
    } else {
      Change(2 * node, from, middle, begin, end, by);
      Change(2 * node + 1, middle, to, begin, end, by);
    }
    if (here.covers > 0)
      here.bytes = bounds_[to] - bounds_[from];
    else
      here.bytes = to - from == 1 ? 0 : nodes_[2 * node].bytes + nodes_[2 * node + 1].bytes;
  }

  std::vector<uint64_t> bounds_;
  std::vector<Node> nodes_;
};

// The first instruction at which the values cover most bytes.
uint64_t PeakOf(const std::vector<TemporaryValue>& values) {
  struct Change {
    uint64_t at;
    size_t value;
    int32_t by;
  };
  std::vector<Change> changes;
  std::vector<uint64_t> bounds;
  for (size_t i = 0; i < values.size(); ++i) {
    changes.push_back({values[i].live.begin, i, 1});
    changes.push_back({values[i].live.last + 1, i, -1});
    bounds.push_back(values[i].begin);
    bounds.push_back(values[i].end);
  }
  std::sort(changes.begin(), changes.end(),
            [](const Change& a, const Change& b) { return a.at < b.at; });
  Coverage coverage(std::move(bounds));
  uint64_t peak = 0, most = 0;
  for (size_t i = 0; i < changes.size();) {
    const uint64_t at = changes[i].at;
    for (; i < changes.size() && changes[i].at == at; ++i) {
      const TemporaryValue& value = values[changes[i].value];
      coverage.Change(value.begin, value.end, changes[i].by);
    }
    if (coverage.bytes() > most) {
      most = coverage.bytes();
      peak = at;
    }
  }
  return peak;
}

// Takes what is free of a range; returns its bytes.
uint64_t TakeFree(uint64_t begin, uint64_t end, std::map<uint64_t, uint64_t>* taken) {
  uint64_t free = end - begin;
  auto at = taken->upper_bound(begin);
  if (at != taken->begin() && std::prev(at)->second >= begin)
    --at;
  while (at != taken->end() && at->first <= end) {
    const uint64_t from = std::max(begin, at->first), to = std::min(end, at->second);
    free -= to > from ? to - from : 0;
    begin = std::min(begin, at->first);
    end = std::max(end, at->second);
    at = taken->erase(at);
  }
  (*taken)[begin] = end;
  return free;
}

}  // namespace

util::Result<uint64_t> XlaTemporaryBytes(std::string_view buffers) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const TemporaryBuffers found, ReadBuffers(buffers, false));
  return found.bytes;
}

util::Result<XlaPeak> SplitXlaPeak(const XlaDumpTexts& dump, IsOwnFile is_own) {
  VRAMSCOPE_ASSIGN_OR_RETURN(TemporaryBuffers buffers, ReadBuffers(dump.buffers, true));
  const auto ranges = ReadLiveRanges(dump.live_ranges);
  std::string key;
  std::erase_if(buffers.values, [&](TemporaryValue& value) {
    key.assign(value.instruction).append(value.index);
    const auto range = ranges.find(key);
    if (range != ranges.end())
      value.live = range->second;
    return range == ranges.end();
  });
  XlaPeak peak;
  peak.temp_bytes = buffers.bytes;
  if (buffers.bytes == 0)
    return peak;
  if (buffers.values.empty())
    return util::Status::Error("its live ranges are missing");
  const uint64_t at = PeakOf(buffers.values);
  std::erase_if(buffers.values, [&](const TemporaryValue& value) {
    return value.live.begin > at || value.live.last < at;
  });
  std::stable_sort(
      buffers.values.begin(), buffers.values.end(),
      [](const TemporaryValue& a, const TemporaryValue& b) { return a.live.begin > b.live.begin; });
  std::map<uint64_t, uint64_t> taken;
  std::map<std::string_view, uint64_t> bytes;
  for (const TemporaryValue& value : buffers.values)
    bytes[value.instruction] += TakeFree(value.begin, value.end, &taken);
  std::unordered_set<std::string_view> wanted;
  for (const auto& [instruction, size] : bytes)
    wanted.insert(instruction);
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto hlo, ReadHlo(dump.hlo, wanted, is_own));
  for (const auto& [instruction, size] : bytes) {
    if (size == 0)
      continue;
    XlaOperation operation{std::string(instruction), size, {}};
    if (const auto found = hlo.find(instruction); found != hlo.end())
      operation.hlo = found->second;
    peak.operations.push_back(std::move(operation));
  }
  std::stable_sort(peak.operations.begin(), peak.operations.end(),
                   [](const XlaOperation& a, const XlaOperation& b) { return a.bytes > b.bytes; });
  return peak;
}

}  // namespace vramscope::trace
