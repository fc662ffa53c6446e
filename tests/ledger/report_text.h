// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "ledger/trace_builder.h"
#include "query/core/instant.h"
#include "query/dimensions/report.h"
#include "tables/memory_recording.h"

// Reports in a form that tests compare at a glance.
namespace vramscope::query {

constexpr const char* kBesideNvml = "NVML and the rows differ by at most 4 MiB or 0.1 %";

// A trace's recording, resolved.
std::unique_ptr<tables::Recording> Analyse(TraceBuilder& builder);
// "PyTorch / allocated" -> bytes; rows of several devices or processes add up.
std::map<std::string, uint64_t> RowBytes(const Report& report);
ReportQuery At(const std::string& when);
Report ReportOf(TraceBuilder& builder, const ReportQuery& query = {});
// All rows of `allocations` in use, ordered by begin.
std::vector<tables::AllocationRow> Allocations(const tables::Recording& recording);
// NVML's figures include unrecorded processes. With such processes, pass that invariant as
// `left_out`.
std::string BrokenInvariants(const Report& report, const std::string& left_out = "");

}  // namespace vramscope::query
