// SPDX-License-Identifier: Apache-2.0
#include "tables/frame_codec.h"

#include <algorithm>
#include <type_traits>

#include "tables/table_codec.h"

namespace vramscope::tables {
namespace {

// What many values have to go through to unpack a frame. One for each thread that reads.
struct Scratch {
  std::vector<uint32_t> numbers;
  std::vector<uint64_t> wide;
  std::vector<uint32_t> narrow;
};
Scratch& ThreadScratch() {
  thread_local Scratch t_scratch;
  return t_scratch;
}

class FrameReader {
 public:
  FrameReader(const BlockHeaders& headers, std::span<const uint8_t> block)
      : headers_(headers), block_(block) {}

  // `count` values of a column that must have as many. Zeros where the frame has no such column.
  template <class Value>
  bool Read(FrameColumn number, size_t count, Value* out) const {
    const BlockHeaders::Column* column = headers_.Find(number);
    if (column == nullptr) {
      std::fill_n(out, count, Value{0});
      return true;
    }
    return column->header.values == count &&
           DecodeColumn(column->header, block_.subspan(column->offset, column->header.bytes), out);
  }

  // How many shapes there are; 0 where the frame has none or too many.
  size_t shapes() const {
    const BlockHeaders::Column* column = headers_.Find(kShapeSite);
    return column == nullptr || column->header.values > kMaxBlockRows ? 0 : column->header.values;
  }

 private:
  const BlockHeaders& headers_;
  const std::span<const uint8_t> block_;
};

// The column of a shape for each row. `numbers` are below `shapes`.
template <class Value>
bool LookUp(const FrameReader& reader,
            FrameColumn column,
            const std::vector<uint32_t>& numbers,
            size_t shapes,
            std::vector<Value>* values,
            std::vector<Value>* out) {
  values->resize(shapes);
  if (!reader.Read(column, shapes, values->data()))
    return false;
  out->resize(numbers.size());
  const Value* const from = values->data();
  for (size_t i = 0; i < numbers.size(); ++i)
    (*out)[i] = from[numbers[i]];
  return true;
}

bool ReadShapes(const FrameReader& reader, Scratch* scratch, std::vector<AllocationShape>* shapes) {
  const auto read = [&](FrameColumn column, auto* values, auto AllocationShape::*field) {
    values->resize(shapes->size());
    if (!reader.Read(column, values->size(), values->data()))
      return false;
    for (size_t i = 0; i < values->size(); ++i)
      (*shapes)[i].*field = (*values)[i];
    return true;
  };
  return read(kShapeBytes, &scratch->wide, &AllocationShape::bytes) &&
         read(kShapeRounding, &scratch->wide, &AllocationShape::rounding_bytes) &&
         read(kShapeSite, &scratch->narrow, &AllocationShape::site) &&
         read(kShapeSegment, &scratch->narrow, &AllocationShape::segment);
}

uint64_t* Words(std::vector<int64_t>* values) {
  return reinterpret_cast<uint64_t*>(values->data());
}

}  // namespace

FrameEncoder::FrameEncoder(int zstd_level) : encoder_(zstd_level), slots_(size_t{1} << kSlotBits) {}

uint32_t FrameEncoder::NumberOf(const Shape& shape) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  uint64_t hash = (shape.bytes ^ (uint64_t{shape.site} << 32 | shape.segment)) * kMultiplier;
  hash = (hash ^ hash >> 32 ^ shape.rounding_bytes) * kMultiplier;
  for (size_t slot = hash >> (64 - kSlotBits);; slot = (slot + 1) % slots_.size()) {
    if (slots_[slot] == 0) {
      shapes_.push_back(shape);
      slots_[slot] = static_cast<uint32_t>(shapes_.size());
    } else if (!(shapes_[slots_[slot] - 1] == shape)) {
      continue;
    }
    return slots_[slot] - 1;
  }
}

template <class Value>
void FrameEncoder::AddShapeColumn(FrameColumn number, const Value& value) {
  std::vector<uint64_t>& words = columns_[0];
  words.resize(shapes_.size());
  for (size_t i = 0; i < shapes_.size(); ++i)
    words[i] = value(shapes_[i]);
  encoder_.AddColumn(number, words);
}

