// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "probe/hooks/nvtx/nvtx.h"

// Which counters the probe takes. Their values are compared in
// tests/e2e/probe/test_nvtx_counters.py.
namespace vramscope::probe::nvtx {
namespace {

CounterSemantics InUnit(const char* unit) {
  return {.header = {.size = sizeof(CounterSemantics),
                     .id = kCounterSemanticsId,
                     .version = kCounterSemanticsVersion,
                     .next = nullptr},
          .flags = 0,
          .unit = unit,
          .scale_numerator = 1,
          .scale_denominator = 1};
}

CounterAttributes Named(const char* name, const CounterSemantics* semantics) {
  return {.size = sizeof(CounterAttributes),
          .schema_id = 0,
          .name = name,
          .description = nullptr,
          .scope_id = 0,
          .semantics = semantics != nullptr ? &semantics->header : nullptr,
          .id = kNoId};
}

uint64_t Add(const char* name, const char* unit) {
  const CounterSemantics semantics = InUnit(unit);
  const CounterAttributes counter = Named(name, &semantics);
  return RegisterCounter(nullptr, &counter);
}

TEST(NvtxCounters, OfBytesAlone) {
  for (const char* unit : {"bytes", "B", "Byte", "kib", "MiB", "GB"})
    EXPECT_GE(Add("live", unit), kFirstDynamicId) << unit;
  for (const char* unit : {"bytes/s", "bits", "%", "byt", "bytess"})
    EXPECT_EQ(Add("live bytes", unit), kNoId) << unit;
  // Without a unit the name decides.
  for (const char* name : {"bytes_in_use", "Bytes", "live bytes"})
    EXPECT_GE(Add(name, ""), kFirstDynamicId) << name;
  for (const char* name : {"live", "bytes/s", "bytes per step"})
    EXPECT_EQ(Add(name, nullptr), kNoId) << name;
  EXPECT_NE(Add("live", "bytes"), Add("live", "bytes"));
}

TEST(NvtxCounters, OfOtherKindsOrLayoutsHaveNoId) {
  CounterSemantics semantics = InUnit("bytes");
  CounterAttributes counter = Named("live", &semantics);
  EXPECT_EQ(RegisterCounter(nullptr, nullptr), kNoId);
  semantics.flags = kDeltaSinceStart;
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
  semantics.flags = kNormalize;
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
  semantics.flags = kDelta;
  EXPECT_NE(RegisterCounter(nullptr, &counter), kNoId);
  semantics.scale_numerator = ~uint64_t{0};
  semantics.unit = "KiB";
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
  semantics = InUnit("bytes");
  semantics.header.size -= 1;
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
  semantics = InUnit("bytes");
  semantics.header.version += 1;
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
  semantics = InUnit("bytes");
  semantics.header.next = &semantics.header;  // a ring
  semantics.header.id += 1;
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
  counter = Named("live bytes", nullptr);
  counter.size -= 1;
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
  counter = Named("", nullptr);
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kNoId);
}

TEST(NvtxCounters, StaticIdsAreTheProgramsOwn) {
  constexpr uint64_t kStatic = (1 << 24) + 1;
  CounterAttributes counter = Named("live bytes", nullptr);
  counter.id = kStatic;
  EXPECT_EQ(RegisterCounter(nullptr, &counter), kStatic);
  const ScopeAttributes scope = {sizeof scope, nullptr, 1, kStatic};
  EXPECT_EQ(RegisterScope(nullptr, &scope), kStatic);
  const ScopeAttributes dynamic = {sizeof dynamic, "/a", kStatic, kNoId};
  EXPECT_GE(RegisterScope(nullptr, &dynamic), kFirstDynamicId);
  const ScopeAttributes small = {sizeof small - 1, "/a", kStatic, kNoId};
  EXPECT_EQ(RegisterScope(nullptr, &small), kNoId);
}

TEST(NvtxCounters, TakesTheCountersExtension) {
  intptr_t slots[6] = {};
  ExtensionSegment segment = {.id = 0, .slot_count = 6, .slots = slots};
  const ExtensionModule module = {.nvtx_version = 3,
                                  .struct_size = sizeof(ExtensionModule),
                                  .module_id = kCountersExtension,
                                  .compatibility_id = 0x0102,
                                  .segment_count = 1,
                                  .segments = &segment,
                                  .get_export_function = nullptr,
                                  .type_info = nullptr};
  ASSERT_TRUE(FillExtension(&module));
  for (const size_t taken : {0u, 1u, 2u, 4u})
    EXPECT_NE(slots[taken], 0) << taken;
  for (const size_t other : {3u, 5u})
    EXPECT_EQ(slots[other], 0) << other;
}

}  // namespace
}  // namespace vramscope::probe::nvtx
