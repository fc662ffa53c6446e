// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "ledger/report_text.h"

namespace vramscope::query {

using Rows = std::map<std::string, uint64_t>;
using Frames = std::vector<std::tuple<std::string, uint32_t, std::string, uint64_t>>;

inline constexpr char kTrain[] = "/home/me/train.py";
inline const std::string kTorch = "/v/lib/python3.11/site-packages/torch/";
inline constexpr uint64_t kNet = 0x100;
inline constexpr uint64_t kFirst = 0x200;
inline constexpr uint64_t kSecond = 0x300;
inline constexpr uint64_t kSgd = 0x900;

// A model `Net` with two layers, trained by hand: each call of a method is what one line of a
// training program does to the stack.
class TrainingTest : public ::testing::Test {
 protected:
  TrainingTest();

  void AddNet();
  Frames MainFrames(uint32_t line) { return {{kTrain, line, "main", 0}}; }
  void InMain(uint32_t line) { trace_.StackIs(trace_.PythonIn(MainFrames(line))); }
  static void Call(Frames& frames, uint64_t module, const char* file, uint32_t line);
  void InLayer(uint64_t layer, uint32_t line);
  static void CallBackward(Frames& frames);
  void InBackward();
  static void CallStep(Frames& frames);
  void InStep();
  void Load();

  Rows By(const std::string& by, const std::string& when = "end");

  TraceBuilder trace_;
  tables::ThreadId main_;
  tables::ThreadId worker_;
};

}  // namespace vramscope::query
