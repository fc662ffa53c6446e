// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "fake_cuda/truth.h"

// The truth log: text, a line a thing, written by random_driver and read by compare.
//
//   O number name                 an operation of the program begins
//   C name result                 a call while threads run
//   T number ns name result       an instant, after this call; the lines after it are its truth:
//   D device used process_bytes ... the fields of DeviceTruth, and the bytes of live blocks with
//                                   memory below them and without
//   P device handle reserved used allocations
//   H pinned pinned_count registered registered_count managed managed_count capturing
namespace differential {

inline constexpr char kOperationLine = 'O';
inline constexpr char kCallLine = 'C';
inline constexpr char kInstantLine = 'T';
inline constexpr char kDeviceLine = 'D';
inline constexpr char kPoolLine = 'P';
inline constexpr char kHostLine = 'H';

// The recording has a name of a pool at this address and the number of the instant. Such a record
// is in program order and needs no driver call.
inline constexpr uint64_t kInstantBase = 0x5eed000000000000;

struct InstantHeader {
  uint64_t number = 0;
  std::string call;
  int result = 0;
};

// Of the live blocks of a device: what has memory below it, and what has not.
struct BlockBytes {
  uint64_t backed = 0;
  uint64_t unbacked = 0;
};

void WriteInstant(FILE* file,
                  const InstantHeader& header,
                  const fake::Truth& truth,
                  const std::map<int, BlockBytes>& blocks);

}  // namespace differential
