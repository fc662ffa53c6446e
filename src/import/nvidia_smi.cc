// SPDX-License-Identifier: Apache-2.0
// What `nvidia-smi --query-gpu=... --format=csv` or `--query-compute-apps=...` says, again and
// again:
//
//   timestamp, index, memory.used [MiB]          memory.used [MiB]
//   2024/05/01 10:00:00.123, 0, 230 MiB          230 MiB
//
// There may be no clock, no number of the device, no units and no header.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "format/memory_words.h"
#include "import/csv.h"
#include "import/formats.h"
#include "util/number_text.h"
#include "util/size_text.h"

namespace vramscope::imports {
namespace {

using format::Part;

// Readings of one query have stamps that differ a little.
constexpr int64_t kQueryNs = 100'000'000;
constexpr int64_t kNoClockStepNs = 1'000'000'000;
constexpr char kLostRows[] = "rows that are no reading of nvidia-smi";
constexpr char kNoFigures[] = "readings without a figure";

enum class Column : uint8_t {
  kOther,
  kTime,
  kIndex,
  kUuid,
  kBus,
  kName,
  kUsed,
  kTotal,
  kPid,
  kProcess
};

struct ColumnName {
  std::string_view name;
  Column column;
};
constexpr ColumnName kColumnNames[] = {
    {"timestamp", Column::kTime},
    {"index", Column::kIndex},
    {"gpu_uuid", Column::kUuid},
    {"uuid", Column::kUuid},
    {"gpu_bus_id", Column::kBus},
    {"pci.bus_id", Column::kBus},
    {"gpu_name", Column::kName},
    {"name", Column::kName},
    {"memory.used", Column::kUsed},
    {"used_memory", Column::kUsed},
    {"used_gpu_memory", Column::kUsed},
    {"memory.total", Column::kTotal},
    {"pid", Column::kPid},
    {"process_name", Column::kProcess},
};

Column ColumnOf(std::string_view title) {
  title = Trimmed(title.substr(0, title.find('[')));
  for (const ColumnName& known : kColumnNames) {
    if (known.name == title)
      return known.column;
  }
  return Column::kOther;
}

// Empty where the line is no header.
std::vector<Column> HeaderOf(std::string_view line) {
  std::vector<Column> columns;
  for (const std::string& cell : SplitCsv(line))
    columns.push_back(ColumnOf(cell));
  const bool has_figure = std::find(columns.begin(), columns.end(), Column::kUsed) != columns.end();
  return has_figure ? columns : std::vector<Column>();
}

// "230 MiB", "230": nvidia-smi leaves MiB out with `nounits`, and old ones say MB for it.
std::optional<uint64_t> BytesOf(std::string_view text) {
  text = Trimmed(text);
  uint64_t figure = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), figure);
  if (error != std::errc())
    return std::nullopt;
  const std::string_view unit = Trimmed(text.substr(static_cast<size_t>(end - text.data())));
  const int shift = unit.empty() || unit == "MiB" || unit == "MB" ? 20
                    : unit == "KiB"                               ? 10
                    : unit == "GiB"                               ? 30
                    : unit == "B"                                 ? 0
                                                                  : -1;
  if (shift < 0 || figure > kMostBytes >> shift)
    return std::nullopt;
  return figure << shift;
}

// "[N/A]", "[Not Supported]", "[Insufficient Permissions]": it was asked and had no answer.
bool IsNoAnswer(std::string_view text) {
  text = Trimmed(text);
  return text.starts_with("[") || text == "N/A";
}

// "2024/05/01 10:00:00.123", as the machine's own clock had it.
std::optional<int64_t> TimeOf(std::string_view text) {
  text = Trimmed(text);
  std::array<int, 7> parts{};
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  constexpr std::string_view kSeparators = "// ::.";
  size_t read = 0;
  for (; read < parts.size(); ++read) {
    const auto [stop, error] = std::from_chars(at, end, parts[read]);
    if (error != std::errc() || parts[read] < 0)
      break;
    at = stop;
    if (read == kSeparators.size() || at == end || *at != kSeparators[read]) {
      ++read;
      break;
    }
    ++at;
  }
  const auto [year, month, day, hour, minute, second, millisecond] = parts;
  const std::chrono::year_month_day date(std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day)));
  if (read < 6 || at != end || !date.ok() || year < 1970 || year > 2200 || hour > 23 ||
      minute > 59 || second > 60 || millisecond > 999)
    return std::nullopt;
  const int64_t days = std::chrono::sys_days(date).time_since_epoch().count();
  return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1'000'000'000 +
         int64_t{millisecond} * 1'000'000;
}

