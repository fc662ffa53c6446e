// SPDX-License-Identifier: Apache-2.0
#include "import/import.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include <string>
#include <vector>

#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TemporaryFile;

std::string ReadAll(ByteStream& stream, size_t step) {
  std::string all;
  for (std::string part(step, '\0');;) {
    const util::Result<size_t> bytes = stream.Read(part);
    if (!bytes)
      return bytes.status().message();
    if (*bytes == 0)
      return all;
    all += part.substr(0, *bytes);
  }
}

std::string TextOf(const std::string& content) {
  const TemporaryFile file(content);
  const util::Result<Input> input = Input::Open(file.path());
  return input ? ReadAll(*input->Text(), 7) : input.status().message();
}

std::string Gzip(const std::string& text) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&state, text.size()), '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

std::string Zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 1));
  return out;
}

TEST(Input, TextInAnyEncodingBecomesUtf8) {
  using namespace std::string_literals;
  EXPECT_EQ(TextOf("\xef\xbb\xbfgr\xc3\xbc\xc3\x9f"), "gr\xc3\xbc\xc3\x9f");
  EXPECT_EQ(TextOf("\xff\xfe"s + "g\0r\0\xfc\0\x3d\xd8\x00\xde"s), "gr\xc3\xbc\xf0\x9f\x98\x80");
  EXPECT_EQ(TextOf("\xfe\xff"s + "\0g\xd8\x3d"s), "g\xef\xbf\xbd");
  EXPECT_EQ(TextOf("gr\xfc\xdf"), "gr\xfc\xdf");  // becomes U+FFFD where it is a name
}

