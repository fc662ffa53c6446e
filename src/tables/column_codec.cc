// SPDX-License-Identifier: Apache-2.0
#include "tables/column_codec.h"

#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/coding.h"

namespace vramscope::tables {
namespace {

constexpr unsigned kDictionaryPlanes = 8;
// No zstd frame is smaller.
constexpr size_t kMinZstdBytes = 9;
// A dictionary pays where a value is seen this often on average.
constexpr size_t kMinUsesPerEntry = 4;

unsigned BitsOf(uint64_t range) {
  return static_cast<unsigned>(std::bit_width(range));
}
unsigned BytesOf(uint64_t range) {
  return (BitsOf(range) + 7) / 8;
}

// The smallest interval, of unsigned or of signed numbers, that holds all of them.
struct Range {
  uint64_t min = 0;
  uint64_t range = 0;
};

// Of signed numbers.
struct Extremes {
  int64_t min = INT64_MAX;
  int64_t max = INT64_MIN;
  void See(uint64_t value) {
    min = std::min(min, static_cast<int64_t>(value));
    max = std::max(max, static_cast<int64_t>(value));
  }
};

Range RangeOf(std::span<const uint64_t> values, const Extremes& extremes) {
  if (values.empty())
    return {};
  const Range range{static_cast<uint64_t>(extremes.min),
                    static_cast<uint64_t>(extremes.max) - static_cast<uint64_t>(extremes.min)};
  if (range.range >> 63 == 0)
    return range;
  // It can be less of unsigned ones.
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  return *max - *min < range.range ? Range{*min, *max - *min} : range;
}

size_t StreamCount(const ColumnHeader& header) {
  switch (static_cast<Encoding>(header.encoding)) {
    case Encoding::kPlain:
    case Encoding::kDelta:
      return header.width;
    case Encoding::kDictionary:
      return kDictionaryPlanes + 1;
    case Encoding::kBytes:
      return 1;
  }
  return 0;
}

bool HeaderMakesSense(const ColumnHeader& header) {
  switch (static_cast<Encoding>(header.encoding)) {
    case Encoding::kPlain:
    case Encoding::kDelta:
      return header.width <= 8 && header.values <= kMaxBlockRows;
    case Encoding::kDictionary:
      return (header.width == 1 || header.width == 2) && header.values <= kMaxBlockRows &&
             header.entries <= kMaxBlockRows && header.entries != 0;
    case Encoding::kBytes:
      return true;
  }
  return false;
}

// One for each thread that reads: making one takes longer than unpacking a stream.
ZSTD_DCtx* ThreadContext() {
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };
  thread_local const std::unique_ptr<ZSTD_DCtx, Free> t_context(ZSTD_createDCtx());
  return t_context.get();
}

// The streams of a payload, one after the other.
class StreamReader {
 public:
  StreamReader(std::span<const uint8_t> payload, size_t streams)
      : sizes_(payload.data()), streams_(streams) {
    ok_ = payload.size() >= streams * sizeof(uint32_t);
    if (ok_)
      rest_ = payload.subspan(streams * sizeof(uint32_t));
  }

  // Unpacks the next one to just `size` bytes.
  bool Next(void* out, size_t size) {
    if (!ok_ || next_ == streams_)
      return false;
    uint32_t stored = 0;
    std::memcpy(&stored, sizes_ + next_++ * sizeof stored, sizeof stored);
    if (stored > rest_.size())
      return ok_ = false;
    const std::span<const uint8_t> bytes = rest_.first(stored);
    rest_ = rest_.subspan(stored);
    if (stored == size) {
      if (size != 0)
        std::memcpy(out, bytes.data(), size);
      return true;
    }
    ZSTD_DCtx* const context = ThreadContext();
    return ok_ = stored < size && context != nullptr &&
                 ZSTD_decompressDCtx(context, out, size, bytes.data(), stored) == size;
  }
  bool AtEnd() const { return ok_ && next_ == streams_ && rest_.empty(); }

