// SPDX-License-Identifier: Apache-2.0
// Twelve ways to run out of memory, and the refusals that are none, on recordings made by hand.
#include "query/oom/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "query/testing/random_recording.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using format::Phase;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A device of 80 GiB with one process, which is refused 7 GiB at 1000 unless a test says otherwise.
class OutOfMemoryTest : public ::testing::Test {
 protected:
  OutOfMemoryTest() {
    tables::Tables& tables = builder_.tables;
    tables.session.begin_ns = 1;
    tables.session.end_ns = 2000;
    torch_ = builder_.Text("PyTorch");
    gpu_ = builder_.Device(tables::DeviceKind::kGpu, 0);
    tables.devices[gpu_.value].total_bytes = 80 * kGiB;
    process_ = builder_.Process(7, 2000);
    account_ = builder_.Account(process_, gpu_);
    Live(Category::kParameter, "model.py", 3, 10 * kGiB, 10, "embed");
  }

  tables::StringId Name(const std::string& text) {
    return text.empty() ? tables::StringId{} : builder_.Text(text);
  }

  tables::StackId Stack(const std::string& file, uint32_t line) {
    tables::FrameRow frame;
    frame.file = builder_.Text(file);
    frame.function = builder_.Text("f" + std::to_string(line));
    frame.line = line;
    const tables::FrameId id{RecordingBuilder::Append(builder_.tables.frames, frame)};
    return tables::StackId{RecordingBuilder::Append(builder_.tables.stacks, {{}, id})};
  }

  tables::SiteRow SiteRow(Category category,
                          const std::string& file,
                          uint32_t line,
                          const std::string& module = "",
                          Phase phase = Phase::kForward) {
    tables::SiteRow row = builder_.SiteOf(account_, Part::kAllocated, category);
    row.owner = row.allocator = torch_;
    row.stack = row.place = Stack(file, line);
    row.module = Name(module);
    row.phase = phase;
    return row;
  }

  tables::SiteId Live(Category category,
                      const std::string& file,
                      uint32_t line,
                      uint64_t bytes,
                      int64_t begin_ns,
                      const std::string& module = "",
                      Phase phase = Phase::kForward) {
    const auto site = builder_.Site(SiteRow(category, file, line, module, phase));
    builder_.Row(site, begin_ns, tables::kNever, bytes);
    return site;
  }

  // 20 of 3 GiB, with one block in each.
  void FillSegments(uint64_t block_bytes) {
    tables::SiteRow free = builder_.SiteOf(account_, Part::kCached, Category::kCached);
    free.owner = torch_;
    tables::SiteRow backing = free;
    backing.backing = 1;
    const auto backs = builder_.Site(backing);
    const auto block = builder_.Site(SiteRow(Category::kActivation, "model.py", 5, "h.7"));
    for (uint64_t i = 0; i < 20; ++i) {
      const auto segment = builder_.Segment(builder_.Site(free), Part::kFragmentation);
      tables::SegmentRow& row = builder_.tables.segments[segment.value];
      row.address = (i + 1) << 40;
      row.size_bytes = 3 * kGiB;
      builder_.Row(backs, 50, tables::kNever, 3 * kGiB, segment);
      builder_.rows.back().address = row.address;
      builder_.Row(block, 60, tables::kNever, block_bytes, segment);
      builder_.rows.back().address = row.address + (3 * kGiB - block_bytes) / 11 * 4;
    }
  }

  void Refuse(uint64_t bytes, int64_t time_ns, const char* api = "", tables::StackId stack = {}) {
    builder_.tables.out_of_memory.push_back({account_, time_ns, bytes, {}, stack, {}, Name(api)});
  }

  OutOfMemory Explain() {
    if (builder_.tables.out_of_memory.empty())
      Refuse(7 * kGiB, 1000);
    recording_ = builder_.Make();
    const auto refusals = FindRefusals(*recording_);
    EXPECT_TRUE(refusals.ok());
    auto what = ExplainRefusal(*recording_, refusals->back());
    EXPECT_TRUE(what.ok());
    uint64_t sum = 0;
    for (const MemoryHolder& holder : what->holders)
      sum += holder.bytes;
    EXPECT_EQ(sum, what->used_bytes);
    return std::move(*what);
  }