struct Reading {
  std::optional<int64_t> time_ns;
  std::string device;  // what tells it from others
  std::optional<int32_t> index;
  std::string uuid, name, process;
  std::optional<uint32_t> pid;
  std::optional<uint64_t> used_bytes, total_bytes;
  bool no_answer = false;
};

class Log {
 public:
  Log(const Options& options, Builder* builder) : options_(options), builder_(*builder) {}

  void Add(const std::vector<Column>& columns, std::string_view line);
  void Finish();

 private:
  using Key = std::pair<uint32_t, uint32_t>;  // account, 0: of the device itself

  std::optional<Reading> Parse(const std::vector<Column>& columns, std::string_view line) const;
  void AddReading(const Reading& reading);
  // Nothing that belongs to the readings so far follows.
  void EndQuery();
  tables::DeviceId DeviceOf(const Reading& reading);

  const Options& options_;
  Builder& builder_;
  std::map<std::string, tables::DeviceId> devices_;
  std::map<tables::AccountId, tables::CounterId> counters_;
  std::map<tables::AccountId, uint64_t> query_;  // what it said so far
  bool of_processes_ = false;
  bool has_clock_ = false;
  std::optional<int64_t> first_wall_ns_;
  int64_t query_ns_ = 0;
  uint64_t queries_ = 0;
  uint64_t lost_ = 0, unanswered_ = 0, backwards_ = 0;
};

std::optional<Reading> Log::Parse(const std::vector<Column>& columns, std::string_view line) const {
  const std::vector<std::string> cells = SplitCsv(line);
  if (cells.size() != columns.size())
    return std::nullopt;
  const bool of_process = std::find(columns.begin(), columns.end(), Column::kPid) != columns.end();
  Reading reading;
  for (size_t i = 0; i < cells.size(); ++i) {
    const std::string_view cell = Trimmed(cells[i]);
    switch (columns[i]) {
      case Column::kTime:
        reading.time_ns = TimeOf(cell);
        if (!reading.time_ns)
          return std::nullopt;
        break;
      case Column::kIndex:
        reading.index = util::WholeNumber<int32_t>(Trimmed(cell));
        if (!reading.index || *reading.index < 0)
          return std::nullopt;
        break;
      case Column::kUuid:
        reading.uuid = cell;
        [[fallthrough]];
      case Column::kBus:
        if (reading.device.empty())
          reading.device = cell;
        break;
      case Column::kName:
        (of_process ? reading.process : reading.name) = cell;
        break;
      case Column::kProcess:
        reading.process = cell;
        break;
      case Column::kPid:
        reading.pid = util::WholeNumber<uint32_t>(Trimmed(cell));
        if (!reading.pid)
          return std::nullopt;
        break;
      case Column::kTotal:
        reading.total_bytes = BytesOf(cell);
        break;
      case Column::kUsed:
        reading.used_bytes = BytesOf(cell);
        reading.no_answer = IsNoAnswer(cell);
        if (!reading.used_bytes && !reading.no_answer)
          return std::nullopt;
        break;
      case Column::kOther:
        break;
    }
  }
  if (reading.index)
    reading.device = fmt::format("#{}", *reading.index);
  return reading;
}

void Log::Add(const std::vector<Column>& columns, std::string_view line) {
  if (Trimmed(line).empty())
    return;
  const std::optional<Reading> reading = Parse(columns, line);
  if (!reading) {
    ++lost_;
  } else if (reading->no_answer) {
    ++unanswered_;
  } else {
    AddReading(*reading);
  }
}

tables::DeviceId Log::DeviceOf(const Reading& reading) {
  const auto known = devices_.find(reading.device);
  if (known != devices_.end())
    return known->second;
  const auto number = static_cast<int32_t>(devices_.size());
  const tables::DeviceId id = builder_.Gpu(reading.index.value_or(number));
  tables::DeviceRow& row = builder_.device(id);
  row.uuid = builder_.Text(reading.uuid);
  row.name = builder_.Text(reading.name);
  row.total_bytes = reading.total_bytes.value_or(0);
  devices_.emplace(reading.device, id);
  return id;
}

