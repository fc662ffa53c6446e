// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "resolve/attribute/xla_programs.h"
#include "tables/dictionaries.h"
#include "tables/recording.h"
#include "trace/trace.h"

namespace vramscope::resolve {

// Adds the temporary memory of XLA's programs at its peak, by operation, from XLA's dumps
// (run --xla-hlo). Returns the programs without a readable dump; notes say why.
trace::Loss AddXlaOperations(const trace::Trace& trace,
                             const ExecutedPrograms& executed,
                             tables::Dictionaries* names,
                             tables::Tables* out);

}  // namespace vramscope::resolve
