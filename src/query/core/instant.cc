// SPDX-License-Identifier: Apache-2.0
#include "query/core/instant.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "query/core/peaks.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

bool ParseWhole(std::string_view text, int64_t* value) {
  *value = util::WholeNumber<int64_t>(text).value_or(-1);
  return *value >= 0;
}

// Of a damaged recording the end can lie before its begin.
std::string SecondsText(int64_t time_ns) {
  const int64_t ms = std::max<int64_t>(time_ns, 0) / 1'000'000;
  std::string fraction = std::to_string(ms % 1000);
  fraction.insert(0, 3 - fraction.size(), '0');
  return std::to_string(ms / 1000) + "." + fraction + " s";
}

util::Result<Instants> AtPeak(const tables::Recording& recording) {
  const tables::Tables& tables = recording.tables();
  if (!tables.peaks.empty() || tables.accounts.size() <= 1)
    return AtPeaks(tables, tables.peaks);
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto peaks, FindPeaks(recording));
  return AtPeaks(tables, peaks);
}

util::Result<Instants> AtAllocatedPeak(const tables::Recording& recording) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto peaks, AllocatedPeaks(recording));
  return AtPeaks(recording.tables(), peaks);
}

util::Result<Instants> AtOwnPeak(const tables::Recording& recording, const ReportQuery& query) {
  if (query.where.empty())
    return AtPeak(recording);
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto peaks, FindOwnPeaks(recording, query));
  return AtPeaks(recording.tables(), peaks);
}

// Each process at its own end. Accounts of no process are read at the last end.
Instants AtEnd(const tables::Tables& tables) {
  const auto end_of = [](const tables::ProcessRow& process) {
    return process.exit_ns != 0 ? process.exit_ns : process.end_ns;
  };
  int64_t last_ns = kNoTime;
  for (size_t i = 1; i < tables.processes.size(); ++i)
    last_ns = std::max(last_ns, end_of(tables.processes[i]));
  if (last_ns == kNoTime)
    last_ns = tables.session.end_ns;
  Instants instants = AllAt(tables, last_ns);
  for (size_t account = 1; account < tables.accounts.size(); ++account) {
    const uint32_t process = tables.accounts[account].process.value;
    if (process != 0 && process < tables.processes.size())
      instants.of_account[account] = end_of(tables.processes[process]);
  }
  return instants;
}

// Before a ring's history only what lived at the peaks is there.
bool IsFolded(const tables::Recording& recording, int64_t time_ns) {
  const tables::Tables& tables = recording.tables();
  if (!tables.session.HasPast() || time_ns >= tables.session.history_ns)
    return false;
  const auto is_there = [&](const tables::PeakRow& peak) { return peak.time_ns == time_ns; };
  const auto allocated = AllocatedPeaks(recording);
  return std::none_of(tables.peaks.begin(), tables.peaks.end(), is_there) &&
         (!allocated.ok() || std::none_of(allocated->begin(), allocated->end(), is_there));
}

util::Result<Instants> AtTime(const tables::Recording& recording, const Instant& instant) {
  const tables::Tables& tables = recording.tables();
  const int64_t start_ns = tables.session.begin_ns;
  int64_t end_ns = tables.session.end_ns;
  for (const tables::ProcessRow& process : tables.processes)
    end_ns = std::max(end_ns, process.end_ns);
  const bool relative = instant.kind == Instant::Kind::kSeconds;
  const int64_t time_ns = relative ? start_ns + instant.time_ns : instant.time_ns;
  if (time_ns < start_ns || time_ns > end_ns) {
    const std::string text =
        relative ? SecondsText(instant.time_ns) : "@" + std::to_string(instant.time_ns);
    const std::string range =
        relative ? "lasts " + SecondsText(static_cast<int64_t>(static_cast<uint64_t>(end_ns) -
                                                               static_cast<uint64_t>(start_ns)))
                 : "runs from @" + std::to_string(start_ns) + " to @" + std::to_string(end_ns);
    return util::Status::Error("--at " + text + " is outside the recording, which " + range);
  }
  if (IsFolded(recording, time_ns)) {
    const int64_t history_ns = tables.session.history_ns;
    return util::Status::Error(
        "--at " + (relative ? SecondsText(instant.time_ns) : "@" + std::to_string(time_ns)) +
        " is older than the history that `run --ring` kept: use the peak, or an instant from " +
        (relative ? SecondsText(history_ns - start_ns) : "@" + std::to_string(history_ns)) + " on");
  }
  return AllAt(tables, time_ns);
}

