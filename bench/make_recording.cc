// SPDX-License-Identifier: Apache-2.0
// Writes one made-up training as different tools record it, for bench/finish.py.
//
//   bench_make_recording live EVENTS NAME.vram.d [RANK]  a live recording of vramscope; of that
//                                                     rank, for bench/ranks.py
//   bench_make_recording heaptrack EVENTS FILE        what heaptrack writes, not compressed
//   bench_make_recording snapshot EVENTS FILE.pickle  what torch.cuda.memory._dump_snapshot()
//   writes
//
// Prints how many allocations and frees there are.
#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "bench/made_up_training.h"
#include "format/enums.h"
#include "trace/testing/live_file_builder.h"

namespace {

namespace format = vramscope::format;
using bench::MadeUpTraining;
using bench::TrainingSink;
using vramscope::trace::testing::LiveFileBuilder;

[[noreturn]] void Die(const std::string& message) {
  std::fprintf(stderr, "bench_make_recording: %s\n", message.c_str());
  std::exit(2);
}

// The file is written as it is made: it may be larger than memory.
class OutFile {
 public:
  explicit OutFile(const std::string& path) : path_(path), file_(std::fopen(path.c_str(), "wb")) {
    if (file_ == nullptr)
      Die("cannot write " + path);
  }
  ~OutFile() {
    if (std::fclose(file_) != 0)
      Die("cannot write " + path_);
  }
  OutFile(const OutFile&) = delete;
  OutFile& operator=(const OutFile&) = delete;
  void Put(std::string_view bytes) { std::fwrite(bytes.data(), 1, bytes.size(), file_); }
  FILE* get() { return file_; }

 private:
  std::string path_;
  FILE* file_;
};

class LiveSink : public TrainingSink {
 public:
  // `rank` < 0: of none.
  explicit LiveSink(int rank)
      : file_({.pid = 100 + static_cast<uint32_t>(std::max(rank, 0)),
               .start_ns = MadeUpTraining::kFirstNs,
               .start_wall_ns = kWallNs + rank % 7 * kWallApartNs,
               .chunk_bytes = format::kChunkBytes}) {
    LiveFileBuilder::StreamBuilder& main = file_.Stream(1);
    main.Thread(100, "MainThread");
    file_.Stream(2).Thread(101, "pt_autograd_0");
    main.Add(format::Device{.device = 0,
                            .total_bytes = uint64_t{80} << 30,
                            .uuid = format::Bytes{"GPU-made-up", 11},
                            .name = format::Bytes{"made up", 7}});
    api_ = main.String("cuMemAlloc_v2");
    optimizer_ = main.String("SGD");
    const uint64_t type = main.String("Block");
    uint64_t time_ns = MadeUpTraining::kFirstNs;
    main.Add(format::Module{.time = time_ns, .object = kRoot, .root = kRoot, .type = type});
    for (uint32_t layer = 0; layer < MadeUpTraining::kLayers; ++layer) {
      const uint64_t path = main.String("layers." + std::to_string(layer));
      main.Add(format::Module{.time = time_ns,
                              .object = kRoot + 64 * (layer + 1),
                              .root = kRoot,
                              .path = path,
                              .type = type});
    }
    MakeStacks(main);
    if (rank < 0)
      return;
    const std::string number = std::to_string(rank);
    main.Add(format::Runtime{.key = {"RANK", 4}, .value = {number.data(), number.size()}});
    if (rank == kHeavyRank)
      AddHeavyBlock();
  }

  void OnSegment(uint64_t time_ns, uint64_t address, uint64_t bytes) override {
    file_.Stream(1).Add(format::Alloc{.begin = time_ns - 20'000,
                                      .end = time_ns,
                                      .api = api_,
                                      .device = 0,
                                      .address = address,
                                      .size = bytes});
  }
  void OnAlloc(uint64_t time_ns, Thread thread, const Block& block) override {
    // Autograd's thread runs no Python.
    StreamOf(thread).Add(
        format::BlockAlloc{.time = time_ns,
                           .address = block.address,
                           .size = block.bytes,
                           .device = 0,
                           .stack = thread == Thread::kMain ? stacks_[block.place] : 0,
                           .sequence = block.sequence});
  }
  void OnFree(uint64_t time_ns, Thread thread, const Block& block) override {
    StreamOf(thread).Add(format::BlockFree{
        .time = time_ns, .address = block.address, .size = block.bytes, .device = 0});
  }
  void OnStep(uint64_t time_ns, bool begins) override {
    const format::StepKind kind = begins ? format::StepKind::kBegin : format::StepKind::kEnd;
    file_.Stream(1).Add(format::Step{
        .time = time_ns, .kind = static_cast<uint64_t>(kind), .optimizer = 1, .name = optimizer_});
  }
  void Write(const std::string& directory) {
    std::filesystem::create_directories(directory);
    if (!file_.Write(directory + "/100.1.vrl"))
      Die("cannot write to " + directory);
  }

