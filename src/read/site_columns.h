// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "read/growing_table.h"
#include "read/stack_texts.h"
#include "tables/recording.h"

namespace vramscope::read {

// A column whose value depends on the attributes of an allocation alone: its values by site.
struct SiteColumn {
  Column* column;
  bool is_text;
  bool is_null_at_zero;
  std::vector<uint64_t> values;

  // Adds a row for each of `sites`, of which `lowest` is the least.
  void AddRows(const std::vector<uint32_t>& sites, uint32_t lowest) const;
};

// The columns of `allocations` and `deltas` that depend on the site, computed once a site.
class SiteColumns {
 public:
  explicit SiteColumns(const tables::Recording& recording);

  // Adds the rows of all columns, from number `*at` of the table on. Sites of the recording.
  void AddToAllocations(const StackTexts& stacks,
                        const std::vector<uint32_t>& sites,
                        GrowingTable* table,
                        size_t* at) const;
  void AddToDeltas(const std::vector<uint32_t>& sites, GrowingTable* table, size_t* at) const;

  // By site.
  const std::vector<int32_t>& ranks() const { return ranks_; }
  // The stack that the column `stack_id` names.
  static tables::StackId StackOf(const tables::SiteRow& site) {
    return site.stack.value != 0 ? site.stack : site.native_stack;
  }

 private:
  struct Account {
    int32_t rank;
    int64_t pid;
    int64_t device;
    tables::StringId host;
  };
  class Adder;

  Account AccountOf(const tables::AccountRow& account) const;
  void AddOfAccounts(Adder* adder) const;

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  std::vector<Account> accounts_;
  std::vector<int32_t> ranks_;
};

}  // namespace vramscope::read
