// SPDX-License-Identifier: Apache-2.0
#include "resolve/price/results.h"

#include <algorithm>

namespace vramscope::resolve::price {
namespace {

using format::Part;

bool IsSameCall(const When& a, const When& b) {
  return a.time_ns == b.time_ns && a.begin_ns == b.begin_ns && a.end_ns == b.end_ns;
}

}  // namespace

void Results::Fill(DevicePrices* out) {
  out_ = out;
  CollectSteps();
  Replay();
  CompareFigures();
}

void Results::CollectSteps() {
  for (const Book::Row& row : book_.rows()) {
    const auto number = static_cast<uint32_t>(out_->counters.size());
    bool is_used = false;
    for (Step step : row.steps) {
      if (step.bytes == 0)
        continue;
      is_used = true;
      step.counter = number;
      out_->steps.push_back(step);
    }
    if (!is_used)
      continue;
    out_->counters.push_back(row.counter);
    accounts_.push_back(row.account);
  }
  std::stable_sort(out_->steps.begin(), out_->steps.end(),
                   [](const Step& a, const Step& b) { return a.when.time_ns < b.when.time_ns; });
}

// All changes in order. A checkpointed process has no memory on the device.
void Results::Replay() {
  struct Account {
    int64_t bytes = 0;
    int64_t rm_bytes = 0;
    int64_t driver_bytes = 0;
    bool is_checkpointed = false;
    int64_t whole() const { return bytes + rm_bytes; }
  };
  enum class What : uint8_t { kMove, kCall, kStep, kChange, kSample, kFigure };
  struct Entry {
    int64_t time_ns;
    What what;
    size_t number;
  };
  std::vector<Entry> entries;
  const auto add = [&](What what, const auto& all) {
    for (size_t i = 0; i < all.size(); ++i)
      entries.push_back({all[i].when.time_ns, what, i});
  };
  add(What::kMove, input_.moves);
  add(What::kStep, out_->steps);
  add(What::kChange, checkpoints_.changes());
  for (size_t i = 0; i < input_.calls.size(); ++i) {
    if (input_.calls[i].reallocates || input_.calls[i].kind == ImplicitCall::Kind::kContextDestroy)
      entries.push_back({series_.calls[i].time_ns, What::kCall, i});
  }
  add(What::kSample, input_.samples);
  add(What::kFigure, input_.figures);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.what < b.what;
  });

  std::vector<Account> accounts(input_.processes.size());
  int64_t device = 0;
  std::vector<Step> rm_steps;
  const auto move = [&](const When& when, int64_t bytes, bool of_others = false) {
    if (!transits_.empty() && IsSameCall(transits_.back().when, when) &&
        !transits_.back().only_less && transits_.back().of_others == of_others)
      transits_.back().bytes += bytes;
    else
      transits_.push_back({when, bytes, false, kNone, of_others});
  };
  const auto change = [&](uint32_t process, const When& when, int64_t bytes) {
    if (process < accounts.size() && accounts[process].is_checkpointed) {
      // A call that waits for the restore moves its memory then.
      return move(when, bytes);
    }
    device += bytes;
    move(when, bytes, process == kNone);
  };
  out_->samples.resize(input_.samples.size());
  out_->figures.resize(input_.figures.size());
  for (const Entry& entry : entries) {
    switch (entry.what) {
      case What::kMove: {
        const Move& explicit_call = input_.moves[entry.number];
        if (explicit_call.process < accounts.size())
          accounts[explicit_call.process].bytes += bytes_[entry.number];
        change(explicit_call.process, explicit_call.when, bytes_[entry.number]);
        break;
      }
      case What::kStep: {
        const Step& step = out_->steps[entry.number];
        const Part part = out_->counters[step.counter].part;
        const uint32_t process = accounts_[step.counter];
        if (process < accounts.size()) {
          Account& account = accounts[process];
          if (!IsOfUvm(part))
            (part == Part::kRmInternal ? account.rm_bytes : account.bytes) += step.bytes;
          account.driver_bytes += IsDriverPart(part) ? step.bytes : 0;
        }
        // The others' memory comes from the samples themselves.
        if (part == Part::kOtherProcesses && step.when.begin_ns == step.when.end_ns)
          device += step.bytes;
        else
          change(IsOfUvm(part) ? kNone : process, step.when, step.bytes);
        break;
      }
      case What::kChange: {
        const Checkpoints::Change& gone = checkpoints_.changes()[entry.number];
        Account& account = accounts[gone.process];
        const int64_t bytes = gone.leaves ? -account.whole() : account.whole();
        move(gone.when, bytes);
        if (gone.is_known)
          break;
        account.is_checkpointed = gone.leaves;
        device += bytes;
        for (uint32_t i = 0; i < out_->counters.size(); ++i) {
          if (accounts_[i] == gone.process && out_->counters[i].part == Part::kRmInternal &&
              account.rm_bytes != 0)
            rm_steps.push_back({gone.when, i, gone.leaves ? -account.rm_bytes : account.rm_bytes});
        }
        break;
      }
      case What::kCall: {
        const ImplicitCall& call = input_.calls[entry.number];
        if (call.process >= accounts.size())
          break;
        // A sample after a context's end shows how much it freed.
        const Account& account = accounts[call.process];
        const int64_t bytes = account.driver_bytes + (call.reallocates ? 0 : account.rm_bytes);
        transits_.push_back({series_.calls[entry.number], -bytes, true, kNone});
        break;
      }
      case What::kSample:
        out_->samples[entry.number].ledger_bytes = device;
        out_->samples[entry.number].counted = series_.counted[entry.number];
        break;
      case What::kFigure: {
        const uint32_t process = input_.figures[entry.number].process;
        if (process < accounts.size() && !accounts[process].is_checkpointed)
          out_->figures[entry.number].ledger_bytes = accounts[process].bytes;
        break;
      }
    }
  }
  // RM-internal memory has no process account, so it is not off the device with one.
  out_->steps.insert(out_->steps.end(), rm_steps.begin(), rm_steps.end());
  if (!rm_steps.empty())
    std::stable_sort(out_->steps.begin(), out_->steps.end(),
                     [](const Step& a, const Step& b) { return a.when.time_ns < b.when.time_ns; });
}