 private:
  const uint8_t* sizes_;
  size_t streams_;
  size_t next_ = 0;
  std::span<const uint8_t> rest_;
  bool ok_ = false;
};

template <unsigned kWidth>
uint64_t PlaneValue(const uint8_t* planes, size_t count, size_t i) {
  uint64_t value = 0;
  for (unsigned plane = 0; plane < kWidth; ++plane)
    value |= static_cast<uint64_t>(planes[plane * count + i]) << (8 * plane);
  return value;
}

template <unsigned kWidth, class Value>
void JoinPlanes(const ColumnHeader& header, const uint8_t* planes, Value* out) {
  const size_t count = header.values;
  if (static_cast<Encoding>(header.encoding) == Encoding::kDelta) {
    uint64_t value = header.base - header.step;
    for (size_t i = 0; i < count; ++i) {
      value += header.step + PlaneValue<kWidth>(planes, count, i);
      out[i] = static_cast<Value>(value);
    }
    return;
  }
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<Value>(header.base + PlaneValue<kWidth>(planes, count, i));
}

template <class Value>
void JoinPlanes(const ColumnHeader& header, const uint8_t* planes, Value* out) {
  switch (header.width) {
    case 0:
      return JoinPlanes<0>(header, planes, out);
    case 1:
      return JoinPlanes<1>(header, planes, out);
    case 2:
      return JoinPlanes<2>(header, planes, out);
    case 3:
      return JoinPlanes<3>(header, planes, out);
    case 4:
      return JoinPlanes<4>(header, planes, out);
    case 5:
      return JoinPlanes<5>(header, planes, out);
    case 6:
      return JoinPlanes<6>(header, planes, out);
    case 7:
      return JoinPlanes<7>(header, planes, out);
    default:
      return JoinPlanes<8>(header, planes, out);
  }
}

struct Scratch {
  std::vector<uint8_t> bytes;
  std::vector<uint64_t> values;
};
Scratch& ThreadScratch() {
  thread_local Scratch t_scratch;
  return t_scratch;
}

template <class Value>
bool DecodeDictionary(const ColumnHeader& header, StreamReader streams, Value* out) {
  Scratch& scratch = ThreadScratch();
  const size_t entries = header.entries;
  scratch.bytes.resize(std::max(entries * kDictionaryPlanes, size_t{header.values} * header.width));
  for (unsigned plane = 0; plane < kDictionaryPlanes; ++plane) {
    if (!streams.Next(scratch.bytes.data() + plane * entries, entries))
      return false;
  }
  scratch.values.resize(entries);
  for (size_t i = 0; i < entries; ++i) {
    scratch.values[i] = PlaneValue<kDictionaryPlanes>(scratch.bytes.data(), entries, i);
    if (scratch.values[i] > std::numeric_limits<Value>::max())
      return false;
  }
  if (!streams.Next(scratch.bytes.data(), size_t{header.values} * header.width) ||
      !streams.AtEnd()) {
    return false;
  }
  const auto look_up = [&](const auto* indices) {
    size_t largest = 0;
    for (size_t i = 0; i < header.values; ++i)
      largest = std::max<size_t>(largest, indices[i]);
    if (largest >= entries)
      return false;
    for (size_t i = 0; i < header.values; ++i)
      out[i] = static_cast<Value>(scratch.values[indices[i]]);
    return true;
  };
  if (header.width == 1)
    return look_up(scratch.bytes.data());
  return look_up(reinterpret_cast<const uint16_t*>(scratch.bytes.data()));
}

bool PayloadHolds(const ColumnHeader& header, std::span<const uint8_t> payload) {
  return payload.size() == header.bytes &&
         base::Crc32c(payload.data(), payload.size()) == header.crc;
}

}  // namespace

void BlockEncoder::FreeContext::operator()(ZSTD_CCtx* context) const {
  ZSTD_freeCCtx(context);
}

BlockEncoder::BlockEncoder(int zstd_level) : context_(ZSTD_createCCtx()), level_(zstd_level) {
  failed_ = context_ == nullptr;
}

void BlockEncoder::Begin(uint16_t table, uint32_t rows) {
  header_ = {};
  header_.magic = kBlockMagic;
  header_.table = table;
  header_.rows = rows;
  columns_.clear();
  payload_.clear();
}

void BlockEncoder::BeginPayload(size_t streams) {
  payload_begin_ = payload_.size();
  stream_ = 0;
  payload_.resize(payload_begin_ + streams * sizeof(uint32_t));
}

void BlockEncoder::AddStream(std::span<const uint8_t> raw) {
  if (stored_.size() < ZSTD_compressBound(raw.size()))
    stored_.resize(ZSTD_compressBound(raw.size()));
  std::span<const uint8_t> stored = raw;
  if (!failed_ && raw.size() > kMinZstdBytes) {
    const size_t size = ZSTD_compressCCtx(context_.get(), stored_.data(), stored_.size(),
                                          raw.data(), raw.size(), level_);
    failed_ = ZSTD_isError(size) != 0;
    if (!failed_ && size < raw.size())
      stored = std::span(stored_).first(size);
  }
  payload_.insert(payload_.end(), stored.begin(), stored.end());
  const auto size = static_cast<uint32_t>(stored.size());
  std::memcpy(payload_.data() + payload_begin_ + stream_++ * sizeof size, &size, sizeof size);
}