  std::string Advised(const OutOfMemory& what, const std::string& text) {
    for (const Advice& advice : what.advice) {
      if (advice.text.find(text) != std::string::npos)
        return std::to_string(advice.saves_bytes / kGiB) + " GiB";
    }
    return "none";
  }

  RecordingBuilder builder_;
  tables::StringId torch_;  // the one id of the text, as in a recording
  tables::DeviceId gpu_;
  tables::ProcessId process_;
  tables::AccountId account_;
  std::unique_ptr<tables::MemoryRecording> recording_;
};

TEST_F(OutOfMemoryTest, TheBatch) {
  Live(Category::kActivation, "model.py", 20, 40 * kGiB, 100, "h.0");
  Live(Category::kActivation, "model.py", 21, 24 * kGiB, 101, "h.1");
  const OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, AllOf(HasSubstr("activation: 64.0 GiB (80 % of the device)"),
                                HasSubstr("model.py:20 in f20 (h.0)")));
  EXPECT_EQ(what.free_bytes, std::optional(6 * kGiB));
  EXPECT_EQ(Advised(what, "halve the batch"), "32 GiB");
  EXPECT_EQ(Advised(what, "checkpoint activations"), "24 GiB");
  EXPECT_EQ(Advised(what, "end the other processes"), "none");
}

// What the program does already is no advice.
TEST_F(OutOfMemoryTest, CheckpointedActivationsAreNotCheckpointedAgain) {
  for (uint32_t line = 20; line < 24; ++line)
    Live(Category::kActivation, "torch/utils/checkpoint.py", line, 12 * kGiB, 100, "h.0");
  Live(Category::kActivation, "model.py", 30, 4 * kGiB, 101, "h.1");
  Live(Category::kActivation, "model.py", 31, 8 * kGiB, 102, "h.2");
  const OutOfMemory what = Explain();
  EXPECT_EQ(Advised(what, "halve the batch"), "30 GiB");
  EXPECT_EQ(Advised(what, "checkpoint activations"), "4 GiB");
}

TEST_F(OutOfMemoryTest, AKeptLossTensor) {
  const auto kept = builder_.Site(SiteRow(Category::kActivation, "train.py", 12));
  for (int64_t k = 0; k < 9; ++k) {
    builder_.tables.iterations.push_back({process_, k, k * 100, (k + 1) * 100});
    builder_.Row(kept, k * 100 + 50, tables::kNever, 7 * kGiB);
  }
  // Memory that only the iteration before left is not a leak.
  Live(Category::kTemporary, "train.py", 30, kGiB, 850);
  const OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, AllOf(HasSubstr("kept from earlier iterations: 63.0 GiB"),
                                HasSubstr("train.py:12 in f12")));
  EXPECT_EQ(Advised(what, "let go of what iterations keep at train.py:12"), "63 GiB");
}

TEST_F(OutOfMemoryTest, Fragmentation) {
  FillSegments(kGiB / 4);
  const OutOfMemory what = Explain();
  EXPECT_EQ(what.free_in_segments_bytes, 55 * kGiB);
  EXPECT_EQ(what.largest_free_range_bytes, 7 * kGiB / 4);
  ASSERT_EQ(what.pins.size(), 20u);
  EXPECT_EQ(what.pins[0].layer, "h.7");
  EXPECT_THAT(what.cause, HasSubstr("a limit below"));  // 10 + 60 of 80 GiB: 7 GiB were free

  builder_.tables.out_of_memory.clear();
  Live(Category::kParameter, "model.py", 4, 7 * kGiB, 20);
  EXPECT_THAT(Explain().cause,
              AllOf(HasSubstr("fragmentation: 55.0 GiB are free"), HasSubstr("1.75 GiB at one"),
                    HasSubstr("model.py:5 in f5 (h.7)")));
  EXPECT_EQ(Advised(Explain(), "expandable_segments"), "55 GiB");
}

TEST_F(OutOfMemoryTest, EndsOfSegmentsThatNothingFitsIntoAreNoFragmentation) {
  FillSegments(kGiB * 11 / 4);
  Live(Category::kParameter, "model.py", 4, 9 * kGiB, 20);
  Refuse(kGiB / 2, 1000);
  const OutOfMemory what = Explain();
  EXPECT_EQ(what.in_segments_bytes, 60 * kGiB);
  EXPECT_EQ(what.free_in_segments_bytes, 5 * kGiB);
  EXPECT_LT(what.largest_free_range_bytes, kGiB / 2);
  EXPECT_THAT(what.cause, AllOf(HasSubstr("activation: 55.0 GiB"), HasSubstr("(h.7)")));
}

