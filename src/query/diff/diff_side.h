// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "query/core/live_set.h"
#include "query/diff/diff.h"
#include "query/dimensions/dimensions.h"
#include "tables/recording.h"
#include "util/status.h"

// One of the two recordings of a diff, by keys that mean the same in both.
namespace vramscope::query {

// Texts of both recordings, by number; 0 is "".
class DiffWords {
 public:
  DiffWords() { Of(""); }
  uint32_t Of(std::string_view text);
  const std::string& operator[](uint32_t word) const { return texts_[word]; }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> texts_;
};

// What a piece of memory has in common with its counterpart. All but device, category and phase
// are DiffWords.
struct DiffKey {
  uint32_t device = 0;  // index into DiffSide::devices
  format::Category category = format::Category::kUnknown;
  format::Phase phase = format::Phase::kNone;
  bool slack = false;  // not in use, or the driver's
  uint32_t module = 0;
  uint32_t parameter = 0;
  uint32_t tag = 0;
  uint32_t detail = 0;  // the ledger's path; 0 for blocks
  uint32_t place = 0;   // what tells the line from others of its program, whatever its number
  friend auto operator<=>(const DiffKey&, const DiffKey&) = default;
};

struct DiffSum {
  uint64_t bytes = 0;
  uint64_t count = 0;
  uint32_t origin = 0;  // the place of what is known by its parameter's name and not by a line
};
using DiffSums = std::map<DiffKey, DiffSum>;

// Where something is allocated, whatever becomes of it: the same for all that passes.
DiffKey WithoutLifetime(DiffKey key);

// The user's frames above a line, innermost first, by their places.
using DiffChain = std::vector<uint32_t>;

struct DiffSide {
  struct Device {
    std::string name;
    tables::DeviceKind kind = tables::DeviceKind::kGpu;
    tables::DeviceId id;
    uint64_t peak_bytes = 0;
  };
  // At one iteration's end and at its highest instant.
  struct IterationState {
    int64_t number = 0;
    std::optional<uint64_t> peak_bytes;  // where it was looked for
    uint64_t end_bytes = 0;
    DiffSums end;
  };

  DiffSubject subject;
  const tables::Recording* recording = nullptr;  // the subject's
  std::string path;
  std::string model_prefix;     // of names, where the other side has one model alone
  std::vector<Device> devices;  // those of the kind that is compared, by their order
  std::vector<Device> others;
  DiffSums peak;
  std::map<DiffKey, std::map<DiffChain, uint64_t>> callers;  // of the peak's bytes
  DiffSums unbacked;                       // live at the peak without device memory, and not in it
  DiffSums start;                          // live at the first event
  DiffSums allocated;                      // over the whole run; no rounding, nothing of segments
  DiffSums calls;                          // the same by WithoutLifetime()
  std::vector<IterationState> iterations;  // as asked for
  int64_t iteration_count = 0;             // the most that one of its processes has
  uint64_t others_bytes = 0;               // of other processes, at the peaks
  std::map<uint32_t, std::string> lines;   // by DiffKey::place: "train.py:42 in step"
  std::set<std::string> functions;         // Python's: "FILE FUNCTION"
  std::set<std::string> modules;
  std::set<std::string> optimizers;  // the classes that stepped
  std::set<std::string> allocators;
  uint64_t outside_bytes = 0;  // of named tensors whose memory no allocator gave: mapped, shared
  // What was allocated at the peak of the first device: its phase, and its line as DiffKey::place.
  format::Phase peak_phase = format::Phase::kNone;
  uint32_t peak_place = 0;

  bool PeaksAlike(const DiffSide& other) const {
    return peak_phase == other.peak_phase && peak_place == other.peak_place;
  }
  bool Allocates(const DiffKey& key) const { return calls.contains(WithoutLifetime(key)); }
};

// What is known without reading allocations, then the peak. Names are those that compare with the
// `other` recording's. An error where nothing was allocated.
util::Result<DiffSide> ReadSide(const DiffSubject& subject,
                                const tables::Recording& other,
                                DiffWords* words);
// Adds the state of those iterations, which all of its processes with iterations have.
util::Status ReadIterations(const std::vector<int64_t>& numbers, DiffWords* words, DiffSide* side);

}  // namespace vramscope::query
