// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace vramscope::util {

// Records under stable 32-bit indices, freed ones reused. The record type says whether it is in
// use (`bool live() const`), so that the live ones can be walked without a list of their own.
template <class T>
class Slab {
 public:
  // The index of a record that the caller fills. References do not survive the next Add.
  uint32_t Add() {
    if (!free_.empty()) {
      const uint32_t index = free_.back();
      free_.pop_back();
      return index;
    }
    records_.emplace_back();
    return static_cast<uint32_t>(records_.size() - 1);
  }
  void Remove(uint32_t index) {
    // In its place: a copy of one made elsewhere waits for that to be stored.
    std::destroy_at(&records_[index]);
    std::construct_at(&records_[index]);
    free_.push_back(index);
  }
  T& operator[](uint32_t index) { return records_[index]; }
  const T& operator[](uint32_t index) const { return records_[index]; }

  size_t live_count() const { return records_.size() - free_.size(); }

  // Calls visit(index, record) for each record in use. The visitor may remove the record it sees.
  template <class Visitor>
  void ForEach(Visitor visit) {
    for (uint32_t i = 0; i < records_.size(); ++i) {
      if (records_[i].live())
        visit(i, records_[i]);
    }
  }
  template <class Visitor>
  void ForEach(Visitor visit) const {
    for (uint32_t i = 0; i < records_.size(); ++i) {
      if (records_[i].live())
        visit(i, records_[i]);
    }
  }

 private:
  std::vector<T> records_;
  std::vector<uint32_t> free_;
};

}  // namespace vramscope::util
