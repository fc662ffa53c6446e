// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "probe/hooks/nvtx/nvtx.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"

// Plays an NVTX instance: tables of its own, whose functions it calls as a program's ranges do.
namespace vramscope::probe::nvtx {
namespace {

constexpr size_t kTableSize = 16;
std::array<FunctionPointer, kTableSize> g_functions[2];
std::array<FunctionPointer*, kTableSize> g_tables[2];
unsigned int g_sizes[2];

int GetTable(Module module, FunctionPointer*** table, unsigned int* size) {
  const size_t index = module == Module::kCore ? 0 : 1;
  if (g_sizes[index] == 0)
    return 0;
  *table = g_tables[index].data();
  *size = g_sizes[index];
  return 1;
}
const CallbacksTable g_callbacks = {sizeof(CallbacksTable), GetTable};
const void* GetExport(uint32_t id) {
  return id == kCallbacksTable ? &g_callbacks : nullptr;
}

template <class Function>
Function* Core(CoreId id) {
  return reinterpret_cast<Function*>(g_functions[0][static_cast<size_t>(id)]);
}
template <class Function>
Function* Core2(Core2Id id) {
  return reinterpret_cast<Function*>(g_functions[1][static_cast<size_t>(id)]);
}

class NvtxHooksTest : public testing::Test {
 protected:
  void SetUp() override {
    ScopesLoad();
    for (size_t module = 0; module < 2; ++module) {
      g_functions[module].fill(nullptr);
      for (size_t i = 0; i < kTableSize; ++i)
        g_tables[module][i] = i != 0 ? &g_functions[module][i] : nullptr;
      g_sizes[module] = kTableSize;
    }
  }
  void TearDown() override { EXPECT_EQ(t_thread.scope, 0u) << "scopes are left open"; }

