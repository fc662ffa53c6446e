// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "query/core/instant.h"
#include "query/core/residual.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/report.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

// NVML may show a free this much later.
constexpr int64_t kSeenWithinNs = 2'000'000'000;

// What one entry is about: everything but bytes and times.
struct OpenKey {
  tables::AccountId account;
  tables::ProcessId maker;
  tables::FrameId line;
  bool is_kept = false;
  bool maker_ended = false;
  auto operator<=>(const OpenKey&) const = default;
};

class OpenEntries {
 public:
  OpenEntries(const tables::Recording& recording, bool only_kept)
      : recording_(recording), lines_(recording), only_kept_(only_kept) {}

  void Add(const tables::SharedRow& row, int64_t at_ns) {
    if (RowOf(recording_.tables().accounts, row.account).process == row.maker)
      return;
    const bool is_kept = row.kept_ns != 0 && (only_kept_ || row.kept_ns <= at_ns);
    if (only_kept_ ? !is_kept : at_ns < row.begin_ns || at_ns >= row.end_ns)
      return;
    entries_[{row.account, row.maker, lines_.Of(row.place), is_kept,
              is_kept && row.maker_ended != 0}]
        .push_back(&row);
  }

  std::vector<OpenMemory> Take() {
    std::vector<OpenMemory> out;
    for (const auto& [key, rows] : entries_) {
      OpenMemory entry;
      const tables::AccountRow& account = RowOf(recording_.tables().accounts, key.account);
      entry.device = account.device;
      Name(account.process, &entry.pid, &entry.command);
      Name(key.maker, &entry.maker_pid, &entry.maker_command);
      if (key.line.value != 0)
        entry.place = FormatFrame(recording_, key.line);
      entry.maker = !key.is_kept ? "holds" : key.maker_ended ? "ended" : "freed";
      if (key.maker.value == 0)
        entry.maker.clear();
      std::vector<const tables::SharedRow*> counted = rows;
      if (only_kept_)
        counted = AtTheirMost(rows);
      for (const tables::SharedRow* row : counted) {
        entry.bytes += row->bytes;
        ++entry.count;
        if (key.is_kept)
          entry.kept_ns = std::max(entry.kept_ns.value_or(row->kept_ns), row->kept_ns);
      }
      out.push_back(std::move(entry));
    }
    std::stable_sort(out.begin(), out.end(),
                     [](const OpenMemory& a, const OpenMemory& b) { return a.bytes > b.bytes; });
    return out;
  }

 private:
  void Name(tables::ProcessId process, std::optional<uint32_t>* pid, std::string* command) const {
    if (process.value == 0)
      return;
    const tables::ProcessRow& row = RowOf(recording_.tables().processes, process);
    *pid = row.pid;
    *command = recording_.string(row.command);
  }

  // The rows that are kept at the instant at which they have most bytes.
  static std::vector<const tables::SharedRow*> AtTheirMost(
      const std::vector<const tables::SharedRow*>& rows) {
    std::vector<std::pair<int64_t, int64_t>> moves;
    for (const tables::SharedRow* row : rows) {
      moves.emplace_back(row->kept_ns, static_cast<int64_t>(row->bytes));
      moves.emplace_back(row->end_ns, -static_cast<int64_t>(row->bytes));
    }
    std::sort(moves.begin(), moves.end());
    int64_t bytes = 0, most = 0, most_ns = 0;
    for (const auto& [time_ns, move] : moves) {
      bytes += move;
      if (bytes > most) {
        most = bytes;
        most_ns = time_ns;
      }
    }
    std::vector<const tables::SharedRow*> kept;
    for (const tables::SharedRow* row : rows) {
      if (row->kept_ns <= most_ns && most_ns < row->end_ns)
        kept.push_back(row);
    }
    return kept;
  }

  const tables::Recording& recording_;
  UserFrames lines_;
  const bool only_kept_;
  std::map<OpenKey, std::vector<const tables::SharedRow*>> entries_;
};

