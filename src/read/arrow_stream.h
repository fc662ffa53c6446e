// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <pthread.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "read/answer.h"

// The structs of the Arrow C data interface and of its streams, as their specification gives them:
// https://arrow.apache.org/docs/format/CDataInterface.html. Other declarations in a program must be
// identical.
extern "C" {

// NOLINTBEGIN(readability-identifier-naming)
constexpr int64_t ARROW_FLAG_NULLABLE = 2;

struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};

struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
// NOLINTEND(readability-identifier-naming)

}  // extern "C"

namespace vramscope::read {

// A thread that is cancelled ends by an exception, which must not meet ours.
class Uncancelled {
 public:
  Uncancelled() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~Uncancelled() { pthread_setcancelstate(before_, nullptr); }
  Uncancelled(const Uncancelled&) = delete;
  Uncancelled& operator=(const Uncancelled&) = delete;

 private:
  int before_ = 0;
};

// Answers as streams of the Arrow C data interface. Numbers and the codes of texts are not copied:
// an array points into the answer, and keeps it.

// The source of a stream: an answer whose table at `table` is its next batch, all with columns of
// the same names and types; null after the last.
struct ArrowSource {
  std::shared_ptr<const Answer> schema;  // any answer with these columns
  size_t table = 0;
  std::function<util::Result<std::shared_ptr<const Answer>>()> next;
};

// Fills `stream`, whose release() forgets the source.
void MakeArrowStream(ArrowSource source, ArrowArrayStream* stream);

}  // namespace vramscope::read