TEST_F(OutOfMemoryTest, AnotherProcess) {
  const auto others = builder_.Account({}, gpu_);
  builder_.Step(builder_.Counter(builder_.Site(builder_.SiteOf(others, Part::kOtherProcesses))), 1,
                66 * static_cast<int64_t>(kGiB));
  const OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, HasSubstr("other processes: 66.0 GiB"));
  EXPECT_EQ(Advised(what, "end the other processes"), "66 GiB");
}

TEST_F(OutOfMemoryTest, AnotherRecordedProcess) {
  const auto mine = account_;
  account_ = builder_.Account(builder_.Process(8, 2000), gpu_);
  Live(Category::kParameter, "other.py", 1, 66 * kGiB, 5);
  account_ = mine;
  EXPECT_THAT(Explain().cause, HasSubstr("other processes: 66.0 GiB"));
}

TEST_F(OutOfMemoryTest, AGraphPool) {
  const auto segment = builder_.Segment(
      builder_.Site(builder_.SiteOf(account_, Part::kGraphPool, Category::kGraphPool)),
      Part::kGraphPool);
  tables::SiteRow backing = builder_.SiteOf(account_);
  backing.backing = 1;
  builder_.Row(builder_.Site(backing), 50, tables::kNever, 67 * kGiB, segment);
  const OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, HasSubstr("graph pool: 67.0 GiB"));
  EXPECT_EQ(Advised(what, "capture CUDA graphs with one pool"), "67 GiB");
  EXPECT_EQ(what.free_in_segments_bytes, 0u);  // only the graph may use it
}

TEST_F(OutOfMemoryTest, APoolOfAnotherLibrary) {
  tables::SiteRow free = builder_.SiteOf(account_, Part::kCached, Category::kCached);
  free.owner = builder_.Text("CuPy");
  tables::SiteRow backing = free;
  backing.backing = 1;
  for (int i = 0; i < 67; ++i) {
    const auto segment = builder_.Segment(builder_.Site(free), Part::kFragmentation);
    builder_.Row(builder_.Site(backing), 50, tables::kNever, kGiB, segment);
  }
  const OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, HasSubstr("free memory in the pool of CuPy: 67.0 GiB (83 % of the"));
  EXPECT_EQ(Advised(what, "cupy.get_default_memory_pool().free_all_blocks()"), "67 GiB");
  // Of the driver, by whom is unknown.
  builder_.tables.out_of_memory.clear();
  Refuse(7 * kGiB, 1000, "cuMemAlloc_v2");
  EXPECT_THAT(Explain().cause, HasSubstr("fragmentation: 67.0 GiB are free"));
}

TEST_F(OutOfMemoryTest, CommunicatorsWorkspacesAndOptimizerState) {
  const struct {
    Category category;
    const char* cause;
    const char* advice;
    const char* saves;
  } cases[] = {
      {Category::kCommunication, "communication: 67.0 GiB", "NCCL_BUFFSIZE", "67 GiB"},
      {Category::kWorkspace, "workspace: 67.0 GiB", "CUBLAS_WORKSPACE_CONFIG", "67 GiB"},
      {Category::kOptimizerState, "optimizer state: 67.0 GiB", "state of 8 bits", "50 GiB"},
  };
  const RecordingBuilder plain = builder_;
  for (const auto& one : cases) {
    builder_ = plain;
    Live(one.category, "x.py", 2, 67 * kGiB, 50);
    const OutOfMemory what = Explain();
    EXPECT_THAT(what.cause, HasSubstr(one.cause));
    EXPECT_EQ(Advised(what, one.advice), one.saves);
  }
}

