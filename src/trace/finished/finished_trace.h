// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "trace/finished/frame_io.h"
#include "trace/tables.h"
#include "trace/trace.h"
#include "util/file.h"

namespace vramscope::trace::finished {

// A finished file: tables are read when it is opened, events are unpacked frame by frame.
class FinishedTrace : public Trace {
 public:
  static util::Result<std::unique_ptr<Trace>> Open(const std::string& path);
  // The same over bytes in memory, which must outlive the result.
  static util::Result<std::unique_ptr<Trace>> FromBytes(std::span<const uint8_t> bytes,
                                                        const std::string& name);

  std::string_view SourceLine(StringId file, uint32_t line) const override;
  util::Status ForEachEvent(const EventSink& sink) override;

 private:
  FinishedTrace() = default;
  util::Status Load(std::span<const uint8_t> bytes, const std::string& name);
  void ReadTables();
  bool ReadTable(const FrameRef& frame, const ColumnSetReader& columns);
  void CheckReferences();
  void CountDamage(uint64_t places, uint64_t bytes);

  util::MappedFile mapped_;
  FrameReader reader_;
  std::vector<FrameRef> event_frames_;
  std::vector<bool> damage_counted_;  // by event frame
  std::unordered_map<uint64_t, std::string> source_lines_;
};

}  // namespace vramscope::trace::finished
