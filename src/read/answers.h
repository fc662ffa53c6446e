// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "read/answer.h"
#include "tables/recording.h"
#include "util/status.h"

// What is asked and answered, as tables: docs/READER.md lists their columns.
namespace vramscope::read {

using AnswerResult = util::Result<std::unique_ptr<Answer>>;

AnswerResult TableAnswer(const tables::Recording& recording, const std::string& name);
// Rows of `allocations`, with the columns of tables.def.
std::unique_ptr<Answer> AllocationsAnswer(const tables::AllocationFrame& frame);
AnswerResult ReportAnswer(const tables::Recording& recording, const query::ReportQuery& query);
AnswerResult IterationsAnswer(const tables::Recording& recording);
AnswerResult TimelineAnswer(const tables::Recording& recording, size_t buckets);

// Rows of `allocations` that live at some instant of a window, a frame of the file at a time.
class AllocationCursor {
 public:
  AllocationCursor(const tables::Recording& recording,
                   int64_t from_ns,
                   int64_t to_ns,
                   std::vector<query::Dimension> by,
                   std::vector<std::string> own)
      : recording_(recording),
        from_ns_(from_ns),
        to_ns_(to_ns),
        by_(std::move(by)),
        texts_(recording, std::move(own)) {}

  // Null at the end.
  AnswerResult Next();

 private:
  std::unique_ptr<Answer> AnswerOf(const tables::AllocationFrame& frame,
                                   const std::vector<size_t>& rows);
  void AddTexts(query::Dimension dimension,
                const tables::AllocationFrame& frame,
                const std::vector<size_t>& rows,
                Column* column) const;

  const tables::Recording& recording_;
  int64_t from_ns_;
  int64_t to_ns_;
  std::vector<query::Dimension> by_;
  query::DimensionValues texts_;
  size_t next_ = 0;
};

}  // namespace vramscope::read
