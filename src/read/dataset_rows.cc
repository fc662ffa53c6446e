// SPDX-License-Identifier: Apache-2.0
#include "read/dataset_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <utility>

#include "format/memory_words.h"
#include "query/dimensions/report.h"
#include "query/results.h"
#include "tables/row_of.h"
#include "util/containers/intern_table.h"

namespace vramscope::read {
namespace {

using tables::AllocationFrame;

// Ids are positive int64.
constexpr uint64_t kIdMask = INT64_MAX;

uint64_t HashText(std::string_view text, uint64_t seed = 0xcbf29ce484222325u) {
  for (const char c : text)
    seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return util::Mix64(seed);
}

std::string_view BaseName(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

template <class Value>
void Put(const Value& value, Column* column) {
  if constexpr (std::is_same_v<Value, std::string>)
    column->Text(value);
  else if constexpr (std::is_same_v<Value, double>)
    column->Number(std::bit_cast<uint64_t>(value));
  else if constexpr (std::is_arithmetic_v<Value>)
    column->Number(static_cast<uint64_t>(value));
  else
    column->NumberOrNull(value);
}

// The rows of one table of a summary.
template <class Row>
void AddRows(const std::vector<Row>& rows, int64_t number, GrowingTable* table) {
  size_t at = 0;
  Column& recording = table->Int(at++, "recording");
  for (size_t i = 0; i < rows.size(); ++i)
    recording.Number(number);
  query::ResultOf<Row>::VisitFields(
      [&]<class Form, class Get>(const query::Field<Row, Form, Get>& field) {
        Column& column = std::is_same_v<Form, std::string> ? table->Text(at++, field.name)
                                                           : table->Int(at++, field.name);
        for (const Row& row : rows)
          Put(std::invoke(field.get, row), &column);
      });
}

// A column whose value depends on the attributes of an allocation alone: its values by site.
struct SiteColumn {
  Column* column;
  bool is_text;
  bool is_null_at_zero;
  std::vector<uint64_t> values;

  void AddRows(const std::vector<uint32_t>& sites) const {
    const size_t count = sites.size();
    if (is_text)
      Gather(sites, column->Codes(count));
    else
      Gather(sites, column->Numbers(count));
    if (!is_null_at_zero || std::find(values.begin(), values.end(), 0) == values.end())
      return;
    uint8_t* const nulls = column->Nulls(count);
    for (size_t i = 0; i < count; ++i)
      nulls[i] = values[sites[i]] == 0 ? 1 : 0;
  }

 private:
  template <class Cell>
  void Gather(const std::vector<uint32_t>& sites, Cell* cells) const {
    for (size_t i = 0; i < sites.size(); ++i)
      cells[i] = static_cast<Cell>(values[sites[i]]);
  }
};

}  // namespace

// The detail of one recording.
class DatasetRows::Detail {
 public:
  Detail(std::shared_ptr<const tables::Recording> recording, DatasetRows* out)
      : kept_(std::move(recording)),
        recording_(*kept_),
        tables_(kept_->tables()),
        out_(*out),
        memory_(out->scratch_),
        pending_(memory_.pending),
        allocations_before_(out->allocations_.rows()) {
    Clear(&pending_);
    ReadFrames();
    ReadIdentity();
  }

  bool IsOf(const tables::Recording& recording) const { return &recording == &recording_; }

  // Reads all of it: rows of a damaged recording must not be in a batch that is already written.
  util::Status Check() const {
    AllocationFrame frame;
    for (size_t i = 0; i < recording_.frame_count(); ++i)
      VRAMSCOPE_RETURN_IF_ERROR(recording_.Read(i, tables::kAllColumns, &frame));
    return {};
  }

  util::Result<bool> AddAllocations() {
    AllocationFrame& frame = memory_.frame;
    for (; next_ < recording_.frame_count(); ++next_) {
      if (pending_.rows >= out_.group_rows_) {
        Flush();
        return false;
      }
      if (const util::Status read = recording_.Read(next_, tables::kAllColumns, &frame);
          !read.ok()) {
        out_.allocations_.Truncate(allocations_before_);
        return read;
      }
      Append(frame);
    }
    Flush();
    return true;
  }

