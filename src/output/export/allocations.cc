// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>
#include <vector>

#include "output/answers.h"
#include "output/export/export.h"
#include "output/names.h"
#include "output/results/json_parts.h"
#include "query/dimensions/dimensions.h"
#include "tables/row_of.h"
#include "util/json.h"

namespace vramscope::output {
namespace {

using query::Dimension;

// Up to this number of rows (a quarter of a gigabyte) in order of allocation, above it in the
// file's.
constexpr uint64_t kMaxSorted = 4'000'000;

// What a line has besides what only it can know: every dimension that has no field of its own.
constexpr Dimension kOfSite[] = {
    Dimension::kHost,  Dimension::kRank,         Dimension::kThread,   Dimension::kStream,
    Dimension::kOwner, Dimension::kAllocator,    Dimension::kCategory, Dimension::kModule,
    Dimension::kClass, Dimension::kParameter,    Dimension::kPhase,    Dimension::kLine,
    Dimension::kTag,   Dimension::kCommunicator, Dimension::kNative,   Dimension::kHolder,
};
constexpr Dimension kOfRow[] = {Dimension::kIteration, Dimension::kSizeClass, Dimension::kLifetime};

constexpr size_t kMaxKnownBytes = size_t{64} << 20;

class AllocationsExporter {
 public:
  AllocationsExporter(const tables::Recording& recording, bool json, const ExportSink& sink)
      : recording_(recording),
        json_(json),
        texts_(recording),
        stacks_(recording),
        of_site_(recording.tables().sites.size()),
        pieces_(sink) {}

  util::Status Run() {
    if (!json_)
      AddHeader();
    const util::Status status =
        recording_.tables().session.allocation_count <= kMaxSorted ? AddSorted() : AddAsTheyAre();
    const util::Status written = pieces_.Finish();
    return status.ok() ? written : status;
  }

 private:
  template <class Visit>
  util::Status ForEachRow(const Visit& visit) {
    tables::AllocationFrame frame;
    for (size_t i = 0; i < recording_.frame_count() && pieces_.status().ok(); ++i) {
      VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, tables::kAllColumns, &frame));
      for (size_t at = 0; at < frame.rows && pieces_.status().ok(); ++at)
        visit(RowOf(frame, at));
    }
    return {};
  }

  util::Status AddAsTheyAre() {
    return ForEachRow([&](const tables::AllocationRow& row) { AddRow(row); });
  }

  util::Status AddSorted() {
    std::vector<tables::AllocationRow> rows;
    const util::Status status =
        ForEachRow([&](const tables::AllocationRow& row) { rows.push_back(row); });
    std::stable_sort(rows.begin(), rows.end(), [](const auto& a, const auto& b) {
      return a.alloc_ns != b.alloc_ns ? a.alloc_ns < b.alloc_ns : a.begin_ns < b.begin_ns;
    });
    for (const tables::AllocationRow& row : rows) {
      if (pieces_.status().ok())
        AddRow(row);
    }
    return status;
  }

  void AddHeader() {
    std::string& text = pieces_.text();
    text +=
        "device,pid,address,bytes,rounding_bytes,alloc_ns,begin_ns,free_ns,iteration,size_class,"
        "lifetime,api,path,stack";
    for (const Dimension dimension : kOfSite)
      text.append(",").append(query::DimensionName(dimension));
    text += ",end_ns\r\n";
  }

  // What all rows of a site have, behind what is their own but for the last field.
  const std::string& OfSite(tables::SiteId id) {
    const size_t at = id.value < of_site_.size() ? id.value : 0;
    std::string& known = of_site_[at];
    if (!known.empty())
      return known;
    // Stacks can be deep and their names long: what is forgotten is made again.
    if (known_bytes_ > kMaxKnownBytes) {
      std::fill(of_site_.begin(), of_site_.end(), std::string());
      known_bytes_ = 0;
    }
    known = json_ ? JsonOfSite(recording_.tables().sites[at])
                  : CsvOfSite(recording_.tables().sites[at]);
    known_bytes_ += known.size();
    return known;
  }

  std::vector<std::string> Path(const tables::SiteRow& site) const {
    std::vector<std::string> path = texts_.TreePath(site);
    if (site.backing != 0 && !path.empty())
      path.back() = "segment";
    if (site.unbacked != 0 && !path.empty())
      path.back() = "unbacked";
    return path;
  }

