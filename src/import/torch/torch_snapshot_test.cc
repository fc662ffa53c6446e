// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "import/testing/imported.h"
#include "import/torch/torch_pickle.h"
#include "tables/imported.h"

namespace vramscope::imports {
namespace {

using ::testing::HasSubstr;

// Opcodes, made by hand.
std::string Text(std::string_view text) {
  return "\x8c" + std::string(1, static_cast<char>(text.size())) + std::string(text);
}
std::string Int(uint32_t value) {
  std::string bytes = "J";
  for (int shift = 0; shift < 32; shift += 8)
    bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}
std::string Dict(const std::vector<std::pair<std::string_view, std::string>>& items) {
  std::string bytes = "}(";
  for (const auto& [key, value] : items)
    bytes += Text(key) + value;
  return bytes + "u";
}
std::string List(const std::vector<std::string>& items) {
  std::string bytes = "](";
  for (const std::string& item : items)
    bytes += item;
  return bytes + "e";
}
std::string Pickle(const std::string& value) {
  return std::string("\x80\x04") + value + ".";
}
std::string Event(std::string_view action, uint32_t address, uint32_t bytes, uint32_t time_us) {
  return Dict({{"action", Text(action)},
               {"addr", Int(address)},
               {"size", Int(bytes)},
               {"stream", Int(0)},
               {"time_us", Int(time_us)}});
}

class TorchPickleTest : public ::testing::Test {
 protected:
  util::Status Read(const std::string& pickle) {
    data_ = pickle;
    pickle_ = std::make_unique<TorchPickle>(
        std::span(reinterpret_cast<const uint8_t*>(data_.data()), data_.size()), path_, &budget_);
    return pickle_->Read();
  }

