// SPDX-License-Identifier: Apache-2.0
// A device's history by category, in their order, bottom first, the driver's above them; what has
// no category by owner and part, and on top what belongs to none of the recorded processes.
#include <algorithm>
#include <climits>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "query/core/peaks.h"
#include "query/core/residual.h"
#include "query/core/sweep.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

// Bottom first.
struct Band {
  int layer = 0;
  std::string name;
  friend auto operator<=>(const Band&, const Band&) = default;
};

// Memory without device memory below it is not part of the stack.
const Band kUnbacked{INT_MAX, ""};

Band BandOf(const tables::Recording& recording, const Cell& cell) {
  const bool outside = cell.part == Part::kOtherProcesses || cell.part == Part::kBeforeRecording ||
                       cell.part == Part::kBeforeStart || cell.part == Part::kUnexplained;
  // In the order of the list, whatever the numbers are.
  const auto order = std::find(std::begin(format::kAllCategories), std::end(format::kAllCategories),
                               cell.category);
  Band band;
  band.layer = static_cast<int>(order - std::begin(format::kAllCategories));
  if (outside)
    band.layer = static_cast<int>(format::kCategoryCount) + 2;
  else if (cell.category == Category::kDriver)
    band.layer = static_cast<int>(format::kCategoryCount) + 1;
  if (cell.category != Category::kUnknown) {
    band.name = format::CategoryName(cell.category);
    return band;
  }
  const std::string owner(recording.string(cell.owner));
  band.name = (owner.empty() ? "" : owner + " / ") + format::PartName(cell.part);
  return band;
}

// The curve begins where the ring's history begins.
int64_t FirstInstant(const tables::Session& session) {
  return session.HasPast() ? session.history_ns : session.begin_ns;
}

// The highest instant of a bucket so far.
struct BucketTop {
  bool seen = false;
  Height height;
  int64_t time_ns = 0;
};
struct BucketsOfDevice {
  std::map<Band, size_t> bands;
  std::vector<int64_t> now;  // by band
  Height height;
  bool changed = false;
  std::vector<BucketTop> tops;
  std::vector<int64_t> bytes;  // by bucket and band
};

// Each bucket of each device keeps its highest instant: the largest total, among equal ones that
// with most in use, of them the first.
class BucketFiller : SweepSums<BucketsOfDevice> {
 public:
  // `by_group`: bands are the groups of cells instead of categories. `has`: selects processes;
  // null: all.
  BucketFiller(const tables::Recording& recording,
               const Cells& cells,
               size_t buckets,
               bool by_group,
               const HasProcess& has)
      : begin_ns_(FirstInstant(recording.tables().session)), buckets_(buckets) {
    const int64_t end_ns = std::max(LastInstant(recording), begin_ns_);
    width_ns_ = (end_ns - begin_ns_) / static_cast<int64_t>(buckets_) + 1;
    buckets_ = static_cast<size_t>((end_ns - begin_ns_) / width_ns_) + 1;
    items_.resize(recording.tables().devices.size());
    for (const Cell& cell : cells.all()) {
      const bool unbacked = cell.unbacked_of.value != 0;
      const tables::DeviceId of = unbacked ? cell.unbacked_of : cell.device;
      const bool shown = of.value < items_.size() &&
                         (!has || has(recording.tables().accounts[cell.account.value].process));
      const uint32_t index = shown ? of.value : 0;  // row 0 means "none"
      BucketsOfDevice& device = items_[index];
      const Band band = unbacked   ? kUnbacked
                        : by_group ? Band{0, cells.groups()[cell.group]}
                                   : BandOf(recording, cell);
      const auto [found, added] = device.bands.try_emplace(band, device.bands.size());
      cells_.push_back({index, static_cast<uint32_t>(found->second), MaskOf(!unbacked),
                        MaskOf(IsUse(cell.part) && !unbacked)});
    }
    for (BucketsOfDevice& device : items_) {
      device.now.resize(device.bands.size());
      device.tops.resize(buckets_);
      device.bytes.resize(buckets_ * device.bands.size());
    }
    StartChanged();
  }

  void OnMove(uint32_t cell, int64_t bytes) {
    const CellFacts& facts = cells_[cell];
    BucketsOfDevice& device = items_[facts.device];
    device.now[facts.band] += bytes;
    device.height.total += bytes & facts.backed;
    device.height.used += bytes & facts.use;
    Changed(facts.device);
  }

