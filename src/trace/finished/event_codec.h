// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "trace/event.h"
#include "trace/finished/columns.h"
#include "util/intern_table.h"

// Events of one frame as columns.
//
// What is constant over many events (kind, process, device, thread, entry point, ..., and which
// fields there are at all) makes a `shape`; an event names its shape and adds only its varying
// fields. A free names its allocation by the distance back, an allocation the free that gave it its
// address, other fields are numbered by their first appearance in the frame: a training loop
// repeats itself, and so do these numbers, which zstd then folds. Frames do not refer to each
// other.
namespace vramscope::trace::finished {

// How large the tables are that events refer to: a decoder lets nothing through that points beyond.
struct TableSizes {
  size_t strings = 0;
  size_t stacks = 0;
  size_t threads = 0;
  size_t processes = 0;
  size_t devices = 0;
};

class EventEncoder {
 public:
  // Writes all of `events` to `columns`.
  void Encode(std::span<const Event> events, ColumnSetWriter* columns);

 private:
  struct Shape {
    Event fixed;  // only the fields that a shape has
    uint32_t mask = 0;
    std::array<uint64_t, 4> gauge{};
  };
  // Numbers values by first appearance.
  class Dictionary {
   public:
    // 0 for a value not seen before, else its number from 1.
    uint32_t Find(uint64_t value);
    void Clear();

   private:
    util::InternTable table_;
    std::vector<uint64_t> values_;
  };
  // Driver allocations and a caching allocator's blocks can begin at the same address.
  struct PlaceKey {
    uint64_t address;
    uint32_t owner;  // process and whether it is a block
    bool operator==(const PlaceKey&) const = default;
  };
  struct PlaceHash {
    size_t operator()(const PlaceKey& key) const {
      return util::Mix64(key.address ^ (uint64_t{key.owner} << 47));
    }
  };
  struct Place {
    uint32_t alloc = 0;  // ordinals from 1 of the latest allocation and free at an address
    uint32_t free = 0;
    uint64_t size = 0;
  };
  static PlaceKey KeyOf(const Event& event);

  uint32_t FindShape(const Event& event, uint32_t mask);
  void PutDictionary(size_t field, uint64_t value, ColumnSetWriter* columns);
  void PutAddress(const Event& event, ColumnSetWriter* columns);
  uint32_t MaskOf(const Event& event) const;
  void Reset();

  std::vector<Shape> shapes_;
  util::InternTable shape_ids_;
  std::array<Dictionary, 9> dictionaries_;
  std::array<uint64_t, 9> last_literal_{};
  std::unordered_map<PlaceKey, Place, PlaceHash> places_;
  uint32_t allocs_ = 0;
  uint32_t frees_ = 0;
  uint64_t last_address_ = 0;
};

// Not thread-safe; keeps its memory from frame to frame.
class EventDecoder {
 public:
  explicit EventDecoder(const TableSizes& sizes) : sizes_(sizes) {}

  // Decodes a frame of `rows` events into `events` (replacing what is there). False when the frame
  // is damaged: `events` then has those before the damage.
  [[nodiscard]] bool Decode(const ColumnSetReader& columns,
                            uint32_t rows,
                            int64_t first_time_ns,
                            std::vector<Event>* events);

 private:
  struct Shape {
    Event fixed;
    uint32_t mask = 0;
    int8_t alternation = 0;
    bool is_gauge = false;
    std::array<uint64_t, 4> gauge{};
  };
  struct Place {
    uint64_t address;
    uint64_t size;
  };
  bool ReadShapes(const ColumnSetReader& columns);

  TableSizes sizes_;
  std::vector<Shape> shapes_;
  std::array<std::vector<uint64_t>, 9> dictionaries_;
  std::vector<Place> allocs_;
  std::vector<Place> frees_;
};

}  // namespace vramscope::trace::finished
