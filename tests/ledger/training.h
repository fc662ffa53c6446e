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
  TrainingTest() {
    trace_.AddCpu();
    trace_.AddProcess(4711);
    main_ = trace_.AddThread(1, "python");
    worker_ = trace_.AddThread(2, "autograd");
    trace_.OnThread(main_);
  }

  void AddNet() {
    trace_.Module(kNet, kNet, "", "Net");
    trace_.Module(kFirst, kNet, "first", "Linear");
    trace_.Module(kSecond, kNet, "second", "Linear");
  }
  Frames MainFrames(uint32_t line) { return {{kTrain, line, "main", 0}}; }
  void InMain(uint32_t line) { trace_.StackIs(trace_.PythonIn(MainFrames(line))); }
  static void Call(Frames& frames, uint64_t module, const char* file, uint32_t line) {
    frames.push_back({kTorch + "nn/modules/module.py", 1, "Module._wrapped_call_impl", module});
    frames.push_back({kTorch + "nn/modules/module.py", 2, "Module._call_impl", module});
    frames.push_back({file, line, "forward", module});
  }
  void InLayer(uint64_t layer, uint32_t line) {
    Frames frames = MainFrames(50);
    Call(frames, kNet, kTrain, line);
    Call(frames, layer, (kTorch + "nn/modules/linear.py").c_str(), 7);
    trace_.StackIs(trace_.PythonIn(frames));
  }
  static void CallBackward(Frames& frames) {
    frames.push_back({kTorch + "_tensor.py", 3, "Tensor.backward", 0});
    frames.push_back({kTorch + "autograd/__init__.py", 4, "backward", 0});
    frames.push_back({kTorch + "autograd/graph.py", 5, "_engine_run_backward", 0});
  }
  void InBackward() {
    Frames frames = MainFrames(60);
    CallBackward(frames);
    trace_.StackIs(trace_.PythonIn(frames));
  }
  static void CallStep(Frames& frames) {
    frames.push_back(
        {kTorch + "optim/optimizer.py", 1, "Optimizer.profile_hook_step.<locals>.wrapper", 0});
    frames.push_back({kTorch + "optim/sgd.py", 2, "SGD.step", 0});
  }
  void InStep() {
    Frames frames = MainFrames(70);
    CallStep(frames);
    trace_.StackIs(trace_.PythonIn(frames));
  }
  void Load() {
    Frames frames = MainFrames(40);
    frames.push_back({kTorch + "utils/data/dataloader.py", 1, "_BaseDataLoaderIter.__next__", 0});
    trace_.StackIs(trace_.PythonIn(frames));
  }

  Rows By(const std::string& by, const std::string& when = "end") {
    ReportQuery query = At(when);
    query.by = {*ParseDimension(by)};
    const Report report = ReportOf(trace_, query);
    EXPECT_EQ(BrokenInvariants(report), "");
    return RowBytes(report);
  }

  TraceBuilder trace_;
  trace::ThreadId main_;
  trace::ThreadId worker_;
};

}  // namespace vramscope::query