TEST(Input, CompressedContentIsUnpacked) {
  std::string text;
  for (int i = 0; i < 50'000; ++i)
    text += std::to_string(i) + "\n";
  EXPECT_EQ(TextOf(Gzip(text)), text);
  EXPECT_EQ(TextOf(Gzip("a") + Gzip("b") + std::string(512, '\0')), "ab");
  EXPECT_EQ(TextOf(Zstd(text)), text);
  EXPECT_EQ(TextOf(Zstd("a") + Zstd("b")), "ab");
  for (const std::string& packed : {Gzip(text), Zstd(text)})
    EXPECT_THAT(TextOf(packed.substr(0, packed.size() / 2)), HasSubstr("damaged or cut off"));
}

TEST(Input, WhatUnpacksWithoutEndIsRefused) {
  EXPECT_THAT(TextOf(Zstd(std::string(size_t{64} << 20, 'a'))), HasSubstr("damaged or malicious"));
}

TEST(Input, AnEmptyFileIsAnError) {
  EXPECT_THAT(TextOf(""), HasSubstr("is empty: nothing to import"));
}

TEST(LineReader, EndsLinesAtAnyLineEnd) {
  const TemporaryFile file("a\r\nb\rc\n\nlast");
  const util::Result<Input> input = Input::Open(file.path());
  ASSERT_TRUE(input.ok());
  LineReader reader(input->Text());
  std::vector<std::string> lines;
  for (std::string_view line; reader.Next(&line);)
    lines.emplace_back(line);
  EXPECT_THAT(lines, ElementsAre("a", "b", "c", "", "last"));
  EXPECT_EQ(reader.number(), 5u);
}

TEST(LineReader, OfALongLineTheRestIsLeftOut) {
  const TemporaryFile file(std::string(200'000, 'x') + "\nb");
  const util::Result<Input> input = Input::Open(file.path());
  ASSERT_TRUE(input.ok());
  LineReader reader(input->Text());
  std::string_view line;
  ASSERT_TRUE(reader.Next(&line));
  EXPECT_EQ(line.size(), LineReader::kMaxLineBytes);
  EXPECT_TRUE(reader.was_cut());
  ASSERT_TRUE(reader.Next(&line));
  EXPECT_EQ(line, "b");
  EXPECT_FALSE(reader.was_cut());
}

TEST(Formats, AnUnknownNameListsThem) {
  EXPECT_THAT(FindFormat("csv").status().message(), HasSubstr("the formats are nvidia-smi"));
  const TemporaryFile file("Lorem ipsum\n");
  const util::Result<Input> input = Input::Open(file.path());
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(Recognize(*input), nullptr);
}

class Builders : public ::testing::Test {
 protected:
  util::Budget budget_{1000};
  tables::MemoryRecording sink_;
  Builder builder_{sink_, budget_};
};

TEST_F(Builders, EqualRowsAreOne) {
  EXPECT_EQ(builder_.Text("weight"), builder_.Text("weight"));
  EXPECT_EQ(builder_.Text("").value, 0u);
  EXPECT_EQ(builder_.text(builder_.Text("gr\xfc\xdf")), "gr\xef\xbf\xbd\xef\xbf\xbd");
  const auto process = builder_.Process(7);
  EXPECT_EQ(process, builder_.Process(7));
  const auto account = builder_.Account(process, builder_.Gpu(1));
  EXPECT_EQ(account, builder_.Account(builder_.Process(7), builder_.Gpu(1)));
  EXPECT_NE(account, builder_.Account(builder_.Process(7), builder_.Gpu(0)));
  tables::FrameRow frame;
  frame.line = 3;
  const auto outer = builder_.Stack({}, builder_.Frame(frame));
  EXPECT_EQ(outer, builder_.Stack({}, builder_.Frame(frame)));
  EXPECT_NE(outer, builder_.Stack(outer, builder_.Frame(frame)));
  tables::SiteRow site = Builder::SiteOf(account);
  const auto plain = builder_.Site(site);
  builder_.Add({.begin_ns = builder_.Tick(0), .end_ns = tables::kNever, .bytes = 5, .site = plain});
  EXPECT_EQ(plain, builder_.Site(site));  // sums do not distinguish sites
  site.tag = builder_.Text("tag");
  EXPECT_NE(plain, builder_.Site(site));
}

TEST_F(Builders, Stack_DeeperThanAFileHolds_LosesItsInnermostFrames) {
  const auto account = builder_.Account(builder_.Process(7), builder_.Gpu(0));
  const auto frame = builder_.Frame({.line = 3});
  tables::StackId stack;
  for (int depth = 0; depth < 65540; ++depth)
    stack = builder_.Stack(stack, frame);
  EXPECT_EQ(stack.value, 65535u);
  builder_.Add(
      {.end_ns = tables::kNever, .bytes = 5, .site = builder_.Site(Builder::SiteOf(account))});
  const auto tables = builder_.Finish("x.log");
  ASSERT_TRUE(tables.ok());
  ASSERT_EQ(tables->losses.size(), 1u);
  EXPECT_EQ(tables->strings[tables->losses[0].name], "frames of stacks that are too deep");
  EXPECT_EQ(tables->losses[0].count, 5u);
}

TEST_F(Builders, EachChangeHasATimeOfItsOwn) {
  EXPECT_EQ(builder_.Tick(5), 5);
  EXPECT_EQ(builder_.Tick(5), 6);
  EXPECT_EQ(builder_.Tick(2), 7);
  EXPECT_EQ(builder_.Tick(20), 20);
}

TEST_F(Builders, WithoutMemoryThereIsNothingToImport) {
  builder_.Mark(builder_.Tick(0), "begin", {});
  EXPECT_THAT(builder_.Finish("x.log").status().message(), HasSubstr("nothing was imported"));
}

TEST(BuilderBudget, WhatTakesTooMuchMemoryIsRefused) {
  util::Budget budget(1000, 10'000, 0);
  tables::MemoryRecording sink;
  Builder builder(sink, budget);
  const auto account = builder.Account(builder.Process(1), builder.Gpu(0));
  for (uint32_t i = 0; i < 1000; ++i) {
    tables::SiteRow site = Builder::SiteOf(account);
    site.tag = builder.Text("name " + std::to_string(i));
    const int64_t now_ns = builder.Tick(i);
    builder.Add(
        {.begin_ns = now_ns, .end_ns = tables::kNever, .bytes = 1, .site = builder.Site(site)});
  }
  EXPECT_THAT(builder.Finish("x.log").status().message(), HasSubstr("damaged or malicious"));
}

}  // namespace
}  // namespace vramscope::imports
