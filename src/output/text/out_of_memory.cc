// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "output/answers.h"
#include "output/names.h"
#include "query/dimensions/fold_names.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

using util::FormatBytes;

constexpr size_t kMostRows = 8;

std::string At(const std::string& place, const std::string& layer) {
  std::string text = place.empty() ? "" : " at " + place;
  return layer.empty() ? text : text + " (" + query::LayerWords(layer) + ")";
}

// The driver does not say what a context or a module of code needs.
std::string Requested(const query::Refusal& refusal) {
  return refusal.requested_bytes == 0 ? "an unknown amount" : FormatBytes(refusal.requested_bytes);
}

const char* Verdict(const query::Refusal& refusal) {
  return refusal.served ? "failed, then served" : "failed";
}

tables::DeviceId DeviceOf(const tables::Recording& recording, const query::Refusal& refusal) {
  return RowOf(recording.tables().accounts, refusal.account).device;
}

std::string Since(const tables::Recording& recording, int64_t time_ns) {
  return ExactSeconds(time_ns - recording.tables().session.begin_ns) + " s";
}

std::string FreeThen(const query::OutOfMemory& what) {
  if (!what.free_bytes)
    return "free memory unknown";
  const std::string bytes = FormatBytes(*what.free_bytes);
  if (what.refusal.reported_free_bytes)
    return bytes + " free (as the log says)";
  const std::string total = FormatBytes(what.total_bytes);
  if (bytes == total && *what.free_bytes < what.total_bytes)
    return fmt::format("at least {} of {} in use", FormatBytes(what.total_bytes - *what.free_bytes),
                       total);
  return fmt::format("at most {} of {} free", bytes, total);
}

class Text {
 public:
  Text(const query::OutOfMemory& what, const tables::Recording& recording, const Style& style)
      : what_(what), recording_(recording), style_(style) {}

  std::string Format() {
    AddHead();
    for (const auto& [title, names] : {std::pair{"what holds the memory", &what_.categories},
                                       {"layers", &what_.layers},
                                       {"lines", &what_.lines}}) {
      AddSection(title, *names, kMostRows, [](const query::NamedBytes& name) {
        return std::pair(name.bytes, "  " + name.name);
      });
    }
    AddSection("live arrays in XLA's pool", what_.xla_pool.arrays, kMostRows,
               [](const query::XlaArrays& arrays) {
                 return std::pair(arrays.bytes,
                                  fmt::format("  {} of {}", arrays.count, arrays.shape));
               });
    AddSection("mostly free segments, and the block that keeps each allocated", what_.pins,
               kMostRows, [](const query::PinnedSegment& pin) {
                 const std::string others =
                     pin.blocks > 1 ? fmt::format(" and {} smaller", pin.blocks - 1) : "";
                 return std::pair(
                     pin.free_bytes,
                     fmt::format(" free of {}, kept by {}{}{}", FormatBytes(pin.size_bytes),
                                 FormatBytes(pin.block_bytes), At(pin.place, pin.layer), others));
               });
    AddSection("what to try, and what it would save", what_.advice, what_.advice.size(),
               [](const query::Advice& advice) {
                 return std::pair(advice.saves_bytes,
                                  fmt::format("  {} [{}]", advice.text, advice.how));
               });
    return std::move(text_);
  }

 private:
  void Line(const std::string& line) { text_ += Printable(line, style_.utf8) + "\n"; }

  void AddHead() {
    const query::Refusal& refusal = what_.refusal;
    for (const std::string& line : OutOfMemoryLines(what_, recording_, style_))
      text_ += line + "\n";
    const std::string asked =
        refusal.api.value == 0
            ? "no call of the driver is in the recording"
            : fmt::format(
                  "{} requested {} from the driver {}", recording_.string(refusal.api),
                  refusal.asked_driver_bytes == 0 ? "it" : FormatBytes(refusal.asked_driver_bytes),
                  refusal.attempts == 1 ? "once" : fmt::format("{} times", refusal.attempts));
    Line(fmt::format("  by {} at {}; {}", ProcessLabel(recording_, what_.process),
                     Since(recording_, refusal.time_ns), asked));
    Line(fmt::format("  free within segments of allocators: {}, largest range {}",
                     FormatBytes(what_.free_in_segments_bytes),
                     FormatBytes(what_.largest_free_range_bytes)));
  }

