// SPDX-License-Identifier: Apache-2.0
#include "query/diff/diff.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "query/core/residual.h"
#include "query/diff/diff_parts.h"
#include "query/diff/diff_side.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using tables::DeviceKind;

// Noise of two equal runs: a few pages here and there.
constexpr uint64_t kSmallBytes = uint64_t{64} << 10;
constexpr uint64_t kShareOfPeak = 1000;

uint64_t BytesOf(const DiffSums& sums) {
  uint64_t bytes = 0;
  for (const auto& [key, sum] : sums)
    bytes += sum.bytes;
  return bytes;
}

std::vector<ComparedRow> Merge(const DiffSums& a, const DiffSums& b) {
  std::vector<ComparedRow> rows;
  auto x = a.begin();
  auto y = b.begin();
  while (x != a.end() || y != b.end()) {
    ComparedRow row;
    const bool from_a = y == b.end() || (x != a.end() && x->first <= y->first);
    const bool from_b = x == a.end() || (y != b.end() && y->first <= x->first);
    row.key = from_a ? x->first : y->first;
    if (from_a)
      row.a = (x++)->second;
    if (from_b)
      row.b = (y++)->second;
    rows.push_back(row);
  }
  return rows;
}

// "gpu0"; "gpu0/gpu3" where A's is another than B's.
std::string DeviceName(const DiffSide& a, const DiffSide& b, uint32_t device) {
  const bool in_a = device < a.devices.size();
  const bool in_b = device < b.devices.size();
  const std::string& name = (in_b ? b : a).devices[device].name;
  return in_a && in_b && a.devices[device].name != name ? a.devices[device].name + "/" + name
                                                        : name;
}

DiffRow RowOf(const Comparison& all, const ComparedRow& row) {
  const DiffKey& key = row.key;
  std::string name = all.words[key.parameter];
  for (const uint32_t part : {key.tag, key.detail}) {
    if (part != 0)
      name += (name.empty() ? "" : " ") + all.words[part];
  }
  DiffRow out;
  out.path = {DeviceName(all.a, all.b, key.device),
              format::CategoryName(key.category),
              format::PhaseName(key.phase),
              all.words[key.module],
              name,
              key.place == 0 ? std::string() : all.Line(key.place)};
  out.a_bytes = row.a.bytes;
  out.b_bytes = row.b.bytes;
  out.a_count = row.a.count;
  out.b_count = row.b.count;
  if (row.delta() != 0 && key.place != 0)
    out.callers = CallersOf(all, {key});
  return out;
}

void SortByChange(std::vector<DiffRow>* rows) {
  const auto change = [](const DiffRow& row) { return std::abs(row.delta_bytes()); };
  std::stable_sort(rows->begin(), rows->end(), [&](const DiffRow& x, const DiffRow& y) {
    if (change(x) != change(y))
      return change(x) > change(y);
    const uint64_t larger_x = std::max(x.a_bytes, x.b_bytes);
    const uint64_t larger_y = std::max(y.a_bytes, y.b_bytes);
    return larger_x != larger_y ? larger_x > larger_y : x.path < y.path;
  });
}

std::vector<DiffRow> RowsOf(const Comparison& all, const std::vector<ComparedRow>& rows) {
  // Keys that differ only in hidden fields have one path.
  std::map<std::vector<std::string>, DiffRow> merged;
  for (const ComparedRow& row : rows) {
    DiffRow next = RowOf(all, row);
    DiffRow& sum = merged[next.path];
    sum.a_bytes += next.a_bytes;
    sum.b_bytes += next.b_bytes;
    sum.a_count += next.a_count;
    sum.b_count += next.b_count;
    sum.path = std::move(next.path);
    std::move(next.callers.begin(), next.callers.end(), std::back_inserter(sum.callers));
  }
  std::vector<DiffRow> out;
  for (auto& [path, row] : merged)
    out.push_back(std::move(row));
  SortByChange(&out);
  return out;
}