void BlockEncoder::EndColumn(ColumnHeader header) {
  header.bytes = static_cast<uint32_t>(payload_.size() - payload_begin_);
  header.crc = base::Crc32c(payload_.data() + payload_begin_, header.bytes);
  columns_.push_back(header);
}

void BlockEncoder::AddPlanes(std::span<const uint64_t> values, uint64_t base, unsigned width) {
  plane_.resize(values.size());
  for (unsigned plane = 0; plane < width; ++plane) {
    for (size_t i = 0; i < values.size(); ++i)
      plane_[i] = static_cast<uint8_t>((values[i] - base) >> (8 * plane));
    AddStream(plane_);
  }
}

bool BlockEncoder::TryDictionary(std::span<const uint64_t> values, ColumnHeader* header) {
  const size_t limit = values.size() / kMinUsesPerEntry;
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  constexpr unsigned kSlotBits = 15;  // twice as many as there can be entries
  static_assert(kMaxBlockRows / kMinUsesPerEntry <= size_t{1} << (kSlotBits - 1));
  slots_.assign(size_t{1} << kSlotBits, 0);
  entries_.clear();
  indices_.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    size_t slot = values[i] * kMultiplier >> (64 - kSlotBits);
    while (slots_[slot] != 0 && entries_[slots_[slot] - 1] != values[i])
      slot = (slot + 1) % slots_.size();
    if (slots_[slot] == 0) {
      if (entries_.size() == limit)
        return false;
      entries_.push_back(values[i]);
      slots_[slot] = static_cast<uint16_t>(entries_.size());
    }
    indices_[i] = static_cast<uint16_t>(slots_[slot] - 1);
  }
  header->encoding = static_cast<uint8_t>(Encoding::kDictionary);
  header->entries = static_cast<uint32_t>(entries_.size());
  header->width = entries_.size() <= 256 ? 1 : 2;
  BeginPayload(kDictionaryPlanes + 1);
  AddPlanes(entries_, 0, kDictionaryPlanes);
  plane_.resize(values.size() * header->width);
  if (header->width == 1)
    std::copy(indices_.begin(), indices_.end(), plane_.begin());
  else
    std::memcpy(plane_.data(), indices_.data(), plane_.size());
  AddStream(plane_);
  return true;
}

void BlockEncoder::AddColumn(uint16_t number, std::span<const uint64_t> values) {
  ColumnHeader header{};
  header.number = number;
  header.values = static_cast<uint32_t>(values.size());
  Extremes of_values;
  Extremes of_differences;
  differences_.resize(values.size());
  if (!values.empty())
    of_values.See(values[0]);
  for (size_t i = 1; i < values.size(); ++i) {
    differences_[i] = values[i] - values[i - 1];
    of_values.See(values[i]);
    of_differences.See(differences_[i]);
  }
  const Range plain = RangeOf(values, of_values);
  // The order of values of one byte is zstd's to find.
  if (BytesOf(plain.range) > 1) {
    const Range delta = RangeOf(std::span(differences_).subspan(1), of_differences);
    if (BitsOf(delta.range) < BitsOf(plain.range)) {
      header.encoding = static_cast<uint8_t>(Encoding::kDelta);
      header.width = static_cast<uint8_t>(BytesOf(delta.range));
      header.base = values[0];
      header.step = delta.min;
      differences_[0] = delta.min;  // value[-1] is base - step
      BeginPayload(header.width);
      AddPlanes(differences_, delta.min, header.width);
      return EndColumn(header);
    }
  }
  if (BytesOf(plain.range) > 2 && TryDictionary(values, &header))
    return EndColumn(header);
  header.encoding = static_cast<uint8_t>(Encoding::kPlain);
  header.width = static_cast<uint8_t>(BytesOf(plain.range));
  header.base = plain.min;
  BeginPayload(header.width);
  AddPlanes(values, plain.min, header.width);
  EndColumn(header);
}

