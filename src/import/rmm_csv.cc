// SPDX-License-Identifier: Apache-2.0 Reads the log of RMM's logging_resource_adaptor (RAPIDS), of
// one device:
//
//   Thread,Time,Action,Pointer,Size,Stream
//   4711,16:00:18.508800,allocate,0x7f8250000000,1024,0x0
//   4711,16:00:18.509312,free,0x7f8250000000,1024,0x0
//
// Times are since midnight (a decrease by hours is a new day) or since 1970. Logs of spark-rapids
// have no header.
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "import/event_log.h"
#include "import/import.h"
#include "import/log_text.h"

namespace vramscope::imports {
namespace {

constexpr std::string_view kHeader = "Thread,Time,Action,Pointer,Size,Stream";
constexpr size_t kColumns = 6;
constexpr int64_t kDayNs = int64_t{86'400} * 1'000'000'000;
constexpr int64_t kMostDays = 36'500;  // more is damage
constexpr char kNoRows[] = "rows that are no event of RMM";

bool IsHeader(std::string_view line) {
  return Trimmed(line) == kHeader;
}

std::optional<uint64_t> NumberOf(std::string_view text) {
  text = Trimmed(text);
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  if (hexadecimal)
    text.remove_prefix(2);
  if (text == "(nil)")
    return 0;
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, hexadecimal ? 16 : 10);
  return error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

constexpr std::string_view kActions[] = {"allocate", "free", "deallocate", "allocate failure"};

bool IsAction(std::string_view text) {
  return std::find(std::begin(kActions), std::end(kActions), text) != std::end(kActions);
}

// Of "rmm_log.dev1.csv".
int32_t DeviceOf(std::string_view name) {
  const size_t at = name.rfind(".dev");
  const std::string_view number = at == std::string_view::npos ? "" : name.substr(at + 4);
  return static_cast<int32_t>(NumberOf(number.substr(0, number.find('.'))).value_or(0) & 0x3ff);
}

class Log {
 public:
  Log(const Input& input, Builder* builder) : builder_(*builder), blocks_(builder) {
    process_ = builder_.Process(0);
    builder_.process(process_).command = builder_.Text(input.name());
    account_ = builder_.Account(process_, builder_.Gpu(DeviceOf(input.name())));
  }

  void Add(std::string_view line, uint64_t number) {
    const std::vector<std::string> cells = SplitCsv(line);
    if (cells.size() != kColumns) {
      Skip(number, fmt::format("{} cells where {} are expected", cells.size(), kColumns));
      return;
    }
    const std::optional<int64_t> time_ns = TimeOf(cells[1]);
    const auto pointer = NumberOf(cells[3]);
    const auto bytes = NumberOf(cells[4]);
    const std::string_view action = Trimmed(cells[2]);
    if (!time_ns || !pointer || !bytes || *bytes > kMostBytes || !IsAction(action)) {
      Skip(number, fmt::format("'{}' is not a {}",
                               Trimmed(!time_ns            ? cells[1]
                                       : !pointer          ? cells[3]
                                       : !IsAction(action) ? cells[2]
                                                           : cells[4]),
                               !time_ns            ? "time"
                               : !pointer          ? "pointer"
                               : !IsAction(action) ? "action of RMM"
                                                   : "size"));
      return;
    }
    const int64_t now_ns = builder_.Tick(*time_ns);
    builder_.Event();
    if (action == "allocate") {
      blocks_.Allocate(0, *pointer, *bytes, SiteOf(cells), now_ns);
    } else if (action == "free" || action == "deallocate") {
      Free(*pointer, *bytes, now_ns);
    } else {
      builder_.OutOfMemory({.account = account_,
                            .time_ns = now_ns,
                            .requested_bytes = *bytes,
                            .thread = ThreadOf(cells[0])});
    }
  }

  void Finish() {
    blocks_.Finish();
    builder_.Note("clock", is_of_day_ ? "the log's own, from its first row; the day is not in it"
                                      : "the log's own");
    builder_.Lacks("what was allocated before the log began");
    builder_.Lacks("names and stacks");
    builder_.Lacks("free memory of RMM's pool");
  }

 private:
  void Skip(uint64_t line, std::string_view why) { builder_.Skip(kNoRows, line, why); }

  // Nanoseconds from the first row.
  std::optional<int64_t> TimeOf(std::string_view text) {
    std::optional<int64_t> time_ns = ParseTimeOfDay(text);
    const bool is_of_day = time_ns.has_value();
    if (const auto wall = is_of_day ? std::nullopt : ParseWallTime(text))
      time_ns = wall->ns;
    if (!time_ns)
      return std::nullopt;
    if (!first_ns_) {
      is_of_day_ = is_of_day;
      first_ns_ = last_ns_ = *time_ns;
      if (!is_of_day)
        builder_.SetWallTime(*time_ns);
    }
    if (is_of_day && *time_ns < last_ns_ - kDayNs / 2 && days_ns_ < kMostDays * kDayNs)
      days_ns_ += kDayNs;
    last_ns_ = *time_ns;
    return days_ns_ + *time_ns - *first_ns_;
  }

  tables::ThreadId ThreadOf(std::string_view cell) {
    const uint64_t number = NumberOf(cell).value_or(0);
    return builder_.Thread(process_, static_cast<uint32_t>(number));
  }

  tables::SiteId SiteOf(const std::vector<std::string>& cells) {
    tables::SiteRow site = Builder::SiteOf(account_);
    site.owner = site.allocator = builder_.Text("RMM");
    site.thread = ThreadOf(cells[0]);
    const std::optional<uint64_t> stream = NumberOf(cells[5]);
    site.stream = stream && *stream < std::numeric_limits<uint64_t>::max() ? *stream + 1 : 0;
    return builder_.Site(site);
  }

  void Free(uint64_t pointer, uint64_t bytes, int64_t now_ns) {
    const uint64_t freed_bytes = blocks_.Free(0, pointer, now_ns);
    if (freed_bytes == bytes)
      return;
    if (freed_bytes == 0)
      builder_.Lose("frees of unknown allocations", 1, bytes);
    else
      builder_.Lose("frees that give another size than their allocation", 1);
  }

  Builder& builder_;
  LiveBlocks blocks_;
  tables::ProcessId process_;
  tables::AccountId account_;
  std::optional<int64_t> first_ns_;
  int64_t last_ns_ = 0, days_ns_ = 0;
  bool is_of_day_ = true;  // times have no date
};

}  // namespace

bool IsRmmCsv(const Input& input) {
  const std::string_view head = input.text_head();
  const std::string_view line = head.substr(0, head.find_first_of("\r\n"));
  const std::vector<std::string> cells = SplitCsv(line);
  return IsHeader(line) || (cells.size() == kColumns && IsAction(Trimmed(cells[2])) &&
                            NumberOf(cells[3]) && NumberOf(cells[4]));
}

util::Status ReadRmmCsv(const Input& input, const Options&, Builder* builder) {
  LineReader lines(input.Text());
  Log log(input, builder);
  for (std::string_view line; lines.Next(&line) && !builder->IsOver();) {
    if (!Trimmed(line).empty() && !IsHeader(line))
      log.Add(line, lines.number());
  }
  log.Finish();
  return lines.status();
}

}  // namespace vramscope::imports
