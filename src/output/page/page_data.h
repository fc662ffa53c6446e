// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "query/dimensions/report.h"
#include "util/json.h"
#include "util/status.h"

// What the HTML page is drawn from: one JSON object, which viewer/src/model/types.js describes. It
// has the tables of the ledger themselves, and viewer/src/model/ledger.js adds them up at an
// instant by the rules of query/: what the page shows there is what `vramscope report --at @NS`
// prints.
namespace vramscope::output {

inline constexpr char kPageSchema[] = "vramscope.page/2";

struct PageLimits {
  size_t buckets = 600;  // of a device's timeline
  // Up to this number (a million events) all allocations are listed, and the page is exact at every
  // instant.
  size_t whole = 600'000;
  // A larger recording lists those with the largest product of bytes and duration. The page has
  // sums of the others, which are exact at the instants in `left_out`.
  size_t allocations = 100'000;
  size_t instants = 8000;  // of all devices: one in each of as many stretches, at its highest
  size_t places = 256;     // and each of iterations' peaks, marks and failed allocations
  // A recording with more sites than this is one of names without end: of such no more allocations
  // are listed than this either.
  size_t sites = 20'000;
  size_t layers =
      100'000;  // if there are more, layers whose names differ in numbers only are merged
  size_t left_out_changes = 1'500'000;  // of those sums: beyond that fewer instants are stated
  size_t advised = 4'000'000;  // allocations: advice on more takes hundreds of MB, so none is given
  // Of a device, and of all NVTX counters; if there are more, the highest of each stretch.
  size_t nvml_samples = 6000;
  size_t nvtx_counters = 16;  // the ones with the highest peaks
};

util::Status WritePageData(const tables::Recording& recording,
                           const PageLimits& limits,
                           util::JsonWriter& json);

// The bundled style sheet and script, which the build puts into the program.
std::string_view ViewerStyle();
std::string_view ViewerScript();

// What large data begin with, before raw DEFLATE in base64 (viewer/src/model/page_data.js).
inline constexpr std::string_view kPackedMark = "deflate:";

// Writes a page's JSON into a <script>: as it is, or packed if it is large. Packing makes columns
// of numbers ten times smaller, so that a page can be mailed.
class PageScriptData {
 public:
  static constexpr size_t kMostPlainBytes = size_t{8} << 20;

  explicit PageScriptData(std::function<void(std::string_view)> write,
                          size_t most_plain_bytes = kMostPlainBytes);
  ~PageScriptData();
  PageScriptData(const PageScriptData&) = delete;
  PageScriptData& operator=(const PageScriptData&) = delete;

  void Write(std::string_view json);
  void Finish();

 private:
  class Packer;

  std::function<void(std::string_view)> write_;
  size_t most_plain_bytes_;
  std::string plain_;  // as long as it may be written as it is
  std::unique_ptr<Packer> packer_;
};

}  // namespace vramscope::output
