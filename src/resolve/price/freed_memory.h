// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "resolve/price/book.h"
#include "resolve/price/call_set.h"

// Decides which rows of a device had the memory that calls freed. No call reports it, so newer rows
// are taken from first, and a context's row last.
namespace vramscope::resolve::price {

// Takes `bytes` from rows of the calls' process: first of the same parts or of the ended context,
// then of any other driver part.
std::vector<StepRef> TakeFreed(const CallSet& calls, const When& when, int64_t bytes, Book* book);
// Takes up to `bytes` from all driver rows of the process. Returns the bytes taken.
int64_t TakeFromDriver(uint32_t process, const When& when, int64_t bytes, Book* book);
// Others' allocations may hide that calls freed memory. Adds steps of 0 bytes to rows that may have
// freed it; figures correct them.
void AddCandidates(const CallSet& calls, const When& when, Book* book, std::vector<StepRef>* taken);

// The call that ended a primary context, or null.
const ImplicitCall* EndOfPrimary(const CallSet& calls);
// Bytes of the ended context besides its own row: code, stack, heap, streams.
int64_t OwnBytesOf(const ImplicitCall& end, const Book& book);

}  // namespace vramscope::resolve::price