void AddCategories(Diff* diff) {
  std::map<std::string, DiffRow> categories;
  for (const DiffRow& row : diff->rows) {
    DiffRow& sum = categories[row.path[1]];
    sum.path = {row.path[1]};
    sum.a_bytes += row.a_bytes;
    sum.b_bytes += row.b_bytes;
    sum.a_count += row.a_count;
    sum.b_count += row.b_count;
  }
  for (auto& [name, row] : categories)
    diff->categories.push_back(std::move(row));
  SortByChange(&diff->categories);
}

void AddDevices(const DiffSide& a, const DiffSide& b, Diff* diff) {
  for (size_t i = 0; i < std::max(a.devices.size(), b.devices.size()); ++i) {
    DiffDevice device;
    device.compared = true;
    device.name = DeviceName(a, b, static_cast<uint32_t>(i));
    device.a_bytes = i < a.devices.size() ? a.devices[i].peak_bytes : 0;
    device.b_bytes = i < b.devices.size() ? b.devices[i].peak_bytes : 0;
    diff->devices.push_back(std::move(device));
  }
  std::map<std::string, DiffDevice> others;
  for (const bool of_b : {false, true}) {
    for (const DiffSide::Device& device : (of_b ? b : a).others) {
      DiffDevice& other = others[device.name];
      other.name = device.name;
      (of_b ? other.b_bytes : other.a_bytes) += device.peak_bytes;
    }
  }
  for (auto& [name, device] : others)
    diff->devices.push_back(std::move(device));
}

std::string KindWords(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kGpu:
      return "GPU memory";
    case DeviceKind::kHost:
      return "pinned host memory";
    case DeviceKind::kCpu:
      break;
  }
  return "CPU tensors";
}

// The first process's, which started the others.
std::string_view CommandOf(const DiffSide& side) {
  const tables::Tables& tables = side.recording->tables();
  return tables.processes.size() > 1 ? side.recording->string(tables.processes[1].command)
                                     : std::string_view{};
}

std::vector<std::string> Words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    if (end != begin)
      words.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// "--batch 8 in A, --batch 16 in B": between the words that both begin and end with.
std::string CommandChange(std::string_view a, std::string_view b) {
  std::vector<std::string> x = Words(a);
  std::vector<std::string> y = Words(b);
  size_t begin = 0;
  while (begin < x.size() && begin < y.size() && x[begin] == y[begin])
    ++begin;
  size_t end = 0;
  while (end + begin < x.size() && end + begin < y.size() &&
         x[x.size() - 1 - end] == y[y.size() - 1 - end])
    ++end;
  // The option whose value changed says what the value is of.
  if (begin > 0 && x[begin - 1].starts_with("-") &&
      (begin >= x.size() - end || !x[begin].starts_with("-")))
    --begin;
  const auto joined = [&](const std::vector<std::string>& words) {
    std::string text;
    for (size_t i = begin; i + end < words.size(); ++i)
      text += (text.empty() ? "" : " ") + words[i];
    return text.empty() ? std::string("nothing") : text;
  };
  return joined(x) + " in A, " + joined(y) + " in B";
}

