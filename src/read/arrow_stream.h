// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "read/answers.h"
#include "read/arrow_abi.h"

// Answers as streams of the Arrow C data interface. Numbers and the codes of texts are not copied:
// an array points into the answer, and keeps it.
namespace vramscope::read {

// What a stream gives: an answer whose table at `table` is its next batch, all with columns of the
// same names and types; null behind the last.
struct ArrowSource {
  std::shared_ptr<const Answer> schema;  // any answer with these columns
  size_t table = 0;
  std::function<util::Result<std::shared_ptr<const Answer>>()> next;
};

// Fills `stream`, whose release() forgets the source.
void MakeArrowStream(ArrowSource source, ArrowArrayStream* stream);

}  // namespace vramscope::read
