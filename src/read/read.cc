// SPDX-License-Identifier: Apache-2.0
// include/vramscope/read.h: arguments in, tables out, and nothing thrown.
#include "vramscope/read.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "query/dimensions/report.h"
#include "read/answer.h"
#include "read/arrow_stream.h"
#include "read/dataset_rows.h"
#include "read/open.h"
#include "util/text.h"

using vramscope::read::AllocationCursor;
using vramscope::read::Answer;
using vramscope::read::AnswerResult;

struct vramscope_recording {
  std::string path;
  std::shared_ptr<const vramscope::tables::Recording> tables;
};

struct vramscope_cursor {
  AllocationCursor rows;
};

struct vramscope_dataset {
  vramscope::read::DatasetRows rows;
};

namespace vramscope::read {
namespace {

// Longer than any path: an error names one.
thread_local char t_error[8192];

// Takes no memory: there may be none.
void SetError(std::string_view text) {
  const size_t size = std::min(text.size(), sizeof t_error - 1);
  std::memcpy(t_error, text.data(), size);
  t_error[size] = 0;
  const auto is_control = [](char c) { return static_cast<uint8_t>(c) < 0x20 || c == 0x7f; };
  std::replace_if(t_error, t_error + size, is_control, ' ');
}

// The result of `work`; `failed` if it throws.
template <class Work>
auto Guarded(const Work& work, decltype(std::declval<Work>()()) failed = {}) noexcept
    -> decltype(work()) {
  const Uncancelled uncancelled;
  t_error[0] = 0;
  try {
    return work();
  } catch (const std::bad_alloc&) {
    SetError("not enough memory for the answer");
  } catch (const std::exception& error) {
    SetError(error.what());
  } catch (...) {
    SetError("internal error: an exception of a strange kind");
  }
  return failed;
}

// One line without control characters, whatever a recording's names contain.
std::nullptr_t Refuse(std::string_view why) {
  SetError(util::OneLine(why.substr(0, sizeof t_error)));
  return nullptr;
}

const vramscope_answer* Give(AnswerResult answer) {
  if (!answer)
    return Refuse(answer.status().message());
  return *answer == nullptr ? nullptr : Answer::Release(std::move(*answer));
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

std::shared_ptr<const Answer> Shared(std::unique_ptr<Answer> answer) {
  return {static_cast<const Answer*>(Answer::Release(std::move(answer))), Answer::Unref};
}

// The table at `at` of an answer, as one batch.
ArrowSource WholeTable(std::shared_ptr<const Answer> answer, size_t at) {
  ArrowSource source;
  source.schema = answer;
  source.table = at;
  source.next = [rest = std::move(answer)]() mutable {
    return util::Result<std::shared_ptr<const Answer>>(std::exchange(rest, nullptr));
  };
  return source;
}

// Frame by frame, as they are read.
ArrowSource AllAllocations(std::shared_ptr<const tables::Recording> recording) {
  ArrowSource source;
  source.schema = Shared(AllocationsAnswer(tables::AllocationFrame()));
  source.next = [recording = std::move(recording),
                 at = size_t{0}]() mutable -> util::Result<std::shared_ptr<const Answer>> {
    if (at == recording->frame_count())
      return std::shared_ptr<const Answer>();
    tables::AllocationFrame frame;
    VRAMSCOPE_RETURN_IF_ERROR(recording->Read(at++, tables::kAllColumns, &frame));
    return Shared(AllocationsAnswer(frame));
  };
  return source;
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
  Answer::Unref(static_cast<const Answer*>(answer));
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

const vramscope_answer* vramscope_read_phases(const vramscope_recording* recording) {
  return Guarded([&]() -> const vramscope_answer* {
    AnswerResult answer = PhasesAnswer(*recording->tables);
    if (!answer)
      return Refuse(recording->path + ": " + answer.status().message());
    return Give(std::move(answer));
  });
}

const vramscope_answer* vramscope_read_timeline(const vramscope_recording* recording,
                                                size_t buckets) {
  return Guarded([&] { return Give(TimelineAnswer(*recording->tables, buckets)); });
}

struct ArrowArrayStream* vramscope_read_answer_stream(const vramscope_answer* answer,
                                                      const char* table,
                                                      struct ArrowArrayStream* stream) {
  return Guarded([&]() -> ArrowArrayStream* {
    for (size_t i = 0; i < answer->table_count; ++i) {
      if (!vramscope_names_are_equal(answer->tables[i]->name, table))
        continue;
      MakeArrowStream(WholeTable(Answer::Share(static_cast<const Answer*>(answer)), i), stream);
      return stream;
    }
    return Refuse(std::string("the answer has no table '") + table + "'");
  });
}

struct ArrowArrayStream* vramscope_read_table_stream(const vramscope_recording* recording,
                                                     const char* name,
                                                     struct ArrowArrayStream* stream) {
  using Allocations = vramscope::tables::TableOf<vramscope::tables::AllocationRow>;
  return Guarded([&]() -> ArrowArrayStream* {
    if (vramscope_names_are_equal(name, Allocations::kName)) {
      MakeArrowStream(AllAllocations(recording->tables), stream);
      return stream;
    }
    AnswerResult answer = TableAnswer(*recording->tables, name);
    if (!answer)
      return Refuse(answer.status().message());
    MakeArrowStream(WholeTable(Shared(std::move(*answer)), 0), stream);
    return stream;
  });
}

// It runs while Python destroys the capsule, perhaps with an exception on its way: no Python code
// may run then, so that this is not in Python.
void vramscope_read_end_capsule(void* capsule) {
  using GetPointer = void* (*)(void*, const char*);
  const auto get_pointer =
      reinterpret_cast<GetPointer>(dlsym(RTLD_DEFAULT, "PyCapsule_GetPointer"));
  auto* const stream =
      get_pointer == nullptr
          ? nullptr
          : static_cast<ArrowArrayStream*>(get_pointer(capsule, "arrow_array_stream"));
  if (stream != nullptr && stream->release != nullptr)
    stream->release(stream);
  std::free(stream);
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

vramscope_dataset* vramscope_read_dataset(size_t group_rows, const vramscope_dataset* beside) {
  return Guarded([&] {
    return new vramscope_dataset{DatasetRows(
        group_rows, beside == nullptr ? std::make_shared<WrittenStacks>() : beside->rows.stacks())};
  });
}

int vramscope_read_dataset_head(vramscope_dataset* dataset, const char* path, int64_t number) {
  const auto add = [&] {
    const auto head = ReadHead(path, {.native_names = false});
    if (head.ok()) {
      dataset->rows.AddHead(*head, number);
      return 1;
    }
    Refuse(head.status().message());
    return -1;
  };
  return Guarded(add, -1);
}

int vramscope_read_dataset_summary(vramscope_dataset* dataset,
                                   const vramscope_recording* recording,
                                   int64_t number) {
  const auto add = [&] {
    const auto added = dataset->rows.AddSummary(*recording->tables, number);
    if (added.ok())
      return 1;
    Refuse(added.message());
    return -1;
  };
  return Guarded(add, -1);
}

int vramscope_read_dataset_detail(vramscope_dataset* dataset,
                                  const vramscope_recording* recording) {
  const auto add = [&] {
    const auto added = dataset->rows.AddDetail(recording->tables);
    if (added.ok())
      return *added ? 1 : 0;
    Refuse(added.status().message());
    return -1;
  };
  return Guarded(add, -1);
}

size_t vramscope_read_dataset_rows(vramscope_dataset* dataset, const char* table) {
  return Guarded([&] {
    const GrowingTable* const found = dataset->rows.Find(table);
    return found == nullptr ? size_t{0} : found->rows();
  });
}

struct ArrowArrayStream* vramscope_read_dataset_take(vramscope_dataset* dataset,
                                                     const char* table,
                                                     struct ArrowArrayStream* stream) {
  return Guarded([&]() -> ArrowArrayStream* {
    GrowingTable* const found = dataset->rows.Find(table);
    if (found == nullptr)
      return Refuse(std::string("a dataset has no table '") + table + "'");
    MakeArrowStream(WholeTable(Shared(found->Take()), 0), stream);
    return stream;
  });
}

void vramscope_read_dataset_end(vramscope_dataset* dataset) {
  delete dataset;
}