std::string Joined(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string DeviceModels(const DiffSide& side) {
  std::set<std::string> names;
  for (const DiffSide::Device& device : side.devices) {
    const auto name =
        side.recording->string(side.recording->tables().devices[device.id.value].name);
    if (!name.empty())
      names.emplace(name);
  }
  return names.empty() ? "a device without a name" : Joined(names);
}

void AddNotes(const DiffSide& a, const DiffSide& b, Diff* diff) {
  const auto note = [&](std::string text) { diff->notes.push_back(std::move(text)); };
  if (a.devices[0].kind != b.devices[0].kind) {
    note("other devices: " + KindWords(a.devices[0].kind) + " in A, " +
         KindWords(b.devices[0].kind) + " in B");
  } else if (a.devices.size() != b.devices.size()) {
    note("other devices: " + std::to_string(a.devices.size()) + " in A, " +
         std::to_string(b.devices.size()) + " in B");
  } else if (DeviceModels(a) != DeviceModels(b)) {
    note("other devices: " + DeviceModels(a) + " in A, " + DeviceModels(b) + " in B");
  }
  if (a.allocators != b.allocators) {
    const auto words = [](const std::set<std::string>& names) {
      return names.empty() ? std::string("no framework's allocator") : Joined(names);
    };
    note("other frameworks: " + words(a.allocators) + " in A, " + words(b.allocators) + " in B");
  }
  if (CommandOf(a) != CommandOf(b))
    note("the command lines differ: " + CommandChange(CommandOf(a), CommandOf(b)));
  const bool sampled_a = tables::IsSampled(*a.recording);
  if (sampled_a != tables::IsSampled(*b.recording)) {
    note(std::string(sampled_a ? "A" : "B") +
         " is sampled, and has NVML's figures alone: only the totals compare");
  }
  const std::string& version_a = a.recording->tables().session.version;
  const std::string& version_b = b.recording->tables().session.version;
  if (version_a != version_b) {
    const auto by = [](const std::string& version) {
      return version.empty() ? "another program" : "vramscope " + version;
    };
    note("recorded by " + by(version_a) + " (A) and by " + by(version_b) + " (B)");
  }
  if (a.iteration_count != b.iteration_count) {
    note(std::to_string(a.iteration_count) + " iterations in A, " +
         std::to_string(b.iteration_count) +
         " in B: growth is compared over the iterations of both, peaks over the whole runs");
  }
  if (!a.PeaksAlike(b) && a.peak_place != 0 && b.peak_place != 0) {
    const auto where = [](const DiffSide& side) {
      return std::string(format::PhaseName(side.peak_phase)) + " at " +
             side.lines.at(side.peak_place);
    };
    note("the peaks are at different moments: A's in " + where(a) + ", B's in " + where(b));
  }
  if (diff->a_unbacked_bytes != 0 || diff->b_unbacked_bytes != 0) {
    note("asleep at the peak, without device memory: " + util::FormatBytes(diff->a_unbacked_bytes) +
         " in A, " + util::FormatBytes(diff->b_unbacked_bytes) + " in B");
  }
  if (a.others_bytes != 0 || b.others_bytes != 0) {
    note("memory of other processes is left out: " + util::FormatBytes(a.others_bytes) + " in A, " +
         util::FormatBytes(b.others_bytes) + " in B");
  }
}

void AddIterations(const DiffSide& a, const DiffSide& b, Diff* diff) {
  for (size_t i = 0; i < std::min(a.iterations.size(), b.iterations.size()); ++i) {
    const DiffSide::IterationState& x = a.iterations[i];
    const DiffSide::IterationState& y = b.iterations[i];
    if (!x.peak_bytes || !y.peak_bytes)
      continue;
    diff->iterations.push_back({x.number, *x.peak_bytes, *y.peak_bytes, x.end_bytes, y.end_bytes});
  }
}

std::string PeakChange(const Diff& diff) {
  const int64_t delta = diff.delta_bytes();
  return std::string("the peak ") + (delta > 0 ? "grew" : "shrank") + " by " +
         util::FormatBytes(static_cast<uint64_t>(std::abs(delta)));
}

std::string PeakAlone(const Diff& diff) {
  return PeakChange(diff) + "; sampled recordings have no names";
}

// The sum of the peaks changed, although no group of rows did by more than its threshold.
std::string ManySmall(const Diff& diff) {
  return PeakChange(diff) + " in many small differences, of which the largest is " +
         util::FormatSignedBytes(diff.rows.front().delta_bytes()) + " of " +
         diff.rows.front().path[1];
}

int64_t More(uint64_t a_bytes, uint64_t b_bytes) {
  return static_cast<int64_t>(b_bytes) - static_cast<int64_t>(a_bytes);
}

}  // namespace