 private:
  static constexpr uint64_t kRoot = 0x7e0000000000;
  static constexpr int64_t kWallNs = 1'700'000'000'000'000'000;
  static constexpr int64_t kWallApartNs = 120'000'000'000;
  static constexpr int kHeavyRank = 777;

  // In a segment of its own, of layer 7.
  void AddHeavyBlock() {
    constexpr uint64_t kAddress = 0x7d0000000000;
    constexpr uint64_t kBytes = uint64_t{64} << 20;
    OnSegment(MadeUpTraining::kFirstNs + 20'001, kAddress, kBytes);
    OnAlloc(MadeUpTraining::kFirstNs + 20'002, Thread::kMain,
            {kAddress, kBytes, 7 * MadeUpTraining::kOperators * 4 + 1, 0});
  }

  LiveFileBuilder::StreamBuilder& StreamOf(Thread thread) {
    return file_.Stream(thread == Thread::kMain ? 1 : 2);
  }
  // train.py: main > step > the model's forward > its layer's > the operator, as deep as Python is.
  void MakeStacks(LiveFileBuilder::StreamBuilder& main) {
    const uint64_t model_code = main.PyCode("train.py", "Model.forward", 40);
    const uint64_t layer_code = main.PyCode("train.py", "Block.forward", 60);
    const auto frame = [&](uint64_t parent, uint64_t code, uint64_t instruction, uint64_t object) {
      const uint64_t id = ++last_stack_;
      main.Add(format::PyStack{
          .id = id, .parent = parent, .code = code, .instruction = instruction, .object = object});
      return id;
    };
    uint64_t step =
        main.PyFrame(main.PyFrame(0, "train.py", "<module>", 200), "train.py", "main", 180);
    step = main.PyFrame(step, "train.py", "step", 150);
    const uint64_t model = frame(step, model_code, 2, kRoot);
    uint64_t layer_stack = 0;
    for (uint32_t place = 0; place < MadeUpTraining::kPlaces; ++place) {
      const uint32_t layer = MadeUpTraining::LayerOf(place);
      if (place % (4 * MadeUpTraining::kOperators) == 0)
        layer_stack = frame(model, layer_code, 2 * layer, kRoot + 64 * (layer + 1));
      stacks_.push_back(main.PyFrame(layer_stack, "train.py", "operator",
                                     300 + place % (4 * MadeUpTraining::kOperators)));
    }
  }

  LiveFileBuilder file_;
  uint64_t api_ = 0;
  uint64_t optimizer_ = 0;
  uint64_t last_stack_ = 1'000'000;  // beyond those of the builder
  std::vector<uint64_t> stacks_;
};

// The text that heaptrack's interpreter writes and heaptrack_print reads: sizes and traces of
// allocations are numbered, "+" and "-" name the number.
class HeaptrackSink : public TrainingSink {
 public:
  explicit HeaptrackSink(OutFile* file) : file_(file->get()) {
    std::fputs("v 10500 3\nX made-up training\nI 1000 1000000\n", file_);
    std::fputs("s 8 train.py\ns 8 operator\n", file_);
    for (uint32_t place = 0; place < MadeUpTraining::kPlaces; ++place)
      std::fprintf(file_, "i %x 1 2 1 %x\n", 0x1000 + place, place + 1);
    for (uint32_t place = 0; place < MadeUpTraining::kPlaces; ++place)
      std::fprintf(file_, "t %x 0\n", place + 1);
  }
  void OnSegment(uint64_t, uint64_t, uint64_t) override {}
  void OnAlloc(uint64_t time_ns, Thread, const Block& block) override {
    NoteTime(time_ns);
    std::fprintf(file_, "+ %x\n", NumberOf(block));
  }
  void OnFree(uint64_t time_ns, Thread, const Block& block) override {
    NoteTime(time_ns);
    std::fprintf(file_, "- %x\n", NumberOf(block));
  }
  void OnStep(uint64_t, bool) override {}