  void OnTransfer(uint32_t from, uint32_t to, int64_t bytes) {
    const CellFacts& gives = cells_[from];
    const CellFacts& takes = cells_[to];
    BucketsOfDevice& device = items_[gives.device];
    device.now[gives.band] -= bytes;
    device.now[takes.band] += bytes;
    device.height.used += (bytes & takes.use) - (bytes & gives.use);
    Changed(gives.device);
  }

  void OnState(int64_t first_ns, int64_t last_ns) {
    const size_t first = BucketFrom(first_ns);
    const size_t last = BucketFrom(last_ns);
    LookAtChanged([&](BucketsOfDevice& device) {
      Look(&device, first, std::max(first_ns, BeginOf(first)));
      return true;
    });
    // What did not change is news in buckets that begin.
    for (size_t bucket = std::max(first, seen_ + 1); bucket <= last; ++bucket) {
      for (BucketsOfDevice& device : items_)
        Look(&device, bucket, std::max(first_ns, BeginOf(bucket)));
    }
    seen_ = last;
  }

  // What a later piece of time had: of equally high instants of a bucket the first counts.
  void Append(const BucketFiller& later) {
    for (size_t i = 0; i < items_.size(); ++i) {
      BucketsOfDevice& device = items_[i];
      const BucketsOfDevice& other = later.items_[i];
      const size_t bands = device.now.size();
      for (size_t bucket = 0; bucket < buckets_; ++bucket) {
        const BucketTop& top = other.tops[bucket];
        if (!top.seen || (device.tops[bucket].seen && !(top.height > device.tops[bucket].height)))
          continue;
        device.tops[bucket] = top;
        std::copy_n(other.bytes.begin() + static_cast<ptrdiff_t>(bucket * bands), bands,
                    device.bytes.begin() + static_cast<ptrdiff_t>(bucket * bands));
      }
    }
  }

  Timeline TimelineOf(tables::DeviceId id) const {
    const BucketsOfDevice& device = items_[id.value];
    Timeline timeline;
    timeline.device = id;
    struct Row {
      const Band* band;
      uint64_t sum = 0;
      std::vector<uint64_t> bytes;
    };
    std::vector<Row> rows;
    for (const auto& [band, index] : device.bands) {
      Row row{&band, 0, std::vector<uint64_t>(buckets_)};
      for (size_t bucket = 0; bucket < buckets_; ++bucket) {
        const int64_t bytes = device.bytes[bucket * device.bands.size() + index];
        row.bytes[bucket] = bytes > 0 ? static_cast<uint64_t>(bytes) : 0;
        row.sum += row.bytes[bucket];
      }
      if (row.sum != 0 && band == kUnbacked)
        timeline.unbacked = std::move(row.bytes);
      else if (row.sum != 0)
        rows.push_back(std::move(row));
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a.band->layer != b.band->layer ? a.band->layer < b.band->layer : a.sum > b.sum;
    });
    for (Row& row : rows) {
      timeline.groups.push_back(row.band->name);
      timeline.peak.push_back(std::move(row.bytes));
    }
    for (size_t bucket = 0; bucket < buckets_; ++bucket) {
      timeline.time_ns.push_back(BeginOf(bucket));
      timeline.peak_ns.push_back(device.tops[bucket].seen ? device.tops[bucket].time_ns
                                                          : BeginOf(bucket));
    }
    return timeline;
  }

 private:
  struct CellFacts {
    uint32_t device;
    uint32_t band;
    int64_t backed;  // MaskOf(), as the next one
    int64_t use;
  };

  int64_t BeginOf(size_t bucket) const {
    return begin_ns_ + static_cast<int64_t>(bucket) * width_ns_;
  }
  size_t BucketAt(int64_t time_ns) const {
    if (time_ns <= begin_ns_)
      return 0;
    return std::min(static_cast<size_t>((time_ns - begin_ns_) / width_ns_), buckets_ - 1);
  }
  // The same for ascending times: most are in the bucket of the one before.
  size_t BucketFrom(int64_t time_ns) {
    if (time_ns >= until_ns_) {
      bucket_ = BucketAt(time_ns);
      until_ns_ = bucket_ + 1 < buckets_ ? BeginOf(bucket_ + 1) : INT64_MAX;
    }
    return bucket_;
  }
  static void Look(BucketsOfDevice* device, size_t bucket, int64_t time_ns) {
    BucketTop& top = device->tops[bucket];
    if (top.seen && !(device->height > top.height))
      return;
    top = {true, device->height, time_ns};
    std::copy(device->now.begin(), device->now.end(),
              device->bytes.begin() + static_cast<ptrdiff_t>(bucket * device->now.size()));
  }

  int64_t begin_ns_;
  int64_t width_ns_ = 1;
  size_t buckets_;
  size_t bucket_ = 0;
  int64_t until_ns_ = INT64_MIN;  // no time before it is in a later bucket
  std::vector<CellFacts> cells_;
  size_t seen_ = 0;  // the last bucket that they were looked at in
};