TEST_F(OutOfMemoryTest, AnEvaluationThatKeepsItsGraph) {
  tables::SiteId last;
  for (uint32_t line = 8; line < 11; ++line) {
    Live(Category::kTemporary, "model.py", line, 10 * kGiB, 50, "h.0.up");
    last = Live(Category::kTemporary, "model.py", line, 12 * kGiB, 60, "h.1.up");
  }
  OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, HasSubstr("results of forward passes: 66.0 GiB"));
  // It may be the first forward of a training.
  EXPECT_EQ(Advised(what, "torch.no_grad()"), "none");
  EXPECT_EQ(Advised(what, "halve the batch"), "33 GiB");
  builder_.Row(last, 20, 30, 12 * kGiB);
  what = Explain();
  EXPECT_EQ(Advised(what, "torch.no_grad()"), "30 GiB");
  // A training needs what its forward keeps.
  Live(Category::kTemporary, "model.py", 10, 1, 70, "h.1", Phase::kBackward);
  EXPECT_EQ(Advised(Explain(), "torch.no_grad()"), "none");
}

// What is never freed may be a cache of three tensors a layer.
TEST_F(OutOfMemoryTest, WhatForwardsKeepForeverIsNoGraph) {
  for (const char* const layer : {"h.0.attn", "h.1.attn"}) {
    for (uint32_t line = 8; line < 11; ++line) {
      const auto site = Live(Category::kRetained, "model.py", line, 11 * kGiB, 50, layer);
      builder_.Row(site, 60, tables::kNever, kGiB / 8);
    }
  }
  const OutOfMemory what = Explain();
  EXPECT_EQ(Advised(what, "torch.no_grad()"), "none");
  EXPECT_EQ(Advised(what, "halve the batch"), "33 GiB");
}

// It runs under no_grad already: each layer keeps keys and values, and one layer its results.
TEST_F(OutOfMemoryTest, AnEvaluationThatKeepsACache) {
  for (const char* const layer : {"h.0.attn", "h.1.attn", "h.2.attn"}) {
    Live(Category::kTemporary, "model.py", 8, 11 * kGiB, 50, layer);
    Live(Category::kTemporary, "model.py", 9, 11 * kGiB, 50, layer);
  }
  Live(Category::kTemporary, "model.py", 10, 1 * kGiB, 60, "h.2.up");
  EXPECT_EQ(Advised(Explain(), "torch.no_grad()"), "none");
}

TEST_F(OutOfMemoryTest, ALeakWithoutIterations) {
  const auto site = builder_.Site(SiteRow(Category::kUnknown, "server.cc", 77));
  for (int64_t i = 0; i < 66; ++i)
    builder_.Row(site, 10 + i, tables::kNever, kGiB);
  const OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, AllOf(HasSubstr("allocated and never freed: 66.0 GiB"),
                                HasSubstr("server.cc:77 in f77")));
  // One that was freed, and it is what the program uses.
  builder_.Row(site, 5, 6, kGiB);
  EXPECT_THAT(Explain().cause, HasSubstr("allocations of the program: 66.0 GiB"));
}

// A context is there in any program: on a small device, or beside a small model, it holds most.
TEST_F(OutOfMemoryTest, WhatTheDriverHoldsIsToBlameOnlyWhereItIsMostOfAll) {
  builder_.tables.devices[gpu_.value].total_bytes = 50 * kGiB;
  Live(Category::kDriver, "main.py", 1, 24 * kGiB, 5);
  Live(Category::kOptimizerState, "train.py", 5, 12 * kGiB, 20);
  EXPECT_THAT(Explain().cause, HasSubstr("optimizer state: 12.0 GiB"));
  Live(Category::kDriver, "main.py", 2, 3 * kGiB, 6);
  EXPECT_THAT(Explain().cause, HasSubstr("context, code and other memory of the driver: 27.0 GiB"));
}

TEST_F(OutOfMemoryTest, WhatNobodyExplainsIsNotFree) {
  Live(Category::kWorkspace, "train.py", 5, 20 * kGiB, 20);
  EXPECT_THAT(Explain().cause, HasSubstr("a limit below the size of the device: 50.0 GiB"));
  tables::SampleRow sample;
  sample.device = gpu_;
  sample.time_ns = 900;
  sample.used_bytes = 79 * kGiB;
  sample.ledger_bytes = static_cast<int64_t>(30 * kGiB);
  builder_.tables.samples.push_back(sample);
  EXPECT_THAT(Explain().cause, HasSubstr("workspace: 20.0 GiB"));
  // It is gone before the refusal.
  sample.time_ns = 950;
  sample.used_bytes = 30 * kGiB;
  builder_.tables.samples.push_back(sample);
  EXPECT_THAT(Explain().cause, HasSubstr("a limit below the size of the device"));
}

