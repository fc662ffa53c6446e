// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "engine/analysis/bands.h"
#include "engine/analysis/leaves.h"
#include "engine/analysis/lives.h"
#include "engine/analysis/residual.h"
#include "engine/analysis/tops.h"
#include "engine/query/breakdown.h"
#include "engine/query/iteration_queries.h"
#include "engine/query/moments.h"
#include "engine/query/name_tables.h"
#include "engine/query/report.h"

namespace vramscope::engine {
namespace {

// Candidates for MakeLives that the first pass keeps: asking for no more costs no further pass.
constexpr size_t kLifeCandidates = size_t{1} << 16;
constexpr size_t kTopLimit = 100;

void AddLoss(std::vector<trace::Loss>& losses, const trace::Loss& loss) {
  if (loss.count == 0)
    return;
  for (trace::Loss& known : losses) {
    if (known.name == loss.name) {
      known.count += loss.count;
      known.bytes += loss.bytes;
      return;
    }
  }
  losses.push_back(loss);
}

class AnalysisImpl : public Analysis {
 public:
  explicit AnalysisImpl(std::unique_ptr<trace::Trace> trace)
      : trace_(std::move(trace)), frames_(*trace_), life_paths_(1) {}

  util::Status FirstPass(const std::function<void(double)>& progress);

  const trace::Trace& trace() const override { return *trace_; }
  util::Result<Report> MakeReport(const ReportQuery& query) override;
  util::Result<std::vector<Timeline>> MakeTimelines(size_t buckets) override;
  util::Result<Lives> MakeLives(size_t limit) override;
  util::Status ForEachLife(const std::function<void(const Life&)>& sink) override;
  util::Result<Iterations> MakeIterations() override;
  util::Result<Leaks> MakeLeaks(const LeakOptions& options) override;
  const std::vector<std::string>& LifePath(uint32_t path) const override {
    return life_paths_[path < life_paths_.size() ? path : 0];
  }
  std::vector<Mark> Marks() const override {
    std::vector<Mark> marks;
    for (const MarkRecord& mark : ledger_->marks())
      marks.push_back({mark.time_ns, mark.name});
    return marks;
  }
  std::vector<TimeAway> TimesAway() const override;

 private:
  // The ledger replayed to an instant that the first pass did not capture.
  util::Result<const Ledger*> ReplayTo(const CaptureRequest& request);
  util::Status Feed(Ledger& ledger);
  util::Status Replay(LifeObserver* observer);
  bool Shown(const DeviceState& device) const;
  void AddDevice(const Ledger& ledger,
                 const DeviceState& device,
                 Moment moment,
                 const ReportQuery& query,
                 Breakdown& breakdown,
                 NameTables& tables,
                 Report& report);
  void AddInvariants(Report& report) const;
  TopEntry EntryOf(const Holder& holder) const;
  Life LifeOf(const LifeRecord& record);