int64_t DiffCaller::delta_bytes() const {
  return More(a_bytes, b_bytes);
}
int64_t DiffRow::delta_bytes() const {
  return More(a_bytes, b_bytes);
}
std::vector<std::string> DiffRow::ShownPath() const {
  std::vector<std::string> shown = path;
  std::replace(shown.begin(), shown.end(), std::string(), std::string("(none)"));
  return shown;
}
int64_t DiffCategory::delta_bytes() const {
  return More(a_bytes, b_bytes);
}
int64_t DiffDevice::delta_bytes() const {
  return More(a_bytes, b_bytes);
}
int64_t Diff::delta_bytes() const {
  return More(a_bytes, b_bytes);
}
std::optional<int32_t> DiffRank::Rank() const {
  return number < 0 ? std::nullopt : std::optional(number);
}
std::vector<std::string> Diff::Levels() const {
  return {std::begin(kDiffLevels), std::end(kDiffLevels)};
}
std::vector<DiffCategory> Diff::CategoryRows() const {
  std::vector<DiffCategory> found;
  for (const DiffRow& row : categories)
    found.push_back({row.path[0], row.a_bytes, row.b_bytes});
  return found;
}

util::Result<Diff> MakeDiff(const DiffSubject& a_subject, const DiffSubject& b_subject) {
  DiffWords words;
  VRAMSCOPE_ASSIGN_OR_RETURN(auto a, ReadSide(a_subject, *b_subject.recording, &words));
  VRAMSCOPE_ASSIGN_OR_RETURN(auto b, ReadSide(b_subject, *a_subject.recording, &words));
  const std::vector<int64_t> numbers =
      IterationsToCompare(std::min(a.iteration_count, b.iteration_count));
  VRAMSCOPE_RETURN_IF_ERROR(ReadIterations(numbers, &words, &a));
  VRAMSCOPE_RETURN_IF_ERROR(ReadIterations(numbers, &words, &b));
  Diff diff;
  diff.a_bytes = BytesOf(a.peak);
  diff.b_bytes = BytesOf(b.peak);
  diff.a_unbacked_bytes = BytesOf(a.unbacked);
  diff.b_unbacked_bytes = BytesOf(b.unbacked);
  const uint64_t larger = std::max(diff.a_bytes, diff.b_bytes);
  Comparison all{words, a, b, Merge(a.peak, b.peak), 0, 0};
  diff.threshold_bytes = all.threshold_bytes = std::max(kSmallBytes, larger / kShareOfPeak);
  const bool gpu = a.devices[0].kind == DeviceKind::kGpu || b.devices[0].kind == DeviceKind::kGpu;
  diff.driver_threshold_bytes = all.driver_threshold_bytes =
      gpu ? ResidualLimit(larger) : diff.threshold_bytes;
  diff.rows = RowsOf(all, all.rows);
  AddCategories(&diff);
  diff.start = RowsOf(all, Merge(a.start, b.start));
  for (const auto& [gone, arrived] : FindMoves(all)) {
    const ComparedRow& to = all.rows[arrived];
    if (to.b.bytes <= diff.threshold_bytes)
      continue;
    diff.moves.push_back({RowOf(all, to).ShownPath(),
                          format::CategoryName(all.rows[gone].key.category), to.b.bytes});
  }
  AddDevices(a, b, &diff);
  AddIterations(a, b, &diff);
  const bool one_is_sampled =
      tables::IsSampled(*a_subject.recording) != tables::IsSampled(*b_subject.recording);
  if (!one_is_sampled)
    diff.causes = FindCauses(&all);
  const auto change = static_cast<uint64_t>(std::abs(diff.delta_bytes()));
  if (diff.causes.empty() && change > diff.driver_threshold_bytes)
    diff.causes.push_back(one_is_sampled ? PeakAlone(diff) : ManySmall(diff));
  diff.same = diff.causes.empty();
  AddNotes(a, b, &diff);
  return diff;
}

}  // namespace vramscope::query
