// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <random>
#include <unordered_map>

#include "probe/session/tables.h"

namespace vramscope::probe {
namespace {

struct Entry {
  uint64_t key;
  uint64_t value;
};

template <uint32_t kCapacity>
struct Table {
  using Type = OrderedTable<Entry, &Entry::key, kCapacity>;
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<Type, Free> owned{static_cast<Type*>(std::calloc(1, sizeof(Type)))};
  Type* operator->() { return owned.get(); }
  Type& operator*() { return *owned; }
};

TEST(OrderedTable, FindsWhatWasAddedInAnyOrder) {
  Table<1024> table;
  std::mt19937_64 random(1);
  std::unordered_map<uint64_t, uint64_t> expected;
  EXPECT_EQ(table->Find(77), nullptr);
  while (expected.size() < 1000) {
    // Few values, so that many meet in one place and are asked for again.
    const uint64_t key = random() % 3000 + 1;
    Entry* found = table->Find(key);
    ASSERT_EQ(found != nullptr, expected.contains(key)) << key;
    if (found == nullptr) {
      found = table->Add(key);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->value, 0u);
      expected[key] = found->value = random();
    }
    EXPECT_EQ(found->key, key);
    EXPECT_EQ(found->value, expected[key]);
  }
}

TEST(OrderedTable, KeepsTheOrder) {
  Table<64> table;
  for (const uint64_t key : {50u, 20u, 90u, 10u})
    table->Add(key)->value = key;
  for (int round = 0; round < 3; ++round) {
    for (const uint64_t key : {50u, 20u, 20u, 20u, 90u, 10u, 20u, 90u})
      EXPECT_EQ(table->Find(key)->value, key);
  }
  std::vector<uint64_t> keys;
  for (const Entry& entry : *table)
    keys.push_back(entry.key);
  EXPECT_EQ(keys, (std::vector<uint64_t>{50, 20, 90, 10}));
}

TEST(OrderedTable, IsFullAndBeginsAnew) {
  Table<16> table;
  for (uint64_t key = 1; key <= 16; ++key)
    ASSERT_NE(table->Add(key), nullptr);
  EXPECT_EQ(table->Add(17), nullptr);
  // Behind the last entry is none.
  EXPECT_NE(table->Find(16), nullptr);
  EXPECT_EQ(table->Find(17), nullptr);
  table->Clear();
  EXPECT_EQ(table->begin(), table->end());
  for (uint64_t key = 1; key <= 16; ++key)
    EXPECT_EQ(table->Find(key), nullptr);
  EXPECT_NE(table->Add(17), nullptr);
  EXPECT_NE(table->Find(17), nullptr);
}

}  // namespace
}  // namespace vramscope::probe