util::Result<Instants> AtMark(const tables::Recording& recording, const std::string& wanted) {
  std::string names;
  for (const tables::MarkRow& mark : recording.tables().marks) {
    const std::string_view name = recording.string(mark.name);
    if (name == wanted)
      return AllAt(recording.tables(), mark.time_ns);
    const std::string quoted = "'" + std::string(name) + "'";
    if (names.find(quoted) == std::string::npos && names.size() < 400)
      names += (names.empty() ? "" : ", ") + quoted;
  }
  return util::Status::Error("no mark '" + wanted + "' in the recording; " +
                             (names.empty() ? "it has no marks" : "it has: " + names));
}

// The peak of each device within the iteration of the processes that use it.
util::Result<Instants> AtIteration(const tables::Recording& recording, int64_t number) {
  const tables::Tables& tables = recording.tables();
  const std::string option = "--at iter:" + std::to_string(number);
  const IterationTimes iterations(tables);
  if (iterations.count() == 0) {
    return util::Status::Error(
        option + ": the recording has no iterations: " + WhatEndsIterations(recording));
  }
  if (number >= iterations.count()) {
    return util::Status::Error(option + ": the recording has " +
                               (iterations.count() == 1
                                    ? std::string("one iteration, 0")
                                    : "iterations " + std::to_string(iterations.first()) + " to " +
                                          std::to_string(iterations.count() - 1)));
  }
  if (number < iterations.first()) {
    return util::Status::Error(
        option + " is older than the history that `run --ring` kept: use iterations " +
        std::to_string(iterations.first()) + " to " + std::to_string(iterations.count() - 1) +
        ", or the peak");
  }
  const TimeSpan nothing{INT64_MAX, INT64_MIN};
  const auto widen = [&](TimeSpan& span, tables::ProcessId process) {
    const ProcessIterations& of = iterations.Of(process);
    if (number >= of.count())
      return;
    span.from_ns = std::min(span.from_ns, of.BeginOf(number));
    span.to_ns = std::max(span.to_ns, of.EndOf(number));
  };
  std::vector<TimeSpan> spans(tables.devices.size(), nothing);
  for (const tables::AccountRow& account : tables.accounts) {
    if (account.device.value < spans.size())
      widen(spans[account.device.value], account.process);
  }
  // Devices that none of those processes uses.
  TimeSpan all = nothing;
  for (uint32_t i = 1; i < tables.processes.size(); ++i)
    widen(all, tables::ProcessId{i});
  std::replace(spans.begin(), spans.end(), nothing, all);
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto peaks, FindPeaks(recording, spans));
  return AtPeaks(tables, peaks);
}

}  // namespace

util::Result<Instant> ParseInstant(const std::string& text) {
  Instant instant;
  const std::string_view view = text;
  if (text == "peak")
    return instant;
  for (const Instant::Kind kind :
       {Instant::Kind::kAllocatedPeak, Instant::Kind::kOwnPeak, Instant::Kind::kEnd}) {
    if (text == InstantKindName(kind)) {
      instant.kind = kind;
      return instant;
    }
  }
  if (view.starts_with("mark:") && view.size() > 5) {
    instant.kind = Instant::Kind::kMark;
    instant.mark = text.substr(5);
    return instant;
  }
  if (view.starts_with("iter:") && ParseWhole(view.substr(5), &instant.iteration)) {
    instant.kind = Instant::Kind::kIteration;
    return instant;
  }
  if (view.starts_with("@") && ParseWhole(view.substr(1), &instant.time_ns)) {
    instant.kind = Instant::Kind::kMonotonic;
    return instant;
  }
  // As headers print it.
  std::string_view number = view;
  if (number.ends_with('s'))
    number.remove_suffix(1);
  if (number.ends_with(' '))
    number.remove_suffix(1);
  const double seconds = util::WholeNumber<double>(std::string(number)).value_or(-1);
  if (seconds >= 0 && seconds < 1e9) {
    instant.kind = Instant::Kind::kSeconds;
    instant.time_ns = std::llround(seconds * 1e9);
    return instant;
  }
  return util::Status::Error("unknown instant '" + text +
                             "'; use peak, allocated-peak, own-peak, end, SECONDS, @NANOSECONDS, "
                             "iter:N or mark:NAME");
}

