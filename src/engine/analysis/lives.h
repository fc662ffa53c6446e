// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/replay/ledger.h"

namespace vramscope::engine {

// The life of one block or allocation, as lists of them need it.
struct LifeRecord {
  uint64_t life = 0;  // its number, in order of allocation
  uint32_t space = 0;
  OwnerId owner;
  Part part = Part::kAllocated;
  bool is_segment = false;  // blocks were cut out of it, which are lives of their own
  trace::StringId api;
  trace::StackId stack;  // Python, else native
  trace::StackId python;
  uint64_t address = 0;
  uint64_t bytes = 0;
  int64_t alloc_ns = 0;
  int64_t free_ns = kNever;
  Origin origin;
};
LifeRecord RecordOf(const Block& block, uint32_t space, int64_t free_ns);
LifeRecord RecordOf(const Holding& holding, int64_t free_ns);
// Of a life of a ledger that is finished.
Category CategoryOf(const Ledger& ledger, const LifeRecord& record);

// Keeps the lives with the largest product of bytes and duration, segments apart, in one pass and
// bounded memory.
class LargestLives : public LifeObserver {
 public:
  // `end_ns` stands for the end of what is never freed.
  LargestLives(size_t limit, int64_t end_ns) : limit_(limit), end_ns_(end_ns) {}
  void OnBlock(const Block& block, uint32_t space, int64_t free_ns) override;
  void OnHolding(const Holding& holding, int64_t free_ns) override;
  void OnBlockBegin(const Block&, uint32_t) override {}
  void OnHoldingBegin(const Holding&) override {}
  void OnCarved(const Holding&) override {}

  uint64_t seen() const { return seen_; }
  // Largest first. The observer is empty afterwards.
  std::vector<LifeRecord> Take();

 private:
  struct Entry {
    double weight;
    LifeRecord record;
  };
  // Of equal weights the older first, so that equal traces give equal lists.
  static bool Heavier(const Entry& a, const Entry& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.record.life < b.record.life;
  }
  bool Wants(uint64_t bytes, int64_t alloc_ns, int64_t free_ns, double* weight);
  void Keep(double weight, const LifeRecord& record);

  size_t limit_;
  int64_t end_ns_;
  uint64_t seen_ = 0;
  void DropLightest();

  // Twice the limit: when it is full, the lighter half goes at once, which costs less than a heap.
  std::vector<Entry> entries_;
  double lightest_ = -1;  // nothing lighter than this can be among the largest
};

// The highest sum of the lives that are NOT in `kept` (life numbers, ascending), live at once.
class LeftOutPeak : public LifeObserver {
 public:
  explicit LeftOutPeak(std::vector<uint64_t> kept) : kept_(std::move(kept)) {}
  void OnBlock(const Block& block, uint32_t space, int64_t free_ns) override;
  void OnHolding(const Holding& holding, int64_t free_ns) override;
  void OnBlockBegin(const Block& block, uint32_t space) override;
  void OnHoldingBegin(const Holding& holding) override;
  void OnCarved(const Holding& holding) override;
  uint64_t peak_bytes() const { return static_cast<uint64_t>(peak_); }

 private:
  void Move(uint64_t life, int64_t bytes);
  std::vector<uint64_t> kept_;
  int64_t now_ = 0;
  int64_t peak_ = 0;
};

// When each life ended and what was known of it then, by life number: the first of two passes that
// list lives in order.
class LifeEnds : public LifeObserver {
 public:
  void OnBlock(const Block& block, uint32_t space, int64_t free_ns) override;
  void OnHolding(const Holding& holding, int64_t free_ns) override;
  void OnBlockBegin(const Block&, uint32_t) override {}
  void OnHoldingBegin(const Holding&) override {}
  void OnCarved(const Holding&) override {}
  int64_t free_ns(uint64_t life) const {
    return life < ends_.size() && ends_[life].free_ns != 0 ? ends_[life].free_ns : kNever;
  }
  bool is_segment(uint64_t life) const { return life < carved_.size() && carved_[life]; }
  // Sets what is known only at the end of a life.
  void Complete(uint64_t life, Origin* origin) const;

 private:
  struct End {
    int64_t free_ns = 0;  // 0: never
    uint32_t names = 0;
    Category category = Category::kUnknown;
    Category without_phases = Category::kUnknown;
  };
  void Set(uint64_t life, int64_t free_ns, const Origin& origin);
  std::vector<End> ends_;
  std::vector<bool> carved_;
};

// The second pass.
class LifeLister : public LifeObserver {
 public:
  LifeLister(const LifeEnds& ends, std::function<void(const LifeRecord&)> sink)
      : ends_(ends), sink_(std::move(sink)) {}
  void OnBlock(const Block&, uint32_t, int64_t) override {}
  void OnHolding(const Holding&, int64_t) override {}
  void OnBlockBegin(const Block& block, uint32_t space) override;
  void OnHoldingBegin(const Holding& holding) override;
  void OnCarved(const Holding&) override {}

 private:
  const LifeEnds& ends_;
  std::function<void(const LifeRecord&)> sink_;
};

}  // namespace vramscope::engine
