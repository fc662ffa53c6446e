// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

#include "output/page/page_tables.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/json_writer.h"

// What the page shows as tables of their own: the answers of query/ to other questions than that
// for an instant.
namespace vramscope::output {

// `device_of`: the page's number of a device, -1 for none. `iterations`: those of MakeIterations(),
// none where it has an error.
void WriteFindings(const tables::Recording& recording,
                   const query::Iterations& iterations,
                   const std::function<int(tables::DeviceId)>& device_of,
                   PageStacks& stacks,
                   util::JsonWriter& json);

}  // namespace vramscope::output
