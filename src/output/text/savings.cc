// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "output/answers.h"
#include "output/names.h"
#include "output/text/text_table.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

using util::FormatBytes;

void AddIndented(const std::string& line, TextLines* text) {
  constexpr size_t kIndent = 3;
  Style style = text->style();
  style.wraps = true;
  text->Add(std::string(kIndent, ' ') + Wrapped(text->Clean(line), kIndent, kIndent, style));
}

// "saves about 523 MiB of reserved memory".
std::string SavesText(const query::Saving& saving) {
  const std::string of = saving.lowers == "reserved" ? " of reserved memory"
                         : saving.lowers == "device" ? " of the device"
                                                     : "";
  const std::string sure = saving.confidence == "exact" ? "" : saving.confidence + " ";
  return "saves " + sure + FormatBytes(saving.saves_bytes) + of;
}

// Of the device. What PyTorch reserves falls with what is allocated: of those two, the larger.
uint64_t SavedBytes(const query::Savings& savings) {
  uint64_t saved = savings.allocated_peak_bytes - savings.together_bytes;
  uint64_t beside = 0;
  for (const query::Saving& saving : savings.savings) {
    if (saving.lowers == "reserved")
      saved = std::max(saved, saving.saves_bytes);
    else if (saving.lowers == "device")
      beside += saving.saves_bytes;
  }
  return saved + beside;
}

std::string ClosingText(const query::Savings& savings) {
  const auto allocated = std::ranges::count(savings.savings, "allocated", &query::Saving::lowers);
  std::string text;
  if (allocated > 0) {
    text = fmt::format("{}: {} allocated at the peak. ", allocated == 1 ? "With it" : "Together",
                       FormatBytes(savings.together_bytes));
  }
  text += "This is computed from the recorded allocations. ";
  return text + (static_cast<size_t>(allocated) == savings.savings.size()
                     ? "The allocator's cache and the driver's memory are not predicted."
                     : "Reserved memory and the device's are those of one change alone.");
}

void AddBudget(const query::Savings& savings, TextLines* text) {
  if (!savings.budget_bytes)
    return;
  const uint64_t budget = *savings.budget_bytes;
  if (*savings.over_bytes == 0) {
    text->Add(fmt::format("It fits in {}, with {} to spare.", FormatBytes(budget),
                          FormatBytes(budget - savings.device_peak_bytes)));
    return;
  }
  const bool one = savings.savings.size() == 1;
  const std::string changes = one ? "change" : "changes";
  const uint64_t saved = SavedBytes(savings);
  if (savings.savings.empty()) {
    text->Add(
        fmt::format("It exceeds {} by {}.", FormatBytes(budget), FormatBytes(*savings.over_bytes)));
    return;
  }
  text->Add(
      fmt::format("It exceeds {} by {}: {}.", FormatBytes(budget), FormatBytes(*savings.over_bytes),
                  saved >= *savings.over_bytes
                      ? fmt::format("the {} below {} that much", changes, one ? "saves" : "save")
                      : fmt::format("the {} below {} less", changes, one ? "saves" : "save")));
}

}  // namespace

std::string FormatSavings(const query::Savings& savings,
                          const tables::Recording& recording,
                          const Style& style) {
  TextLines text(style);
  const tables::ProcessRow& process = RowOf(recording.tables().processes, savings.process);
  text.AddWrapped(
      fmt::format("Peak {} of {}; allocated by process {}: {}.",
                  FormatBytes(savings.device_peak_bytes), DeviceMark(recording, savings.device),
                  process.pid, FormatBytes(savings.allocated_peak_bytes)),
      Ink::kBold);
  AddBudget(savings, &text);
  text.Add("");
  {
    TextTable table(&text, {{.title = "at the peak", .width = 16, .most = 24, .fit = Fit::kCutEnd},
                            {.title = "bytes", .width = 10, .gap = 2},
                            {.title = "share", .width = 7, .gap = 2}});
    table.AddTitles();
    for (const query::NamedBytes& category : savings.categories) {
      const double share = 100.0 * static_cast<double>(category.bytes) /
                           static_cast<double>(std::max<uint64_t>(savings.allocated_peak_bytes, 1));
      table.AddRow(
          {{category.name}, {FormatBytes(category.bytes)}, {fmt::format("{:.1f} %", share)}});
    }
  }
  text.Add("");
  if (savings.savings.empty()) {
    text.Add("No rule finds a change that lowers this peak by a hundredth.");
    return text.Take();
  }
  size_t number = 0;
  for (const query::Saving& saving : savings.savings) {
    text.AddWrapped(
        fmt::format("{}. {}: {}", ++number, text.Clean(saving.change), SavesText(saving)),
        Ink::kBold);
    AddIndented("why: " + saving.why, &text);
    if (!saving.condition.empty())
      AddIndented("if: " + saving.condition, &text);
    if (!saving.place.empty())
      AddIndented("most of it: " + saving.place, &text);
  }
  text.Add("");
  text.AddWrapped(ClosingText(savings), Ink::kDim);
  return text.Take();
}

}  // namespace vramscope::output
