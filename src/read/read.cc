// SPDX-License-Identifier: Apache-2.0
// include/vramscope/read.h: arguments in, tables out, and nothing thrown.
#include "vramscope/read.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "query/report.h"
#include "read/answers.h"
#include "read/open.h"

using vramscope::read::AllocationCursor;
using vramscope::read::Answer;
using vramscope::read::AnswerResult;

struct vramscope_recording {
  std::string path;
  std::unique_ptr<vramscope::tables::Recording> tables;
};

struct vramscope_cursor {
  AllocationCursor rows;
};

namespace vramscope::read {
namespace {

// Longer than any path: an error names one.
thread_local char t_error[8192];

void SetError(std::string_view text) {
  const size_t size = std::min(text.size(), sizeof t_error - 1);
  std::memcpy(t_error, text.data(), size);
  t_error[size] = 0;
  // One line, whatever a recording's names hold.
  std::replace_if(
      t_error, t_error + size, [](char c) { return c == '\n' || c == '\r'; }, ' ');
}

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

// What `work` returns; null where it throws.
template <class Work>
auto Guarded(const Work& work) noexcept -> decltype(work()) {
  const Uncancelled uncancelled;
  t_error[0] = 0;
  try {
    return work();
  } catch (const std::bad_alloc&) {
    SetError("there is not enough memory to answer");
  } catch (const std::exception& error) {
    SetError(error.what());
  } catch (...) {
    SetError("internal error: an exception of a strange kind");
  }
  return nullptr;
}

const vramscope_answer* Give(AnswerResult answer) {
  if (!answer) {
    SetError(answer.status().message());
    return nullptr;
  }
  return *answer == nullptr ? nullptr : Answer::Release(std::move(*answer));
}

std::nullptr_t Refuse(std::string_view why) {
  SetError(why);
  return nullptr;
}

// A struct of a caller who may know fewer fields, or more.
template <class Struct>
Struct Known(const Struct* given) {
  Struct known{};
  if (given != nullptr)
    std::memcpy(&known, given, std::min(given->size, sizeof known));
  return known;
}

util::Result<std::vector<query::Dimension>> Dimensions(const char* const* names, size_t count) {
  std::vector<query::Dimension> dimensions;
  for (size_t i = 0; i < count; ++i)
    VRAMSCOPE_RETURN_IF_ERROR(query::AddDimension(names[i], &dimensions));
  return dimensions;
}

util::Result<query::ReportQuery> QueryOf(const vramscope_query& given) {
  query::ReportQuery query;
  const auto at = query::ParseInstant(given.at == nullptr ? "peak" : given.at);
  if (!at)
    return at.status();
  query.at = *at;
  auto by = Dimensions(given.by, given.by_count);
  if (!by)
    return by.status();
  query.by = std::move(*by);
  for (size_t i = 0; i < given.where_count; ++i) {
    auto where = query::ParseWhere(given.where[i]);
    if (!where)
      return where.status();
    query.where.push_back(std::move(*where));
  }
  query.own.assign(given.own, given.own + given.own_count);
  query.top = given.top;
  return query;
}

}  // namespace
}  // namespace vramscope::read

using namespace vramscope::read;
namespace query = vramscope::query;

uint32_t vramscope_read_version(void) {
  return VRAMSCOPE_READ_VERSION;
}

const char* vramscope_read_error(void) {
  return t_error;
}

void vramscope_read_free(const vramscope_answer* answer) {
  delete static_cast<const Answer*>(answer);
}

vramscope_recording* vramscope_read_open(const char* path, const vramscope_open_options* options) {
  return Guarded([&]() -> vramscope_recording* {
    if (path == nullptr)
      return Refuse("no path was given");
    const vramscope_open_options given = Known(options);
    OpenOptions how;
    how.limit = std::chrono::milliseconds(given.limit_ms);
    how.native_names = given.no_native_names == 0;
    if (given.program != nullptr)
      how.program = given.program;
    auto tables = Open(path, how);
    if (!tables)
      return Refuse(tables.status().message());
    return new vramscope_recording{path, std::move(*tables)};
  });
}

void vramscope_read_close(vramscope_recording* recording) {
  delete recording;
}

const vramscope_answer* vramscope_read_table(const vramscope_recording* recording,
                                             const char* name) {
  return Guarded([&] { return Give(TableAnswer(*recording->tables, name)); });
}

const vramscope_answer* vramscope_read_report(const vramscope_recording* recording,
                                              const vramscope_query* given) {
  return Guarded([&]() -> const vramscope_answer* {
    const auto query = QueryOf(Known(given));
    if (!query)
      return Refuse(query.status().message());
    return Give(ReportAnswer(*recording->tables, *query));
  });
}

const vramscope_answer* vramscope_read_iterations(const vramscope_recording* recording) {
  return Guarded([&]() -> const vramscope_answer* {
    AnswerResult answer = IterationsAnswer(*recording->tables);
    if (!answer)
      return Refuse(recording->path + ": " + answer.status().message());
    return Give(std::move(answer));
  });
}

const vramscope_answer* vramscope_read_timeline(const vramscope_recording* recording,
                                                size_t buckets) {
  return Guarded([&] { return Give(TimelineAnswer(*recording->tables, buckets)); });
}

vramscope_cursor* vramscope_read_allocations(const vramscope_recording* recording,
                                             const vramscope_window* window) {
  return Guarded([&]() -> vramscope_cursor* {
    vramscope_window given = Known(window);
    if (window == nullptr) {
      given.from_ns = INT64_MIN;
      given.to_ns = INT64_MAX;
    }
    auto by = Dimensions(given.by, given.by_count);
    if (!by)
      return Refuse(by.status().message());
    return new vramscope_cursor{
        AllocationCursor(*recording->tables, given.from_ns, given.to_ns, std::move(*by),
                         std::vector<std::string>(given.own, given.own + given.own_count))};
  });
}

const vramscope_answer* vramscope_read_next(vramscope_cursor* cursor) {
  return Guarded([&] { return Give(cursor->rows.Next()); });
}

void vramscope_read_end(vramscope_cursor* cursor) {
  delete cursor;
}
