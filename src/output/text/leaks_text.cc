// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "output/answers.h"
#include "output/names.h"
#include "output/text/text_table.h"
#include "query/dimensions/fold_names.h"
#include "query/dimensions/iteration_times.h"
#include "query/results.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

constexpr double kSlightGrowthBytes = 1024;  // growth below it is not worth a warning

class LeaksText : public TextLines {
 public:
  LeaksText(const query::Leaks& leaks,
            const tables::Recording& recording,
            const LeaksTextOptions& options)
      : TextLines(options.style), leaks_(leaks), recording_(recording), options_(options) {
    std::set<tables::DeviceId> devices;
    for (const auto* list : {&leaks.growing, &leaks.never_freed}) {
      for (const query::Growth& growth : *list)
        devices.insert(growth.device);
    }
    several_devices_ = devices.size() > 1;
  }

  std::string Format() {
    if (tables::IsSampled(recording_)) {
      Add("Sampled: allocations are unknown, so neither what grows nor what was never");
      Add("freed. `vramscope run` records them.");
      return Take();
    }
    AddGrowing();
    AddNeverFreed();
    if (leaks_.suppressed_count > 0) {
      Add("");
      Add(fmt::format(
          "Suppressed: {} in {} allocation{}", util::FormatBytes(leaks_.suppressed_bytes),
          util::FormatCount(leaks_.suppressed_count), leaks_.suppressed_count == 1 ? "" : "s"));
    }
    return Take();
  }

 private:
  void AddGrowing();
  // What the rows leave of the growth of the total.
  void AddUnexplained();
  void AddNeverFreed();
  void AddNotListed();
  // The place with its properties, and the callers below it.
  void AddEntry(const query::Growth& growth, std::string first, TextTable* table);
  std::vector<TextColumn> Columns(const char* first, const char* second, const char* title) const;
  size_t Shown(size_t entries) const {
    return options_.top == 0 ? entries : std::min(entries, options_.top);
  }

  const query::Leaks& leaks_;
  const tables::Recording& recording_;
  const LeaksTextOptions& options_;
  bool several_devices_ = false;
};

std::vector<TextColumn> LeaksText::Columns(const char* first,
                                           const char* second,
                                           const char* title) const {
  return {{.title = first, .width = kBytesColumns},
          {.title = second, .width = kBytesColumns},
          {.title = "count", .width = 9},
          {.title = title,
           .width = several_devices_ ? kMarkColumns : 0,
           .fit = Fit::kLeft,
           .gap = 2,
           .title_ink = Ink::kBold},
          {.fit = Fit::kCutEnd}};
}

void LeaksText::AddEntry(const query::Growth& growth, std::string first, TextTable* table) {
  table->AddRow({{std::move(first)},
                 {util::FormatBytes(growth.last_bytes)},
                 {util::FormatCount(growth.count)},
                 {several_devices_ ? DeviceMark(recording_, growth.device) : ""},
                 {growth.place.empty() ? "(no stack)" : Clean(growth.place)}});
  // Of what it is: "activation of encoder.2".
  std::string what = growth.category == "unknown" ? "" : Clean(growth.category);
  if (!growth.module.empty())
    what += (what.empty() ? "" : " of ") + Clean(query::LayerWords(growth.module));
  std::string callers;
  for (const std::string& caller : Callers(recording_, growth.stack, 4))
    callers += (what.empty() && callers.empty() ? "< " : " < ") + Clean(caller);
  if (!what.empty() || !callers.empty())
    table->AddBelow(what + callers);
}

