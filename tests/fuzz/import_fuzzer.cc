// SPDX-License-Identifier: Apache-2.0
// The input is another tool's log or trace: it is imported as what it looks like, and as one other
// format, as --from lets anybody do; what comes of it is reported.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "import/import.h"
#include "query/core/peaks.h"
#include "query/dimensions/report.h"
#include "scratch.h"
#include "tables/memory_recording.h"
#include "tables/table_checks.h"

namespace {

namespace imports = vramscope::imports;
namespace tables = vramscope::tables;

void ImportAs(const imports::Input& input, const imports::Format& format) {
  tables::MemoryRecording recording;
  auto made = imports::Import(input, format, {}, recording);
  if (!made.ok()) {
    if (made.status().message().find('\n') != std::string::npos)
      std::abort();  // an error is one line
    return;
  }
  // What the reader of a file would refuse an importer must not make.
  if (tables::FindBadReference(*made) != nullptr)
    std::abort();
  recording.Finish(std::move(*made));
  (void)vramscope::query::FindPeaks(recording).ok();
  (void)vramscope::query::MakeReport(recording, {}).ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const vramscope::fuzz::TimeLimit limit("the import");
  static const std::string path = vramscope::fuzz::ScratchDirectory() + "/input";
  vramscope::fuzz::WriteInput(path, data, size);
  const auto input = imports::Input::Open(path);
  if (!input.ok())
    return 0;
  const imports::Format* const recognized = imports::Recognize(*input);
  if (recognized != nullptr)
    ImportAs(*input, *recognized);
  // By its bytes, so that an input always does the same.
  uint64_t hash = size;
  for (size_t i = 0; i < size; ++i)
    hash = hash * 31 + data[i];
  const imports::Format& other = imports::Formats()[hash % imports::Formats().size()];
  if (&other != recognized)
    ImportAs(*input, other);
  return 0;
}
