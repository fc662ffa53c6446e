// SPDX-License-Identifier: Apache-2.0 Reads the output of torch.profiler's
// export_memory_timeline(), as .json or .json.gz: times in microseconds, then for each a zero and
// the bytes of every category.
//
//   [[1001, 1002, 1007], [[0, 4096, 0, 0, 0, 0, 0, 0, 0], [0, 4096, 0, 512, 0, 0, 0, 0, 0], ...]]
//
// and as .raw.json.gz: nanoseconds (-1: allocated before), the action, the change in bytes, and the
// category.
//
//   [[-1, 0, 4096, 0], [1001000, 1, 512, 3], [1007000, 3, -512, 3]]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "import/import.h"
#include "import/log_text.h"
#include "util/json.h"
#include "util/size_text.h"

namespace vramscope::imports {
namespace {

using format::Category;
using Token = util::JsonReader::Token;

// In the order of torch/profiler/_memory_profiler.py; autograd details and unknown memory are last.
constexpr std::array kCategories = {
    Category::kParameter,  Category::kOptimizerState, Category::kInput,     Category::kTemporary,
    Category::kActivation, Category::kGradient,       Category::kTemporary, Category::kUnknown};
constexpr double kMostTimelineUs = 4e15;
constexpr int64_t kNsPerUs = 1000;
constexpr size_t kRawNumbers = 4;

class Timeline {
 public:
  Timeline(const Input& input, Builder* builder) : builder_(*builder) {
    const tables::ProcessId process = builder->Process(0);
    builder->process(process).command = builder->Text(input.name());
    // The file does not name its device.
    const tables::AccountId account = builder->Account(process, builder->Gpu(0));
    for (size_t i = 0; i < kCategories.size(); ++i) {
      tables::SiteRow site = Builder::SiteOf(account);
      site.owner = builder->Text("PyTorch");
      site.category = kCategories[i];
      // Two of the profiler's categories map to the same one of ours.
      site.tag = builder->Text(i == 6 ? "autograd detail" : "");
      counters_[i] = builder->Counter(builder->Site(site));
    }
  }

  void AddTime(std::string_view text) {
    const double us = util::WholeNumber<double>(text).value_or(-1);
    if (builder_.budget().Charge("instants", 1, sizeof(double)))
      times_us_.push_back(us >= 0 && us <= kMostTimelineUs ? us : -1);
  }

  // A row's numbers, the zero among them.
  void AddRow(const std::vector<double>& row) {
    const size_t at = next_++;
    if (at >= times_us_.size() || times_us_[at] < 0 || row.size() != kCategories.size() + 1) {
      builder_.Lose("instants without a time or without all categories", 1);
      return;
    }
    const int64_t now_ns = builder_.Tick(std::llround(times_us_[at]) * kNsPerUs);
    for (size_t i = 0; i < kCategories.size(); ++i) {
      const double bytes = row[i + 1];
      // The profiler reports frees of memory whose allocation it did not see.
      if (bytes < 0)
        builder_.Lose("bytes below zero, shown as none", 1);
      builder_.Set(counters_[i], now_ns,
                   bytes > 0 && bytes <= double{kMostBytes} ? static_cast<uint64_t>(bytes) : 0);
    }
    builder_.Event();
  }

  // An event of the raw form.
  void AddEvent(const std::vector<double>& row) {
    const bool is_good = row.size() == kRawNumbers && row[0] <= kMostTimelineUs * kNsPerUs &&
                         std::abs(row[2]) <= double{kMostBytes} && row[3] >= 0 &&
                         row[3] < double{kCategories.size()};
    if (!is_good) {
      builder_.Lose("events without bytes or category", 1);
      return;
    }
    ++next_;
    const auto at = static_cast<size_t>(row[3]);
    constexpr auto kMost = static_cast<int64_t>(kMostBytes);
    sums_[at] = std::clamp(sums_[at] + static_cast<int64_t>(row[2]), -kMost, kMost);
    builder_.Event();
    // Memory from before has no time; it begins at the first time.
    if (row[0] < 0)
      return;
    const int64_t now_ns = builder_.Tick(static_cast<int64_t>(row[0]));
    if (!std::exchange(started_, true)) {
      for (size_t i = 0; i < kCategories.size(); ++i)
        Show(i, now_ns);
    } else {
      Show(at, now_ns);
    }
  }