  std::vector<std::string> Stack(const tables::SiteRow& site) const {
    return stacks_.Texts(site.stack.value != 0 ? site.stack : site.native_stack);
  }

  std::string CsvOfSite(const tables::SiteRow& site) const {
    std::string text =
        fmt::format(",{},{},{}", CsvField(recording_.string(site.api)),
                    CsvField(Joined(Path(site), " / ")), CsvField(Joined(Stack(site), ";")));
    for (const Dimension dimension : kOfSite)
      text += "," + CsvField(texts_.Of(dimension, site, nullptr));
    return text;
  }

  std::string JsonOfSite(const tables::SiteRow& site) const {
    std::string text;
    util::JsonWriter json(&text);
    json.BeginObject();
    json.Field("api", recording_.string(site.api));
    TextList(json, "path", Path(site));
    TextList(json, "stack", Stack(site));
    for (const Dimension dimension : kOfSite)
      json.Field(query::DimensionName(dimension), texts_.Of(dimension, site, nullptr));
    json.EndObject();
    // Only the part of this object between the braces.
    return "," + text.substr(1, text.size() - 2);
  }

  void AddRow(const tables::AllocationRow& row) {
    const tables::Tables& tables = recording_.tables();
    const tables::SiteRow& site = RowOf(tables.sites, row.site);
    const tables::AccountRow& account = RowOf(tables.accounts, site.account);
    const std::string device = DeviceMark(recording_, account.device);
    const uint32_t pid = PidOf(recording_, account.process);
    const std::string pid_text = pid == 0 ? "" : std::to_string(pid);
    // What goes with its process was never freed.
    const std::string free_text = texts_.IsNeverFreed(site, row) ? "" : std::to_string(row.end_ns);
    const auto out = std::back_inserter(pieces_.text());
    if (!json_) {
      fmt::format_to(out, "{},{},{:#x},{},{},{},{},{}", device, pid_text, row.address, row.bytes,
                     row.rounding_bytes, row.alloc_ns, row.begin_ns, free_text);
      for (const Dimension dimension : kOfRow)
        fmt::format_to(out, ",{}", CsvField(texts_.Of(dimension, site, &row)));
    } else {
      const auto or_null = [](const std::string& text) { return text.empty() ? "null" : text; };
      // Addresses are text: JavaScript's numbers end at 2^53.
      fmt::format_to(out,
                     R"({{"device":"{}","pid":{},"address":"{:#x}","bytes":{},"rounding_bytes":{},)"
                     R"("alloc_ns":{},"begin_ns":{},"free_ns":{})",
                     device, or_null(pid_text), row.address, row.bytes, row.rounding_bytes,
                     row.alloc_ns, row.begin_ns, or_null(free_text));
      for (const Dimension dimension : kOfRow) {
        fmt::format_to(out, ",\"{}\":{}", query::DimensionName(dimension),
                       util::JsonQuoted(texts_.Of(dimension, site, &row)));
      }
    }
    pieces_.text() += OfSite(row.site);
    const std::string end_text = row.end_ns == tables::kNever ? "" : std::to_string(row.end_ns);
    if (json_)
      fmt::format_to(out, ",\"end_ns\":{}}}\n", end_text.empty() ? "null" : end_text);
    else
      fmt::format_to(out, ",{}\r\n", end_text);
    pieces_.LineDone();
  }

  const tables::Recording& recording_;
  bool json_;
  query::DimensionValues texts_;
  query::ShownStacks stacks_;
  std::vector<std::string> of_site_;  // by site; empty: not made yet
  size_t known_bytes_ = 0;            // of all of them
  ExportPieces pieces_;
};

}  // namespace

util::Status ExportAllocationsCsv(const tables::Recording& recording,
                                  const ExportOptions& /*options*/,
                                  const ExportSink& sink) {
  return AllocationsExporter(recording, false, sink).Run();
}

util::Status ExportAllocationsJson(const tables::Recording& recording,
                                   const ExportOptions& /*options*/,
                                   const ExportSink& sink) {
  return AllocationsExporter(recording, true, sink).Run();
}

}  // namespace vramscope::output
