// SPDX-License-Identifier: Apache-2.0
#include "probe/session/slot_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

namespace vramscope::probe {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

struct Number {
  std::atomic<uint64_t> value;
};
template <size_t kCapacity>
using Numbers = SlotTable<Number, kCapacity>;
template <size_t kCapacity>
using Outcome = typename Numbers<kCapacity>::Outcome;

template <size_t kCapacity>
std::unique_ptr<Numbers<kCapacity>> MakeTable() {
  return std::make_unique<Numbers<kCapacity>>();
}

template <class Table>
typename Table::Outcome Put(Table& table, uint64_t key, uint64_t value = 0) {
  return table.Insert(key, [=](Number& number) { number.value = value; }).outcome;
}

template <class Table>
bool TakeOut(Table& table, uint64_t key) {
  auto* const slot = table.Find(key);
  return slot != nullptr && table.Remove(slot, key);
}

template <class Table>
std::vector<uint64_t> Keys(Table& table) {
  std::vector<uint64_t> keys;
  table.Visit([&](auto& slot, uint64_t key) {
    EXPECT_EQ(slot.key(), key);
    keys.push_back(key);
    return true;
  });
  return keys;
}

TEST(SlotTable, FindsWhatWasInserted) {
  auto table = MakeTable<8>();
  EXPECT_EQ(table->Find(100), nullptr);
  EXPECT_EQ(Put(*table, 100, 1), Outcome<8>::kInserted);
  EXPECT_EQ(Put(*table, 200, 2), Outcome<8>::kInserted);
  EXPECT_EQ(Put(*table, 100, 3), Outcome<8>::kKnown);
  ASSERT_NE(table->Find(100), nullptr);
  EXPECT_EQ(table->Find(100)->value.value, 1);
  EXPECT_TRUE(table->IsFirstSlot(table->Find(100)));
  EXPECT_FALSE(table->IsFirstSlot(table->Find(200)));
  EXPECT_THAT(Keys(*table), ElementsAre(100, 200));
}

TEST(SlotTable, WhatIsRemovedMakesRoomAndHidesNothing) {
  auto table = MakeTable<3>();
  for (uint64_t key = 100; key <= 300; key += 100)
    EXPECT_EQ(Put(*table, key), Outcome<3>::kInserted);
  EXPECT_EQ(Put(*table, 400), Outcome<3>::kFull);
  auto* const slot = table->Find(100);
  EXPECT_TRUE(table->Remove(slot, 100));
  EXPECT_FALSE(table->Remove(slot, 100));
  EXPECT_EQ(slot->key(), 0);
  EXPECT_EQ(table->Find(100), nullptr);
  EXPECT_THAT(Keys(*table), ElementsAre(200, 300));
  EXPECT_EQ(Put(*table, 400), Outcome<3>::kInserted);
  EXPECT_THAT(Keys(*table), ElementsAre(400, 200, 300));
  EXPECT_FALSE(table->Restore(slot, 100));
  EXPECT_TRUE(TakeOut(*table, 400));
  EXPECT_TRUE(table->Restore(slot, 400));
  EXPECT_NE(table->Find(400), nullptr);
}

TEST(SlotTable, AVisitCanEndEarlyAndRemove) {
  auto table = MakeTable<8>();
  for (uint64_t key = 2; key < 8; ++key)
    Put(*table, key);
  int visits = 0;
  table->Visit([&](auto& slot, uint64_t key) {
    table->Remove(&slot, key);
    return ++visits < 4;
  });
  EXPECT_EQ(visits, 4);
  EXPECT_THAT(Keys(*table), ElementsAre(6, 7));
  table->Clear(OtherThreads::kRun);
  EXPECT_THAT(Keys(*table), IsEmpty());
  EXPECT_EQ(Put(*table, 6), Outcome<8>::kInserted);
}

// A signal handler that inserts the same key while the slot is being filled.
TEST(SlotTable, AnInsertionWithinAnInsertion) {
  auto table = MakeTable<8>();
  Put(*table, 100);
  Put(*table, 200);
  auto outer = table->Insert(300, [&](Number&) {
    table->Clear(OtherThreads::kRun);  // what is being inserted stays
    Put(*table, 100);
    Put(*table, 200);
    EXPECT_EQ(table->Find(300), nullptr);
    EXPECT_EQ(Put(*table, 300), Outcome<8>::kKnown);  // in a later slot: it gives way
    EXPECT_EQ(Put(*table, 400), Outcome<8>::kInserted);
  });
  EXPECT_EQ(outer.outcome, Outcome<8>::kInserted);
  outer = table->Insert(500, [&](Number&) {
    TakeOut(*table, 100);
    EXPECT_EQ(Put(*table, 500, 1), Outcome<8>::kInserted);  // in an earlier one: it goes first
  });
  EXPECT_EQ(outer.outcome, Outcome<8>::kKnown);
  ASSERT_NE(table->Find(500), nullptr);
  EXPECT_EQ(table->Find(500)->value.value, 1);
  EXPECT_THAT(Keys(*table), ElementsAre(500, 200, 300, 400));
}

TEST(SlotTable, AForkedChildForgetsAlsoWhatWasBeingInserted) {
  auto table = MakeTable<4>();
  Put(*table, 100);
  pid_t child = 0;
  table->Insert(200, [&](Number&) { child = fork(); });
  if (child == 0) {
    table->Clear(OtherThreads::kGone);
    const bool good = Keys(*table).empty() && Put(*table, 100) == Outcome<4>::kInserted &&
                      Put(*table, 200) == Outcome<4>::kInserted && table->Find(200) != nullptr;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Keys(*table), ElementsAre(100, 200));
}

// Slots in front become free meanwhile, so that threads with one key claim different ones.
TEST(SlotTable, WhatThreadsInsertTheyRemoveOnce) {
  constexpr int kThreads = 4;
  constexpr uint64_t kRounds = 20'000;
  auto table = MakeTable<64>();
  for (uint64_t key = 2; key < 10; ++key)
    Put(*table, key);
  std::atomic<uint64_t> inserted{0}, removed{0}, wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (uint64_t key = 1000; key < 1000 + kRounds; ++key) {
        inserted += Put(*table, key, key * 3) == Outcome<64>::kInserted ? 1 : 0;
        auto* const slot = table->Find(key);
        if (slot != nullptr && slot->value.value != key * 3)
          wrong += slot->key() == key ? 1 : 0;
        TakeOut(*table, 2 + key % 8);
        Put(*table, 2 + key % 8);
        removed += TakeOut(*table, key - 8) ? 1 : 0;
      }
      for (uint64_t key = 1000 + kRounds - 8; key < 1000 + kRounds; ++key)
        removed += TakeOut(*table, key) ? 1 : 0;
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(inserted, removed);
  EXPECT_GE(inserted, kRounds);
}

// A key that is never removed has one insertion and one slot.
TEST(SlotTable, ManyThreadsInsertAKeyOnce) {
  constexpr int kThreads = 4;
  constexpr size_t kRounds = 1500;
  struct Round {
    Numbers<16> table;
    std::atomic<int> arrived, inserted;
  };
  std::vector<Round> rounds(kRounds);
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&rounds, t] {
      for (Round& round : rounds) {
        Put(round.table, 2 + t);
        ++round.arrived;
        while (round.arrived < kThreads)
          std::this_thread::yield();
        TakeOut(round.table, 2 + t);
        round.inserted += Put(round.table, 1000) == Outcome<16>::kInserted ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  for (Round& round : rounds) {
    ASSERT_EQ(round.inserted, 1);
    ASSERT_THAT(Keys(round.table), ElementsAre(1000));
  }
}

}  // namespace
}  // namespace vramscope::probe