const char* InstantKindName(Instant::Kind kind) {
  switch (kind) {
    case Instant::Kind::kPeak:
      return "peak";
    case Instant::Kind::kAllocatedPeak:
      return "allocated-peak";
    case Instant::Kind::kOwnPeak:
      return "own-peak";
    case Instant::Kind::kEnd:
      return "end";
    case Instant::Kind::kSeconds:
    case Instant::Kind::kMonotonic:
      return "time";
    case Instant::Kind::kIteration:
      return "iteration";
    case Instant::Kind::kMark:
      break;
  }
  return "mark";
}

std::vector<int64_t> Instants::OfDevice(const tables::Tables& tables,
                                        tables::DeviceId device) const {
  std::vector<int64_t> of_processes;
  std::vector<int64_t> of_nobody;
  for (size_t account = 1; account < of_account.size(); ++account) {
    const tables::AccountRow& row = tables.accounts[account];
    if (row.device == device && of_account[account] != kNoTime)
      (row.process.value != 0 ? of_processes : of_nobody).push_back(of_account[account]);
  }
  return of_processes.empty() ? of_nobody : of_processes;
}

Instants AllAt(const tables::Tables& tables, int64_t time_ns) {
  return {std::vector<int64_t>(tables.accounts.size(), time_ns)};
}

Instants AtPeaks(const tables::Tables& tables, const std::vector<tables::PeakRow>& peaks) {
  Instants instants = AllAt(tables, kNoTime);
  for (size_t account = 1; account < tables.accounts.size(); ++account) {
    for (const tables::PeakRow& peak : peaks) {
      if (peak.device == tables.accounts[account].device)
        instants.of_account[account] = peak.time_ns;
    }
  }
  return instants;
}

Instants WithoutCheckpointed(const tables::Tables& tables, Instants instants) {
  Instants left = instants;
  for (const tables::CheckpointRow& row : tables.checkpointed) {
    if (row.account.value >= instants.of_account.size())
      continue;
    const int64_t time_ns = instants.of_account[row.account.value];
    if (row.begin_ns <= time_ns && time_ns < row.end_ns)
      left.of_account[row.account.value] = kNoTime;
  }
  return left;
}

util::Result<Instants> ResolveInstant(const tables::Recording& recording, const Instant& instant) {
  ReportQuery query;
  query.at = instant;
  return ResolveInstant(recording, query);
}

util::Result<Instants> ResolveInstant(const tables::Recording& recording,
                                      const ReportQuery& query) {
  const Instant& instant = query.at;
  switch (instant.kind) {
    case Instant::Kind::kPeak:
      return AtPeak(recording);
    case Instant::Kind::kAllocatedPeak:
      return AtAllocatedPeak(recording);
    case Instant::Kind::kOwnPeak:
      return AtOwnPeak(recording, query);
    case Instant::Kind::kEnd:
      return AtEnd(recording.tables());
    case Instant::Kind::kSeconds:
    case Instant::Kind::kMonotonic:
      return AtTime(recording, instant);
    case Instant::Kind::kIteration:
      return AtIteration(recording, instant.iteration);
    case Instant::Kind::kMark:
      break;
  }
  return AtMark(recording, instant.mark);
}

std::optional<int64_t> IterationAt(const tables::Tables& tables,
                                   const IterationTimes& iterations,
                                   tables::DeviceId device,
                                   int64_t time_ns) {
  std::optional<int64_t> found;
  for (const tables::AccountRow& account : tables.accounts) {
    const ProcessIterations& of = iterations.Of(account.process);
    if (account.device != device || of.empty())
      continue;
    const int64_t number = of.NumberAt(time_ns);
    if (number < 0 || number >= of.count() || (found && *found != number))
      return std::nullopt;
    found = number;
  }
  return found;
}

}  // namespace vramscope::query