// At most four samples a bucket: the lowest and the highest of each half.
void ThinSamples(const tables::Tables& tables, size_t buckets, Timeline* timeline) {
  std::vector<const tables::SampleRow*> samples;
  for (const tables::SampleRow& sample : tables.samples) {
    if (sample.device == timeline->device)
      samples.push_back(&sample);
  }
  const size_t step = std::max<size_t>(1, samples.size() / (2 * buckets));
  for (size_t first = 0; first < samples.size(); first += step) {
    const auto begin = samples.begin() + static_cast<ptrdiff_t>(first);
    const auto end =
        samples.begin() + static_cast<ptrdiff_t>(std::min(first + step, samples.size()));
    auto [low, high] = std::minmax_element(
        begin, end, [](const auto* a, const auto* b) { return a->used_bytes < b->used_bytes; });
    if (high < low)
      std::swap(low, high);
    timeline->nvml.emplace_back((*low)->end_ns, (*low)->used_bytes);
    if (high != low)
      timeline->nvml.emplace_back((*high)->end_ns, (*high)->used_bytes);
  }
}

util::Result<std::vector<Timeline>> Fill(const tables::Recording& recording,
                                         const Cells& cells,
                                         size_t buckets,
                                         bool by_group,
                                         const HasProcess& has = {}) {
  VRAMSCOPE_RETURN_IF_ERROR(CheckBuckets(buckets));
  TimeSpan span;
  if (recording.tables().session.HasPast())
    span.from_ns = recording.tables().session.history_ns;
  const std::vector<TimeSpan> pieces = PiecesOf(recording, span);
  VRAMSCOPE_ASSIGN_OR_RETURN(auto fillers,
                             SweepPieces(recording, cells, pieces,
                                         BucketFiller(recording, cells, buckets, by_group, has)));
  BucketFiller& filler = fillers.front();
  for (size_t i = 1; i < fillers.size(); ++i)
    filler.Append(fillers[i]);
  std::vector<Timeline> timelines;
  for (const tables::DeviceId device : ShownDevices(recording.tables())) {
    Timeline timeline = filler.TimelineOf(device);
    if (has && timeline.groups.empty())
      continue;
    // NVML's figures are of the whole device.
    if (!has)
      ThinSamples(recording.tables(), buckets, &timeline);
    timelines.push_back(std::move(timeline));
  }
  return timelines;
}

}  // namespace

util::Status CheckBuckets(uint64_t buckets) {
  if (buckets >= 1 && buckets <= kMaxBuckets)
    return {};
  return util::Status::Error("a timeline has 1 to " + util::FormatCount(kMaxBuckets) +
                             " buckets, not " + util::FormatCount(buckets));
}

util::Result<std::vector<Timeline>> MakeTimelines(const tables::Recording& recording,
                                                  size_t buckets) {
  return Fill(recording, Cells(recording), buckets, false);
}

util::Result<std::vector<Timeline>> MakeTimelinesOf(const tables::Recording& recording,
                                                    size_t buckets,
                                                    const HasProcess& has) {
  return Fill(recording, Cells(recording), buckets, false, has);
}

util::Result<std::vector<Timeline>> MakeTimelinesBy(const tables::Recording& recording,
                                                    size_t buckets,
                                                    Dimension by) {
  if (DimensionValues::IsOfRows(by)) {
    return util::Status::Error(std::string("a timeline cannot be stacked by ") + DimensionName(by) +
                               ": use category, module, line, phase, owner or "
                               "another that does not change with time");
  }
  return Fill(recording, Cells(recording, by), buckets, true);
}

}  // namespace vramscope::query
