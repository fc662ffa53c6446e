// SPDX-License-Identifier: Apache-2.0
#include "read/site_columns.h"

#include <algorithm>

#include "format/memory_words.h"
#include "tables/row_of.h"

namespace vramscope::read {
namespace {

using tables::SiteRow;

template <class Cell>
void Gather(const std::vector<uint64_t>& values,
            const std::vector<uint32_t>& sites,
            bool are_equal,
            Cell* cells) {
  if (are_equal) {
    std::fill_n(cells, sites.size(), static_cast<Cell>(values.back()));
    return;
  }
  for (size_t i = 0; i < sites.size(); ++i)
    cells[i] = static_cast<Cell>(values[sites[i]]);
}

}  // namespace

void SiteColumn::AddRows(const std::vector<uint32_t>& sites, uint32_t lowest) const {
  const size_t count = sites.size();
  const auto first = values.begin() + lowest;
  // Most columns of one rank have one value.
  const bool are_equal =
      std::all_of(first, values.end(), [&](uint64_t value) { return value == values.back(); });
  if (is_text)
    Gather(values, sites, are_equal, column->Codes(count));
  else
    Gather(values, sites, are_equal, column->Numbers(count));
  if (!is_null_at_zero || std::find(first, values.end(), 0) == values.end())
    return;
  uint8_t* const nulls = column->Nulls(count);
  if (are_equal) {
    std::fill_n(nulls, count, uint8_t{1});
    return;
  }
  for (size_t i = 0; i < count; ++i)
    nulls[i] = values[sites[i]] == 0 ? 1 : 0;
}

// Adds the rows of one column after the other.
class SiteColumns::Adder {
 public:
  Adder(const tables::Recording& recording,
        const std::vector<uint32_t>& sites,
        GrowingTable* table,
        size_t* at)
      : recording_(recording),
        tables_(recording.tables()),
        sites_(sites),
        lowest_(sites.empty() ? 0 : *std::min_element(sites.begin(), sites.end())),
        table_(table),
        at_(at) {}

  // The column of `get(site)`.
  template <class Get>
  void Number(const char* name, const Get& get, bool is_null_at_zero = false) {
    Add(&table_->Int((*at_)++, name), false, is_null_at_zero, get);
  }

  // The same of the name of a string. Each is looked up once.
  template <class Get>
  void Text(const char* name, const Get& get) {
    constexpr uint32_t kUnknown = UINT32_MAX;
    Column* const column = &table_->Text((*at_)++, name);
    std::vector<uint32_t> codes(tables_.strings.size(), kUnknown);
    Add(column, true, true, [&](const SiteRow& site) -> uint32_t {
      const tables::StringId id = get(site);
      if (id.value >= codes.size())
        return 0;
      uint32_t& code = codes[id.value];
      if (code == kUnknown)
        code = column->CodeOf(recording_.string(id));
      return code;
    });
  }

  // The same of `texts[get(site)]`, or of no text if that number is 0.
  template <class Get>
  void TextOf(const char* name, const std::vector<std::string>& texts, const Get& get) {
    Column* const column = &table_->Text((*at_)++, name);
    std::vector<uint32_t> codes(texts.size());
    Add(column, true, true, [&](const SiteRow& site) -> uint32_t {
      const size_t number = get(site);
      if (number == 0)
        return 0;
      if (codes[number] == 0)
        codes[number] = column->CodeOf(texts[number]);
      return codes[number];
    });
  }

  // The words of an enum.
  template <class Get, class Name>
  void Word(const char* name, const Get& get, const Name& word_of) {
    Column* const column = &table_->Text((*at_)++, name);
    std::vector<uint32_t> codes(256);
    Add(column, true, true, [&](const SiteRow& site) {
      uint32_t& code = codes[static_cast<uint8_t>(get(site))];
      if (code == 0)
        code = column->CodeOf(word_of(get(site)));
      return code;
    });
  }

 private:
  template <class Get>
  void Add(Column* column, bool is_text, bool is_null_at_zero, const Get& get) {
    SiteColumn made{column, is_text, is_null_at_zero, {}};
    made.values.reserve(tables_.sites.size());
    for (const SiteRow& site : tables_.sites)
      made.values.push_back(static_cast<uint64_t>(get(site)));
    made.AddRows(sites_, lowest_);
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  const std::vector<uint32_t>& sites_;
  uint32_t lowest_;
  GrowingTable* table_;
  size_t* at_;
};

SiteColumns::SiteColumns(const tables::Recording& recording)
    : recording_(recording), tables_(recording.tables()) {
  for (const tables::AccountRow& account : tables_.accounts)
    accounts_.push_back(AccountOf(account));
  for (const SiteRow& site : tables_.sites)
    ranks_.push_back(RowOf(accounts_, site.account).rank);
}

SiteColumns::Account SiteColumns::AccountOf(const tables::AccountRow& account) const {
  const tables::DeviceRow& device = RowOf(tables_.devices, account.device);
  const tables::ProcessRow& process = RowOf(tables_.processes, account.process);
  const bool is_recorded = account.process.value != 0;
  return {.rank = is_recorded ? process.rank : -1,
          .pid = process.pid,
          .device = device.index,
          .host = RowOf(tables_.hosts, is_recorded ? process.host : device.host).name};
}

void SiteColumns::AddOfAccounts(Adder* adder) const {
  const auto of = [this](const SiteRow& site) { return RowOf(accounts_, site.account); };
  adder->Number("rank", [&](const SiteRow& site) { return of(site).rank; });
  adder->Number("pid", [&](const SiteRow& site) { return of(site).pid; });
  adder->Number("device", [&](const SiteRow& site) { return of(site).device; });
  adder->Text("host", [&](const SiteRow& site) { return of(site).host; });
  adder->Text("owner", [](const SiteRow& site) { return site.owner; });
  adder->Word(
      "category", [](const SiteRow& site) { return site.category; }, format::CategoryName);
  adder->Word(
      "part", [](const SiteRow& site) { return site.part; }, format::PartName);
}

void SiteColumns::AddToDeltas(const std::vector<uint32_t>& sites,
                              GrowingTable* table,
                              size_t* at) const {
  Adder adder(recording_, sites, table, at);
  AddOfAccounts(&adder);
}

void SiteColumns::AddToAllocations(const StackTexts& stacks,
                                   const std::vector<uint32_t>& sites,
                                   GrowingTable* table,
                                   size_t* at) const {
  Adder adder(recording_, sites, table, at);
  AddOfAccounts(&adder);
  adder.Word(
      "phase", [](const SiteRow& site) { return site.phase; }, format::PhaseName);
  adder.Text("allocator", [](const SiteRow& site) { return site.allocator; });
  adder.Text("module", [](const SiteRow& site) { return site.module; });
  adder.Text("module_class", [](const SiteRow& site) { return site.module_class; });
  adder.Text("parameter", [](const SiteRow& site) { return site.parameter; });
  adder.Text("tag", [](const SiteRow& site) { return site.tag; });
  adder.TextOf("line", stacks.frames(),
               [&](const SiteRow& site) { return stacks.LineOf(site.place); });
  adder.Number(
      "stack_id", [&](const SiteRow& site) { return stacks.IdOf(StackOf(site)); }, true);
  adder.Number("backing", [](const SiteRow& site) { return site.backing != 0; });
  adder.Number("unbacked", [](const SiteRow& site) { return site.unbacked != 0; });
}

}  // namespace vramscope::read