  static std::string Path() {
    std::string path;
    for (uint32_t i = 0; i < t_thread.scopes->size(); ++i) {
      path += i != 0 ? "/" : "";
      path.append(t_thread.scopes->text(i), t_thread.scopes->level(i).size_bytes);
    }
    return path;
  }
  static EventAttributes Message(MessageType type, const void* message) {
    EventAttributes attributes{};
    attributes.version = 3;
    attributes.size = sizeof attributes;
    attributes.message_type = type;
    attributes.message = message;
    return attributes;
  }
};

TEST_F(NvtxHooksTest, RangesAreScopes) {
  ASSERT_TRUE(FillTables(GetExport));
  auto* const push = Core<int(const char*)>(CoreId::kRangePushA);
  auto* const push_wide = Core<int(const wchar_t*)>(CoreId::kRangePushW);
  auto* const push_ex = Core<int(const EventAttributes*)>(CoreId::kRangePushEx);
  auto* const pop = Core<int()>(CoreId::kRangePop);
  EXPECT_EQ(push("step"), kNoPushPopTracking);
  push_wide(L"\u00e4\u20ac\U0001f600");
  EventAttributes attributes = Message(MessageType::kAscii, "forward");
  push_ex(&attributes);
  EXPECT_EQ(Path(), "step/\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80/forward");
  EXPECT_EQ(pop(), kNoPushPopTracking);
  pop();
  EXPECT_EQ(Path(), "step");
  pop();
  pop();
}

TEST_F(NvtxHooksTest, EveryPushIsAScopeWhateverItsMessage) {
  ASSERT_TRUE(FillTables(GetExport));
  auto* const push_ex = Core<int(const EventAttributes*)>(CoreId::kRangePushEx);
  auto* const pop = Core<int()>(CoreId::kRangePop);
  EventAttributes old = Message(MessageType::kAscii, "not read");
  old.size = 16;
  const EventAttributes foreign = Message(MessageType::kRegistered, "no handle");
  const EventAttributes unknown = Message(MessageType{77}, "not read");
  const EventAttributes null = Message(MessageType::kUnicode, nullptr);
  for (const EventAttributes* attributes : {&std::as_const(old), &foreign, &unknown, &null})
    push_ex(attributes);
  push_ex(nullptr);
  Core<int(const char*)>(CoreId::kRangePushA)(nullptr);
  EXPECT_EQ(Path(), "(no name)/(no name)/(no name)/(no name)/(no name)/(no name)");
  for (int i = 0; i < 6; ++i)
    pop();
}

TEST_F(NvtxHooksTest, LongNamesAreCutBetweenCharacters) {
  ASSERT_TRUE(FillTables(GetExport));
  const std::wstring wide(5000, L'\u20ac');
  Core<int(const wchar_t*)>(CoreId::kRangePushW)(wide.c_str());
  EXPECT_EQ(Path().size() % 3, 0u);
  EXPECT_GT(Path().size(), kMaxScopeNameBytes - 8);
  Core<int()>(CoreId::kRangePop)();
}

TEST_F(NvtxHooksTest, DomainsAndRegisteredStrings) {
  ASSERT_TRUE(FillTables(GetExport));
  auto* const create = Core2<const void*(const char*)>(Core2Id::kDomainCreateA);
  auto* const add = Core2<const void*(const void*, const char*)>(Core2Id::kDomainRegisterStringA);
  auto* const push = Core2<int(const void*, const EventAttributes*)>(Core2Id::kDomainRangePushEx);
  auto* const pop = Core2<int(const void*)>(Core2Id::kDomainRangePop);
  const void* const mine = create("mine");
  const void* const other = create("other");
  EXPECT_NE(mine, other);
  EXPECT_EQ(create("mine"), mine);
  const EventAttributes name = Message(MessageType::kRegistered, add(mine, "allreduce"));
  const EventAttributes plain = Message(MessageType::kAscii, "step");
  push(mine, &name);
  push(other, &plain);
  EXPECT_EQ(Path(), "allreduce/step");
  pop(mine);
  EXPECT_EQ(Path(), "step");
  push(nullptr, &plain);
  Core<int()>(CoreId::kRangePop)();  // the null domain is the default one
  EXPECT_EQ(Path(), "step");
  pop(other);
}

TEST_F(NvtxHooksTest, ALibrarysDomainIsNoScope) {
  ASSERT_TRUE(FillTables(GetExport));
  auto* const create = Core2<const void*(const char*)>(Core2Id::kDomainCreateA);
  auto* const push = Core2<int(const void*, const EventAttributes*)>(Core2Id::kDomainRangePushEx);
  auto* const pop = Core2<int(const void*)>(Core2Id::kDomainRangePop);
  const EventAttributes name = Message(MessageType::kAscii, "ncclAllReduce");
  const void* const nccl = create("NCCL");
  const void* const mine = create("mine");
  ASSERT_NE(nccl, nullptr);
  push(mine, &name);
  EXPECT_EQ(push(nccl, &name), kNoPushPopTracking);
  EXPECT_EQ(Path(), "ncclAllReduce");
  EXPECT_EQ(pop(nccl), kNoPushPopTracking);
  EXPECT_EQ(Path(), "ncclAllReduce");
  pop(mine);
}

TEST_F(NvtxHooksTest, RangesOfThePayloadExtension) {
  ASSERT_TRUE(FillTables(GetExport));
  intptr_t slots[8] = {};
  ExtensionSegment segment = {.id = 0, .slot_count = 8, .slots = slots};
  ExtensionModule module = {.nvtx_version = 3,
                            .struct_size = sizeof(ExtensionModule),
                            .module_id = kPayloadExtension,
                            .compatibility_id = 0x0103,
                            .segment_count = 1,
                            .segments = &segment,
                            .get_export_function = nullptr,
                            .type_info = nullptr};
  ASSERT_TRUE(FillExtension(&module));
  auto* const push_ex =
      Core2<int(const void*, const EventAttributes*)>(Core2Id::kDomainRangePushEx);
  auto* const push = reinterpret_cast<int (*)(const void*, const void*, size_t)>(slots[3]);
  auto* const pop = reinterpret_cast<int (*)(const void*, const void*, size_t)>(slots[4]);
  const EventAttributes name = Message(MessageType::kAscii, "step");
  push_ex(nullptr, &name);
  push(nullptr, nullptr, 0);
  EXPECT_EQ(Path(), "step/(no name)");
  EXPECT_EQ(pop(nullptr, nullptr, 0), kNoPushPopTracking);
  EXPECT_EQ(Path(), "step");
  pop(nullptr, nullptr, 0);
  for (const size_t other : {1u, 5u, 6u, 7u})
    EXPECT_EQ(slots[other], 0) << other;

  // An instance with fewer functions, another extension, and none.
  slots[4] = 0;
  segment.slot_count = 4;
  EXPECT_TRUE(FillExtension(&module));
  EXPECT_EQ(slots[4], 0);
  module.module_id = 1;
  EXPECT_FALSE(FillExtension(&module));
  EXPECT_FALSE(FillExtension(nullptr));
}

TEST_F(NvtxHooksTest, TakesWhatAnOlderNvtxHas) {
  g_sizes[0] = 12;  // no names of threads
  g_sizes[1] = 0;   // no domains
  EXPECT_TRUE(FillTables(GetExport));
  EXPECT_NE(g_functions[0][11], nullptr);
  EXPECT_EQ(g_functions[0][14], nullptr);
  EXPECT_EQ(g_functions[1][4], nullptr);
  g_sizes[0] = 0;
  EXPECT_FALSE(FillTables(GetExport));
  EXPECT_FALSE(FillTables(nullptr));
  EXPECT_FALSE(FillTables([](uint32_t) -> const void* { return nullptr; }));
}

TEST_F(NvtxHooksTest, RangesOfTheProcessStayAsTheyAre) {
  ASSERT_TRUE(FillTables(GetExport));
  for (const size_t start_or_end : {4u, 5u, 6u, 7u})
    EXPECT_EQ(g_functions[0][start_or_end], nullptr);
}

}  // namespace
}  // namespace vramscope::probe::nvtx
