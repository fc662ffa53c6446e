// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <string_view>

#include "query/allocator/allocator_model.h"

namespace vramscope::query {

// Runs a program of allocator calls, one a line, and says what each did, as tests/allocator/
// oracle.cc does it with the real allocator:
//
//   version 2.13.0 | capacity 400M | fraction 0.5 | set CONF | empty | stat
//   alloc NAME BYTES [STREAM] | free NAME | use NAME STREAM | finish STREAM
//   pool NUMBER create|open|close|release|empty|fallback|nosplit
//
// Sizes may end with M for MiB. An event is a letter, bytes, @ and the offset from the first
// address, and the stream if it is not 0: S segment_alloc, F segment_free, M map, U unmap, A alloc,
// R free_requested, C free_completed, O out of memory.
class AllocatorProgram : public AllocatorListener {
 public:
  AllocatorProgram() { Restart("2.13.0"); }

  // What the line did; "?" where it is none.
  std::string Run(const std::string& line) {
    events_.clear();
    std::istringstream words(line);
    std::string command;
    std::string name;
    std::string what;
    words >> command >> name >> what;
    uint64_t stream = 0;
    words >> stream;
    if (command == "version")
      Restart(name);
    else if (command == "alloc")
      Allocate(name, SizeOf(what), stream);
    else if (command == "free")
      Free(name);
    else if (command == "use")
      Use(name, std::strtoull(what.c_str(), nullptr, 10));
    else if (command == "pool")
      RunPool(std::strtoull(name.c_str(), nullptr, 10), what);
    else if (!RunGlobal(command, name))
      return "?";
    return events_.empty() ? "-" : events_;
  }

  void OnAllocatorEvent(const AllocatorEvent& event) override {
    constexpr std::string_view kLetters = "ARCSFMUO";
    if (!events_.empty())
      events_ += ' ';
    events_ += kLetters[static_cast<size_t>(event.action)];
    events_ += SizeText(event.bytes);
    if (event.action != AllocatorAction::kOutOfMemory)
      events_ += "@" + SizeText(event.address - (uint64_t{0x7000} << 32));
    if (event.stream != 0)
      events_ += fmt::format("/{}", event.stream);
  }

  static uint64_t SizeOf(const std::string& text) {
    const double unit = !text.empty() && text.back() == 'M' ? static_cast<double>(kMebibyte) : 1;
    return static_cast<uint64_t>(std::llround(std::strtod(text.c_str(), nullptr) * unit));
  }

 private:
  static constexpr uint64_t kDeviceBytes = uint64_t{80} << 30;

  static std::string SizeText(uint64_t bytes) {
    return bytes % kMebibyte == 0 ? fmt::format("{}M", bytes / kMebibyte)
                                  : fmt::format("{}", bytes);
  }

  void Restart(const std::string& version) {
    rules_ = RulesOf(version);
    driver_ = std::make_unique<SimulatedDriver>(kDeviceBytes);
    model_ = std::make_unique<AllocatorModel>(rules_, kDeviceBytes, driver_.get(), this);
    blocks_.clear();
  }
  void Allocate(const std::string& name, uint64_t bytes, uint64_t stream) {
    if (blocks_.count(name) > 0)
      return;
    if (AllocatorBlock* const block = model_->Allocate(bytes, stream))
      blocks_[name] = block;
  }
  void Free(const std::string& name) {
    const auto it = blocks_.find(name);
    if (it == blocks_.end())
      return;
    model_->Free(it->second);
    blocks_.erase(it);
  }
  void Use(const std::string& name, uint64_t stream) {
    if (const auto it = blocks_.find(name); it != blocks_.end())
      model_->RecordStream(it->second, stream);
  }
  void RunPool(uint64_t number, const std::string& what) {
    if (what == "create")
      model_->CreatePool(number);
    else if (what == "open")
      model_->OpenPool(number);
    else if (what == "close")
      model_->ClosePool(number);
    else if (what == "release")
      model_->ReleasePool(number);
    else if (what == "empty")
      model_->EmptyPool(number);
    else if (what == "fallback")
      model_->UseOnOutOfMemory(number);
    else if (what == "nosplit")
      model_->SetNoSplit(number);
    else
      events_ = "?";
  }
  bool RunGlobal(const std::string& command, const std::string& value) {
    if (command == "capacity") {
      driver_->set_capacity_bytes(SizeOf(value));
    } else if (command == "fraction") {
      model_->SetFraction(std::strtod(value.c_str(), nullptr));
    } else if (command == "finish") {
      driver_->Finish(std::strtoull(value.c_str(), nullptr, 10));
    } else if (command == "set") {
      if (!ApplyAllocatorSettings(value, rules_, &model_->settings()).ok())
        events_ = "refused";
    } else if (command == "empty") {
      model_->EmptyCache();
    } else if (command == "stat") {
      events_ = fmt::format("allocated {} active {} reserved {} driver {} retries {}",
                            SizeText(model_->allocated_bytes()), SizeText(model_->active_bytes()),
                            SizeText(model_->reserved_bytes()), SizeText(driver_->used_bytes()),
                            model_->retries());
    } else {
      return false;
    }
    return true;
  }

  AllocatorRules rules_;
  std::unique_ptr<SimulatedDriver> driver_;
  std::unique_ptr<AllocatorModel> model_;
  std::map<std::string, AllocatorBlock*> blocks_;
  std::string events_;
};

}  // namespace vramscope::query