  void AddDeltas() {
    if (tables_.steps.empty())
      return;
    std::vector<uint32_t> sites;
    sites.reserve(tables_.steps.size());
    for (const tables::StepRow& step : tables_.steps)
      sites.push_back(SiteOf(RowOf(tables_.counters, step.counter).site.value));
    size_t at = 0;
    for (const SiteColumn& column : OfSites(&out_.deltas_, {}, &at))
      column.AddRows(sites);
    Column& time = out_.deltas_.Int(at++, "time_ns");
    Column& bytes = out_.deltas_.Int(at++, "bytes");
    std::vector<uint32_t> segments;
    for (const tables::StepRow& step : tables_.steps) {
      time.Number(step.time_ns);
      bytes.Number(step.bytes);
      segments.push_back(RowOf(tables_.counters, step.counter).segment.value);
    }
    AddSegments(segments, &out_.deltas_.Int(at++, "segment_id"));
  }

  void AddSamples() {
    Column& host = out_.samples_.Text(0, "host");
    Column& device = out_.samples_.Int(1, "device");
    Column& uuid = out_.samples_.Text(2, "device_uuid");
    Column& time = out_.samples_.Int(3, "time_ns");
    Column& used = out_.samples_.Int(4, "used_bytes");
    Column& ledger = out_.samples_.Int(5, "ledger_bytes");
    for (const tables::SampleRow& sample : tables_.samples) {
      const tables::DeviceRow& of = RowOf(tables_.devices, sample.device);
      host.TextOrNull(recording_.string(RowOf(tables_.hosts, of.host).name));
      device.Number(int64_t{of.index});
      uuid.TextOrNull(recording_.string(of.uuid));
      time.Number(sample.time_ns);
      used.Number(sample.used_bytes);
      ledger.Number(sample.ledger_bytes);
    }
  }

 private:
  struct Account {
    int64_t rank;
    int64_t pid;
    int64_t device;
    tables::StringId host;
  };

  // The texts of frames, and the ids of stacks. A stack's caller is an earlier row.
  void ReadFrames() {
    std::vector<uint64_t> hashes;
    for (const tables::FrameRow& frame : tables_.frames) {
      frames_.push_back(FrameText(frame));
      hashes.push_back(HashText(frames_.back()));
    }
    stack_ids_.resize(tables_.stacks.size());
    for (size_t i = 1; i < tables_.stacks.size(); ++i) {
      const tables::StackRow& stack = tables_.stacks[i];
      const uint64_t caller = stack_ids_[stack.parent.value < i ? stack.parent.value : 0];
      const uint64_t hash = hashes[stack.frame.value < hashes.size() ? stack.frame.value : 0];
      stack_ids_[i] = std::max<uint64_t>(1, util::Mix64(caller * 3 + hash) & kIdMask);
    }
  }

  std::string FrameText(const tables::FrameRow& frame) const {
    const std::string_view function = recording_.string(frame.function);
    if (frame.line != 0) {
      return fmt::format("{}:{}{}{}", BaseName(recording_.string(frame.file)), frame.line,
                         function.empty() ? "" : " in ", function);
    }
    const std::string_view image = BaseName(recording_.string(frame.image));
    return function.empty() ? fmt::format("{:#x} ({})", frame.pc, image)
                            : fmt::format("{} ({})", function, image);
  }

  // Numbers of segments are unique over all recordings after this was added.
  void ReadIdentity() {
    uint64_t hash = HashText(tables_.session.name);
    const auto add = [&](uint64_t number) { hash = util::Mix64(hash * 3 + number); };
    add(static_cast<uint64_t>(tables_.session.begin_ns));
    add(static_cast<uint64_t>(tables_.session.begin_wall_ns));
    for (const tables::HostRow& host : tables_.hosts)
      add(HashText(recording_.string(host.name)));
    for (const tables::ProcessRow& process : tables_.processes) {
      add(process.pid);
      add(static_cast<uint64_t>(process.rank));
    }
    // Half of the range, so that the sum stays positive.
    first_segment_ = (hash & kIdMask) >> 1;
  }