TEST_F(OutOfMemoryTest, LogitsOfAHugeVocabulary) {
  tables::SiteRow logits = SiteRow(Category::kTemporary, "model.py", 40, "lm_head");
  builder_.Site(logits);
  Live(Category::kActivation, "model.py", 20, 20 * kGiB, 100, "h.0");
  Refuse(60 * kGiB, 1000, "", logits.stack);
  const OutOfMemory what = Explain();
  EXPECT_THAT(what.cause, AllOf(HasSubstr("the request itself: 60.0 GiB"),
                                HasSubstr("model.py:40 in f40 (lm_head)")));
  builder_.tables.out_of_memory.clear();
  Refuse(100 * kGiB, 1000);
  EXPECT_THAT(Explain().cause, HasSubstr("the request alone is larger than the device"));
}

TEST_F(OutOfMemoryTest, AKvCacheByItsName) {
  tables::SiteRow cache = SiteRow(Category::kUnknown, "serve.py", 9, "attn");
  cache.tag = builder_.Text("kv_cache");
  builder_.Row(builder_.Site(cache), 50, tables::kNever, 67 * kGiB);
  EXPECT_THAT(Explain().cause,
              AllOf(HasSubstr("67.0 GiB"), HasSubstr("serve.py:9"), HasSubstr("(kv_cache)")));
}

TEST_F(OutOfMemoryTest, APoolOfXlaThatIsFullOrFragmented) {
  Live(Category::kUnknown, "train.py", 2, 60 * kGiB, 50);
  Refuse(9 * kGiB, 1000);
  const auto note = [&](const std::string& value) {
    builder_.tables.notes.assign(1, {builder_.Text("xla pool"), builder_.Text(value)});
  };
  const auto bytes = [](uint64_t gib) { return std::to_string(gib * kGiB); };
  const std::string arrays = "\t" + bytes(40) + " 4 float32[2,5]\t" + bytes(3) + " 1 bfloat16[]\t5";
  note("7 990 " + bytes(60) + " " + bytes(55) + " 1024" + arrays);
  OutOfMemory what = Explain();
  EXPECT_EQ(what.cause,
            "XLA's pool is full: 55.0 GiB of its 60.0 GiB are in use; the most in live arrays, "
            "40.0 GiB, is in 4 of float32[2,5]");
  ASSERT_EQ(what.xla_pool.arrays.size(), 2u);
  EXPECT_EQ(what.xla_pool.arrays[1].shape, "bfloat16[]");
  EXPECT_EQ(Advised(what, "arrays float32[2,5]"), "40 GiB");
  EXPECT_EQ(Advised(what, "XLA_PYTHON_CLIENT_MEM_FRACTION"), "10 GiB");
  note("7 990 " + bytes(60) + " " + bytes(45) + " 1024");
  EXPECT_THAT(Explain().cause, HasSubstr("fragmentation of XLA's pool: 15.0 GiB of 60.0 GiB are "
                                         "free, but no more than 1.00 KiB at one place"));
  note("7 990 " + bytes(60) + " " + bytes(45) + " " + bytes(15));
  EXPECT_EQ(Explain().cause,
            "XLA's pool of 60.0 GiB was full while this ran: 45.0 GiB of it stay in use");
  note("7 990 " + bytes(8) + " 0 0");
  EXPECT_THAT(Explain().cause, HasSubstr("larger than XLA's pool: 9.00 GiB of 8.00 GiB"));
  // Of another process, of another time, and of no sense.
  for (const std::string& other : {"8 990 1 1 1" + arrays, "7 5000000000 1 1 1" + arrays,
                                   std::string("7 990"), std::string("\t\t"), std::string()}) {
    note(other);
    EXPECT_EQ(Explain().xla_pool.limit_bytes, 0u) << other;
  }
}

