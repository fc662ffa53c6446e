// SPDX-License-Identifier: Apache-2.0 Reads the result of torch.cuda.memory._snapshot(), which
// _dump_snapshot() writes, from PyTorch 1.13 on: a pickle of segments with their blocks, and of the
// allocator's last events.
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "import/event_log.h"
#include "import/import.h"
#include "import/torch/torch_pickle.h"
#include "import/torch/torch_replay.h"

namespace vramscope::imports {
namespace {

// More than any machine has.
constexpr uint64_t kMostSnapshotDevices = 4096;

class Snapshot {
 public:
  Snapshot(const Input& input, const TorchPickle& pickle, Builder* builder)
      : input_(input), pickle_(pickle), builder_(*builder), stacks_(pickle, builder) {}

  util::Status Read(const Options& options) {
    const PickleValue& root = pickle_.root();
    // Before 2.0, _snapshot() returned only the segments.
    const auto* const list = pickle_.ListOf(root);
    const auto* const segments =
        list != nullptr ? list : pickle_.ListOf(pickle_.Get(root, PickleKey::kSegments));
    if (segments == nullptr)
      return util::Status::Error(input_.path() +
                                 ": is a pickle, but not a memory snapshot of PyTorch: it has no "
                                 "'segments'");
    FindDevices(pickle_.Get(root, PickleKey::kVramscope));
    if (!builder_.budget().Charge("segments", segments->size(), 16))
      return {};
    for (const PickleValue& segment : *segments) {
      const uint64_t device = pickle_.Number(pickle_.Get(segment, PickleKey::kDevice)).value_or(0);
      if (!pickle_.IsDict(segment) || device >= kMostSnapshotDevices) {
        builder_.Lose("segments of a snapshot without a device", 1);
        continue;
      }
      ReplayOf(static_cast<uint32_t>(device)).AddSegment(segment);
      if (builder_.IsOver())
        return {};
    }
    const auto* const traces = pickle_.ListOf(pickle_.Get(root, PickleKey::kDeviceTraces));
    uint64_t events = 0;
    for (size_t i = 0;
         traces != nullptr && i < std::min<size_t>(traces->size(), kMostSnapshotDevices); ++i) {
      const auto* const trace = pickle_.ListOf((*traces)[i]);
      if (trace == nullptr || trace->empty())
        continue;
      ReplayOf(static_cast<uint32_t>(i)).SetEvents(trace);
      events += trace->size();
    }
    if (builder_.IsOver())
      return {};
    Replay(events, options);
    ReadAnnotations(pickle_.Get(root, PickleKey::kAnnotations));
    const PickleValue settings = pickle_.Get(root, PickleKey::kAllocatorSettings);
    if (const std::string_view text = pickle_.TextOf(pickle_.Get(settings, PickleKey::kAllocConf));
        !text.empty())
      builder_.Note("PYTORCH_CUDA_ALLOC_CONF", text);
    SayWhatItLacks(events);
    return {};
  }

 private:
  // Our own snapshots describe each device number.
  void FindDevices(const PickleValue& origin) {
    is_ours_ = pickle_.IsDict(origin);
    const auto* const list = pickle_.ListOf(pickle_.Get(origin, PickleKey::kDevices));
    for (size_t i = 0; list != nullptr && i < std::min<size_t>(list->size(), kMostSnapshotDevices);
         ++i) {
      const PickleValue& entry = (*list)[i];
      const uint64_t number =
          pickle_.Number(pickle_.Get(entry, PickleKey::kDevice)).value_or(kMostSnapshotDevices);
      if (number >= kMostSnapshotDevices)
        continue;
      const std::string_view kind = pickle_.TextOf(pickle_.Get(entry, PickleKey::kKind));
      const auto index = static_cast<int32_t>(
          std::min(pickle_.Number(pickle_.Get(entry, PickleKey::kIndex)).value_or(number),
                   kMostSnapshotDevices));
      const tables::DeviceId device =
          kind == "host"  ? builder_.Device(tables::DeviceKind::kHost, -2)
          : kind == "cpu" ? builder_.Device(tables::DeviceKind::kCpu, -1)
                          : builder_.Gpu(index);
      builder_.device(device).total_bytes =
          pickle_.Number(pickle_.Get(entry, PickleKey::kTotalBytes)).value_or(0);
      builder_.device(device).name =
          builder_.Text(pickle_.TextOf(pickle_.Get(entry, PickleKey::kName)));
      const uint64_t pid = pickle_.Number(pickle_.Get(entry, PickleKey::kPid)).value_or(0);
      accounts_[number] = builder_.Account(
          builder_.Process(static_cast<uint32_t>(std::min<uint64_t>(pid, UINT32_MAX))), device);
    }
  }

