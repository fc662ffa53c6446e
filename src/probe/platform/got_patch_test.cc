// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "probe/platform/dynamic.h"

namespace vramscope::probe {
namespace {

using Answer = int (*)();

int Replacement() {
  return 42;
}

struct Wanted {
  const char* symbol;
  void* target;       // only slots that hold this; nullptr: any
  void** slot_value;  // what the last one held
};

void* Choose(const Import& import, void* data) {
  const auto* wanted = static_cast<const Wanted*>(data);
  if (std::strstr(import.object, "got_patch_test_") == nullptr ||
      std::strcmp(import.symbol, wanted->symbol) != 0 ||
      (wanted->target != nullptr && wanted->target != import.target)) {
    return nullptr;
  }
  *wanted->slot_value = import.target;
  return reinterpret_cast<void*>(&Replacement);
}

// By /proc/self/maps: pages that were read-only before a patch have to be so after it.
int WritableMappings(const char* path) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  char line[1024];
  int count = 0;
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    char flags[5] = {};
    if (std::strstr(line, path) != nullptr && std::sscanf(line, "%*s %4s", flags) == 1)
      count += flags[1] == 'w';
  }
  if (maps != nullptr)
    std::fclose(maps);
  return count;
}

class GotPatchTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    library_ = dlopen(GetParam(), RTLD_LAZY | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
  }
  // Unloaded for good, so that the next test finds the file's own slots.
  void TearDown() override { dlclose(library_); }

  int Call(const char* name) { return reinterpret_cast<Answer>(dlsym(library_, name))(); }

  void* library_ = nullptr;
};

TEST_P(GotPatchTest, CallsByNameReachTheReplacement) {
  const int writable = WritableMappings(GetParam());
  void* held = nullptr;
  Wanted wanted{"distant_answer", nullptr, &held};
  EXPECT_GE(PatchImports(Choose, &wanted), 2u);
  EXPECT_EQ(Call("call_distant"), 42);
  EXPECT_EQ(Call("call_by_pointer"), 42);
  EXPECT_EQ(Call("call_own"), 2);
  EXPECT_EQ(WritableMappings(GetParam()), writable);
  EXPECT_EQ(PatchImports(Choose, &wanted), 0u) << "nothing is left to change";
}

void* ChooseByTarget(const Import& import, void* data) {
  return import.target == data ? reinterpret_cast<void*>(&Replacement) : nullptr;
}

TEST_P(GotPatchTest, KeptPointersLeadToTheReplacement) {
  // As the CUDA runtime keeps what it found, in data of its own.
  auto* const kept = static_cast<Answer*>(dlsym(library_, "kept"));
  ASSERT_NE(kept, nullptr);
  void* const distant = dlsym(library_, "distant_answer");
  kept[1] = reinterpret_cast<Answer>(distant);
  EXPECT_GE(PatchPointers(ChooseByTarget, distant), 1u);
  EXPECT_EQ(kept[1], &Replacement);
  EXPECT_EQ(kept[0], nullptr);
  EXPECT_EQ(Call("call_distant"), 1) << "slots that are read-only are not data";
}

TEST_P(GotPatchTest, ItsOwnExportsAreCalledByNameToo) {
  void* held = nullptr;
  Wanted wanted{"own_answer", nullptr, &held};
  EXPECT_EQ(PatchImports(Choose, &wanted), 1u);
  EXPECT_EQ(Call("call_own"), 42);
  EXPECT_EQ(Call("call_distant"), 1);
}

TEST_P(GotPatchTest, SlotsAreToldApartByWhatTheyHold) {
  EXPECT_EQ(Call("call_distant"), 1);  // bound now, in both
  void* held = nullptr;
  int elsewhere = 0;
  Wanted other{"distant_answer", &elsewhere, &held};
  EXPECT_EQ(PatchImports(Choose, &other), 0u);
  Wanted wanted{"distant_answer", dlsym(library_, "distant_answer"), &held};
  EXPECT_GE(PatchImports(Choose, &wanted), 2u);
  EXPECT_EQ(held, wanted.target);
  EXPECT_EQ(Call("call_distant"), 42);
}

INSTANTIATE_TEST_SUITE_P(Bindings,
                         GotPatchTest,
                         testing::Values(VRAMSCOPE_NOW_LIBRARY, VRAMSCOPE_LAZY_LIBRARY));

}  // namespace
}  // namespace vramscope::probe
