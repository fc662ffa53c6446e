// SPDX-License-Identifier: Apache-2.0
#include "resolve/immovable.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ledger/trace_builder.h"

namespace vramscope::resolve {
namespace {

using format::MemoryKind;
using format::ShareKind;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using query::kBase;
using query::TraceBuilder;

constexpr uint32_t kPid = 100;

class ImmovableTest : public ::testing::Test {
 protected:
  ImmovableTest() {
    trace_.On(trace_.AddGpu());
    trace_.AddProcess(kPid);
    trace_.ContextCreate(0xc0);
  }
  void Share(ShareKind kind, uint64_t address, uint64_t handle) {
    trace_.Add(trace::Share{.kind = kind, .address = address, .handle = handle, .key = 77});
  }
  void Handle(const char* api, uint64_t handle, uint64_t size, bool imported) {
    trace_.Add(trace::HandleCreate{
        .api = trace_.Text(api), .handle = handle, .size = size, .imported = imported ? 1u : 0u});
  }
  Movability Find() {
    const auto found = FindImmovable(*trace_.Build(), kPid);
    return found.ok() ? *found : Movability{};
  }
  // "kind count MiB"
  std::vector<std::string> Found() {
    std::vector<std::string> texts;
    for (const Immovable& entry : Find().immovable) {
      texts.push_back(std::to_string(static_cast<int>(entry.kind)) + " " +
                      std::to_string(entry.count) + " " + std::to_string(entry.bytes / kMiB));
    }
    return texts;
  }

  TraceBuilder trace_;
};

TEST_F(ImmovableTest, PlainMemoryMoves) {
  trace_.DriverAlloc(kBase, 20 * kMiB);
  trace_.DriverAlloc(kBase + (1 << 30), 8 * kMiB, MemoryKind::kHostPinned);
  Handle("cuMemCreate", 5, 4 * kMiB, false);
  EXPECT_THAT(Found(), IsEmpty());
  EXPECT_THAT(Find().gaps, IsEmpty());
}

TEST_F(ImmovableTest, ManagedMemoryDoesNotUntilItIsFreed) {
  trace_.DriverAlloc(kBase, 20 * kMiB, MemoryKind::kManaged);
  trace_.DriverAlloc(kBase + (1 << 30), 3 * kMiB, MemoryKind::kManaged);
  EXPECT_THAT(Found(), ElementsAre("0 2 23"));
  trace_.DriverFree(kBase, MemoryKind::kManaged);
  EXPECT_THAT(Found(), ElementsAre("0 1 3"));
}

TEST_F(ImmovableTest, MemoryOfAnotherProcess) {
  trace_.DriverAlloc(kBase, 6 * kMiB, MemoryKind::kIpcImport);
  Share(ShareKind::kImport, kBase, 0);
  Handle("cuMemImportFromShareableHandle", 5, 0, true);
  EXPECT_THAT(Found(), ElementsAre("1 2 6"));
}

TEST_F(ImmovableTest, ExportedMemoryCountsAsLongAsItLives) {
  trace_.DriverAlloc(kBase, 64 * 1024);  // in a slab
  trace_.DriverAlloc(kBase + (1 << 30), 8 * kMiB);
  Handle("cuMemCreate", 5, 4 * kMiB, false);
  Share(ShareKind::kExport, kBase, 0);
  Share(ShareKind::kExport, kBase + (1 << 30), 0);
  Share(ShareKind::kExport, kBase + (1 << 30), 0);
  Share(ShareKind::kExport, 0, 5);
  EXPECT_THAT(Found(), ElementsAre("2 3 12"));
  trace_.DriverFree(kBase);
  trace_.Add(trace::HandleRelease{.handle = 5});
  EXPECT_THAT(Found(), ElementsAre("2 1 8"));
  // Another allocation at the same address was not exported.
  trace_.DriverFree(kBase + (1 << 30));
  trace_.DriverAlloc(kBase + (1 << 30), 8 * kMiB);
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(ImmovableTest, MulticastAndExternalMemory) {
  trace_.DriverAlloc(kBase, 6 * kMiB, MemoryKind::kExternal);
  Handle("cuMulticastCreate", 5, 0, false);
  EXPECT_THAT(Found(), ElementsAre("3 1 6", "4 1 0"));
}

TEST_F(ImmovableTest, AnImportedPool) {
  trace_.Add(trace::PoolCreate{.pool = 9, .kind = format::PoolKind::kImported});
  EXPECT_THAT(Found(), ElementsAre("1 1 0"));
  trace_.Add(trace::PoolDestroy{.pool = 9});
  EXPECT_THAT(Found(), IsEmpty());
}

TEST_F(ImmovableTest, TheEndOfWhatCanBeReadIsNotTheEndOfTheProcess) {
  trace_.DriverAlloc(kBase, 20 * kMiB, MemoryKind::kManaged);
  trace_.ProcessEnd();
  EXPECT_THAT(Found(), ElementsAre("0 1 20"));
}

TEST_F(ImmovableTest, AnotherProcessDoesNotCount) {
  trace_.In(trace_.AddProcess(200));
  trace_.DriverAlloc(kBase, 20 * kMiB, MemoryKind::kManaged);
  EXPECT_THAT(Found(), IsEmpty());
  EXPECT_FALSE(FindImmovable(*trace_.Build(), 300).ok());
}

TEST_F(ImmovableTest, GapsOfTheRecordingAreSaid) {
  trace_.Add(trace::State{.state = format::RecordingState::kPaused});
  EXPECT_THAT(Find().gaps, ElementsAre("its recording is paused"));
  trace_.Add(trace::State{.state = format::RecordingState::kRecording});
  EXPECT_THAT(Find().gaps, IsEmpty());
  trace_.AddTraceLoss(format::LossName(static_cast<uint64_t>(format::Loss::kDriverUnseen)), 1);
  EXPECT_THAT(Find().gaps,
              ElementsAre("its recording is not complete (CUDA driver calls not recorded)"));
}

TEST(ImmovableLateTest, WhatStoodBeforeIsNotKnown) {
  for (const bool has_context : {false, true}) {
    TraceBuilder trace;
    trace.On(trace.AddGpu());
    trace.AddProcess(kPid);
    trace.Add(trace::Prior{.kind = format::PriorKind::kProcess});
    if (!has_context)
      trace.ContextCreate(0xc0);
    trace.DriverAlloc(kBase, 20 * kMiB);
    EXPECT_EQ(FindImmovable(*trace.Build(), kPid)->gaps.empty(), !has_context);
  }
}

}  // namespace
}  // namespace vramscope::resolve