std::span<const uint8_t> FrameEncoder::Encode(std::span<AllocationRow> rows, IndexEntry* entry) {
  const auto by_end = [](const AllocationRow& a, const AllocationRow& b) {
    return a.end_ns != b.end_ns ? a.end_ns < b.end_ns : a.begin_ns < b.begin_ns;
  };
  if (!std::is_sorted(rows.begin(), rows.end(), by_end))
    std::sort(rows.begin(), rows.end(), by_end);
  shapes_.clear();
  std::fill(slots_.begin(), slots_.end(), 0);
  for (std::vector<uint64_t>& column : columns_)
    column.resize(rows.size());
  auto& [begins, ends, begins_less_alloc, addresses, shapes] = columns_;
  int64_t first_ns = INT64_MAX;
  int64_t last_ns = INT64_MIN;
  // Once for all columns: the rows of a frame are more than the nearest caches hold.
  for (size_t i = 0; i < rows.size(); ++i) {
    const AllocationRow& row = rows[i];
    first_ns = std::min(first_ns, row.begin_ns);
    last_ns = std::max(last_ns, row.begin_ns);
    begins[i] = static_cast<uint64_t>(row.begin_ns);
    ends[i] = static_cast<uint64_t>(row.end_ns);
    begins_less_alloc[i] = begins[i] - static_cast<uint64_t>(row.alloc_ns);
    addresses[i] = row.address;
    shapes[i] = NumberOf({row.bytes, row.rounding_bytes, row.site.value, row.segment.value});
  }
  encoder_.Begin(TableOf<AllocationRow>::kNumber, static_cast<uint32_t>(rows.size()));
  encoder_.AddColumn(kFrameBegin, begins);
  encoder_.AddColumn(kFrameEnd, ends);
  encoder_.AddColumn(kFrameBeginLessAlloc, begins_less_alloc);
  encoder_.AddColumn(kFrameAddress, addresses);
  encoder_.AddColumn(kFrameShape, shapes);
  AddShapeColumn(kShapeBytes, [](const Shape& shape) { return shape.bytes; });
  AddShapeColumn(kShapeRounding, [](const Shape& shape) { return shape.rounding_bytes; });
  AddShapeColumn(kShapeSite, [](const Shape& shape) { return uint64_t{shape.site}; });
  AddShapeColumn(kShapeSegment, [](const Shape& shape) { return uint64_t{shape.segment}; });

  *entry = {};
  entry->table = TableOf<AllocationRow>::kNumber;
  entry->rows = static_cast<uint32_t>(rows.size());
  entry->min_begin_ns = first_ns;
  entry->max_begin_ns = last_ns;
  entry->min_end_ns = rows.front().end_ns;
  entry->max_end_ns = rows.back().end_ns;
  const std::span<const uint8_t> block = encoder_.Finish(&entry->crc);
  entry->bytes = static_cast<uint32_t>(block.size());
  return block;
}

std::vector<uint32_t> FrameEncoder::TakeSites() {
  std::vector<uint32_t> sites;
  sites.reserve(shapes_.size());
  for (const Shape& shape : shapes_)
    sites.push_back(shape.site);
  std::sort(sites.begin(), sites.end());
  sites.erase(std::unique(sites.begin(), sites.end()), sites.end());
  return sites;
}

bool DecodeFrame(const BlockHeaders& headers,
                 std::span<const uint8_t> block,
                 uint32_t rows,
                 uint32_t wanted,
                 AllocationFrame* out) {
  const FrameReader reader(headers, block);
  Scratch& scratch = ThreadScratch();
  out->rows = rows;
  const auto prepare = [&](uint32_t column, auto* target) {
    target->resize((wanted & column) != 0 ? rows : 0);
    return !target->empty();
  };
  bool ok = true;
  // alloc_ns is stored as its distance from begin_ns.
  const bool wants_alloc = prepare(kAllocNs, &out->alloc_ns);
  if (prepare(kBeginNs, &out->begin_ns))
    ok = ok && reader.Read(kFrameBegin, rows, Words(&out->begin_ns));
  if (prepare(kEndNs, &out->end_ns))
    ok = ok && reader.Read(kFrameEnd, rows, Words(&out->end_ns));
  if (wants_alloc) {
    scratch.wide.resize(rows);
    ok = ok && reader.Read(kFrameBeginLessAlloc, rows, scratch.wide.data());
    uint64_t* const alloc = Words(&out->alloc_ns);
    if (ok && (wanted & kBeginNs) != 0)
      std::copy(out->begin_ns.begin(), out->begin_ns.end(), out->alloc_ns.begin());
    else
      ok = ok && reader.Read(kFrameBegin, rows, alloc);
    for (size_t i = 0; ok && i < rows; ++i)
      alloc[i] -= scratch.wide[i];
  }
  if (prepare(kAddress, &out->address))
    ok = ok && reader.Read(kFrameAddress, rows, out->address.data());

  const bool wants_shapes = (wanted & (kBytes | kRoundingBytes | kSite | kSegment | kShape)) != 0;
  const size_t shapes = wants_shapes ? reader.shapes() : 0;
  std::vector<uint32_t>& numbers = (wanted & kShape) != 0 ? out->shape : scratch.numbers;
  if (wants_shapes) {
    numbers.resize(rows);
    ok = ok && reader.Read(kFrameShape, rows, numbers.data());
    uint64_t beyond = 0;
    for (const uint32_t number : numbers)
      beyond |= shapes - 1 - uint64_t{number};  // its top bit: not below `shapes`
    ok = ok && shapes != 0 && beyond >> 63 == 0;
  }
  if ((wanted & kShape) != 0) {
    out->shapes.resize(shapes);
    ok = ok && ReadShapes(reader, &scratch, &out->shapes);
  } else {
    out->shape.clear();
    out->shapes.clear();
  }
  const auto look_up = [&](uint32_t bit, FrameColumn column, auto* values, auto* target) {
    if ((wanted & bit) != 0)
      ok = ok && LookUp(reader, column, numbers, shapes, values, target);
    else
      target->clear();
  };
  look_up(kBytes, kShapeBytes, &scratch.wide, &out->bytes);
  look_up(kRoundingBytes, kShapeRounding, &scratch.wide, &out->rounding_bytes);
  look_up(kSite, kShapeSite, &scratch.narrow, &out->site);
  look_up(kSegment, kShapeSegment, &scratch.narrow, &out->segment);
  return ok;
}

}  // namespace vramscope::tables