 private:
  // Every 10 ms, as heaptrack does.
  void NoteTime(uint64_t time_ns) {
    const uint64_t time_ms = (time_ns - MadeUpTraining::kFirstNs) / 1'000'000;
    if (time_ms < last_ms_ + 10)
      return;
    last_ms_ = time_ms;
    std::fprintf(file_, "c %" PRIx64 "\n", time_ms);
  }
  uint32_t NumberOf(const Block& block) {
    const auto [found, added] =
        numbers_.try_emplace({block.bytes, block.place}, static_cast<uint32_t>(numbers_.size()));
    if (added)
      std::fprintf(file_, "a %" PRIx64 " %x\n", block.bytes, block.place + 1);
    return found->second;
  }

  FILE* file_;
  uint64_t last_ms_ = 0;
  std::map<std::pair<uint64_t, uint32_t>, uint32_t> numbers_;
};

// {"segments": [], "device_traces": [[{"action": ..., "addr": ...}, ...]]} as pickle, protocol 2.
class SnapshotSink : public TrainingSink {
 public:
  explicit SnapshotSink(OutFile* file) : file_(file) {
    file_->Put(std::string_view("\x80\x02}(", 4));
    Text("segments");
    file_->Put("]");
    Text("device_traces");
    file_->Put("](](");
  }
  void OnSegment(uint64_t time_ns, uint64_t address, uint64_t bytes) override {
    Entry("segment_alloc", time_ns, {address, bytes, 0, 0});
  }
  void OnAlloc(uint64_t time_ns, Thread, const Block& block) override {
    Entry("alloc", time_ns, block);
  }
  void OnFree(uint64_t time_ns, Thread, const Block& block) override {
    // PyTorch writes both: the request and the end of the block.
    Entry("free_completed", time_ns, block);
  }
  void OnStep(uint64_t, bool) override {}
  void Finish() { file_->Put("eeu."); }

 private:
  void Entry(std::string_view action, uint64_t time_ns, const Block& block) {
    file_->Put("}(");
    Text("action");
    Text(action);
    Text("addr");
    Number(block.address);
    Text("size");
    Number(block.bytes);
    Text("stream");
    Number(0);
    Text("time_us");
    Number(time_ns / 1000);
    Text("frames");
    Frames(block.place);
    file_->Put("u");
    if (++entries_ % 1000 == 0)
      file_->Put("e(");
  }
  // Written once, and by its number afterwards.
  template <class Write>
  void Once(const std::string& key, const Write& write) {
    const auto [found, added] = memo_.try_emplace(key, static_cast<uint32_t>(memo_.size()));
    if (added)
      write();
    file_->Put(added ? "r" : "j");
    PutLittle(found->second, 4);
  }
  void Text(std::string_view text) {
    Once(std::string(text), [&] {
      file_->Put("X");
      PutLittle(text.size(), 4);
      file_->Put(text);
    });
  }
  void Frames(uint32_t place) {
    Once("\n" + std::to_string(place), [&] {
      file_->Put("]}(");
      Text("filename");
      Text("train.py");
      Text("name");
      Text("operator");
      Text("line");
      Number(place + 1);
      file_->Put("ua");
    });
  }
  void Number(uint64_t value) {
    file_->Put("\x8a\x08");
    PutLittle(value, 8);
  }
  void PutLittle(uint64_t value, size_t bytes) {
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    file_->Put({raw, bytes});
  }

  OutFile* file_;
  uint64_t entries_ = 0;
  std::map<std::string, uint32_t> memo_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && !(argc == 5 && std::string_view(argv[1]) == "live"))
    Die("bench_make_recording live|heaptrack|snapshot EVENTS PATH [RANK]");
  const std::string_view kind = argv[1];
  const uint64_t events = std::strtoull(argv[2], nullptr, 10);
  const std::string path = argv[3];
  uint64_t made = 0;
  const auto run = [&](TrainingSink& sink) {
    MadeUpTraining training(&sink);
    training.Run(events);
    made = training.events();
  };
  if (kind == "live") {
    LiveSink sink(argc == 5 ? std::atoi(argv[4]) : -1);
    run(sink);
    sink.Write(path);
  } else if (kind == "heaptrack") {
    OutFile file(path);
    HeaptrackSink sink(&file);
    run(sink);
  } else if (kind == "snapshot") {
    OutFile file(path);
    SnapshotSink sink(&file);
    run(sink);
    sink.Finish();
  } else {
    Die("no such kind: " + std::string(kind));
  }
  std::printf("%" PRIu64 "\n", made);
  return 0;
}
