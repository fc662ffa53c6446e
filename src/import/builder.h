// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "tables/dictionaries.h"
#include "tables/recording.h"
#include "util/budget.h"
#include "util/containers/intern_table.h"
#include "util/status.h"

namespace vramscope::imports {

// More than any device has; larger values are damage. Sums of 4096 of them fit an int64_t.
inline constexpr uint64_t kMostBytes = uint64_t{1} << 50;

// Makes the tables of a recording from another tool's data. Equal texts, frames, stacks, sites,
// accounts and counters share a row; row 0 means "none". All rows are charged to the input's
// budget. An importer need not check the budget: Finish() returns the error.
//
//   const auto account = builder.Account(builder.Process(4711), builder.Gpu(0));
//   tables::SiteRow site = Builder::SiteOf(account);
//   site.tag = builder.Text("in_arg:weight");
//   const int64_t now_ns = builder.Tick(time_ns);
//   builder.Add({.begin_ns = now_ns, .alloc_ns = now_ns, .bytes = 512, .site =
//   builder.Site(site)});
class Builder {
 public:
  // Both must outlive it. `sink` receives the allocations.
  Builder(tables::AllocationSink& sink, util::Budget& budget) : sink_(sink), budget_(budget) {
    names_.ChargeTo(&budget);
  }
  Builder(const Builder&) = delete;
  Builder& operator=(const Builder&) = delete;

  // ---- dictionaries. A text may have any bytes: invalid UTF-8 becomes U+FFFD.
  tables::StringId Text(std::string_view text);
  std::string_view text(tables::StringId id) const { return names_.text(id); }
  tables::DeviceId Device(tables::DeviceKind kind, int32_t index);
  tables::DeviceId Gpu(int32_t index) { return Device(tables::DeviceKind::kGpu, index); }
  // 0 if the input has no pid.
  tables::ProcessId Process(uint32_t pid);
  tables::ThreadId Thread(tables::ProcessId process, uint32_t tid);
  // Process 0: memory of the device without a known process.
  tables::AccountId Account(tables::ProcessId process, tables::DeviceId device);
  tables::FrameId Frame(const tables::FrameRow& row) { return names_.AddFrame(row); }
  // `parent`: the caller's stack; 0 for the outermost frame.
  tables::StackId Stack(tables::StackId parent, tables::FrameId frame) {
    return names_.AddStack(parent, frame);
  }
  tables::SiteId Site(const tables::SiteRow& row);
  tables::CounterId Counter(tables::SiteId site, tables::SegmentId segment = {});
  // Adds a row, also if an equal one exists. The row's site is that of the segment's free bytes.
  tables::SegmentId Segment(const tables::SegmentRow& row);

  // For values that the calls above leave open: a device's name, a process's rank, a segment's end.
  tables::DeviceRow& device(tables::DeviceId id) { return out_.devices[id.value]; }
  tables::ProcessRow& process(tables::ProcessId id) { return out_.processes[id.value]; }
  tables::SegmentRow& segment(tables::SegmentId id) { return out_.segments[id.value]; }
  const tables::SiteRow& site(tables::SiteId id) const { return out_.sites[id.value]; }
  const tables::AccountRow& account(tables::AccountId id) const { return out_.accounts[id.value]; }

  static tables::SiteRow SiteOf(tables::AccountId account,
                                format::Part part = format::Part::kAllocated);

  // ---- time. The time for a change of memory: the earliest unused instant from `at_ns` on. Calls
  // are in time order; an earlier time becomes the instant after the last one.
  int64_t Tick(int64_t at_ns);
  // Extends the recording's time span beyond that of its rows.
  void Covers(int64_t from_ns, int64_t to_ns);

