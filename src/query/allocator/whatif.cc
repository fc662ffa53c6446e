// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/whatif.h"

#include <algorithm>
#include <atomic>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "query/allocator/recorded_requests.h"
#include "query/allocator/replay.h"
#include "query/core/parallel.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/iteration_times.h"
#include "tables/imported.h"
#include "tables/row_of.h"
#include "util/on_threads.h"

namespace vramscope::query {
namespace {

constexpr const char* kUsualSettings[] = {
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
    "garbage_collection_threshold:0.8",
    "roundup_power2_divisions:4",
};
constexpr uint64_t kUnknownDeviceBytes = uint64_t{80} << 30;

class WhatIfMaker {
 public:
  WhatIfMaker(const tables::Recording& recording, const WhatIfOptions& options)
      : recording_(recording),
        tables_(recording.tables()),
        options_(options),
        iterations_(recording.tables()) {
    out_.pytorch = tables::NoteOf(recording, "PyTorch");
    out_.card_bytes = options.card_bytes;
    rules_ = RulesOf(out_.pytorch);
  }

  util::Result<WhatIf> Make();

 private:
  util::Status AddGpu(const RecordedRequests& requests);
  // The settings of the recording, and how far the model reproduces it.
  util::Result<Reproduction> FindSettings(const RecordedRequests& requests, WhatIfGpu* gpu);
  // Of several settings, replayed at the same time. Such as do the same are replayed once.
  util::Status AddRows(const RecordedRequests& requests,
                       const Reproduction& reproduction,
                       const std::vector<std::string>& texts,
                       WhatIfGpu* gpu) const;
  WhatIfRow MakeRow(const RecordedRequests& requests,
                    const Reproduction& reproduction,
                    const AllocatorSettings& settings,
                    bool is_recorded,
                    const WhatIfGpu& gpu) const;
  void AddFailure(const RecordedRequests& requests, uint32_t block, WhatIfRow* row) const;
  uint64_t DeviceBytes(const WhatIfGpu& gpu) const {
    const uint64_t bytes = tables::RowOf(tables_.devices, gpu.device).total_bytes;
    return bytes != 0 ? bytes : kUnknownDeviceBytes;
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const WhatIfOptions& options_;
  const IterationTimes iterations_;
  AllocatorRules rules_;
  WhatIf out_;
};

util::Result<Reproduction> WhatIfMaker::FindSettings(const RecordedRequests& requests,
                                                     WhatIfGpu* gpu) {
  gpu->recorded_settings = tables::NoteOf(recording_, "PYTORCH_CUDA_ALLOC_CONF");
  if (gpu->recorded_settings.empty()) {
    const bool expandable =
        std::any_of(requests.segments.begin(), requests.segments.end(),
                    [](const RecordedSegment& segment) { return segment.expandable; });
    gpu->settings_inferred = expandable;
    gpu->recorded_settings = expandable ? "expandable_segments:True" : "";
  }
  AllocatorSettings settings;
  const util::Status status = ApplyAllocatorSettings(gpu->recorded_settings, rules_, &settings);
  if (!status.ok())
    return util::Status::Error("the recorded settings: " + status.message());
  return Reproduce(requests, rules_, settings, DeviceBytes(*gpu), options_.only ? 1 : kMostTries);
}

void WhatIfMaker::AddFailure(const RecordedRequests& requests,
                             uint32_t block,
                             WhatIfRow* row) const {
  const RecordedBlock& failed = requests.blocks[block];
  const tables::SiteRow& site = tables::RowOf(tables_.sites, failed.site);
  row->fails_ns = failed.alloc_ns;
  row->fails_bytes = failed.requested_bytes;
  const tables::AccountRow& account = tables::RowOf(tables_.accounts, requests.account);
  const ProcessIterations& of = iterations_.Of(account.process);
  const int64_t number = of.empty() ? -1 : of.NumberAt(failed.alloc_ns);
  if (number >= 0 && number < of.count())
    row->fails_iteration = number;
  const tables::FrameId frame = UserFrame(recording_, site.place);
  if (frame.value != 0)
    row->fails_place = FormatFrame(recording_, frame);
}

WhatIfRow WhatIfMaker::MakeRow(const RecordedRequests& requests,
                               const Reproduction& reproduction,
                               const AllocatorSettings& settings,
                               bool is_recorded,
                               const WhatIfGpu& gpu) const {
  uint64_t capacity = UINT64_MAX;
  if (options_.card_bytes) {
    capacity = *options_.card_bytes > gpu.other_bytes ? *options_.card_bytes - gpu.other_bytes : 0;
  }
  const AllocatorReplay replay =
      is_recorded && !options_.card_bytes
          ? reproduction.replay
          : ReplayWith(requests, reproduction.streams, rules_, settings,
                       options_.card_bytes.value_or(DeviceBytes(gpu)), capacity);
  WhatIfRow row;
  row.reserved_peak_bytes = replay.peak_bytes;
  row.peak_ns = replay.peak_ns;
  row.allocated_bytes = replay.allocated_bytes;
  row.driver_calls = replay.driver_calls;
  if (replay.failed_block)
    AddFailure(requests, *replay.failed_block, &row);
  if (options_.card_bytes)
    row.fits = !replay.failed_block;
  if (row.fits.value_or(false))
    row.spare_bytes = static_cast<int64_t>(capacity - replay.peak_bytes);
  return row;
}

util::Status WhatIfMaker::AddRows(const RecordedRequests& requests,
                                  const Reproduction& reproduction,
                                  const std::vector<std::string>& texts,
                                  WhatIfGpu* gpu) const {
  AllocatorSettings recorded;
  VRAMSCOPE_RETURN_IF_ERROR(ApplyAllocatorSettings(gpu->recorded_settings, rules_, &recorded));
  std::vector<AllocatorSettings> replayed;
  std::vector<size_t> numbers;  // of `replayed`, by text; the first is as recorded
  for (const std::string& text : texts) {
    AllocatorSettings settings;
    const util::Status status =
        ApplyAllocatorSettings(text.empty() ? gpu->recorded_settings : text, rules_, &settings);
    if (!status.ok())
      return util::Status::Error("--set: " + status.message());
    settings = EffectOf(settings, recorded, requests);
    const auto same = std::find(replayed.begin(), replayed.end(), settings);
    numbers.push_back(static_cast<size_t>(same - replayed.begin()));
    if (same == replayed.end())
      replayed.push_back(settings);
  }
  std::vector<WhatIfRow> rows(replayed.size());
  std::atomic<size_t> next{0};
  const auto work = [&](size_t) -> util::Status {
    for (size_t i = next++; i < rows.size(); i = next++)
      rows[i] = MakeRow(requests, reproduction, replayed[i], i == numbers[0], *gpu);
    return {};
  };
  const size_t workers = std::min(rows.size(), WorkersFor(requests.steps.size()));
  VRAMSCOPE_RETURN_IF_ERROR(util::OnThreads(workers, work));
  for (size_t i = 0; i < texts.size(); ++i) {
    gpu->settings.push_back(rows[numbers[i]]);
    gpu->settings.back().settings = texts[i];
  }
  return {};
}

util::Status WhatIfMaker::AddGpu(const RecordedRequests& requests) {
  const tables::AccountRow& account = tables::RowOf(tables_.accounts, requests.account);
  WhatIfGpu gpu;
  gpu.device = account.device;
  gpu.process = account.process;
  gpu.requests = requests.blocks.size();
  gpu.other_bytes = requests.other_bytes;
  VRAMSCOPE_ASSIGN_OR_RETURN(const Reproduction reproduction, FindSettings(requests, &gpu));
  gpu.segment_events = reproduction.events;
  gpu.different_events = reproduction.different_events;
  gpu.largest_difference_bytes = reproduction.largest_difference_bytes;
  gpu.first_different_ns = reproduction.first_different_ns;
  gpu.moved_blocks = reproduction.moved_blocks;
  gpu.inferred_streams = reproduction.stream_count;
  gpu.hidden_blocks = reproduction.hidden_blocks;
  if (gpu.IsReproduced()) {
    std::vector<std::string> texts = {""};
    std::copy_if(std::begin(kUsualSettings), std::end(kUsualSettings), std::back_inserter(texts),
                 [&](const char* text) { return text != gpu.recorded_settings; });
    texts.insert(texts.end(), options_.settings.begin(), options_.settings.end());
    VRAMSCOPE_RETURN_IF_ERROR(AddRows(requests, reproduction, texts, &gpu));
  }
  out_.gpus.push_back(std::move(gpu));
  return {};
}

util::Result<WhatIf> WhatIfMaker::Make() {
  if (tables_.session.HasPast())
    return util::Status::Error("what came before the ring is not known, so no replay is possible");
  VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<RecordedRequests> all, ReadRequests(recording_));
  if (all.empty())
    return util::Status::Error("no program of it used PyTorch's allocator on a GPU");
  for (const RecordedRequests& requests : all) {
    if (options_.only && requests.account != *options_.only)
      continue;
    const tables::AccountRow& account = tables::RowOf(tables_.accounts, requests.account);
    const tables::ProcessRow& process = tables::RowOf(tables_.processes, account.process);
    if (process.began_late != 0) {
      return util::Status::Error("recording began while process " + std::to_string(process.pid) +
                                 " ran, so no replay is possible");
    }
    VRAMSCOPE_RETURN_IF_ERROR(AddGpu(requests));
  }
  if (std::all_of(out_.gpus.begin(), out_.gpus.end(),
                  [](const WhatIfGpu& gpu) { return gpu.segment_events == 0; }))
    return util::Status::Error("it has no segments of PyTorch's allocator");
  return std::move(out_);
}

}  // namespace

uint64_t WhatIfRow::UnusedBytes() const {
  return reserved_peak_bytes - std::min(reserved_peak_bytes, allocated_bytes);
}
bool WhatIfGpu::IsReproduced() const {
  return different_events == 0;
}
bool WhatIf::IsReproduced() const {
  return std::all_of(gpus.begin(), gpus.end(),
                     [](const WhatIfGpu& gpu) { return gpu.IsReproduced(); });
}

util::Result<WhatIf> MakeWhatIf(const tables::Recording& recording, const WhatIfOptions& options) {
  return WhatIfMaker(recording, options).Make();
}

}  // namespace vramscope::query
