// SPDX-License-Identifier: Apache-2.0 Reads the file of the MXNet GPU memory profiler (MXNet pull
// request 14973): a line for each allocation, without header or quotes, in time order.
//
//   in_arg:encoder_rnn_i2h_weight,512
//   workspace:dot-inl.h+362:dot-inl.h+400:DotForwardEx,0.00390625
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "import/import.h"
#include "import/log_text.h"
#include "import/mxnet/mxnet_tags.h"
#include "util/size_text.h"

namespace vramscope::imports {
namespace {

constexpr int64_t kStepNs = 1'000'000'000;
constexpr size_t kLinesLookedAt = 50;
constexpr double kMiB = 1 << 20;

struct Row {
  std::string_view tag;
  uint64_t bytes = 0;
};

// A tag may have commas.
std::optional<Row> RowOf(std::string_view line) {
  const size_t comma = line.rfind(',');
  if (comma == std::string_view::npos)
    return std::nullopt;
  const double mib = util::WholeNumber<double>(Trimmed(line.substr(comma + 1))).value_or(-1);
  if (!(mib >= 0 && mib * kMiB <= double{kMostBytes}))
    return std::nullopt;
  return Row{Trimmed(line.substr(0, comma)), static_cast<uint64_t>(std::llround(mib * kMiB))};
}

}  // namespace

bool IsMxnetCsv(const Input& input) {
  const std::string& head = input.text_head();
  bool any = false;
  size_t begin = 0;
  for (size_t i = 0; i < kLinesLookedAt && begin < head.size(); ++i) {
    const size_t end = head.find_first_of("\r\n", begin);
    // The last line may be cut off.
    if (end == std::string::npos && head.size() == Input::kHeadBytes)
      break;
    const std::string_view line =
        Trimmed(std::string_view(head).substr(begin, std::min(end, head.size()) - begin));
    begin = end == std::string::npos ? head.size() : end + 1;
    if (line.empty())
      continue;
    const std::optional<Row> row = RowOf(line);
    if (!row || row->tag.empty())
      return false;
    any = any || IsMxnetTag(row->tag);
  }
  return any;
}

util::Status ReadMxnetCsv(const Input& input, const Options&, Builder* builder) {
  const tables::ProcessId process = builder->Process(0);
  builder->process(process).command = builder->Text(input.name());
  const tables::AccountId account = builder->Account(process, builder->Gpu(0));
  LineReader lines(input.Text());
  int64_t now_ns = 0;
  for (std::string_view line; lines.Next(&line) && !builder->IsOver();) {
    if (Trimmed(line).empty())
      continue;
    const std::optional<Row> row = RowOf(line);
    if (!row) {
      builder->Lose("rows that are no tag and its MiB", 1);
      continue;
    }
    tables::SiteRow site = Builder::SiteOf(account);
    site.owner = builder->Text("MXNet");
    site.api = builder->Text("cudaMalloc");
    NameSite(row->tag, builder, &site);
    tables::AllocationRow allocation;
    allocation.begin_ns = allocation.alloc_ns = builder->Tick(now_ns);
    allocation.end_ns = tables::kNever;
    allocation.bytes = row->bytes;
    allocation.site = builder->Site(site);
    builder->Add(allocation);
    builder->Event();
    now_ns += kStepNs;
  }
  builder->CountSeconds("allocations",
                        "none in the file: a second stands for a row, in their order");
  builder->Lacks("when memory was freed");
  builder->Lacks("devices (all is shown as GPU 0; pinned host memory is among it)");
  builder->Lacks("bytes beyond six digits of a MiB figure");
  return lines.status();
}

}  // namespace vramscope::imports