  // ---- rows An allocation that ended, or was never freed (end_ns is kNever, the default).
  void Add(tables::AllocationRow row);
  // Changes a counter by `bytes`.
  void Step(tables::CounterId counter, int64_t time_ns, int64_t bytes);
  // Changes a counter to `bytes`.
  void Set(tables::CounterId counter, int64_t time_ns, uint64_t bytes);
  // The device's memory changed, so an earlier sample is not valid from here on. Counters call this
  // themselves.
  void Change(tables::DeviceId device, int64_t time_ns);
  // A tool's reading of a device, or of a process on it, beside the rows' sum at that time. Of
  // consecutive equal readings, the first and the last are kept.
  void Sample(tables::DeviceId device, int64_t time_ns, uint64_t used_bytes, int64_t ledger_bytes);
  void ProcessSample(tables::AccountId account,
                     int64_t time_ns,
                     uint64_t used_bytes,
                     int64_t ledger_bytes);
  void Mark(int64_t time_ns, std::string_view name, tables::ProcessId process);
  // The next iteration of a process. It begins at the end of the previous one; the first at
  // `begin_ns`.
  void Iteration(tables::ProcessId process, int64_t number, int64_t begin_ns, int64_t end_ns);
  void OutOfMemory(const tables::OutOfMemoryRow& row);
  void Event() { ++out_.session.event_count; }

  // ---- trust Losses of the same name add up.
  void Lose(std::string_view name, uint64_t count, uint64_t bytes = 0);
  // Counts an unusable row of the input. The first such row and its reason become a note, or the
  // error if nothing was imported.
  void Skip(std::string_view loss, uint64_t line, std::string_view why);
  // Why the input has no memory data, for the error if nothing was imported.
  void WhyEmpty(std::string_view why) { why_empty_ = why; }
  void Violate(tables::InvariantKind kind, std::string_view first);
  void Note(std::string_view key, std::string_view value);
  // The input has no clock: a second represents one of its `what`, such as "readings". `why` is the
  // note.
  void CountSeconds(std::string_view what, std::string_view why);
  // The input is of one instant without a time, when the `what`, such as "profile", was taken.
  void IsOfOneInstant(std::string_view what);
  // What the input lacks, in a few words: "when memory was freed".
  void Lacks(std::string_view what);

  void SetName(std::string_view name);
  void SetWallTime(int64_t begin_wall_ns) { out_.session.begin_wall_ns = begin_wall_ns; }

  bool IsOver() const { return budget_.IsOver(); }
  util::Budget& budget() { return budget_; }
  // Sorts the tables. Processes and accounts without a time span get the recording's. Errors name
  // `path`. Fails if nothing was imported.
  util::Result<tables::Tables> Finish(const std::string& path);

 private:
  static constexpr int64_t kUnset = INT64_MIN;

  // The number of the row at `key`, which is added if it is missing.
  template <class Row, class Key>
  uint32_t Number(std::vector<Row>* rows, std::map<Key, uint32_t>* known, Key key, const Row& row);
  // The last sample of a device or account while it repeats the previous row.
  template <class Row>
  struct Run {
    bool any = false;
    bool held = false;     // `last` is not a row yet
    uint32_t skipped = 0;  // equal samples before `last`, which get no row
    Row last;
  };
  template <class Row>
  void AddSample(std::vector<Row>* rows,
                 Run<Row>* run,
                 Row row,
                 int64_t time_ns,
                 uint64_t used_bytes,
                 int64_t ledger_bytes);
  template <class Row>
  void EndRun(std::vector<Row>* rows, Run<Row>* run);
  util::Status Nothing(const std::string& path) const;
  void SeeSite(tables::SiteId site, int64_t time_ns);
  void Sort();
  void SortChanges();
  void FillSpans();

  tables::AllocationSink& sink_;
  util::Budget& budget_;
  util::Status failed_;
  tables::Tables out_;
  tables::Dictionaries names_{UINT16_MAX};
  util::InternTable sites_;
  std::map<std::pair<tables::DeviceKind, int32_t>, uint32_t> devices_;
  std::map<uint32_t, uint32_t> processes_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> threads_, accounts_, counters_;
  std::vector<int64_t> counter_bytes_{0};
  std::map<uint32_t, Run<tables::SampleRow>> device_runs_;          // by device
  std::map<uint32_t, Run<tables::ProcessSampleRow>> process_runs_;  // by account
  std::string lacks_, why_empty_, first_skipped_;
  uint64_t allocations_ = 0;
  int64_t last_tick_ns_ = INT64_MIN;
  int64_t first_ns_ = INT64_MAX;
  int64_t last_ns_ = INT64_MIN;
};

}  // namespace vramscope::imports