  std::string data_;
  std::string path_ = "a.pickle";
  util::Budget budget_{1000};
  std::unique_ptr<TorchPickle> pickle_;
};

TEST_F(TorchPickleTest, EqualStacksAreOne) {
  const std::string frame =
      Dict({{"filename", Text("a.py")}, {"name", Text("f")}, {"line", Int(7)}});
  // The frame is memoized as 0 and is in both lists.
  const std::string first = List({frame + "\x94", std::string("h\0", 2)});
  const std::string second = "]" + std::string("h\0a", 3) + std::string("h\0a", 3);
  ASSERT_TRUE(Read(Pickle(List({first, second}))).ok());
  const std::vector<PickleValue>& lists = *pickle_->ListOf(pickle_->root());
  ASSERT_EQ(lists.size(), 2u);
  EXPECT_NE(pickle_->StackOf(lists[0]), 0u);
  EXPECT_EQ(pickle_->StackOf(lists[0]), pickle_->StackOf(lists[1]));
  EXPECT_EQ(pickle_->stack(pickle_->StackOf(lists[0])).size(), 2u);
}

TEST_F(TorchPickleTest, NumbersOfAllSizes) {
  const std::string values =
      List({"K\xff", std::string("M\x00\x01", 3), Int(0xffffffff), std::string("\x8a\x00", 2),
            "\x8a\x01\x80", "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f",
            std::string("\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x00", 11),
            "\x8a\x09\xff\xff\xff\xff\xff\xff\xff\xff\x01"});
  ASSERT_TRUE(Read(Pickle(values)).ok());
  std::vector<std::optional<uint64_t>> found;
  for (const PickleValue& value : *pickle_->ListOf(pickle_->root()))
    found.push_back(pickle_->Number(value));
  EXPECT_EQ(found, (std::vector<std::optional<uint64_t>>{255, 256, std::nullopt, 0, std::nullopt,
                                                         INT64_MAX, UINT64_MAX, std::nullopt}));
}

TEST_F(TorchPickleTest, CodeIsNamedAndNotRun) {
  EXPECT_THAT(Read("\x80\x02"
                   "cposix\nsystem\n(Text")
                  .message(),
              HasSubstr("contains code (GLOBAL at byte 2: posix system)"));
  EXPECT_THAT(Read(Pickle(Text("os") + Text("system") + "\x93")).message(),
              HasSubstr("contains code (STACK_GLOBAL at byte 14: os system)"));
  EXPECT_THAT(Read(Pickle("NNR")).message(), HasSubstr("REDUCE"));
  EXPECT_THAT(Read("\x80\x01.").message(), HasSubstr("not a pickle of protocol 2 to 5"));
  EXPECT_THAT(Read(Pickle("Nu")).message(), HasSubstr("damaged"));
}

TEST(TorchSnapshotTest, WhatTheRingForgotIsThere) {
  const std::string block = Dict(
      {{"size", Int(1024)}, {"requested_size", Int(1000)}, {"state", Text("active_allocated")}});
  const std::string rest = Dict({{"size", Int(3072)}, {"state", Text("inactive")}});
  const std::string segment = Dict({{"device", Int(0)},
                                    {"address", Int(4096)},
                                    {"total_size", Int(4096)},
                                    {"blocks", List({block, rest})}});
  const std::string trace =
      List({Event("free_completed", 5120, 600, 50), Event("alloc", 4096, 1000, 60)});
  const testing::Imported imported = testing::ImportText(
      Pickle(Dict({{"segments", List({segment})}, {"device_traces", List({trace})}})));
  EXPECT_EQ(imported.error, "");
  EXPECT_EQ(imported.format, "torch-snapshot");
  ASSERT_EQ(imported.rows.size(), 3u);
  // The freed block, the live block, the segment.
  const tables::AllocationRow& before = imported.rows[0];
  EXPECT_EQ(std::tuple(before.begin_ns, before.end_ns, before.bytes, before.rounding_bytes),
            std::tuple(0, 1000, 1024u, 424u));
  EXPECT_EQ(imported.TagOf(before), "before the trace");
  const tables::AllocationRow& stands = imported.rows[1];
  EXPECT_EQ(std::tuple(stands.begin_ns, stands.end_ns, stands.bytes, stands.rounding_bytes),
            std::tuple(11000, tables::kNever, 1024u, 24u));
  EXPECT_EQ(std::tuple(imported.rows[2].begin_ns, imported.rows[2].bytes), std::tuple(0, 4096u));
  EXPECT_TRUE(imported.tables.violations.empty());
}

TEST(TorchSnapshotTest, MemoryOfABackwardIsOfItsOperation) {
  const auto frame = [](const char* file, const char* name) {
    return Dict({{"filename", Text(file)}, {"line", Int(0)}, {"name", Text(name)}});
  };
  const std::string allocator = frame(
      "CUDACachingAllocator.cpp", "c10::cuda::CUDACachingAllocator::Native::malloc(signed char)");
  const std::string gather =
      frame("memory_snapshot.cpp", "torch::cuda::(anonymous namespace)::gather_with_cpp()");
  const auto block = [](uint64_t size, const std::string& frames) {
    return Dict({{"size", Int(size)}, {"state", Text("active_allocated")}, {"frames", frames}});
  };
  const std::string node = frame("??", "torch::autograd::generated::MulBackward0::apply(x&&)");
  const std::string segment = Dict(
      {{"device", Int(0)},
       {"address", Int(4096)},
       {"total_size", Int(4096)},
       {"blocks",
        List({block(1024, List({gather, allocator, frame("??", "at::_ops::mul::call()"), node})),
              block(3072, List({gather, allocator, frame("??", "my::op()")}))})}});
  const testing::Imported imported = testing::ImportText(
      Pickle(Dict({{"segments", List({segment})}, {"device_traces", List({})}})));
  ASSERT_EQ(imported.error, "");
  std::vector<std::string> places;
  std::vector<std::string> callers;  // callers of the allocator
  for (const tables::AllocationRow& row : imported.rows) {
    const tables::SiteRow& site = imported.tables.sites[row.site.value];
    const auto innermost = [&](tables::StackId stack) {
      const tables::FrameId top = imported.tables.stacks[stack.value].frame;
      return imported.Text(imported.tables.frames[top.value].function);
    };
    if (site.place.value == 0)
      continue;
    places.push_back(innermost(site.place));
    callers.push_back(innermost(site.native_stack));
  }
  EXPECT_THAT(places, ::testing::ElementsAre("MulBackward0 (backward)", "my::op()"));
  EXPECT_THAT(callers, ::testing::ElementsAre("at::_ops::mul::call()", "my::op()"));
}

TEST(TorchSnapshotTest, ABlockOfAThreadWithoutPythonSaysSo) {
  const std::string frame =
      Dict({{"filename", Text("a.py")}, {"line", Int(7)}, {"name", Text("f")}});
  const auto alloc = [](uint32_t address, const std::string& frames) {
    return Dict({{"action", Text("alloc")},
                 {"addr", Int(address)},
                 {"size", Int(512)},
                 {"stream", Int(0)},
                 {"frames", frames}});
  };
  const auto tags = [&](const std::string& frames) {
    const testing::Imported imported = testing::ImportText(Pickle(
        Dict({{"segments", "]"},
              {"device_traces", List({List({alloc(0x1000, frames), alloc(0x2000, List({}))})})}})));
    EXPECT_EQ(imported.error, "");
    std::vector<std::string> found;
    for (const tables::AllocationRow& row : imported.rows)
      found.push_back(imported.TagOf(row));
    return found;
  };
  EXPECT_THAT(tags(List({frame})), ::testing::ElementsAre("", "no Python running"));
  EXPECT_THAT(tags(List({})), ::testing::ElementsAre("", "")) << "no stacks were recorded";
}

TEST(TorchSnapshotTest, WithoutTimesEventsAreCounted) {
  const auto event = [](std::string_view action, uint32_t bytes) {
    return Dict({{"action", Text(action)},
                 {"addr", Int(0x1000)},
                 {"size", Int(bytes)},
                 {"stream", Int(0)}});
  };
  const testing::Imported imported = testing::ImportText(
      Pickle(Dict({{"segments", "]"},
                   {"device_traces", List({List({event("segment_alloc", 4096), event("alloc", 1024),
                                                 event("free_completed", 1024)})})}})));
  ASSERT_EQ(imported.error, "");
  EXPECT_EQ(imported.NoteOf(tables::kCountedNote), "events");
  ASSERT_EQ(imported.rows.size(), 2u);
  // The block lives for one event.
  EXPECT_EQ(imported.rows[0].end_ns - imported.rows[0].begin_ns, 1'000'000'000);
}

TEST(TorchSnapshotTest, WhatPyTorchSaysOfAnOutOfMemoryAndOfStepsIsKept) {
  const auto range = [](const char* stage, const char* name, uint32_t time_us) {
    return Dict({{"stage", Text(stage)},
                 {"name", Text(name)},
                 {"device", Int(0)},
                 {"time_us", Int(time_us)}});
  };
  const std::string oom = Dict({{"action", Text("oom")},
                                {"device_free", Int(3072)},
                                {"size", Int(65536)},
                                {"time_us", Int(90)}});
  const testing::Imported imported = testing::ImportText(Pickle(
      Dict({{"segments",
             List({Dict({{"device", Int(0)}, {"address", Int(4096)}, {"total_size", Int(4096)}})})},
            {"device_traces", List({List({Event("alloc", 4096, 1000, 10), oom})})},
            {"external_annotations",
             List({range("START", "ProfilerStep#2", 20), range("END", "ProfilerStep#2", 40),
                   range("START", "ProfilerStep#3", 40), range("END", "ProfilerStep#3", 80)})}})));
  EXPECT_EQ(imported.error, "");
  ASSERT_EQ(imported.tables.out_of_memory.size(), 1u);
  EXPECT_EQ(imported.tables.out_of_memory[0].requested_bytes, 65536u);
  EXPECT_EQ(imported.tables.out_of_memory[0].reported_free, 3073u);
  ASSERT_EQ(imported.tables.iterations.size(), 2u);
  EXPECT_EQ(imported.tables.iterations[0].number, 2);
  EXPECT_EQ(imported.tables.iterations[1].end_ns - imported.tables.iterations[1].begin_ns, 40'000);
}

std::string Base64(std::string bytes) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  // As in memory_viz: base64 without padding.
  bytes += std::string(3 - bytes.size() % 3, '\0');
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const auto at = [&](size_t k) { return static_cast<uint8_t>(bytes[i + k]); };
    const uint32_t bits = static_cast<uint32_t>(at(0) << 16 | at(1) << 8 | at(2));
    for (int shift = 18; shift >= 0; shift -= 6)
      text += kLetters[bits >> shift & 63];
  }
  return text;
}

TEST(TorchSnapshotTest, APageOfMemoryVizHasTheSnapshotInIt) {
  const std::string pickle = Pickle(
      Dict({{"segments", "]"},
            {"device_traces",
             List({List({Event("segment_alloc", 0x1000, 4096, 1), Event("alloc", 0x1000, 1024, 2),
                         Event("free_completed", 0x1000, 1024, 5)})})}}));
  const testing::Imported plain = testing::ImportText(pickle);
  ASSERT_EQ(plain.error, "");
  ASSERT_EQ(plain.rows.size(), 2u);
  const testing::Imported page = testing::ImportText(
      "<!DOCTYPE html>\n<script type=\"module\">\nimport {add_local_files} from "
      "\"https://cdn.example/MemoryViz.js\"\nconst local_files = [{\"name\": "
      "\"snapshot.pickle\", \"base64\": \"" +
          Base64(pickle) + "\"}]\nadd_local_files(local_files, \"Active Memory Timeline\")\n",
      {}, "a.html");
  ASSERT_EQ(page.error, "");
  EXPECT_EQ(page.format, "torch-snapshot");
  ASSERT_EQ(page.rows.size(), plain.rows.size());
  for (size_t i = 0; i < page.rows.size(); ++i) {
    EXPECT_EQ(page.rows[i].bytes, plain.rows[i].bytes);
    EXPECT_EQ(page.rows[i].end_ns, plain.rows[i].end_ns);
  }
}

}  // namespace
}  // namespace vramscope::imports
