// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "tables/recording.h"

namespace vramscope::tables {

// A recording whose allocations are in memory: what tests make, and what small live directories
// become. Add() what there is, then Take().
class MemoryRecording : public Recording, public AllocationSink {
 public:
  explicit MemoryRecording(size_t rows_per_frame = 4096) : rows_per_frame_(rows_per_frame) {}

  util::Status Add(const AllocationRow& row) override;
  // After the last row.
  void Finish(Tables tables);

  size_t frame_count() const override { return frames_.size(); }
  const FrameZone& zone(size_t frame) const override { return zones_[frame]; }
  util::Status Read(size_t frame, uint32_t wanted, AllocationFrame* out) const override;

 private:
  size_t rows_per_frame_;
  std::vector<AllocationFrame> frames_;
  std::vector<FrameZone> zones_;
};

}  // namespace vramscope::tables