  TorchReplay& ReplayOf(uint32_t number) {
    std::unique_ptr<TorchReplay>& replay = replays_[number];
    if (replay == nullptr) {
      const auto known = accounts_.find(number);
      const tables::AccountId account =
          known != accounts_.end()
              ? known->second
              : builder_.Account(builder_.Process(0), builder_.Gpu(static_cast<int32_t>(number)));
      replay = std::make_unique<TorchReplay>(pickle_, &stacks_, &builder_, account, is_ours_);
    }
    return *replay;
  }

  // The events of all devices in order of time.
  void Replay(uint64_t events, const Options& options) {
    for (const auto& [number, replay] : replays_)
      replay->TakeBack();
    using Next = std::pair<int64_t, uint32_t>;
    std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
    int64_t time_us = 0;
    for (const auto& [number, replay] : replays_) {
      if (replay->NextTime(&time_us))
        next.emplace(time_us, number);
    }
    while (!next.empty() && next.top().first == INT64_MIN) {
      // A device without times begins with the others.
      const uint32_t number = next.top().second;
      next.pop();
      untimed_.push_back(number);
    }
    first_us_ = next.empty() ? 0 : next.top().first;
    has_times_ = !next.empty();
    for (const uint32_t number : untimed_)
      next.emplace(first_us_, number);
    if (has_times_ && first_us_ > 0 && first_us_ < INT64_MAX / 1000)
      builder_.SetWallTime(first_us_ * 1000 - 1000);
    const int64_t begin_ns = builder_.Tick(0);
    for (const auto& [number, replay] : replays_)
      replay->Begin(first_us_, has_times_, begin_ns);
    uint64_t done = 0;
    while (!next.empty()) {
      const uint32_t number = next.top().second;
      next.pop();
      TorchReplay& replay = *replays_[number];
      replay.Advance(first_us_);
      if (replay.NextTime(&time_us))
        next.emplace(time_us, number);
      if (++done % (1 << 20) == 0 && options.progress)
        options.progress(static_cast<double>(done) / static_cast<double>(events));
    }
    for (const auto& [number, replay] : replays_)
      replay->End();
  }

  // Ranges of time named by the program or a profiler.
  void ReadAnnotations(const PickleValue& value) {
    const auto* const list = pickle_.ListOf(value);
    if (list == nullptr || !has_times_ || first_us_ < 0 || first_us_ > INT64_MAX / 2 ||
        !builder_.budget().Charge("marks", list->size(), 16))
      return;
    // Open ranges, by name, process and device; several devices may have the same range.
    std::map<std::tuple<std::string, tables::ProcessId, uint64_t>, int64_t> begun_ns;
    std::set<std::tuple<std::string, tables::ProcessId, int64_t>> ended;
    StepRanges steps;
    for (const PickleValue& entry : *list) {
      const PickleValue time = pickle_.Get(entry, PickleKey::kTimeUs);
      const std::string_view name = pickle_.TextOf(pickle_.Get(entry, PickleKey::kName));
      if (time.kind != PickleValue::Kind::kInt || name.empty() ||
          !builder_.budget().Charge("marks", 1, name.size()))
        continue;
      const auto time_us = std::clamp<int64_t>(static_cast<int64_t>(time.bits), first_us_,
                                               first_us_ + tables::kNever / 8000);
      const bool is_end = pickle_.TextOf(pickle_.Get(entry, PickleKey::kStage)) == "END";
      const uint64_t device = pickle_.Number(pickle_.Get(entry, PickleKey::kDevice)).value_or(0);
      const auto account = accounts_.find(device);
      const tables::ProcessId process = account == accounts_.end()
                                            ? builder_.Process(0)
                                            : builder_.account(account->second).process;
      const int64_t time_ns = (time_us - first_us_) * 1000 + 1000;
      builder_.Mark(time_ns, is_end ? "end of " + std::string(name) : std::string(name), process);
      // Each device has the range.
      const auto key = std::tuple(std::string(name), process, device);
      if (const auto begun = begun_ns.find(key); is_end && begun != begun_ns.end()) {
        if (ended.insert({std::get<0>(key), process, begun->second}).second)
          steps.Add(name, process, begun->second, time_ns);
        begun_ns.erase(begun);
      } else if (!is_end) {
        begun_ns[key] = time_ns;
      }
    }
    steps.Finish(0, &builder_);
  }

