// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/progress.h"

#include "format/enums.h"

namespace vramscope::resolve {

Progress::Progress(const trace::Trace& trace) : processes(trace.processes().size()) {
  unknown_frees.name = format::LossName(static_cast<uint64_t>(format::Loss::kUnknownFree));
  inherited_frees.name = format::LossName(static_cast<uint64_t>(format::Loss::kInheritedFree));
  double_allocs.name = format::LossName(static_cast<uint64_t>(format::Loss::kDoubleAlloc));
  unknown_names.name = format::LossName(static_cast<uint64_t>(format::Loss::kNamesWithoutMemory));
}

}  // namespace vramscope::resolve
