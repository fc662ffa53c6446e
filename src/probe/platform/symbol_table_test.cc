// SPDX-License-Identifier: Apache-2.0
#include "probe/platform/symbol_table.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace vramscope::probe {
namespace {

using Answer = int (*)();

int OtherAnswer() {
  return 42;
}

// Whether the page of `address` is writable, by /proc/self/maps.
bool IsWritable(const void* address) {
  std::FILE* const maps = std::fopen("/proc/self/maps", "r");
  char line[512];
  bool writable = false;
  while (maps != nullptr && std::fgets(line, sizeof line, maps) != nullptr) {
    unsigned long begin = 0, end = 0;
    char flags[5] = {};
    if (std::sscanf(line, "%lx-%lx %4s", &begin, &end, flags) != 3)
      continue;
    const auto at = reinterpret_cast<uintptr_t>(address);
    if (begin <= at && at < end)
      writable = flags[1] == 'w';
  }
  if (maps != nullptr)
    std::fclose(maps);
  return writable;
}

class SymbolTableTest : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    library_ = dlopen(GetParam(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library_, nullptr) << dlerror();
    ASSERT_TRUE(SymbolTable::OfAddress(dlsym(library_, "first_answer"), &table_));
  }
  // Unloaded for good, so that the next test finds the file's own table.
  void TearDown() override { dlclose(library_); }

  Answer Look(const char* name) { return reinterpret_cast<Answer>(dlsym(library_, name)); }

  void* library_ = nullptr;
  SymbolTable table_;
};

TEST_P(SymbolTableTest, FindsFunctionsAndNothingElse) {
  for (const char* name : {"first_answer", "second_answer"}) {
    const ElfW(Sym)* symbol = table_.FindFunction(name);
    ASSERT_NE(symbol, nullptr);
    EXPECT_EQ(table_.AddressOf(*symbol), dlsym(library_, name));
  }
  EXPECT_EQ(table_.FindFunction("no_answer"), nullptr);
  EXPECT_EQ(table_.FindFunction(""), nullptr);
  EXPECT_EQ(table_.FindFunction("data_answer"), nullptr);
}

TEST_P(SymbolTableTest, LaterLookUpsFindTheReplacementAndTheOldPointerStays) {
  const Answer before = Look("first_answer");
  ElfW(Sym)* const symbol = table_.FindFunction("first_answer");
  ASSERT_TRUE(table_.Unprotect(symbol, symbol));
  EXPECT_TRUE(IsWritable(symbol));
  table_.Redirect(symbol, reinterpret_cast<void*>(&OtherAnswer));
  table_.Protect(symbol, symbol);
  EXPECT_FALSE(IsWritable(symbol));

  EXPECT_EQ(Look("first_answer"), &OtherAnswer);
  EXPECT_EQ(Look("first_answer")(), 42);
  EXPECT_EQ(before(), 1);
  EXPECT_EQ(Look("second_answer")(), 2);
}

INSTANTIATE_TEST_SUITE_P(HashTables,
                         SymbolTableTest,
                         testing::Values(VRAMSCOPE_GNU_HASH_LIBRARY, VRAMSCOPE_SYSV_HASH_LIBRARY));

TEST(SymbolPatch, AnAddressOfNoLibraryHasNoTable) {
  SymbolTable table;
  int local = 0;
  EXPECT_FALSE(SymbolTable::OfAddress(&local, &table));
}

}  // namespace
}  // namespace vramscope::probe
