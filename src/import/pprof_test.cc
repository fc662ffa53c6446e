// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::HasSubstr;
using testing::Imported;
using testing::ImportText;
using ::testing::IsEmpty;

std::string Varint(uint64_t value) {
  std::string out;
  for (; value >= 0x80; value >>= 7)
    out += static_cast<char>(value | 0x80);
  return out + static_cast<char>(value);
}
std::string Number(uint32_t field, uint64_t value) {
  return Varint(field << 3) + Varint(value);
}
std::string Bytes(uint32_t field, const std::string& bytes) {
  return Varint(field << 3 | 2) + Varint(bytes.size()) + bytes;
}

// Texts: 1 allocations, 2 count, 3 space, 4 bytes, 5 kind, 6 buffer, 7 device, 8 gpu:1, 9 f, 10
// a.py.
std::string Profile(const std::string& samples) {
  std::string out =
      Bytes(1, Number(1, 1) + Number(2, 2)) + Bytes(1, Number(1, 3) + Number(2, 4)) + samples;
  out += Bytes(4, Number(1, 1) + Bytes(4, Number(1, 1) + Number(2, 12)));
  out += Bytes(4, Number(1, 2) + Bytes(4, Number(1, 1) + Number(2, 40)));
  out += Bytes(5, Number(1, 1) + Number(2, 9) + Number(4, 10));
  for (const char* text : {"", "allocations", "count", "space", "bytes", "kind", "buffer", "device",
                           "gpu:1", "f", "a.py"})
    out += Bytes(6, text);
  return out;
}
std::string Sample(const std::string& bytes) {
  return Bytes(2, Bytes(1, Varint(1) + Varint(2)) + Bytes(2, Varint(3) + bytes) +
                      Bytes(3, Number(1, 5) + Number(2, 6)) +
                      Bytes(3, Number(1, 7) + Number(2, 8)));
}

TEST(Pprof, SamplesAreWhatLivesWithItsStack) {
  const Imported profile = ImportText(Profile(Sample(Varint(4096))));
  ASSERT_EQ(profile.error, "");
  EXPECT_EQ(profile.format, "pprof");
  ASSERT_EQ(profile.rows.size(), 1u);
  EXPECT_EQ(profile.rows[0].bytes, 4096u);
  EXPECT_EQ(profile.TagOf(profile.rows[0]), "buffer");
  const tables::SiteRow& site = profile.tables.sites[profile.rows[0].site.value];
  EXPECT_EQ(profile.DeviceOf(site.account), 1);
  const tables::StackRow& inner = profile.tables.stacks[site.stack.value];
  EXPECT_EQ(profile.tables.frames[inner.frame.value].line, 12u);
  const tables::StackRow& outer = profile.tables.stacks[inner.parent.value];
  EXPECT_EQ(profile.tables.frames[outer.frame.value].line, 40u);
  EXPECT_EQ(profile.Text(profile.tables.frames[outer.frame.value].file), "a.py");
  EXPECT_THAT(profile.Losses(), IsEmpty());
}

TEST(Pprof, WhatIsDamagedOrNotOfMemoryIsRefused) {
  const std::string whole = Profile(Sample(Varint(4096)));
  EXPECT_THAT(ImportText(whole.substr(0, whole.size() - 3)).error,
              HasSubstr("not a complete pprof profile"));
  std::string seconds = whole;
  seconds.replace(seconds.find("bytes"), 5, "ticks");
  EXPECT_THAT(ImportText(seconds).error, HasSubstr("no value in bytes"));
  const Imported huge = ImportText(Profile(Sample(Varint(UINT64_MAX)) + Sample(Varint(1))));
  EXPECT_EQ(huge.rows.size(), 1u);
  EXPECT_EQ(huge.Losses().at("samples without a size"), 1u);
}

TEST(Pprof, AnotherHeapProfileIsMemoryOfTheHost) {
  std::string go = Bytes(1, Number(1, 1) + Number(2, 2)) + Bytes(2, Bytes(2, Varint(4096))) +
                   Bytes(6, "") + Bytes(6, "inuse_space") + Bytes(6, "bytes");
  const Imported profile = ImportText(go);
  ASSERT_EQ(profile.error, "");
  ASSERT_EQ(profile.rows.size(), 1u);
  const tables::SiteRow& site = profile.tables.sites[profile.rows[0].site.value];
  EXPECT_EQ(profile.DeviceOf(site.account), -2);
  EXPECT_EQ(profile.Text(site.owner), "");
}

}  // namespace
}  // namespace vramscope::imports
