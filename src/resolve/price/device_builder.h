// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "resolve/price/price.h"

// A device's input for tests: one line a call, 50 us apart and of no length unless said. MiB.
namespace vramscope::resolve::price {

inline constexpr int64_t kMiB = 1 << 20;
inline constexpr char kContext[] = "context: cuCtxCreate";
inline constexpr char kOthers[] = "other processes";

class DeviceBuilder {
 public:
  static constexpr int64_t kStepNs = 50'000;  // further apart than clocks may differ

  uint32_t AddProcess() {
    input_.processes.emplace_back();
    return process_ = static_cast<uint32_t>(input_.processes.size() - 1);
  }
  void In(uint32_t process) { process_ = process; }
  void At(int64_t time_ns) { now_ns_ = time_ns; }
  int64_t now_ns() const { return now_ns_; }
  // The next call, or the one to come, lasts from then on.
  When Next() {
    const When when{now_ns_, now_ns_, now_ns_};
    now_ns_ += kStepNs;
    return when;
  }

  Move& Moved(int64_t mib) {
    input_.moves.push_back({Next(), process_, mib * kMiB, kNone, false});
    return input_.moves.back();
  }
  uint32_t Array(int64_t estimate) {
    Moved(estimate).array = arrays_;
    return arrays_++;
  }
  void FreeArray(uint32_t array, int64_t estimate) { Moved(-estimate).array = array; }
  ImplicitCall& Implicit(format::Part part, const std::string& text) {
    input_.calls.push_back(
        {Next(), process_, part, ImplicitCall::Kind::kOther, false, false, false, false, 0, text});
    return input_.calls.back();
  }
  ImplicitCall& Launch(const std::string& kernel) {
    ImplicitCall& call = Implicit(format::Part::kLaunch, "cuLaunchKernel " + kernel);
    call.only_takes = true;
    return call;
  }
  ImplicitCall& Module(const std::string& name) {
    ImplicitCall& call = Implicit(format::Part::kCode, "cuModuleLoadData " + name);
    call.only_takes = true;
    return call;
  }
  ImplicitCall& Init() {
    ImplicitCall& call = Implicit(format::Part::kContext, "cuInit");
    call.kind = ImplicitCall::Kind::kInit;
    return call;
  }
  // The driver makes it implicitly: its end is not recorded.
  ImplicitCall& Context(uint64_t context) {
    ImplicitCall& call = Implicit(format::Part::kContext, "cuCtxCreate");
    call.kind = ImplicitCall::Kind::kContextCreate;
    call.only_takes = call.until_reading = true;
    call.context = context;
    return call;
  }
  ImplicitCall& Destroy(uint64_t context) {
    ImplicitCall& call = Implicit(format::Part::kContext, "cuCtxDestroy");
    call.kind = ImplicitCall::Kind::kContextDestroy;
    call.context = context;
    return call;
  }
  // Managed memory of a place of its own.
  uint32_t Managed(int64_t mib) {
    input_.managed_sites.push_back(process_);
    input_.managed_allocations.push_back(
        {static_cast<uint32_t>(input_.managed_sites.size() - 1), mib * kMiB});
    const auto number = static_cast<uint32_t>(input_.managed_allocations.size() - 1);
    input_.managed_moves.push_back({Next(), number, false});
    return number;
  }
  void FreeManaged(uint32_t number) { input_.managed_moves.push_back({Next(), number, true}); }
  // The primary context, which is the driver's: its memory outlasts its end.
  ImplicitCall& Primary() {
    ImplicitCall& call = Context(1);
    call.text = "cuDevicePrimaryCtxRetain";
    call.is_primary = true;
    return call;
  }
  ImplicitCall& Reset() {
    ImplicitCall& call = Destroy(1);
    call.is_primary = true;
    return call;
  }
  price::Reading& Reading(int64_t used) {
    input_.readings.push_back({Next(), process_, used * kMiB});
    return input_.readings.back();
  }
  DeviceSample& Sample(int64_t used) {
    input_.samples.push_back({Next(), used * kMiB});
    return input_.samples.back();
  }
  ProcessSample& Figure(int64_t used) {
    input_.figures.push_back({Next(), process_, used * kMiB});
    return input_.figures.back();
  }
  void OtherFigure(int64_t used) { Figure(used).process = kNone; }
  void Checkpoint(bool leaves, int64_t lasts_ns = 0) {
    When when = Next();
    when.begin_ns -= lasts_ns;
    input_.checkpoints.push_back({when, process_, leaves});
  }
  void Late() { input_.processes[process_].late_ns = Next().time_ns; }
  void Teardown() { input_.processes[process_].teardown_ns = Next().time_ns; }
  // What explicit calls gave it goes with it. For so long it may still have it.
  void End(int64_t within_ns = 0) {
    When when = Next();
    when.end_ns += within_ns;
    const int64_t teardown_ns = input_.processes[process_].teardown_ns;
    when.begin_ns = teardown_ns == kNever ? when.begin_ns : teardown_ns;
    int64_t bytes = 0;
    for (const Move& move : input_.moves)
      bytes += move.process == process_ ? move.bytes : 0;
    std::set<uint32_t> managed;
    for (const ManagedMove& move : input_.managed_moves) {
      const uint32_t site = input_.managed_allocations[move.allocation].site;
      if (input_.managed_sites[site] == process_)
        move.frees ? (void)managed.erase(move.allocation) : (void)managed.insert(move.allocation);
    }
    for (const uint32_t number : managed)
      input_.managed_moves.push_back({{when.time_ns, when.time_ns, when.time_ns}, number, true});
    input_.processes[process_].end = when;
    input_.moves.push_back({when, process_, -bytes, kNone, false});
  }