  uint32_t SiteOf(uint32_t site) const { return site < tables_.sites.size() ? site : 0; }

  void Append(const AllocationFrame& frame) {
    const auto append = [](const auto& from, auto* to) {
      to->insert(to->end(), from.begin(), from.end());
    };
    append(frame.begin_ns, &pending_.begin_ns);
    append(frame.end_ns, &pending_.end_ns);
    append(frame.alloc_ns, &pending_.alloc_ns);
    append(frame.address, &pending_.address);
    append(frame.bytes, &pending_.bytes);
    append(frame.rounding_bytes, &pending_.rounding_bytes);
    append(frame.segment, &pending_.segment);
    for (const uint32_t site : frame.site)
      pending_.site.push_back(SiteOf(site));
    pending_.rows += frame.rows;
  }

  // `order` becomes the pending rows by time; rows of one time keep their order.
  void SortByTime() {
    const std::vector<int64_t>& times = pending_.begin_ns;
    std::vector<uint32_t>& order = memory_.order;
    order.resize(times.size());
    std::iota(order.begin(), order.end(), 0);
    if (std::is_sorted(times.begin(), times.end()))
      return;
    const auto [first, last] = std::minmax_element(times.begin(), times.end());
    const uint64_t lowest = static_cast<uint64_t>(*first);
    const uint64_t range = static_cast<uint64_t>(*last) - lowest;
    auto& items = memory_.items;
    auto& sorted = memory_.sorted;
    items.resize(times.size());
    sorted.resize(times.size());
    for (uint32_t row = 0; row < times.size(); ++row)
      items[row] = {static_cast<uint64_t>(times[row]) - lowest, row};
    // Digit by digit, from the lowest.
    constexpr unsigned kBits = 11;
    for (unsigned shift = 0; shift < 64 && range >> shift != 0; shift += kBits) {
      const auto digit = [shift](uint64_t key) { return key >> shift & ((1U << kBits) - 1); };
      std::array<uint32_t, (1U << kBits) + 1> at{};
      for (const auto& item : items)
        ++at[digit(item.first) + 1];
      std::partial_sum(at.begin(), at.end(), at.begin());
      for (const auto& item : items)
        sorted[at[digit(item.first)]++] = item;
      items.swap(sorted);
    }
    for (size_t i = 0; i < items.size(); ++i)
      order[i] = items[i].second;
  }

  // By rank and time.
  void SortPending() {
    SortByTime();
    std::vector<int64_t> ranks;
    for (size_t i = 0; i < tables_.accounts.size(); ++i)
      ranks.push_back(AccountOf(tables::AccountId{static_cast<uint32_t>(i)}).rank);
    const auto rank = [&](uint32_t row) {
      const size_t account = tables_.sites[pending_.site[row]].account.value;
      return ranks[account < ranks.size() ? account : 0];
    };
    const auto before = [&](uint32_t a, uint32_t b) { return rank(a) < rank(b); };
    std::vector<uint32_t>& order = memory_.order;
    if (!std::is_sorted(order.begin(), order.end(), before))
      std::stable_sort(order.begin(), order.end(), before);
  }

  // The memory stays.
  static void Clear(AllocationFrame* frame) {
    frame->rows = 0;
    frame->begin_ns.clear();
    frame->end_ns.clear();
    frame->alloc_ns.clear();
    frame->address.clear();
    frame->bytes.clear();
    frame->rounding_bytes.clear();
    frame->site.clear();
    frame->segment.clear();
  }