void Results::CompareFigures() {
  for (const Loose& loose : figures_.loose())
    transits_.push_back(
        {{loose.begin_ns, loose.begin_ns, loose.end_ns}, loose.bytes, true, loose.process});
  std::erase_if(transits_, [](const Transit& transit) { return transit.bytes == 0; });
  std::stable_sort(transits_.begin(), transits_.end(), [](const Transit& a, const Transit& b) {
    return a.when.begin_ns < b.when.begin_ns;
  });
  std::vector<Figure> figures;
  for (size_t i = 0; i < input_.samples.size(); ++i)
    figures.push_back({input_.samples[i].when, kNone, &out_->samples[i]});
  for (size_t i = 0; i < input_.figures.size(); ++i) {
    if (input_.figures[i].process != kNone)
      figures.push_back({input_.figures[i].when, input_.figures[i].process, &out_->figures[i]});
  }
  std::stable_sort(figures.begin(), figures.end(), [](const Figure& a, const Figure& b) {
    return a.when.begin_ns < b.when.begin_ns;
  });
  std::vector<const Transit*> under_way;
  auto next = transits_.begin();
  for (const Figure& figure : figures) {
    const When& when = figure.when;
    for (; next != transits_.end() && next->when.begin_ns < when.end_ns + kClockErrorNs; ++next)
      under_way.push_back(&*next);
    std::erase_if(under_way, [&](const Transit* transit) {
      return transit->when.end_ns <= when.begin_ns - kClockErrorNs;
    });
    // The process of the call does not matter: the interval covers both cases.
    for (const Transit* transit : under_way) {
      if (transit->when.begin_ns >= when.end_ns + kClockErrorNs ||
          (transit->process != kNone && transit->process != figure.process) ||
          (transit->of_others && figure.process != kNone))
        continue;
      const bool is_before = transit->when.time_ns <= when.time_ns && !transit->only_less;
      const bool is_more = transit->bytes > 0;
      (is_before == is_more ? figure.result->low_bytes : figure.result->high_bytes) +=
          is_more ? transit->bytes : -transit->bytes;
    }
  }
}

}  // namespace vramscope::resolve::price
