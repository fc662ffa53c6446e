// SPDX-License-Identifier: Apache-2.0
#include "ledger/training.h"

namespace vramscope::query {

TrainingTest::TrainingTest() {
  trace_.AddCpu();
  trace_.AddProcess(4711);
  main_ = trace_.AddThread(1, "python");
  worker_ = trace_.AddThread(2, "autograd");
  trace_.OnThread(main_);
}

void TrainingTest::AddNet() {
  trace_.Module(kNet, kNet, "", "Net");
  trace_.Module(kFirst, kNet, "first", "Linear");
  trace_.Module(kSecond, kNet, "second", "Linear");
}

void TrainingTest::Call(Frames& frames, uint64_t module, const char* file, uint32_t line) {
  frames.push_back({kTorch + "nn/modules/module.py", 1, "Module._wrapped_call_impl", module});
  frames.push_back({kTorch + "nn/modules/module.py", 2, "Module._call_impl", module});
  frames.push_back({file, line, "forward", module});
}

void TrainingTest::InLayer(uint64_t layer, uint32_t line) {
  Frames frames = MainFrames(50);
  Call(frames, kNet, kTrain, line);
  Call(frames, layer, (kTorch + "nn/modules/linear.py").c_str(), 7);
  trace_.StackIs(trace_.PythonIn(frames));
}

void TrainingTest::CallBackward(Frames& frames) {
  frames.push_back({kTorch + "_tensor.py", 3, "Tensor.backward", 0});
  frames.push_back({kTorch + "autograd/__init__.py", 4, "backward", 0});
  frames.push_back({kTorch + "autograd/graph.py", 5, "_engine_run_backward", 0});
}

void TrainingTest::InBackward() {
  Frames frames = MainFrames(60);
  CallBackward(frames);
  trace_.StackIs(trace_.PythonIn(frames));
}

void TrainingTest::CallStep(Frames& frames) {
  frames.push_back(
      {kTorch + "optim/optimizer.py", 1, "Optimizer.profile_hook_step.<locals>.wrapper", 0});
  frames.push_back({kTorch + "optim/sgd.py", 2, "SGD.step", 0});
}

void TrainingTest::InStep() {
  Frames frames = MainFrames(70);
  CallStep(frames);
  trace_.StackIs(trace_.PythonIn(frames));
}

void TrainingTest::Load() {
  Frames frames = MainFrames(40);
  frames.push_back({kTorch + "utils/data/dataloader.py", 1, "_BaseDataLoaderIter.__next__", 0});
  trace_.StackIs(trace_.PythonIn(frames));
}

Rows TrainingTest::By(const std::string& by, const std::string& when) {
  ReportQuery query = At(when);
  query.by = {*ParseDimension(by)};
  const Report report = ReportOf(trace_, query);
  EXPECT_EQ(BrokenInvariants(report), "");
  return RowBytes(report);
}

}  // namespace vramscope::query