void BlockEncoder::AddText(uint16_t number, std::string_view text) {
  ColumnHeader header{};
  header.number = number;
  header.encoding = static_cast<uint8_t>(Encoding::kBytes);
  header.values = static_cast<uint32_t>(text.size());
  BeginPayload(1);
  AddStream({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  EndColumn(header);
}

std::span<const uint8_t> BlockEncoder::Finish(uint32_t* crc) {
  const size_t column_bytes = columns_.size() * sizeof(ColumnHeader);
  const size_t header_bytes = sizeof header_ + column_bytes;
  header_.columns = static_cast<uint16_t>(columns_.size());
  header_.bytes = static_cast<uint32_t>(header_bytes + payload_.size());
  header_.crc = 0;
  header_.crc = base::Crc32c(columns_.data(), column_bytes, base::Crc32c(&header_, sizeof header_));
  *crc = header_.crc;
  block_.resize(header_.bytes);
  std::memcpy(block_.data(), &header_, sizeof header_);
  if (column_bytes != 0)
    std::memcpy(block_.data() + sizeof header_, columns_.data(), column_bytes);
  std::copy(payload_.begin(), payload_.end(),
            block_.begin() + static_cast<ptrdiff_t>(header_bytes));
  return block_;
}

bool BlockHeaders::Parse(std::span<const uint8_t> bytes, const IndexEntry& entry) {
  columns_.clear();
  BlockHeader header;
  if (bytes.size() < sizeof header)
    return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kBlockMagic || header.crc != entry.crc || header.table != entry.table ||
      header.rows != entry.rows || header.bytes != entry.bytes ||
      header.columns > kMaxBlockColumns) {
    return false;
  }
  header_bytes_ = static_cast<uint32_t>(sizeof header + header.columns * sizeof(ColumnHeader));
  if (bytes.size() < header_bytes_ || header.bytes < header_bytes_)
    return false;
  const uint32_t crc = header.crc;
  header.crc = 0;
  if (base::Crc32c(bytes.data() + sizeof header, header_bytes_ - sizeof header,
                   base::Crc32c(&header, sizeof header)) != crc) {
    return false;
  }
  uint64_t offset = header_bytes_;
  for (size_t i = 0; i < header.columns; ++i) {
    Column column;
    std::memcpy(&column.header, bytes.data() + sizeof header + i * sizeof(ColumnHeader),
                sizeof column.header);
    column.offset = static_cast<uint32_t>(offset);
    offset += column.header.bytes;
    if (offset > header.bytes)
      return false;
    columns_.push_back(column);
  }
  return offset == header.bytes;
}

bool BlockHeaders::PayloadsHold(std::span<const uint8_t> block) const {
  return std::all_of(columns_.begin(), columns_.end(), [&](const Column& column) {
    return PayloadHolds(column.header, block.subspan(column.offset, column.header.bytes));
  });
}

const BlockHeaders::Column* BlockHeaders::Find(uint16_t number) const {
  for (const Column& column : columns_) {
    if (column.header.number == number)
      return &column;
  }
  return nullptr;
}

template <class Value>
bool DecodeColumn(const ColumnHeader& header, std::span<const uint8_t> payload, Value* out) {
  const auto encoding = static_cast<Encoding>(header.encoding);
  if (!HeaderMakesSense(header) || encoding == Encoding::kBytes || !PayloadHolds(header, payload))
    return false;
  StreamReader streams(payload, StreamCount(header));
  if (encoding == Encoding::kDictionary)
    return DecodeDictionary(header, streams, out);
  std::vector<uint8_t>& planes = ThreadScratch().bytes;
  planes.resize(size_t{header.values} * header.width);
  for (unsigned plane = 0; plane < header.width; ++plane) {
    if (!streams.Next(planes.data() + size_t{plane} * header.values, header.values))
      return false;
  }
  if (!streams.AtEnd())
    return false;
  if constexpr (sizeof(Value) < sizeof(uint64_t)) {
    // By way of wide values: they show what does not fit.
    std::vector<uint64_t>& wide = ThreadScratch().values;
    wide.resize(header.values);
    JoinPlanes(header, planes.data(), wide.data());
    uint64_t all = 0;
    for (size_t i = 0; i < header.values; ++i) {
      all |= wide[i];
      out[i] = static_cast<Value>(wide[i]);
    }
    return all <= std::numeric_limits<Value>::max();
  } else {
    JoinPlanes(header, planes.data(), out);
    return true;
  }
}
template bool DecodeColumn(const ColumnHeader&, std::span<const uint8_t>, uint64_t*);
template bool DecodeColumn(const ColumnHeader&, std::span<const uint8_t>, uint32_t*);

bool DecodeText(const ColumnHeader& header, std::span<const uint8_t> payload, char* out) {
  if (static_cast<Encoding>(header.encoding) != Encoding::kBytes || !PayloadHolds(header, payload))
    return false;
  StreamReader streams(payload, 1);
  return streams.Next(out, header.values) && streams.AtEnd();
}

}  // namespace vramscope::tables
