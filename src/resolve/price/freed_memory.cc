// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/freed_memory.h"

#include <algorithm>
#include <cstddef>

namespace vramscope::resolve::price {
namespace {

using format::Part;

bool IsNotContext(const Counter& counter) {
  return counter.part != Part::kContext;
}

bool IsAny(const Counter&) {
  return true;
}

bool IsOwnOf(const ImplicitCall& end, const Counter& counter) {
  return counter.context == end.context && IsDriverPart(counter.part) && IsNotContext(counter);
}

// Takes from the newest rows first. Returns the bytes taken.
template <class Matches>
int64_t TakeFromRows(uint32_t process,
                     const When& when,
                     int64_t bytes,
                     Matches matches,
                     Book* book,
                     std::vector<StepRef>* taken) {
  int64_t left = bytes;
  for (auto i = static_cast<uint32_t>(book->rows().size()); i-- > 0 && left > 0;) {
    const Book::Row& row = book->row(i);
    if (row.account != process || !IsDriverPart(row.counter.part) || row.bytes <= 0 ||
        !matches(row.counter))
      continue;
    const int64_t part = std::min(left, row.bytes);
    taken->push_back(book->Change(i, when, -part));
    left -= part;
  }
  return bytes - left;
}

}  // namespace

std::vector<StepRef> TakeFreed(const CallSet& calls, const When& when, int64_t bytes, Book* book) {
  std::vector<StepRef> taken;
  int64_t left = bytes;
  const auto take = [&](auto matches) {
    left -= TakeFromRows(calls.last().process, when, left, matches, book, &taken);
  };
  if (const ImplicitCall* const end = EndOfPrimary(calls))
    take([&](const Counter& counter) { return IsOwnOf(*end, counter); });
  else
    take([&](const Counter& counter) { return calls.Has(counter.part); });
  take(IsNotContext);
  take(IsAny);
  return taken;
}

int64_t TakeFromDriver(uint32_t process, const When& when, int64_t bytes, Book* book) {
  std::vector<StepRef> taken;
  const int64_t besides = TakeFromRows(process, when, bytes, IsNotContext, book, &taken);
  return besides + TakeFromRows(process, when, bytes - besides, IsAny, book, &taken);
}

void AddCandidates(const CallSet& calls,
                   const When& when,
                   Book* book,
                   std::vector<StepRef>* taken) {
  constexpr size_t kMost = 16;
  const uint32_t process = calls.last().process;
  const size_t most = taken->size() + kMost;
  for (auto i = static_cast<uint32_t>(book->rows().size()); i-- > 0 && taken->size() < most;) {
    const Book::Row& row = book->row(i);
    if (row.account == process && row.bytes > 0 && IsDriverPart(row.counter.part) &&
        calls.Has(row.counter.part))
      taken->push_back(book->Change(i, when, 0));
  }
}

const ImplicitCall* EndOfPrimary(const CallSet& calls) {
  const auto end = std::find_if(calls.begin(), calls.end(), [&](uint32_t number) {
    return calls.call(number).kind == ImplicitCall::Kind::kContextDestroy &&
           calls.call(number).is_primary;
  });
  return end == calls.end() ? nullptr : &calls.call(*end);
}

int64_t OwnBytesOf(const ImplicitCall& end, const Book& book) {
  int64_t bytes = 0;
  for (const Book::Row& row : book.rows()) {
    if (row.account == end.process && IsOwnOf(end, row.counter))
      bytes += std::max<int64_t>(row.bytes, 0);
  }
  return bytes;
}

}  // namespace vramscope::resolve::price