void Log::AddReading(const Reading& reading) {
  const tables::DeviceId device = DeviceOf(reading);
  tables::ProcessId process;
  if (reading.pid) {
    of_processes_ = true;
    process = builder_.Process(*reading.pid);
    if (builder_.process(process).command.value == 0)
      builder_.process(process).command = builder_.Text(reading.process);
  }
  const tables::AccountId account = builder_.Account(process, device);
  int64_t time_ns = 0;
  if (reading.time_ns) {
    has_clock_ = true;
    if (!first_wall_ns_) {
      first_wall_ns_ = *reading.time_ns;
      builder_.SetWallTime(*first_wall_ns_);
    }
    time_ns = *reading.time_ns - *first_wall_ns_;
  }
  if (query_.contains(account) || (!query_.empty() && time_ns - query_ns_ > kQueryNs))
    EndQuery();
  if (query_.empty()) {
    backwards_ += has_clock_ && time_ns < query_ns_ ? 1 : 0;
    const int64_t step_ns = options_.period_ns.value_or(kNoClockStepNs);
    query_ns_ =
        has_clock_ ? std::max(time_ns, query_ns_) : static_cast<int64_t>(queries_) * step_ns;
  }
  query_.emplace(account, *reading.used_bytes);
}

void Log::EndQuery() {
  if (query_.empty())
    return;
  const int64_t time_ns = builder_.Tick(query_ns_);
  for (const auto& [account, bytes] : query_) {
    if (!counters_.contains(account))
      counters_[account] =
          builder_.Counter(builder_.Site(Builder::SiteOf(account, Part::kSampled)));
  }
  for (const auto& [account, counter] : counters_) {
    const auto said = query_.find(account);
    // A process that is not listed any more has nothing; a device that was not read stands.
    if (said == query_.end() && !of_processes_)
      continue;
    const uint64_t bytes = said == query_.end() ? 0 : said->second;
    builder_.Set(counter, time_ns, bytes);
    if (said == query_.end())
      continue;
    if (of_processes_)
      builder_.ProcessSample(account, time_ns, bytes, static_cast<int64_t>(bytes));
    else
      builder_.Sample(builder_.account(account).device, time_ns, bytes,
                      static_cast<int64_t>(bytes));
    builder_.Event();
  }
  ++queries_;
  query_.clear();
}

void Log::Finish() {
  EndQuery();
  builder_.Note(format::kModeNote, format::kSampledMode);
  builder_.Note("readings", util::FormatCount(queries_));
  if (has_clock_) {
    builder_.Note("clock", "the log's own");
  } else if (options_.period_ns) {
    builder_.Note("clock", fmt::format("none in the log: one reading every {}, as --period says",
                                       util::FormatDuration(*options_.period_ns)));
  } else {
    builder_.CountSeconds(
        "readings", "none in the log: a second stands for a reading (--period says how long)");
  }
  builder_.Lacks("allocations, and what came and went between two readings");
  builder_.Lacks(of_processes_ ? "memory that is of no listed process" : "whose memory it was");
  builder_.Lose(kLostRows, lost_);
  builder_.Lose(kNoFigures, unanswered_);
  builder_.Lose("readings with an earlier time than the one before", backwards_);
}

// Without a header: figures with their unit and nothing else.
bool IsPlainFigure(std::string_view line) {
  line = Trimmed(line);
  return line.ends_with(" MiB") && BytesOf(line).has_value();
}

std::string_view FirstLine(std::string_view text) {
  while (text.starts_with('\n') || text.starts_with('\r'))
    text.remove_prefix(1);
  return text.substr(0, text.find_first_of("\r\n"));
}

}  // namespace

bool IsNvidiaSmi(const Input& input) {
  const std::string_view line = FirstLine(input.text_head());
  return IsPlainFigure(line) || !HeaderOf(line).empty();
}

util::Status ReadNvidiaSmi(const Input& input, const Options& options, Builder* builder) {
  LineReader lines(input.Text());
  Log log(options, builder);
  std::vector<Column> columns;
  for (std::string_view line; lines.Next(&line) && !builder->IsOver();) {
    // Logs that were appended to each other have a header each.
    std::vector<Column> header = HeaderOf(line);
    if (!header.empty()) {
      columns = std::move(header);
      continue;
    }
    if (columns.empty() && IsPlainFigure(line))
      columns = {Column::kUsed};
    if (columns.empty() && !Trimmed(line).empty()) {
      return util::Status::Error(fmt::format(
          "{}, line {}: neither a header with memory.used or used_memory nor a figure in MiB: "
          "nvidia-smi writes one with --format=csv",
          input.path(), lines.number()));
    }
    log.Add(columns, line);
  }
  VRAMSCOPE_RETURN_IF_ERROR(lines.status());
  log.Finish();
  return {};
}

}  // namespace vramscope::imports
