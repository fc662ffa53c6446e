// SPDX-License-Identifier: Apache-2.0
// The input is a finished file of tables. Most changes are of what it says, with its checksums and
// zstd frames made right again: a fuzzer would not get past them.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>

#include "ask_everything.h"
#include "scratch.h"
#include "tables/reader.h"
#include "tables/testing/file_model.h"
#include "tables/testing/random_tables.h"

namespace {

using namespace vramscope::tables;

}  // namespace

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data,
                                          size_t size,
                                          size_t max_size,
                                          unsigned seed) {
  std::mt19937_64 random(seed);
  constexpr unsigned kPlainChanges = 8;  // one of this many
  auto model = testing::TakeApart({reinterpret_cast<const char*>(data), size});
  if (!model || random() % kPlainChanges == 0)
    return LLVMFuzzerMutate(data, size, max_size);
  testing::Mutate(&*model, &random);
  const std::string bytes = testing::PutTogether(*model);
  if (bytes.size() > max_size)
    return LLVMFuzzerMutate(data, size, max_size);
  std::copy(bytes.begin(), bytes.end(), data);
  return bytes.size();
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data,
                                            size_t size,
                                            const uint8_t* other,
                                            size_t other_size,
                                            uint8_t* out,
                                            size_t max_size,
                                            unsigned seed) {
  std::mt19937_64 random(seed);
  auto model = testing::TakeApart({reinterpret_cast<const char*>(data), size});
  const auto source = testing::TakeApart({reinterpret_cast<const char*>(other), other_size});
  if (!model || !source)
    return 0;
  testing::Cross(&*model, *source, &random);
  const std::string bytes = testing::PutTogether(*model);
  if (bytes.size() > max_size)
    return 0;
  std::copy(bytes.begin(), bytes.end(), out);
  return bytes.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const testing::MemoryFile file(std::string(reinterpret_cast<const char*>(data), size));
  auto recording = OpenDescriptor(file.fd(), "x.vram");
  if (!recording)
    return 0;
  const Tables& tables = (*recording)->tables();
  AllocationFrame frame;
  for (size_t i = 0; i < (*recording)->frame_count(); ++i) {
    if (!(*recording)->Read(i, kAllColumns, &frame))
      continue;
    // What every question relies on.
    for (size_t row = 0; row < frame.rows; ++row) {
      if (frame.site[row] >= tables.sites.size() || frame.segment[row] >= tables.segments.size() ||
          frame.begin_ns[row] > frame.end_ns[row]) {
        std::abort();
      }
    }
  }
  for (size_t i = 1; i < tables.stacks.size(); ++i) {
    if (tables.stacks[i].parent.value >= i || tables.stacks[i].frame.value >= tables.frames.size())
      std::abort();
  }
  vramscope::fuzz::AskEverything(**recording);
  return 0;
}
