// SPDX-License-Identifier: Apache-2.0 Reads gpu_memory_profile-pid_4711.csv, which MXNet 1.7 to 2.0
// write with `profile_memory=True`: the live blocks of all devices at mx.profiler.dump().
//
//   "Attribute Name","Requested Size","Device","Actual Size","Reuse?"
//   "net:in_arg:dense0_weight","5120","0","8192","0"
//   "nvml_amend","676036608","0","676036608","0"
//
// nvml_amend is NVML's process figure on the device less the sum of Actual Size, modulo 2^64.
#include <fmt/core.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "import/import.h"
#include "import/log_text.h"
#include "import/mxnet/mxnet_tags.h"
#include "util/size_text.h"

namespace vramscope::imports {
namespace {

constexpr std::string_view kDumpHeader[] = {"Attribute Name", "Requested Size", "Device",
                                            "Actual Size", "Reuse?"};
constexpr size_t kDumpColumns = std::size(kDumpHeader);
constexpr std::string_view kAmend = "nvml_amend";
constexpr int32_t kMostDumpDevices = 1024;

bool IsDumpHeader(std::string_view line) {
  const std::vector<std::string> cells = SplitCsv(line);
  return cells.size() == kDumpColumns &&
         std::equal(cells.begin(), cells.end(), std::begin(kDumpHeader),
                    [](const std::string& cell, std::string_view title) {
                      return Trimmed(cell) == title;
                    });
}

template <class Number>
std::optional<Number> NumberOf(std::string_view text) {
  return util::WholeNumber<Number>(Trimmed(text));
}

// The pid in "gpu_memory_profile-pid_4711.csv", or 0.
uint32_t PidOf(std::string_view name) {
  constexpr std::string_view kMark = "-pid_";
  const size_t at = name.rfind(kMark);
  if (at == std::string_view::npos)
    return 0;
  name.remove_prefix(at + kMark.size());
  return NumberOf<uint32_t>(name.substr(0, name.find('.'))).value_or(0);
}

// "net" of "net:in_arg:dense0_weight"; "" without a scope.
std::string_view ScopeOf(std::string_view name) {
  size_t end = name.rfind(':');
  for (const std::string_view word : {":in_arg:", ":arg_grad:", ":aux_state:"}) {
    const size_t at = name.find(word);
    if (at != std::string_view::npos)
      end = at;
  }
  const std::string_view scope = name.substr(0, end == std::string_view::npos ? 0 : end);
  const bool is_kind = scope == "<unk>" || scope == "in_arg" || scope == "arg_grad";
  return is_kind ? std::string_view() : scope;
}

class Dump {
 public:
  Dump(const Input& input, Builder* builder) : builder_(*builder) {
    process_ = builder_.Process(PidOf(input.name()));
    builder_.process(process_).command = builder_.Text(input.name());
    now_ns_ = builder_.Tick(0);
  }

  void Add(std::string_view line) {
    const std::vector<std::string> cells = SplitCsv(line);
    const auto asked = cells.size() == kDumpColumns ? NumberOf<uint64_t>(cells[1]) : std::nullopt;
    const auto device = asked ? NumberOf<int32_t>(cells[2]) : std::nullopt;
    const auto actual = device ? NumberOf<uint64_t>(cells[3]) : std::nullopt;
    const bool is_amend = actual && cells[0] == kAmend;
    if (!actual || *device < 0 || *device >= kMostDumpDevices ||
        (!is_amend && *actual > kMostBytes)) {
      builder_.Lose("rows that are no block of memory", 1);
    } else if (is_amend) {
      if (!amends_.try_emplace(*device, *actual).second)
        builder_.Lose("nvml_amend rows beyond a device's first", 1);
    } else {
      AddBlock(cells[0], *asked, *device, *actual);
    }
    builder_.Event();
  }

  void Finish() {
    for (const auto& [device, amend_bytes] : amends_) {
      const uint64_t rows_bytes = sums_[device];
      const uint64_t used_bytes = rows_bytes + amend_bytes;  // modulo 2^64, as MXNet computes it
      if (used_bytes > kMostBytes) {
        builder_.Lose("nvml_amend rows that make no sense", 1);
        continue;
      }
      const tables::AccountId account = AccountOf(device);
      builder_.Sample(builder_.account(account).device, now_ns_, used_bytes,
                      static_cast<int64_t>(rows_bytes));
      builder_.ProcessSample(account, now_ns_, used_bytes, static_cast<int64_t>(rows_bytes));
    }
    builder_.IsOfOneInstant("dump");
    builder_.Note("NVML's figure", amends_.empty()
                                       ? "none in the file: MXNet did not see its own process"
                                       : "of this process: its rows and nvml_amend, the residual");
    builder_.Lacks("memory freed before the dump, and the peak");
    builder_.Lacks("free memory of MXNet's pools");
    builder_.Lacks("stacks");
  }

 private:
  tables::AccountId AccountOf(int32_t device) {
    return builder_.Account(process_, builder_.Gpu(device));
  }

  void AddBlock(std::string_view name, uint64_t asked_bytes, int32_t device, uint64_t bytes) {
    if (asked_bytes > bytes) {
      builder_.Lose("blocks that are smaller than their request", 1);
      asked_bytes = bytes;
    }
    tables::SiteRow site = Builder::SiteOf(AccountOf(device));
    site.owner = site.allocator = builder_.Text("MXNet");
    NameSite(name, &builder_, &site);
    site.scope = site.module = builder_.Text(ScopeOf(name));
    tables::AllocationRow row;
    row.begin_ns = row.alloc_ns = now_ns_;
    row.end_ns = tables::kNever;
    row.bytes = bytes;
    row.rounding_bytes = bytes - asked_bytes;
    row.site = builder_.Site(site);
    builder_.Add(row);
    sums_[device] += bytes;
  }

  Builder& builder_;
  tables::ProcessId process_;
  int64_t now_ns_ = 0;
  std::map<int32_t, uint64_t> sums_, amends_;  // by device
};

}  // namespace

bool IsMxnetDump(const Input& input) {
  const std::string& head = input.text_head();
  return IsDumpHeader(std::string_view(head).substr(0, head.find_first_of("\r\n")));
}

util::Status ReadMxnetDump(const Input& input, const Options&, Builder* builder) {
  LineReader lines(input.Text());
  std::string_view line;
  if (lines.Next(&line) && !IsDumpHeader(line)) {
    return util::Status::Error(fmt::format(
        "{}: the first line is not the header of MXNet's dump (\"Attribute Name\",\"Requested "
        "Size\",...)",
        input.path()));
  }
  Dump dump(input, builder);
  while (lines.Next(&line) && !builder->IsOver()) {
    if (!Trimmed(line).empty() && !IsDumpHeader(line))
      dump.Add(line);
  }
  dump.Finish();
  return lines.status();
}

}  // namespace vramscope::imports
