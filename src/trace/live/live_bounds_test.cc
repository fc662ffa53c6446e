// SPDX-License-Identifier: Apache-2.0
// Small files that would be large, or take long, to a reader that believed them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <span>

#include "trace/live/live_trace.h"
#include "trace/testing/live_file_builder.h"

namespace vramscope::trace {
namespace {

using ::testing::HasSubstr;
using testing::LiveFileBuilder;

// Seconds. It takes tenths; what looked at everything for each of them took minutes.
constexpr double kFarMoreThanItTakes = 20;

util::Result<std::unique_ptr<Trace>> Open(const std::string& bytes) {
  LossCounter losses;
  std::vector<LiveFile> files;
  const std::span data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  auto file = LiveFile::FromBytes(data, "1.vrl", &losses);
  EXPECT_TRUE(file.ok());
  files.push_back(std::move(*file));
  return LiveTrace::FromFiles("x.vram", std::move(files), {}, std::move(losses),
                              {.native_names = false});
}

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

uint64_t LossCount(const Trace& trace, format::Loss loss) {
  for (const Loss& row : trace.losses()) {
    if (row.name == format::LossName(static_cast<uint64_t>(loss)))
      return row.count;
  }
  return 0;
}

format::BlockAlloc AllocAt(uint64_t number) {
  return {.time = kStart + number, .address = number * 512 + 512, .size = 512, .device = -1};
}

// Each scope is the child of the one before.
std::string NestedScopes(uint64_t count, const std::string& name) {
  LiveFileBuilder file;
  auto& out = file.Stream(1);
  const uint64_t id = out.String(name);
  for (uint64_t i = 1; i <= count; ++i) {
    out.Add(format::Scope{.id = 1000 + i, .parent = i == 1 ? 0 : 999 + i, .name = id});
    out.Add(format::ScopeIs{.scope = 1000 + i});
  }
  out.Add(AllocAt(0));
  return file.Bytes();
}

TEST(LiveBoundsTest, ScopesBeyondTheDepthThatIsWrittenCountAsTheOneAround) {
  const std::string bytes = NestedScopes(10'000, "s");
  auto trace = Open(bytes);
  ASSERT_TRUE(trace.ok());
  std::string scope;
  ASSERT_TRUE((*trace)->ForEachEvent([&](std::span<const Event> events) {
    for (const Event& event : events) {
      if (event.Is<BlockAlloc>())
        scope = (*trace)->string(event.scope);
    }
  }));
  EXPECT_EQ(scope.size(), 2 * format::kMaxScopeDepth - 1);
  EXPECT_EQ(LossCount(**trace, format::Loss::kScopeTooDeep), 10'000 - format::kMaxScopeDepth);
}

// Trees of scopes whose paths are 64 names of 32 KiB: 2 MiB for a few bytes each.
TEST(LiveBoundsTest, PathsBeyondTheFilesBudgetAreRefusedWithTheirClaim) {
  LiveFileBuilder file;
  auto& out = file.Stream(1);
  const uint64_t name = out.String(std::string(32'000, 'n'));
  for (uint64_t i = 1; i < format::kMaxScopeDepth; ++i)
    out.Add(format::Scope{.id = 1000 + i, .parent = i == 1 ? 0 : 999 + i, .name = name});
  for (uint64_t i = 0; i < 3000; ++i) {
    out.Add(format::Scope{.id = 5000 + i,
                          .parent = 999 + format::kMaxScopeDepth,
                          .name = out.String(std::to_string(i))});
  }
  const auto trace = Open(file.Bytes());
  ASSERT_FALSE(trace.ok());
  EXPECT_THAT(trace.status().message(), HasSubstr("x.vram: its names would take more than"));
}

TEST(LiveBoundsTest, EveryDescriptionOfABinaryIsLaidDownOnce) {
  constexpr uint64_t kCount = 200'000;
  LiveFileBuilder file({.chunk_bytes = 1 << 20});
  auto& out = file.Stream(1);
  for (uint64_t i = 0; i < kCount; ++i) {
    const std::string path = "/lib/" + std::to_string(i);
    out.Add(format::Image{.begin = i,
                          .end = uint64_t{1} << 40,
                          .bias = i,
                          .path = {path.data(), path.size()},
                          .build_id = {}});
    out.Add(format::NativeStack{.id = 10 + i, .parent = 0, .pc = i * 4096 + 2});
  }
  const std::string bytes = file.Bytes();
  const double begin = ProcessorSeconds();
  const auto trace = Open(bytes);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_LT(ProcessorSeconds() - begin, kFarMoreThanItTakes);
  EXPECT_EQ((*trace)->dictionaries().stack_count(), kCount + 1);
  // The last description before the stack or right after it.
  const tables::StackRow& stack = (*trace)->stack(StackId{100});
  EXPECT_EQ((*trace)->string((*trace)->frame(stack.frame).image), "/lib/100");
}

TEST(LiveBoundsTest, StacksDeeperThanAnyWriterMakesAreCut) {
  LiveFileBuilder file;
  auto& out = file.Stream(1);
  for (uint64_t i = 1; i <= 5000; ++i)
    out.Add(format::NativeStack{.id = i, .parent = i - 1, .pc = i * 16});
  auto alloc = AllocAt(0);
  alloc.native = 5000;
  out.Add(alloc);
  auto trace = Open(file.Bytes());
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ((*trace)->dictionaries().stack_count(), 1u + tables::Dictionaries::kMaxStackDepth);
  EXPECT_EQ(LossCount(**trace, format::Loss::kDamagedBytes),
            5000u - tables::Dictionaries::kMaxStackDepth);
}

TEST(LiveBoundsTest, NumbersThatNoDeviceHasMakeNone) {
  LiveFileBuilder file;
  auto& out = file.Stream(1);
  for (uint64_t i = 0; i < 20'000; ++i) {
    auto alloc = AllocAt(i);
    alloc.device = static_cast<int64_t>(i * 7919);
    out.Add(alloc);
  }
  auto trace = Open(file.Bytes());
  ASSERT_TRUE(trace.ok());
  EXPECT_LE((*trace)->devices().size(), 512u);
}

// A number that was used again and again, and ended each time.
TEST(LiveBoundsTest, ExitsFindTheirProcessAtOnce) {
  LiveFileBuilder launcher({.writer = format::WriterKind::kLauncher, .chunk_bytes = 1 << 20});
  for (uint64_t i = 0; i < 1'000'000; ++i)
    launcher.Stream(1).Add(format::ProcessExit{.time = kStart + i, .pid = 100, .status = i % 256});
  std::vector<std::string> bytes = {launcher.Bytes()};
  for (uint64_t i = 0; i < 2000; ++i)
    bytes.push_back(LiveFileBuilder({.start_ns = kStart + i * 100}).Bytes());
  LossCounter losses;
  std::vector<LiveFile> files;
  for (const std::string& file : bytes) {
    const std::span data(reinterpret_cast<const uint8_t*>(file.data()), file.size());
    files.push_back(std::move(*LiveFile::FromBytes(data, "1.vrl", &losses)));
  }
  const double begin = ProcessorSeconds();
  const auto trace =
      LiveTrace::FromFiles("x.vram", std::move(files), {}, std::move(losses), OpenOptions());
  ASSERT_TRUE(trace.ok());
  EXPECT_LT(ProcessorSeconds() - begin, kFarMoreThanItTakes);
  EXPECT_EQ((*trace)->processes()[0].wait_status, 0);
  EXPECT_EQ((*trace)->processes()[1].wait_status, 100);
}

}  // namespace
}  // namespace vramscope::trace