void LeaksText::AddGrowing() {
  const LeaksVerdict verdict = VerdictOf(leaks_);
  const size_t end =
      std::min(verdict.text.find(leaks_.too_few ? ":" : " over "), verdict.text.size());
  const bool is_slight = leaks_.Grows() && leaks_.bytes_per_iteration < kSlightGrowthBytes;
  const Ink ink = verdict.good ? Ink::kGood : is_slight ? Ink::kBold : Ink::kWarning;
  if (leaks_.iterations == 0) {
    Add(verdict.text + ", so growth cannot be distinguished from");
    Add("normal use: " + query::WhatEndsIterations(recording_) + ".");
  } else {
    Add(Paint(verdict.text.substr(0, end), ink, style()) + verdict.text.substr(end) + ".");
  }
  if (leaks_.adopted > 0) {
    const std::string which =
        leaks_.adopted == 1
            ? "1 process has too few iterations of its own"
            : util::FormatCount(leaks_.adopted) + " processes have too few iterations of their own";
    Add("  " + which + ": judged by the main one's", Ink::kDim);
  }
  if (leaks_.growing.empty()) {
    AddUnexplained();
    Add("");
    return;
  }
  const size_t shown = Shown(leaks_.growing.size());
  bool any_unsteady = false;
  {
    TextTable table(this, Columns("growth", "now", "Growing, bytes an iteration"));
    table.AddTitles();
    for (size_t i = 0; i < shown; ++i) {
      const query::Growth& growth = leaks_.growing[i];
      const auto rate =
          static_cast<uint64_t>(std::llround(std::max(growth.bytes_per_iteration, 0.0)));
      // Growth that came at once may be a cache that fills; the steady one is the leak.
      any_unsteady = any_unsteady || !growth.steady;
      AddEntry(growth, (growth.steady ? "" : "~") + util::FormatBytes(rate), &table);
    }
  }
  AddMore(leaks_.growing.size() - shown);
  AddUnexplained();
  if (any_unsteady) {
    std::string why = "  ~ not in every iteration: perhaps a cache that still fills";
    if (leaks_.adopted > 0)
      why += ", or a loader ahead";
    Add(why, Ink::kDim);
  }
  Add("");
}

void LeaksText::AddUnexplained() {
  const int64_t rest = std::llround(leaks_.unexplained_per_iteration);
  // Fractions of a per mille are the line's, which fits no series exactly.
  if (std::llabs(rest) * 1000 <= std::llround(leaks_.bytes_per_iteration))
    return;
  Add(PadLeft(util::FormatSignedBytes(rest), kBytesColumns) + std::string(kBytesColumns + 9, ' ') +
      "  " + (rest > 0 ? "(in no line that grows of its own)" : "(other memory shrinks)"));
}

void LeaksText::AddNeverFreed() {
  if (leaks_.never_freed.empty()) {
    Add("Never freed: nothing but models in use.");
    AddNotListed();
    return;
  }
  const size_t shown = Shown(leaks_.never_freed.size());
  {
    TextTable table(this, Columns("", "bytes", "Never freed, alive at the end"));
    table.AddTitles();
    for (size_t i = 0; i < shown; ++i)
      AddEntry(leaks_.never_freed[i], "", &table);
  }
  AddMore(leaks_.never_freed.size() - shown);
  if (const std::string unused = UnusedModelsText(leaks_); !unused.empty())
    AddCut("  " + Clean(unused));
  AddNotListed();
}

// Explains why memory of the report is missing here.
void LeaksText::AddNotListed() {
  if (const std::string kept = NotListedText(leaks_); !kept.empty())
    Add(Wrapped("Alive at the end too, as expected: " + kept, 0, 2, style()));
}

}  // namespace

LeaksVerdict VerdictOf(const query::Leaks& leaks) {
  const std::string count = util::FormatCount(static_cast<uint64_t>(leaks.iterations));
  if (leaks.iterations == 0)
    return {"No iterations in this recording", false};
  if (leaks.too_few) {
    return {fmt::format("Too few iterations to tell: {} ({} warm-up); {} are needed", count,
                        leaks.warm_up, query::kFewestIterations),
            false};
  }
  const std::string over =
      fmt::format(" over {} iterations after {} of warm-up", count, leaks.warm_up);
  if (!leaks.Grows())
    return {"Nothing grows" + over, true};
  return {
      fmt::format("Memory grows by {} an iteration{}",
                  util::FormatBytes(static_cast<uint64_t>(std::llround(leaks.bytes_per_iteration))),
                  over),
      false};
}

std::string UnusedModelsText(const query::Leaks& leaks) {
  if (leaks.unused.count == 0)
    return {};
  return fmt::format("{} of it in {} model{} not in use: {}", util::FormatBytes(leaks.unused.bytes),
                     util::FormatCount(leaks.unused.count), leaks.unused.count == 1 ? "" : "s",
                     leaks.unused.names);
}

std::string NotListedText(const query::Leaks& leaks) {
  std::vector<std::pair<uint64_t, const char*>> kept;
  for (const format::Category category : format::kAllCategories) {
    if (const uint64_t bytes = query::BytesOf(leaks.not_listed, category); bytes > 0)
      kept.emplace_back(bytes, format::CategoryName(category));
  }
  std::stable_sort(kept.begin(), kept.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string text;
  for (const auto& [bytes, name] : kept)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, util::FormatBytes(bytes));
  return text;
}

std::string FormatLeaks(const query::Leaks& leaks,
                        const tables::Recording& recording,
                        const LeaksTextOptions& options) {
  return LeaksText(leaks, recording, options).Format();
}

}  // namespace vramscope::output