  // `describe`: the bytes of an item, and what follows them.
  template <class Items, class Describe>
  void AddSection(const char* title, const Items& items, size_t most, const Describe& describe) {
    if (items.empty())
      return;
    text_ += "\n" + Paint(title, Ink::kBold, style_) + "\n";
    for (size_t i = 0; i < std::min(items.size(), most); ++i) {
      const auto [bytes, text] = describe(items[i]);
      Line(fmt::format("  {:>10}{}", FormatBytes(bytes), text));
    }
  }

  const query::OutOfMemory& what_;
  const tables::Recording& recording_;
  const Style& style_;
  std::string text_;
};

}  // namespace

std::string RefusalHead(const query::OutOfMemory& what, const tables::Recording& recording) {
  const query::Refusal& refusal = what.refusal;
  return fmt::format("{}{}: {} requested{}, {}{}", kOutOfMemoryBegin,
                     DeviceMark(recording, what.device), Requested(refusal),
                     At(what.place, what.layer), FreeThen(what),
                     refusal.served ? " (failed, then served)" : "");
}

std::vector<std::string> OutOfMemoryLines(const query::OutOfMemory& what,
                                          const tables::Recording& recording,
                                          const Style& style) {
  std::string held;
  for (size_t i = 0; i < std::min<size_t>(what.holders.size(), 3); ++i) {
    const query::MemoryHolder& holder = what.holders[i];
    held += fmt::format("{}{} {}{}", held.empty() ? "" : ", ", holder.name,
                        FormatBytes(holder.bytes), i == 1 ? At(holder.place, holder.layer) : "");
  }
  std::vector<std::string> lines = {
      Paint(Printable(RefusalHead(what, recording), style.utf8), Ink::kBold, style),
      Printable("  cause: " + what.cause, style.utf8),
      Printable("  held:  " + held, style.utf8),
  };
  if (const std::string best = TryText(what); !best.empty())
    lines.push_back(Printable("  try:   " + best, style.utf8));
  return lines;
}

std::string TryText(const query::OutOfMemory& what) {
  // What saves less would not have helped.
  if (what.advice.empty() || what.advice[0].saves_bytes < what.refusal.requested_bytes)
    return "";
  const query::Advice& best = what.advice[0];
  return fmt::format("{}: saves at most {}", best.text, FormatBytes(best.saves_bytes));
}

std::string FormatOutOfMemory(const query::OutOfMemory& what,
                              const tables::Recording& recording,
                              const Style& style) {
  return Text(what, recording, style).Format();
}

std::string FormatRefusals(const std::vector<query::Refusal>& refusals,
                           const tables::Recording& recording,
                           const Style& style) {
  std::string text;
  for (size_t i = 0; i < refusals.size(); ++i) {
    const query::Refusal& refusal = refusals[i];
    text += Printable(fmt::format("{:>3}  {:>10}  {} at {}, {}", i + 1, Requested(refusal),
                                  DeviceMark(recording, DeviceOf(recording, refusal)),
                                  Since(recording, refusal.time_ns), Verdict(refusal)),
                      style.utf8) +
            "\n";
  }
  return text;
}

std::string RefusalsLine(const std::vector<query::Refusal>& refusals, const std::string& file) {
  const query::Refusal* last = nullptr;
  size_t count = 0;
  for (const query::Refusal& refusal : refusals) {
    if (refusal.served)
      continue;
    last = &refusal;
    ++count;
  }
  if (last == nullptr)
    return "";
  const std::string amount = Requested(*last);
  return fmt::format("Out of memory: {}: `vramscope report {} --oom`",
                     count == 1 ? fmt::format("a request for {} failed", amount)
                                : fmt::format("{} requests failed, the last of {}", count, amount),
                     file);
}

}  // namespace vramscope::output
