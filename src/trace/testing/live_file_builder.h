// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/encoder.h"
#include "format/layout.h"

namespace vramscope::trace {
// When a file begins, unless said.
inline constexpr uint64_t kStart = 1'000'000'000;
}  // namespace vramscope::trace

namespace vramscope::trace::testing {

// Makes live files as the probe and the launcher write them, for tests: headers, streams, chunks,
// seals. Ticks are nanoseconds unless Options::ticks_per_ns says otherwise.
//
//   LiveFileBuilder file({.pid = 42});
//   auto& main = file.Stream(1);
//   const uint64_t name = main.String("train.py");
//   main.Add(format::BlockAlloc{.time = 1000, .address = 0x10, .size = 512, .device = -1});
//   file.Write(directory + "/42.1.vrl");
class LiveFileBuilder {
 public:
  struct Options {
    uint32_t pid = 100;
    uint32_t parent_pid = 1;
    uint64_t start_ns = 1'000'000'000;
    int64_t start_wall_ns = 1'700'000'000'000'000'000;
    format::WriterKind writer = format::WriterKind::kProbe;
    std::vector<std::string> command = {"python", "train.py"};
    std::string executable = "/usr/bin/python3";
    bool closed_cleanly = true;
    bool sealed_tails = false;  // each stream's last chunk has a seal over all of it
    uint16_t major = format::kMajorVersion;
    uint32_t chunk_bytes = format::kPageBytes;  // small, so that small tests have several
    // 0: ticks are nanoseconds. Otherwise ticks are a counter with this many ticks a nanosecond,
    // and both begin at 0.
    double ticks_per_ns = 0;
  };

  class StreamBuilder {
   public:
    template <class Record>
    void Add(const Record& record) {
      std::vector<uint8_t> bytes(format::EncodedBound(record));
      format::DeltaState delta = delta_;
      auto size = static_cast<size_t>(format::Encode(record, bytes.data(), &delta) - bytes.data());
      if (begun_ && size > room())
        Seal();
      if (!begun_) {
        Begin(FirstTime(record), size);
        delta = delta_;
        size = static_cast<size_t>(format::Encode(record, bytes.data(), &delta) - bytes.data());
      }
      delta_ = delta;
      AddRaw({reinterpret_cast<const char*>(bytes.data()), size});
    }
    // Bytes as they are: unknown records, damage.
    void AddRaw(std::string_view bytes);

    // Definitions; each returns the new id.
    uint64_t String(std::string_view text);
    uint64_t PyCode(std::string_view file, std::string_view name, uint64_t first_line);
    // A frame on `line` of a code object that has no line table: one code object a line.
    uint64_t PyFrame(uint64_t parent, std::string_view file, std::string_view name, uint64_t line);
    void Thread(uint32_t tid, std::string_view name);

    // Ends the chunk: what comes next goes to a new one.
    void Seal();
    // The tid in the headers of the chunks to come.
    void set_tid(uint32_t tid) { tid_ = tid; }

   private:
    friend class LiveFileBuilder;
    struct Chunk {
      std::string records;
      uint64_t base_ticks = 0;
      uint32_t size_bytes = 0;
      uint32_t sequence = 0;
      uint32_t tid = 0;
      bool sealed = false;
    };
    struct TimeFinder {
      uint64_t value = 0;
      bool found = false;
      void Time(const char*, uint64_t time) {
        if (!found)
          value = time;
        found = true;
      }
      void Address(const char*, uint64_t) {}
      void Uint(const char*, uint64_t) {}
      void Sint(const char*, int64_t) {}
      void Blob(const char*, const format::Bytes&) {}
    };
    template <class Record>
    uint64_t FirstTime(const Record& record) const {
      TimeFinder finder;
      format::VisitFields(finder, record);
      return finder.found ? finder.value : delta_.time;
    }
    size_t room() const;
    void Begin(uint64_t base_ticks, size_t need_bytes);

    LiveFileBuilder* owner_ = nullptr;
    uint32_t id_ = 0;
    uint32_t tid_ = 0;
    uint64_t last_id_ = 0;
    bool begun_ = false;
    format::DeltaState delta_;
    std::vector<Chunk> chunks_;
    std::map<std::string, uint64_t, std::less<>> strings_;
  };

  LiveFileBuilder() : LiveFileBuilder(Options()) {}
  explicit LiveFileBuilder(const Options& options) : options_(options) {}

  // The stream of that number, from 1; made on first use.
  StreamBuilder& Stream(uint32_t id);
  void AddLoss(format::Loss loss, uint64_t count);
  // Ticks of a time on CLOCK_MONOTONIC.
  uint64_t Ticks(uint64_t ns) const;

  // The whole file. Each stream's last chunk is not sealed, as after a kill.
  std::string Bytes() const;
  // The same to a file; false when it could not be written.
  bool Write(const std::string& path) const;

 private:
  std::string Header() const;
  std::string ChunkBytes(uint32_t stream_id, size_t index) const;

  Options options_;
  std::map<uint32_t, StreamBuilder> streams_;
  std::vector<std::pair<uint32_t, size_t>> chunk_order_;  // (stream, index), as they were begun
  uint64_t lost_[32] = {};
};

}  // namespace vramscope::trace::testing