  std::unique_ptr<trace::Trace> trace_;
  UserFrames frames_;
  std::unique_ptr<Ledger> ledger_;
  std::vector<LifeRecord> candidates_;
  uint64_t lives_seen_ = 0;
  std::unique_ptr<Naming> naming_;  // of lives, on ledger_
  std::unique_ptr<Ledger> by_category_;
  std::unique_ptr<Ledger> replayed_;
  CaptureRequest replayed_request_;
  std::vector<std::vector<std::string>> life_paths_;  // 0: of nothing
  std::map<std::tuple<uint16_t, Part, Category, bool>, uint32_t> life_path_index_;
  uint64_t sum_mismatches_ = 0;
  std::string first_sum_mismatch_;
};

util::Status AnalysisImpl::FirstPass(const std::function<void(double)>& progress) {
  const trace::SessionInfo& session = trace_->session();
  const int64_t start_ns = session.start_ns;
  const int64_t end_ns = session.end_ns;
  LargestLives largest(kLifeCandidates, std::max(end_ns, start_ns));
  LedgerOptions options;
  options.observer = &largest;
  ledger_ = std::make_unique<Ledger>(*trace_, options);
  VRAMSCOPE_RETURN_IF_ERROR(trace_->ForEachEvent([&](std::span<const trace::Event> events) {
    ledger_->Apply(events);
    if (progress && !events.empty() && end_ns > start_ns) {
      const auto done = static_cast<double>(events.back().time_ns - start_ns);
      progress(std::clamp(done / static_cast<double>(end_ns - start_ns), 0.0, 1.0));
    }
  }));
  ledger_->Finish();
  naming_ = std::make_unique<Naming>(*ledger_);
  lives_seen_ = largest.seen();
  candidates_ = largest.Take();
  return {};
}

util::Result<Iterations> AnalysisImpl::MakeIterations() {
  return FindIterations(*trace_, *ledger_);
}

util::Result<Leaks> AnalysisImpl::MakeLeaks(const LeakOptions& options) {
  return FindLeaks(*trace_, *ledger_, frames_, options);
}

util::Status AnalysisImpl::Feed(Ledger& ledger) {
  VRAMSCOPE_RETURN_IF_ERROR(
      trace_->ForEachEvent([&](std::span<const trace::Event> events) { ledger.Apply(events); }));
  ledger.Finish();
  return {};
}

util::Status AnalysisImpl::Replay(LifeObserver* observer) {
  LedgerOptions options;
  options.observer = observer;
  Ledger ledger(*trace_, options);
  return Feed(ledger);
}

util::Result<const Ledger*> AnalysisImpl::ReplayTo(const CaptureRequest& request) {
  if (replayed_ != nullptr && replayed_request_ == request)
    return static_cast<const Ledger*>(replayed_.get());
  LedgerOptions options;
  options.capture = request;
  auto ledger = std::make_unique<Ledger>(*trace_, options);
  if (const util::Status status = Feed(*ledger); !status.ok())
    return status;
  replayed_ = std::move(ledger);
  replayed_request_ = request;
  return static_cast<const Ledger*>(replayed_.get());
}

// GPUs that no recorded process touched say nothing about this recording, unless there is nothing
// else.
bool AnalysisImpl::Shown(const DeviceState& device) const {
  const auto touched = [&](const DeviceState& state) {
    return std::any_of(ledger_->spaces().begin(), ledger_->spaces().end(),
                       [&](const Space& space) { return space.device == state.id; });
  };
  if (touched(device))
    return true;
  if (device.kind != trace::DeviceKind::kGpu || device.samples.empty())
    return false;
  return std::none_of(ledger_->devices().begin(), ledger_->devices().end(), touched);
}

void AnalysisImpl::AddDevice(const Ledger& ledger,
                             const DeviceState& device,
                             Moment moment,
                             const ReportQuery& query,
                             Breakdown& breakdown,
                             NameTables& tables,
                             Report& report) {
  const trace::Device& info = trace_->devices()[static_cast<size_t>(device.id.value)];
  DeviceReport out;
  out.device = device.id;
  out.index = info.index;
  out.kind = info.kind;
  out.uuid = info.uuid;
  out.name = info.name;
  if (info.total_bytes != 0)
    out.total_bytes = info.total_bytes;
  out.at_kind = InstantKindName(query.at.kind);
  out.at_ns = ledger.first_ns();  // where nothing ever happened

  std::map<uint16_t, uint64_t> by_process;
  uint64_t all = 0;
  ForEachLeaf(ledger, device.id, moment, [&](const Leaf& leaf) {
    all += leaf.bytes;
    if (!breakdown.Add(leaf))
      return;
    tables.Add(leaf);
    out.ledger_bytes += leaf.bytes;
    by_process[leaf.process.value] += leaf.bytes;
  });
  if (moment == Moment::kPeak && device.peak.set) {
    int64_t expected = device.peak_height.total;
    for (const Space& space : ledger.spaces()) {
      if (space.device == device.id && device.peak.time_ns >= space.first_ns &&
          device.peak.time_ns < space.end_ns && !space.WasAway(device.peak))
        expected += space.before_offset;
    }
    if (static_cast<int64_t>(all) != expected && sum_mismatches_++ == 0)
      first_sum_mismatch_ = "rows " + std::to_string(all) + ", ledger " + std::to_string(expected);
  }

  // The instant: for `end` of several processes the last of theirs, and NVML's figure only if
  // nothing moved between these.
  std::optional<uint64_t> version;
  bool comparable = query.where.empty();
  for (const Space& space : ledger.spaces()) {
    if (space.device != device.id)
      continue;
    const Capture* capture = CaptureFor(ledger, device, space.process, moment);
    if (capture == nullptr)
      continue;
    const uint64_t then = capture->versions.empty()
                              ? capture->version
                              : capture->versions[static_cast<size_t>(device.id.value)];
    comparable = comparable && (!version || *version == then);
    version = then;
    out.at_ns = std::max(out.at_ns, capture->time_ns);
  }
  if (!version) {
    const Capture* capture = CaptureFor(ledger, device, trace::kNoProcess, moment);
    if (capture != nullptr) {
      version = capture->versions.empty() ? capture->version
                                          : capture->versions[static_cast<size_t>(device.id.value)];
      out.at_ns = capture->time_ns;
    }
  }
  const DeviceSampleRecord* sample =
      comparable && version ? SampleAt(device, *version, static_cast<int64_t>(all), out.at_ns)
                            : nullptr;
  if (sample != nullptr) {
    out.nvml_bytes = sample->used;
    out.in_transit_bytes = JudgeSample(*sample).in_transit;
    if (out.in_transit_bytes > 0) {
      Leaf leaf;
      leaf.device = device.id;
      leaf.part = Part::kInTransit;
      leaf.category = PartCategory(leaf.part);
      leaf.bytes = static_cast<uint64_t>(out.in_transit_bytes);
      breakdown.Add(leaf);
      tables.Add(leaf);
      out.ledger_bytes += leaf.bytes;
    }
    out.residual_bytes =
        static_cast<int64_t>(sample->used) - static_cast<int64_t>(out.ledger_bytes);
  }

  for (const Space& space : ledger.spaces()) {
    if (space.device != device.id)
      continue;
    const trace::Process& process = trace_->processes()[space.process.value];
    ProcessReport entry;
    entry.device = device.id;
    entry.process = space.process;
    entry.pid = process.pid;
    entry.rank = process.rank;
    entry.command = process.command;
    entry.ledger_bytes = by_process[space.process.value];
    const ProcessSampleRecord* process_sample =
        comparable && version ? ProcessSampleAt(space, *version, entry.ledger_bytes, out.at_ns)
                              : nullptr;
    if (process_sample != nullptr) {
      entry.nvml_bytes = process_sample->used;
      entry.residual_bytes =
          static_cast<int64_t>(process_sample->used) - static_cast<int64_t>(entry.ledger_bytes);
    }
    report.processes.push_back(std::move(entry));
  }
  out.at_iteration = query.at.kind == Instant::Kind::kIteration
                         ? query.at.iteration
                         : IterationAt(*ledger_, device.id, out.at_ns);
  report.devices.push_back(std::move(out));

  if (device.samples.empty())
    return;
  const DeviceState& whole = ledger_->devices()[static_cast<size_t>(device.id.value)];
  const ResidualStatistics statistics = SummarizeResidual(whole);
  ResidualSummary summary;
  summary.device = device.id;
  summary.samples = statistics.samples;
  summary.samples_in_transit = statistics.samples_in_transit;
  summary.worst_bytes = statistics.worst_bytes;
  summary.worst_at_ns = statistics.worst_at_ns;
  summary.p99_bytes = statistics.p99_bytes;
  summary.bracketed_bytes = static_cast<uint64_t>(std::max<int64_t>(whole.bracketed_at_peak, 0));
  summary.ledger_peak_bytes = static_cast<uint64_t>(std::max<int64_t>(whole.peak_height.total, 0));
  report.residuals.push_back(summary);
}

void AnalysisImpl::AddInvariants(Report& report) const {
  const Violations& found = ledger_->violations();
  Invariant sums{"children sum to the parent", true, ""};
  if (found.sums + sum_mismatches_ > 0) {
    sums.holds = false;
    sums.detail = found.sums > 0 ? found.first_sum : first_sum_mismatch_;
  } else if (found.overfull_segments > 0) {
    sums.holds = false;
    sums.detail = std::to_string(found.overfull_segments) +
                  " times more blocks than their segment holds; first: " + found.first_overfull;
  }
  report.invariants.push_back(std::move(sums));

  Invariant twice{"nothing is freed twice", found.freed_twice == 0, ""};
  if (!twice.holds)
    twice.detail = std::to_string(found.freed_twice) + " times; first: " + found.first_freed_twice;
  report.invariants.push_back(std::move(twice));

  Invariant outside{"no live block outside a live segment", found.outside_segment == 0, ""};
  if (!outside.holds)
    outside.detail =
        std::to_string(found.outside_segment) + " times; first: " + found.first_outside_segment;
  report.invariants.push_back(std::move(outside));

  Invariant nvml{"rows + residual = NVML at every sample", true, ""};
  uint64_t samples = 0;
  for (const DeviceState& device : ledger_->devices()) {
    samples += device.samples.size();
    if (device.readings.has_offset && device.readings.offset != 0) {
      nvml.detail += (nvml.detail.empty() ? "" : "; ") + std::string("cuMemGetInfo reads ") +
                     std::to_string(device.readings.offset) +
                     " bytes more than NVML, taken into account";
    }
  }
  nvml.holds = found.sums == 0;
  if (!nvml.holds)
    nvml.detail = found.first_sum;
  else if (samples == 0)
    nvml.detail = "no NVML samples in this trace";
  report.invariants.push_back(std::move(nvml));
}

TopEntry AnalysisImpl::EntryOf(const Holder& holder) const {
  TopEntry entry;
  entry.device = holder.device;
  entry.stack = holder.stack;
  entry.place = DescribeFrame(*trace_, holder.frame);
  const trace::Frame& frame = trace_->frame(holder.frame);
  if (frame.line != 0)
    entry.source = trace_->SourceLine(frame.file, frame.line);
  entry.bytes = holder.bytes;
  entry.count = holder.count;
  return entry;
}

util::Result<Report> AnalysisImpl::MakeReport(const ReportQuery& query) {
  const Ledger* ledger = ledger_.get();
  Moment moment = Moment::kPeak;
  if (query.at.kind == Instant::Kind::kEnd) {
    moment = Moment::kEnd;
  } else if (query.at.kind != Instant::Kind::kPeak) {
    const util::Result<CaptureRequest> request = RequestFor(*ledger_, query.at);
    if (!request.ok())
      return request.status();
    const util::Result<const Ledger*> replayed = ReplayTo(*request);
    if (!replayed.ok())
      return replayed.status();
    ledger = *replayed;
    // An iteration's peak is that of each device, of all that its replay looked at.
    moment = query.at.kind == Instant::Kind::kIteration ? Moment::kPeak : Moment::kRequested;
  }
  Report report;
  Naming naming(*ledger);
  Breakdown breakdown(*ledger, frames_, naming, query);
  NameTables tables(*trace_, frames_, naming);
  for (const DeviceState& device : ledger->devices()) {
    if (Shown(device))
      AddDevice(*ledger, device, moment, query, breakdown, tables, report);
  }
  report.rows = breakdown.Take();
  tables.MoveTo(report);
  report.losses.assign(trace_->losses().begin(), trace_->losses().end());
  AddLoss(report.losses, ledger_->unknown_frees());
  AddLoss(report.losses, ledger_->double_allocs());
  AddLoss(report.losses, ledger_->unknown_names());
  trace::Loss not_measured{format::LossName(static_cast<uint64_t>(format::Loss::kNoReading))};
  for (const DeviceState& device : ledger_->devices())
    not_measured.count += device.readings.contexts_not_measured;
  AddLoss(report.losses, not_measured);
  AddInvariants(report);
  TopHolders tops = FindTopHolders(*ledger, moment, frames_, kTopLimit);
  for (const Holder& holder : tops.stacks)
    report.top_stacks.push_back(EntryOf(holder));
  for (const Holder& holder : tops.lines)
    report.top_lines.push_back(EntryOf(holder));
  for (const Holder& holder : FindTopChurn(*ledger_, frames_, kTopLimit))
    report.top_churn.push_back(EntryOf(holder));
  return report;
}

// Categories are known at the end of a life, timelines show them from its begin: one more pass.
util::Result<std::vector<Timeline>> AnalysisImpl::MakeTimelines(size_t buckets) {
  if (by_category_ == nullptr) {
    LedgerOptions options;
    options.categories = &ledger_->life_categories();
    auto ledger = std::make_unique<Ledger>(*trace_, options);
    VRAMSCOPE_RETURN_IF_ERROR(Feed(*ledger));
    by_category_ = std::move(ledger);
  }
  std::vector<Timeline> timelines;
  for (const DeviceState& device : by_category_->devices()) {
    if (!Shown(ledger_->devices()[static_cast<size_t>(device.id.value)]))
      continue;
    Bands bands = MakeBands(device, by_category_->owners(), buckets);
    Timeline timeline;
    timeline.device = device.id;
    timeline.groups = std::move(bands.names);
    timeline.time_ns = std::move(bands.time_ns);
    timeline.peak = std::move(bands.bytes);
    timeline.nvml = std::move(bands.nvml);
    timelines.push_back(std::move(timeline));
  }
  return timelines;
}

Life AnalysisImpl::LifeOf(const LifeRecord& record) {
  const Space& space = ledger_->spaces()[record.space];
  Life life;
  life.device = space.device;
  life.process = space.process;
  life.address = record.address;
  life.bytes = record.bytes;
  life.alloc_ns = record.alloc_ns;
  life.free_ns = record.free_ns;
  life.stack = record.stack;
  life.place = naming_->PlaceOf(record);
  life.api = record.api;
  const Category category = CategoryOf(*ledger_, record);
  life.category = static_cast<uint32_t>(category);
  const Named named = naming_->Of(record);
  life.module = naming_->Module(named);
  life.name = naming_->Parameter(named);
  if (life.name == 0)
    life.name = naming_->Tag(named);
  uint32_t& path = life_path_index_[{record.owner.value, record.part, category, record.is_segment}];
  if (path == 0) {
    path = static_cast<uint32_t>(life_paths_.size());
    life_paths_.push_back(LevelsOf(ledger_->owners().name(record.owner), record.part, category));
    if (record.is_segment)
      life_paths_.back().back() = "segment";
  }
  life.path = path;
  return life;
}

util::Result<Lives> AnalysisImpl::MakeLives(size_t limit) {
  std::vector<LifeRecord> records = candidates_;
  if (limit > kLifeCandidates && lives_seen_ > candidates_.size()) {
    LargestLives largest(limit, std::max(ledger_->last_ns(), trace_->session().end_ns));
    if (const util::Status status = Replay(&largest); !status.ok())
      return status;
    records = largest.Take();
  }
  records.resize(std::min(records.size(), limit));
  Lives lives;
  lives.left_out_count = lives_seen_ - records.size();
  lives.lives.reserve(records.size());
  for (const LifeRecord& record : records) {
    lives.lives.push_back(LifeOf(record));
    // What goes beyond is in the report's rounding.
    const uint64_t requested = ledger_->names().set(record.origin.names).requested;
    if (requested != 0)
      lives.lives.back().bytes = std::min(record.bytes, requested);
  }
  lives.paths = life_paths_;
  lives.names = naming_->texts();
  if (lives.left_out_count > 0) {
    std::vector<uint64_t> kept;
    kept.reserve(records.size());
    for (const LifeRecord& record : records)
      kept.push_back(record.life);
    std::sort(kept.begin(), kept.end());
    LeftOutPeak left_out(std::move(kept));
    if (const util::Status status = Replay(&left_out); !status.ok())
      return status;
    lives.left_out_peak_bytes = left_out.peak_bytes();
  }
  return lives;
}

// A process leaves all its devices together, though figures may show it of one after the other.
std::vector<TimeAway> AnalysisImpl::TimesAway() const {
  std::vector<TimeAway> all;
  for (const Space& space : ledger_->spaces()) {
    for (const Absence& absence : space.absences)
      all.push_back({space.process, absence.from_ns, absence.to_ns});
  }
  std::sort(all.begin(), all.end(), [](const TimeAway& a, const TimeAway& b) {
    return std::pair(a.process.value, a.from_ns) < std::pair(b.process.value, b.from_ns);
  });
  std::vector<TimeAway> merged;
  for (const TimeAway& time : all) {
    if (!merged.empty() && merged.back().process == time.process &&
        time.from_ns <= merged.back().to_ns)
      merged.back().to_ns = std::max(merged.back().to_ns, time.to_ns);
    else
      merged.push_back(time);
  }
  return merged;
}

util::Status AnalysisImpl::ForEachLife(const std::function<void(const Life&)>& sink) {
  LifeEnds ends;
  VRAMSCOPE_RETURN_IF_ERROR(Replay(&ends));
  LifeLister lister(ends, [&](const LifeRecord& record) { sink(LifeOf(record)); });
  return Replay(&lister);
}

}  // namespace

util::Result<std::unique_ptr<Analysis>> Analysis::Create(
    std::unique_ptr<trace::Trace> trace,
    const std::function<void(double)>& progress) {
  auto analysis = std::make_unique<AnalysisImpl>(std::move(trace));
  if (const util::Status status = analysis->FirstPass(progress); !status.ok())
    return status;
  return std::unique_ptr<Analysis>(std::move(analysis));
}

std::string FormatFrame(const trace::Trace& trace, trace::FrameId frame) {
  return DescribeFrame(trace, frame);
}

}  // namespace vramscope::engine