  // Moves the pending rows into the table.
  void Flush() {
    if (pending_.rows == 0)
      return;
    SortPending();
    const AllocationFrame& rows = pending_;
    const std::vector<uint32_t>& order = memory_.order;
    GrowingTable& table = out_.allocations_;
    std::vector<uint32_t>& sites = memory_.sites;
    sites.resize(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      sites[i] = rows.site[order[i]];
    size_t at = 0;
    for (const SiteColumn& column :
         OfSites(&table, {"phase", "allocator", "module", "module_class", "parameter", "tag"}, &at))
      column.AddRows(sites);
    for (const SiteColumn& column : OfAllocations(&table, &at))
      column.AddRows(sites);
    const auto add = [&](const auto& values, Column& column) {
      uint64_t* const cells = column.Numbers(order.size());
      for (size_t i = 0; i < order.size(); ++i)
        cells[i] = static_cast<uint64_t>(values[order[i]]);
      return cells;
    };
    add(rows.begin_ns, table.Int(at++, "begin_ns"));
    add(rows.alloc_ns, table.Int(at++, "alloc_ns"));
    add(rows.address, table.Int(at++, "address"));
    add(rows.bytes, table.Int(at++, "bytes"));
    add(rows.rounding_bytes, table.Int(at++, "rounding_bytes"));
    Column& end = table.Int(at++, "end_ns");
    const uint64_t* const ends = add(rows.end_ns, end);
    uint8_t* const nulls = end.Nulls(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      nulls[i] = ends[i] == static_cast<uint64_t>(tables::kNever) ? 1 : 0;
    std::vector<uint32_t>& segments = memory_.segments;
    segments.resize(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      segments[i] = rows.segment[order[i]];
    AddSegments(segments, &table.Int(at++, "segment_id"));
    Clear(&pending_);
  }

  // Row 0 is none.
  void AddSegments(const std::vector<uint32_t>& segments, Column* column) const {
    uint64_t* const cells = column->Numbers(segments.size());
    uint8_t* const nulls = column->Nulls(segments.size());
    for (size_t i = 0; i < segments.size(); ++i) {
      cells[i] = first_segment_ + segments[i];
      nulls[i] = segments[i] == 0 ? 1 : 0;
    }
  }

  Account AccountOf(tables::AccountId id) const {
    const tables::AccountRow& account = RowOf(tables_.accounts, id);
    const tables::DeviceRow& device = RowOf(tables_.devices, account.device);
    const tables::ProcessRow& process = RowOf(tables_.processes, account.process);
    const bool is_recorded = account.process.value != 0;
    return {.rank = is_recorded ? process.rank : -1,
            .pid = process.pid,
            .device = device.index,
            .host = RowOf(tables_.hosts, is_recorded ? process.host : device.host).name};
  }

  // `get(site)` for each site, as a column.
  template <class Get>
  SiteColumn Numbers(Column& column, bool is_null_at_zero, const Get& get) const {
    SiteColumn made{&column, false, is_null_at_zero, {}};
    made.values.reserve(tables_.sites.size());
    for (const tables::SiteRow& site : tables_.sites)
      made.values.push_back(static_cast<uint64_t>(get(site)));
    return made;
  }

  // Each text is looked up once.
  template <class Get>
  SiteColumn Texts(Column& column, const Get& get) const {
    constexpr uint32_t kUnknown = UINT32_MAX;
    std::vector<uint32_t> codes(tables_.strings.size(), kUnknown);
    SiteColumn made = Numbers(column, true, [&](const tables::SiteRow& site) -> uint32_t {
      const tables::StringId id = get(site);
      if (id.value >= codes.size())
        return 0;
      uint32_t& code = codes[id.value];
      if (code == kUnknown)
        code = column.CodeOf(recording_.string(id));
      return code;
    });
    made.is_text = true;
    return made;
  }

  // The words of an enum.
  template <class Get, class Name>
  SiteColumn Words(Column& column, const Get& get, const Name& name) const {
    std::vector<uint32_t> codes(256);
    SiteColumn made = Numbers(column, true, [&](const tables::SiteRow& site) {
      uint32_t& code = codes[static_cast<uint8_t>(get(site))];
      if (code == 0)
        code = column.CodeOf(name(get(site)));
      return code;
    });
    made.is_text = true;
    return made;
  }

  // Columns of allocations and deltas, then those of `more`.
  std::vector<SiteColumn> OfSites(GrowingTable* table,
                                  const std::vector<const char*>& more,
                                  size_t* at) const {
    using tables::SiteRow;
    std::vector<SiteColumn> columns;
    const auto number = [&](const char* name, int64_t Account::*field) {
      columns.push_back(Numbers(table->Int((*at)++, name), false, [&](const SiteRow& site) {
        return AccountOf(site.account).*field;
      }));
    };
    const auto text = [&](const char* name, const auto& get) {
      columns.push_back(Texts(table->Text((*at)++, name), get));
    };
    number("rank", &Account::rank);
    number("pid", &Account::pid);
    number("device", &Account::device);
    text("host", [&](const SiteRow& site) { return AccountOf(site.account).host; });
    text("owner", [](const SiteRow& site) { return site.owner; });
    columns.push_back(Words(
        table->Text((*at)++, "category"), [](const SiteRow& site) { return site.category; },
        format::CategoryName));
    columns.push_back(Words(
        table->Text((*at)++, "part"), [](const SiteRow& site) { return site.part; },
        format::PartName));
    for (const std::string_view name : more) {
      if (name == "phase") {
        columns.push_back(Words(
            table->Text((*at)++, "phase"), [](const SiteRow& site) { return site.phase; },
            format::PhaseName));
        continue;
      }
      tables::StringId SiteRow::*const field = name == "allocator"      ? &SiteRow::allocator
                                               : name == "module"       ? &SiteRow::module
                                               : name == "module_class" ? &SiteRow::module_class
                                               : name == "parameter"    ? &SiteRow::parameter
                                                                        : &SiteRow::tag;
      text(name.data(), [field](const SiteRow& site) { return site.*field; });
    }
    return columns;
  }

  // The columns that only allocations have.
  std::vector<SiteColumn> OfAllocations(GrowingTable* table, size_t* at) {
    using tables::SiteRow;
    std::vector<SiteColumn> columns;
    Column& line = table->Text((*at)++, "line");
    std::vector<uint32_t> codes(frames_.size());
    columns.push_back(Numbers(line, true, [&](const SiteRow& site) -> uint32_t {
      const size_t frame = LineOf(site.place);
      if (frame == 0)
        return 0;
      if (codes[frame] == 0)
        codes[frame] = line.CodeOf(frames_[frame]);
      return codes[frame];
    }));
    columns.back().is_text = true;
    columns.push_back(
        Numbers(table->Int((*at)++, "stack_id"), true, [&](const SiteRow& site) -> uint64_t {
          return StackIdOf(site.stack.value != 0 ? site.stack : site.native_stack);
        }));
    columns.push_back(Numbers(table->Int((*at)++, "backing"), false,
                              [](const SiteRow& site) { return site.backing != 0; }));
    columns.push_back(Numbers(table->Int((*at)++, "unbacked"), false,
                              [](const SiteRow& site) { return site.unbacked != 0; }));
    return columns;
  }

  // The innermost frame of the user's code, or the innermost of all; 0: none.
  size_t LineOf(tables::StackId stack) const {
    const size_t innermost = RowOf(tables_.stacks, stack).frame.value;
    for (; stack.value != 0; stack = CallerOf(stack)) {
      const size_t frame = RowOf(tables_.stacks, stack).frame.value;
      if (RowOf(tables_.frames, frame).library == 0)
        return frame < frames_.size() ? frame : 0;
    }
    return innermost < frames_.size() ? innermost : 0;
  }

  tables::StackId CallerOf(tables::StackId stack) const {
    const tables::StackId caller = RowOf(tables_.stacks, stack).parent;
    return caller < stack ? caller : tables::StackId();
  }

  // Adds the stack's row if it is the first of its frames.
  uint64_t StackIdOf(tables::StackId stack) {
    if (stack.value == 0 || stack.value >= stack_ids_.size())
      return 0;
    const uint64_t id = stack_ids_[stack.value];
    if (out_.stacks_->Add(id)) {
      out_.stack_rows_.Int(0, "stack_id").Number(id);
      out_.stack_rows_.Text(1, "stack").Text(StackText(stack));
    }
    return id;
  }

  // One frame a line, outermost first.
  std::string StackText(tables::StackId stack) const {
    std::vector<size_t> frames;
    for (; stack.value != 0; stack = CallerOf(stack))
      frames.push_back(RowOf(tables_.stacks, stack).frame.value);
    std::string text;
    for (size_t i = frames.size(); i-- > 0;) {
      text += frames[i] < frames_.size() ? frames_[frames[i]] : std::string();
      if (i > 0)
        text += '\n';
    }
    return text;
  }

  std::shared_ptr<const tables::Recording> kept_;
  const tables::Recording& recording_;
  const tables::Tables& tables_;
  DatasetRows& out_;
  Scratch& memory_;
  AllocationFrame& pending_;  // rows that are not in the table yet
  size_t allocations_before_;
  size_t next_ = 0;  // frame
  std::vector<std::string> frames_;
  std::vector<uint64_t> stack_ids_;
  uint64_t first_segment_ = 0;
};

DatasetRows::DatasetRows(size_t group_rows, std::shared_ptr<WrittenStacks> stacks)
    : group_rows_(std::max<size_t>(1, group_rows)),
      stacks_(std::move(stacks)),
      allocations_("allocations", group_rows_) {
  query::ResultOf<query::Summary>::VisitFields([&](const auto& field) {
    using Rows = std::decay_t<decltype(std::invoke(field.get, query::Summary()))>;
    if constexpr (query::kIsRows<Rows>)
      summary_.push_back(std::make_unique<GrowingTable>(field.name));
  });
}

DatasetRows::~DatasetRows() = default;

util::Status DatasetRows::AddSummary(const tables::Recording& recording, int64_t number) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Summary summary, query::MakeSummary(recording));
  recordings_.Int(0, "recording").Number(number);
  recordings_.Text(1, "run").Text(summary.run);
  size_t at = 0;
  query::ResultOf<query::Summary>::VisitFields([&](const auto& field) {
    const auto& rows = std::invoke(field.get, summary);
    if constexpr (query::kIsRows<std::decay_t<decltype(rows)>>)
      AddRows(rows, number, summary_[at++].get());
  });
  return {};
}

util::Result<bool> DatasetRows::AddDetail(
    const std::shared_ptr<const tables::Recording>& recording) {
  if (open_ == nullptr || !open_->IsOf(*recording)) {
    const uint64_t count = recording->tables().session.allocation_count;
    if (const size_t rows = allocations_.rows();
        rows > 0 && rows + std::min<uint64_t>(count, group_rows_) > group_rows_)
      return false;
    auto detail = std::make_unique<Detail>(recording, this);
    if (count > group_rows_)
      VRAMSCOPE_RETURN_IF_ERROR(detail->Check());
    open_ = std::move(detail);
  }
  util::Result<bool> added = open_->AddAllocations();
  if (added.ok() && !*added)
    return false;
  const std::unique_ptr<Detail> done = std::move(open_);
  if (added.ok()) {
    done->AddDeltas();
    done->AddSamples();
  }
  return added;
}

GrowingTable* DatasetRows::Find(const std::string& name) {
  for (GrowingTable* const table :
       {&recordings_, &allocations_, &deltas_, &samples_, &stack_rows_}) {
    if (name == table->name())
      return table;
  }
  for (const std::unique_ptr<GrowingTable>& table : summary_) {
    if (name == table->name())
      return table.get();
  }
  return nullptr;
}

}  // namespace vramscope::read