// Memory of a device that came to no recorded process, as far as NVML shows.
struct Appeared {
  tables::DeviceId device;
  int64_t time_ns = 0;
  uint64_t bytes = 0;
};
std::vector<Appeared> FindAppeared(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  std::vector<Appeared> found;
  for (const Unexplained& entry : FindUnexplained(recording)) {
    if (entry.bytes > 0)
      found.push_back({entry.device, entry.since_ns, static_cast<uint64_t>(entry.bytes)});
  }
  for (const tables::StepRow& step : tables.steps) {
    const tables::SiteRow& site = RowOf(tables.sites, RowOf(tables.counters, step.counter).site);
    if (site.part == format::Part::kOtherProcesses && step.bytes > 0) {
      found.push_back({RowOf(tables.accounts, site.account).device, step.time_ns,
                       static_cast<uint64_t>(step.bytes)});
    }
  }
  return found;
}

// The only process that used a GPU without the probe, by the launcher's notes; otherwise none.
void NameUnrecorded(const tables::Recording& recording, OpenMemory* entry) {
  constexpr std::string_view kNoteKey = "process ";
  constexpr std::string_view kNoteValue = "not recorded: ";
  size_t count = 0;
  for (const tables::NoteRow& note : recording.tables().notes) {
    const std::string_view key = recording.string(note.key);
    std::string_view value = recording.string(note.value);
    if (!key.starts_with(kNoteKey) || !value.starts_with(kNoteValue) ||
        !value.ends_with("uses a GPU"))
      continue;
    uint32_t pid = 0;
    std::from_chars(key.data() + kNoteKey.size(), key.data() + key.size(), pid);
    value.remove_prefix(kNoteValue.size());
    entry->pid = pid;
    entry->command = value.substr(0, value.find(' '));
    ++count;
  }
  if (count != 1) {
    entry->pid.reset();
    entry->command.clear();
  }
}

// Exported memory that the device still had after its maker freed it: the driver keeps it for an
// importer. If the recording does not have the importer, the bytes came to no recorded process.
void AddUnrecordedHolders(const tables::Recording& recording, std::vector<OpenMemory>* out) {
  constexpr uint64_t kSlack = uint64_t{1} << 20;
  const tables::Tables& tables = recording.tables();
  std::vector<bool> used(tables.shared.size());
  for (const Appeared& growth : FindAppeared(recording)) {
    for (size_t i = 0; i < tables.shared.size(); ++i) {
      const tables::SharedRow& row = tables.shared[i];
      const tables::AccountRow& account = RowOf(tables.accounts, row.account);
      const bool is_near = row.end_ns >= growth.time_ns - kSeenWithinNs &&
                           row.end_ns <= growth.time_ns + kSeenWithinNs;
      if (used[i] || account.process.value == 0 || account.process != row.maker || !is_near ||
          account.device != growth.device || row.bytes == 0 ||
          std::max(row.bytes, growth.bytes) - std::min(row.bytes, growth.bytes) > kSlack)
        continue;
      used[i] = true;
      OpenMemory entry;
      entry.device = growth.device;
      NameUnrecorded(recording, &entry);
      const tables::ProcessRow& maker = RowOf(tables.processes, row.maker);
      entry.maker_pid = maker.pid;
      entry.maker_command = recording.string(maker.command);
      entry.maker = row.end_ns >= account.end_ns ? "ended" : "freed";
      entry.kept_ns = row.end_ns;
      entry.bytes = row.bytes;
      entry.count = 1;
      out->push_back(std::move(entry));
      break;
    }
  }
}

}  // namespace

util::Result<std::vector<OpenMemory>> MakeOpenMemory(const tables::Recording& recording,
                                                     const Instants* at) {
  const tables::Tables& tables = recording.tables();
  if (tables.shared.empty())
    return std::vector<OpenMemory>();
  OpenEntries entries(recording, at == nullptr);
  for (const tables::SharedRow& row : tables.shared)
    entries.Add(row, at == nullptr ? 0 : at->of_account[row.account.value]);
  std::vector<OpenMemory> out = entries.Take();
  if (at == nullptr)
    AddUnrecordedHolders(recording, &out);
  return out;
}

}  // namespace vramscope::query