  void Finish() {
    if (next_ == 0)
      builder_.WhyEmpty("no bytes by category");
    for (size_t i = 0; i < kCategories.size() && !started_ && times_us_.empty(); ++i)
      Show(i, builder_.Tick(0));
    if (next_ < times_us_.size())
      builder_.Lose("instants without bytes", times_us_.size() - next_);
    builder_.Lacks("which device (all is shown as GPU 0)");
    builder_.Lacks("allocations, lines and layers");
    builder_.Lacks("what the cache holds, and memory outside of PyTorch");
  }

 private:
  void Show(size_t category, int64_t now_ns) {
    // The profiler frees what it did not see allocated.
    builder_.Set(counters_[category], now_ns,
                 static_cast<uint64_t>(std::clamp<int64_t>(sums_[category], 0, kMostBytes)));
  }

  Builder& builder_;
  std::array<tables::CounterId, kCategories.size()> counters_;
  std::array<int64_t, kCategories.size()> sums_{};  // of the raw form
  bool started_ = false;
  std::vector<double> times_us_;
  size_t next_ = 0;
};

// The number after "[[", if any.
std::string_view NumbersAt(std::string_view head) {
  for (int i = 0; i < 2; ++i) {
    head = Trimmed(head);
    if (!head.starts_with("["))
      return {};
    head.remove_prefix(1);
  }
  head = Trimmed(head);
  const std::string_view digits = head.substr(head.starts_with("-") ? 1 : 0);
  return !digits.empty() && digits[0] >= '0' && digits[0] <= '9' ? head : std::string_view();
}

// Lists of four numbers, and no list of lists after the first.
bool IsRaw(std::string_view head) {
  const std::string_view numbers = NumbersAt(head);
  const size_t end = numbers.find(']');
  if (end == std::string_view::npos ||
      std::count(numbers.begin(), numbers.begin() + static_cast<ptrdiff_t>(end), ',') !=
          kRawNumbers - 1)
    return false;
  std::string_view rest = Trimmed(numbers.substr(end + 1));
  if (!rest.starts_with(","))
    return true;
  rest = Trimmed(rest.substr(1));
  return !Trimmed(rest.substr(std::min<size_t>(rest.size(), 1))).starts_with("[");
}

}  // namespace

bool IsTorchTimeline(const Input& input) {
  return !NumbersAt(input.text_head()).empty();
}

util::Status ReadTorchTimeline(const Input& input, const Options&, Builder* builder) {
  util::JsonReader json(input.Text(), input.path());
  Timeline timeline(input, builder);
  // Depth 2 of the first list are times, depth 3 of the second are bytes.
  const bool is_raw = IsRaw(input.text_head());
  std::vector<double> row;
  int lists = 0;
  for (Token token = json.Next(); token != Token::kEnd && !builder->IsOver(); token = json.Next()) {
    if (is_raw) {
      if (token == Token::kArray)
        row.clear();
      else if (token == Token::kNumber && row.size() <= kRawNumbers)
        row.push_back(util::WholeNumber<double>(json.text()).value_or(NAN));
      else if (token == Token::kArrayEnd && json.depth() == 1)
        timeline.AddEvent(row);
    } else if (token == Token::kArray && json.depth() == 2) {
      ++lists;
    } else if (token == Token::kArray && json.depth() == 3) {
      row.clear();
    } else if (token == Token::kNumber && json.depth() == 2 && lists == 1) {
      timeline.AddTime(json.text());
    } else if (token == Token::kNumber && json.depth() == 3 && lists == 2) {
      if (row.size() <= kCategories.size())
        row.push_back(util::WholeNumber<double>(json.text()).value_or(0));
    } else if (token == Token::kArrayEnd && json.depth() == 2 && lists == 2) {
      timeline.AddRow(row);
    }
  }
  if (json.depth() > 0 && json.status().ok())
    builder->Lose("timelines that are cut off at the end", 1);
  VRAMSCOPE_RETURN_IF_ERROR(json.status());
  timeline.Finish();
  return {};
}

}  // namespace vramscope::imports
