// SPDX-License-Identifier: Apache-2.0
#include "finished.h"

#include <cstdlib>
#include <string>

#include "query/core/peaks.h"
#include "resolve/resolve.h"
#include "tables/reader.h"
#include "tables/writer.h"

namespace vramscope::fuzz {

bool Finish(trace::Trace& trace, const tables::testing::MemoryFile& file) {
  tables::Writer writer(file.fd(), "x.vram");
  auto tables = resolve::Resolve(trace, writer);
  if (!tables || !writer.Finish(*tables).ok())
    return false;
  const auto without_peaks = tables::OpenDescriptor(file.fd(), "x.vram");
  if (!without_peaks)
    std::abort();
  const auto peaks = query::FindPeaks(**without_peaks);
  if (!peaks)
    std::abort();
  tables->peaks = *peaks;
  return writer.Finish(*tables).ok();
}

}  // namespace vramscope::fuzz
