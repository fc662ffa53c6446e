// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "format/decoder.h"
#include "format/encoder.h"
#include "format/layout.h"
#include "trace/file/live_file.h"

namespace vramscope::compact {

// Calls visit(record) for the records of type Record that describe the file's past.
template <class Record, class Visit>
void ForEachOfPast(const trace::LiveFile& file, Visit visit) {
  for (const std::vector<trace::ChunkRef>& stream : file.streams()) {
    for (const trace::ChunkRef& chunk : stream) {
      if (chunk.stream != format::kPastStream)
        break;
      const auto records = file.Records(chunk);
      const uint8_t* in = records.data();
      format::DeltaState delta{.time = chunk.base_ticks};
      for (format::RawRecord raw; format::NextRecord(&in, records.data() + records.size(), &raw);) {
        Record record;
        if (raw.type == Record::kType && format::Decode(raw, &delta, &record))
          visit(record);
      }
    }
  }
}

// Writes the chunks of one stream behind a past file's bytes, sealed.
class PastChunks {
 public:
  PastChunks(std::vector<uint8_t>* out, uint32_t stream) : out_(*out), stream_(stream) {}

  // The clocks with which the next chunk begins.
  void SetClock(uint64_t ticks, int64_t ns) {
    ticks_ = ticks;
    ns_ = ns;
  }
  void set_tid(uint32_t tid) { tid_ = tid; }
  // Counts chunks: what is true until a chunk's end must be said again in the next.
  uint32_t count() const { return sequence_; }

  // Room for a record, in this chunk or a new one. False if the record does not fit into any chunk.
  bool Reserve(size_t bytes) {
    if (begin_ != 0 && bytes <= kRecordBytes - (out_.size() - begin_))
      return true;
    if (bytes > kRecordBytes)
      return false;
    End();
    Begin();
    return true;
  }
  template <class Record>
  void Append(const Record& record) {
    const size_t bound = format::EncodedBound(record);
    if (!Reserve(bound))
      return;
    const size_t at = out_.size();
    out_.resize(at + bound);
    const uint8_t* const end = format::Encode(record, out_.data() + at, &delta_);
    out_.resize(static_cast<size_t>(end - out_.data()));
  }
  // A record without times and addresses, as it was.
  void AppendRaw(const format::RawRecord& raw) {
    if (!Reserve(6 + raw.payload_bytes))
      return;
    // Its length may have been written in either way.
    const auto size = static_cast<uint32_t>(raw.payload_bytes);
    out_.push_back(raw.type);
    out_.push_back(size < 0xff ? static_cast<uint8_t>(size) : 0xff);
    if (size >= 0xff) {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(&size);
      out_.insert(out_.end(), bytes, bytes + sizeof size);
    }
    out_.insert(out_.end(), raw.payload, raw.payload + raw.payload_bytes);
  }
  void End();

 private:
  static constexpr size_t kRecordBytes = format::kChunkBytes - sizeof(format::ChunkHeader);
  void Begin();

  std::vector<uint8_t>& out_;
  uint32_t stream_;
  uint32_t sequence_ = 0;
  uint32_t tid_ = 0;
  uint64_t ticks_ = 0;
  int64_t ns_ = 0;
  size_t begin_ = 0;  // of the records of the chunk under way; 0: there is none
  format::DeltaState delta_;
};

}  // namespace vramscope::compact