  const DeviceInput& input() const { return input_; }
  DevicePrices Prices() const { return PriceDevice(input_); }

  // "context: cuCtxCreate" -> MiB, at that time; with "1 " before it where it is another process's
  // than the first.
  std::map<std::string, int64_t> Rows(int64_t time_ns = kNever) const {
    const DevicePrices prices = Prices();
    std::map<std::string, int64_t> rows;
    for (const Step& step : prices.steps) {
      const Counter& counter = prices.counters[step.counter];
      std::string name;
      if (counter.process != kNone && counter.process != 0)
        name = std::to_string(counter.process) + " ";
      name += PartName(counter.part);
      if (!counter.trigger.empty())
        name += ": " + counter.trigger;
      if (counter.managed_site != kNone)
        name += " " + std::to_string(counter.managed_site);
      if (step.when.time_ns <= time_ns)
        rows[name] += step.bytes;
    }
    std::erase_if(rows, [](const auto& row) { return row.second == 0; });
    for (auto& [name, bytes] : rows)
      bytes /= kMiB;
    return rows;
  }
  // The residual of a sample beyond the calls under way.
  static int64_t Residual(const DeviceSample& sample, const SampleResult& result) {
    const int64_t difference = sample.used_bytes - result.ledger_bytes;
    if (difference > 0)
      return difference > result.high_bytes ? difference - result.high_bytes : 0;
    return difference < -result.low_bytes ? difference + result.low_bytes : 0;
  }
  // The largest of those that count, in bytes.
  int64_t WorstResidual() const {
    const DevicePrices prices = Prices();
    int64_t worst = 0;
    for (size_t i = 0; i < input_.samples.size(); ++i) {
      const int64_t residual =
          prices.samples[i].counted ? Residual(input_.samples[i], prices.samples[i]) : 0;
      worst =
          (residual < 0 ? -residual : residual) > (worst < 0 ? -worst : worst) ? residual : worst;
    }
    return worst;
  }
  // Of all recorded processes and others, in MiB.
  int64_t Total(int64_t time_ns = kNever) const {
    const DevicePrices prices = Prices();
    int64_t bytes = 0;
    for (const Move& move : input_.moves) {
      if (move.when.time_ns > time_ns)
        continue;
      bytes += move.array == kNone ? move.bytes
                                   : (move.bytes < 0 ? -1 : 1) * prices.arrays[move.array].bytes;
    }
    for (const Step& step : prices.steps)
      bytes += step.when.time_ns <= time_ns ? step.bytes : 0;
    return bytes / kMiB;
  }

 private:
  DeviceInput input_;
  uint32_t process_ = kNone;
  uint32_t arrays_ = 0;
  int64_t now_ns_ = 1'000'000'000;
};

}  // namespace vramscope::resolve::price
