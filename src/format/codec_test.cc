// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "format/decoder.h"
#include "format/encoder.h"

namespace vramscope::format {
namespace {

template <class Record>
Record RoundTrip(const Record& record, std::vector<uint8_t>* storage) {
  storage->resize(EncodedBound(record));
  DeltaState writer{100, 200}, reader{100, 200};
  uint8_t* end = Encode(record, storage->data(), &writer);
  const uint8_t* cursor = storage->data();
  RawRecord raw;
  EXPECT_TRUE(NextRecord(&cursor, end, &raw));
  EXPECT_EQ(cursor, end);
  EXPECT_EQ(raw.type, Record::kType);
  Record back;
  EXPECT_TRUE(Decode(raw, &reader, &back));
  EXPECT_EQ(writer.time, reader.time);
  EXPECT_EQ(writer.address, reader.address);
  return back;
}

TEST(Codec, RoundTripsABlock) {
  std::vector<uint8_t> storage;
  const BlockAlloc back = RoundTrip(
      BlockAlloc{.time = 90, .address = 0x7f0000001000, .size = 512, .device = -1, .stack = 7},
      &storage);
  EXPECT_EQ(back.time, 90u);
  EXPECT_EQ(back.address, 0x7f0000001000u);
  EXPECT_EQ(back.size, 512u);
  EXPECT_EQ(back.device, -1);
  EXPECT_EQ(back.stack, 7u);
}

TEST(Codec, EndsANameBeforeThePartThatItDoesNotHave) {
  std::vector<uint8_t> whole, part;
  const Name back = RoundTrip(Name{.address = 64, .size = 512, .offset = 9, .bytes = 0}, &whole);
  EXPECT_EQ(back.offset, 0u);
  const Name of_part = RoundTrip(Name{.address = 64, .size = 512, .offset = 9, .bytes = 8}, &part);
  EXPECT_EQ(of_part.offset, 9u);
  EXPECT_EQ(of_part.bytes, 8u);
  EXPECT_EQ(whole[1] + 2, part[1]);  // the lengths of their payloads
}

TEST(Codec, RoundTripsALongBlob) {
  std::vector<uint8_t> storage;
  const std::string text(5000, 'x');
  const String back = RoundTrip(String{.id = 3, .text = {text.data(), text.size()}}, &storage);
  EXPECT_EQ(std::string(back.text.data, back.text.size), text);
}

TEST(Codec, RefusesEveryTruncation) {
  const BlockAlloc block{
      .time = 1u << 20, .address = 0x7f0000001000, .size = 1 << 20, .stack = 700};
  std::vector<uint8_t> storage(EncodedBound(block));
  DeltaState delta;
  const auto size = static_cast<size_t>(Encode(block, storage.data(), &delta) - storage.data());
  for (size_t cut = 0; cut < size; ++cut) {
    const uint8_t* cursor = storage.data();
    RawRecord raw;
    EXPECT_FALSE(NextRecord(&cursor, storage.data() + cut, &raw)) << cut;
  }
}

TEST(Codec, KeepsDefaultsOfFieldsThatAnOlderWriterDidNotHave) {
  const uint8_t payload[] = {2, 4};  // time and address only
  RawRecord raw{BlockAlloc::kType, payload, sizeof payload};
  DeltaState delta;
  BlockAlloc block{.size = 99};
  EXPECT_TRUE(Decode(raw, &delta, &block));
  EXPECT_EQ(block.time, 1u);
  EXPECT_EQ(block.address, 2u);
  EXPECT_EQ(block.size, 99u);
}

}  // namespace
}  // namespace vramscope::format