  void SayWhatItLacks(uint64_t events) {
    if (!is_ours_)
      builder_.Lacks(
          "what the process had outside of PyTorch's caching allocator, and NVML's figures; "
          "modules "
          "and phases");
    if (events == 0) {
      builder_.IsOfOneInstant("snapshot");
      builder_.Lacks("how it came to be so: the snapshot has no trace");
    } else if (!has_times_) {
      builder_.CountSeconds("events",
                            "none in the snapshot: a second stands for an event, in their order");
    }
    if (events != 0 && !is_ours_)
      builder_.Lacks("the rounding of freed blocks, up to 512 bytes each");
  }

  const Input& input_;
  const TorchPickle& pickle_;
  Builder& builder_;
  TorchStacks stacks_;
  bool is_ours_ = false;
  std::map<uint64_t, tables::AccountId> accounts_;  // by number in the snapshot
  std::map<uint32_t, std::unique_ptr<TorchReplay>> replays_;
  std::vector<uint32_t> untimed_;
  int64_t first_us_ = 0;
  bool has_times_ = false;
};

// A page of torch.cuda._memory_viz embeds the snapshot in its script.
constexpr std::string_view kVizMark = "MemoryViz.js";
constexpr std::string_view kVizPickle = "\"base64\": \"";

bool IsVizPage(const Input& input) {
  return input.head().find(kVizMark) != std::string::npos &&
         input.head().find(kVizPickle) != std::string::npos;
}

int SixBits(char letter) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t at = kLetters.find(letter);
  return at == std::string_view::npos ? -1 : static_cast<int>(at);
}

std::string PickleOfPage(std::string_view page) {
  std::string pickle;
  const size_t begin = page.find(kVizPickle);
  uint32_t bits = 0;
  int count = 0;
  for (size_t at = begin + kVizPickle.size(); begin != page.npos && at < page.size(); ++at) {
    const int six = SixBits(page[at]);
    if (six < 0)
      break;
    bits = bits << 6 | static_cast<uint32_t>(six);
    count += 6;
    if (count >= 8) {
      count -= 8;
      pickle.push_back(static_cast<char>(bits >> count));
    }
  }
  return pickle;
}

}  // namespace

bool IsTorchSnapshot(const Input& input) {
  if (IsVizPage(input))
    return true;
  const std::string& head = input.head();
  return head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
}

util::Status ReadTorchSnapshot(const Input& input, const Options& options, Builder* builder) {
  std::string content;
  std::span<const uint8_t> bytes = input.bytes();
  if (input.is_compressed()) {
    const std::unique_ptr<ByteStream> stream = input.Content();
    for (size_t size = 0;;) {
      constexpr size_t kStep = size_t{1} << 20;
      if (!builder->budget().Charge("content", 1, kStep))
        return {};
      content.resize(size + kStep);
      const util::Result<size_t> read = stream->Read({content.data() + size, kStep});
      if (!read)
        return read.status();
      size += *read;
      content.resize(size);
      if (*read == 0)
        break;
    }
    bytes = {reinterpret_cast<const uint8_t*>(content.data()), content.size()};
  }
  std::string of_page;
  if (IsVizPage(input)) {
    if (!builder->budget().Charge("content", 1, bytes.size()))
      return {};
    of_page = PickleOfPage({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    bytes = {reinterpret_cast<const uint8_t*>(of_page.data()), of_page.size()};
  }
  TorchPickle pickle(bytes, input.path(), &builder->budget());
  VRAMSCOPE_RETURN_IF_ERROR(pickle.Read());
  return Snapshot(input, pickle, builder).Read(options);
}

}  // namespace vramscope::imports