TEST_F(OutOfMemoryTest, AThreadWithoutPythonIsInAnOperationsBackward) {
  // Outermost first.
  const auto native =
      [&](const std::vector<std::pair<std::string, std::string>>& functions_and_images) {
        tables::StackId stack;
        for (const auto& [function, image] : functions_and_images) {
          tables::FrameRow frame;
          frame.kind = tables::FrameKind::kNative;
          frame.library = 1;
          frame.function = Name(function);
          frame.image = builder_.Text(image);
          frame.pc = 0x1234;
          const tables::FrameId id{RecordingBuilder::Append(builder_.tables.frames, frame)};
          stack = tables::StackId{RecordingBuilder::Append(builder_.tables.stacks, {stack, id})};
        }
        return stack;
      };
  const auto place = [&](tables::StackId stack) {
    builder_.tables.out_of_memory.clear();
    Refuse(7 * kGiB, 1000, "cuMemAlloc_v2");
    builder_.tables.out_of_memory.back().native_stack = stack;
    return Explain().place;
  };
  const std::pair<std::string, std::string> empty = {"at::native::empty", "/t/libtorch_cpu.so"},
                                            malloc = {"c10::malloc", "/t/libc10_cuda.so"},
                                            runtime = {"", "/t/libcudart.so.13"};
  for (const char* const end : {"::apply(int)", "_apply_functional(std::vector<int>)"}) {
    const std::string node = std::string("torch::autograd::generated::MulBackward0") + end;
    EXPECT_EQ(place(native({{node, "/t/libtorch_cpu.so"}, empty, malloc, runtime})),
              "MulBackward0 (backward)");
  }
  const std::string generated = "torch::autograd::generated::";
  EXPECT_EQ(place(native({{generated + "MulBackward0::apply(int)", "/t/libtorch_cpu.so"},
                          {generated + "details::mul_tensor_backward(int)", "/t/libtorch_cpu.so"},
                          empty,
                          malloc,
                          runtime})),
            "MulBackward0 (backward)");
  EXPECT_EQ(place(native({{"main", "/usr/lib/x.so"}, empty, malloc, runtime})),
            "at::native::empty (libtorch_cpu.so)");
  EXPECT_EQ(place(native({malloc, runtime})), "(unknown function) (libcudart.so.13)");
}

TEST_F(OutOfMemoryTest, ABackwardOnAThreadWithoutPython) {
  tables::FrameRow frame;
  frame.kind = tables::FrameKind::kNative;
  frame.function = builder_.Text("0x7fd745041b5e");
  frame.image = builder_.Text("libcudart.so.13");
  frame.library = 1;
  const tables::FrameId id{RecordingBuilder::Append(builder_.tables.frames, frame)};
  const tables::StackId native{RecordingBuilder::Append(builder_.tables.stacks, {{}, id})};
  tables::ThreadRow thread;
  thread.process = process_;
  thread.name = builder_.Text("pt_autograd_0");
  const tables::ThreadId number{RecordingBuilder::Append(builder_.tables.threads, thread)};
  builder_.tables.out_of_memory.push_back(
      {account_, 1000, 7 * kGiB, number, {}, native, Name("cuMemAlloc_v2")});
  EXPECT_EQ(Explain().place, "autograd's thread, which runs no Python");
  builder_.tables.threads[number.value].name = builder_.Text("worker");
  EXPECT_EQ(Explain().place, "0x7fd745041b5e (libcudart.so.13)");
}

TEST_F(OutOfMemoryTest, RefusalsOfOneRequestAreOne) {
  Refuse(100, 200, "cuMemAlloc_v2");
  Refuse(100, 300, "cuMemAlloc_v2");
  Refuse(90, 400);
  Refuse(100, 500, "cuMemAlloc_v2");
  tables::SiteRow driver = builder_.SiteOf(account_);
  driver.api = builder_.Text("cuMemAlloc_v2");
  builder_.Row(builder_.Site(driver), 600, tables::kNever, 100);
  Refuse(100, 700, "cuMemAlloc_v2");
  const auto refusals = FindRefusals(*builder_.Make());
  ASSERT_TRUE(refusals.ok());
  ASSERT_EQ(refusals->size(), 3u);
  EXPECT_TRUE((*refusals)[0].by_allocator);
  EXPECT_FALSE((*refusals)[0].served);  // the allocator had given up
  EXPECT_EQ((*refusals)[0].attempts, 2u);
  EXPECT_EQ((*refusals)[0].requested_bytes, 90u);
  EXPECT_TRUE((*refusals)[1].served);
  EXPECT_FALSE((*refusals)[2].served);
}

}  // namespace
}  // namespace vramscope::query
