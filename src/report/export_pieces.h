// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "report/export.h"

namespace vramscope::report {

// Collects lines into pieces worth a write. After an error nothing more is written; the first error
// is what Finish() returns.
class ExportPieces {
 public:
  explicit ExportPieces(const ExportSink& sink) : sink_(sink) {}
  ExportPieces(const ExportPieces&) = delete;
  ExportPieces& operator=(const ExportPieces&) = delete;

  // Where the next line goes; LineDone() after each.
  std::string& text() { return text_; }
  void LineDone() {
    if (text_.size() >= kPieceBytes)
      Flush();
  }
  util::Status Finish() {
    Flush();
    return status_;
  }

 private:
  static constexpr size_t kPieceBytes = 64 * 1024;

  void Flush() {
    if (status_.ok() && !text_.empty())
      status_ = sink_(text_);
    text_.clear();
  }

  const ExportSink& sink_;
  std::string text_;
  util::Status status_;
};

}  // namespace vramscope::report
