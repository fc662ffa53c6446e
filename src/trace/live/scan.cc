// SPDX-License-Identifier: Apache-2.0
#include "trace/live/scan.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "trace/live/definitions.h"

namespace vramscope::trace {
namespace {

// With the node of the map that it is in, and its row in the end.
constexpr uint64_t kBytesOfDevice = 2 * sizeof(LocalDevice) + 128;
// Chunks that are looked through side by side, and so few that it is not worth while.
constexpr size_t kSkimAtOnce = 64;
constexpr size_t kFewestToSkim = 8;
constexpr uint64_t kBytesOfThread = sizeof(Thread) + 64;

std::string Text(const format::Bytes& bytes) {
  return std::string(bytes.data, bytes.size);
}

class FileScanner {
 public:
  FileScanner(const LiveFile& file,
              ProcessId process,
              ScanTables* tables,
              size_t workers,
              FileScan* scan)
      : file_(file), process_(process), tables_(tables), workers_(workers), scan_(*scan) {
    scan_.last_ticks = file_.start_ticks();
  }

  void Run();

 protected:
  friend class StreamScanner;
  const LiveFile& file_;
  ProcessId process_;
  ScanTables* tables_;
  size_t workers_;
  FileScan& scan_;
  NativeStacks native_;
};

// The Pass of a first walk over one stream. Times stay ticks: the clock needs all anchors first.
class StreamScanner : public FirstLook<StreamScanner> {
 public:
  using FirstLook::On;

  StreamScanner(FileScanner* owner, size_t stream)
      : owner_(*owner), stream_(stream), python_(owner->tables_->dictionaries) {}

  void Walk(std::span<const ChunkRef> chunks);
  // What the stream has more than at the last call.
  void Continue(std::span<const ChunkRef> chunks);

  int64_t Ns(uint64_t ticks) {
    const auto distance = static_cast<int64_t>(ticks - owner_.scan_.last_ticks);
    if (distance > 0)
      owner_.scan_.last_ticks = ticks;
    return static_cast<int64_t>(ticks);
  }
  StringId String(uint64_t local) { return StringId{ids_.strings.FindOrNone(local)}; }
  StringId Text(const format::Bytes& text) {
    const StringId id = dictionaries().AddText({text.data, text.size});
    log().push_back(id.value);
    return id;
  }
  StackId Python(uint64_t local) { return Stack(ids_.python_stacks, local); }
  StackId Native(uint64_t local) { return Stack(ids_.native_stacks, local); }
  // Null if no device can have that number.
  LocalDevice* AddDevice(int64_t local) {
    auto& devices = owner_.scan_.devices;
    if (const auto known = devices.find(local); known != devices.end())
      return &known->second;
    if (local < format::kHostDevice || local > std::numeric_limits<int16_t>::max() ||
        !dictionaries().Charge("devices", kBytesOfDevice)) {
      return nullptr;
    }
    return &devices[local];
  }

  bool On(const format::Anchor& r, Event*) {
    owner_.scan_.anchors.push_back({r.time, static_cast<int64_t>(r.monotonic_ns)});
    return false;
  }
  bool On(const format::String& r, Event*) {
    ids_.strings.Set(r.id, Text(r.text).value);
    return false;
  }
  bool On(const format::PyCode& r, Event*) {
    python_.AddCode(r, ids_.strings);
    return false;
  }
  bool On(const format::PyStack& r, Event*) {
    const StackId parent{ids_.python_stacks.FindOrNone(r.parent)};
    const StackId stack = python_.AddStack(parent, r);
    ids_.python_stacks.Set(r.id, stack.value);
    log().push_back(stack.value);
    return false;
  }
  bool On(const format::NativeStack& r, Event*) {
    const uint32_t parent = ids_.native_stacks.FindOrNone(r.parent);
    const bool has_room = dictionaries().Charge("native stacks", NativeStacks::kBytesOfStack);
    const uint32_t stack = has_room ? owner_.native_.Add(parent, r.pc, {stream_, log().size()}) : 0;
    ids_.native_stacks.Set(r.id, stack);
    log().push_back(0);  // until all are resolved
    return false;
  }
  bool On(const format::Scope& r, Event*) {
    const Scope parent = scopes_[ids_.scopes.FindOrNone(r.parent)];
    Scope scope{String(r.name), parent.depth + 1};
    if (scope.depth > format::kMaxScopeDepth) {
      losses().Add(format::Loss::kScopeTooDeep, 1);
      scope = parent;
    } else if (parent.path.value != 0) {
      scope.path = dictionaries().AddText(std::string(dictionaries().text(parent.path)) + "/" +
                                          std::string(dictionaries().text(scope.path)));
    }
    ids_.scopes.Set(r.id, static_cast<uint32_t>(scopes_.size()));
    scopes_.push_back(scope);
    log().push_back(scope.path.value);
    return false;
  }
  bool On(const format::Image& r, Event*) {
    if (dictionaries().Charge("binaries", NativeStacks::BytesOf(r)))
      owner_.native_.AddImage(stream_, r);
    return false;
  }
  bool On(const format::Thread& r, Event*) {
    EnterThread(static_cast<uint32_t>(r.tid), {r.name.data, r.name.size});
    return false;
  }
  bool On(const format::Device& r, Event*) {
    if (LocalDevice* const device = AddDevice(r.device))
      *device = {r.total_bytes, trace::Text(r.uuid), trace::Text(r.name)};
    return false;
  }
  bool On(const format::Lost& r, Event*) {
    losses().AddRaw(r.loss, r.count, r.bytes);
    return false;
  }
  bool On(const format::Runtime& r, Event*) {
    auto& runtime = owner_.scan_.runtime;
    if (dictionaries().Charge("notes", sizeof runtime[0] + r.key.size + r.value.size))
      runtime.emplace_back(trace::Text(r.key), trace::Text(r.value));
    return false;
  }
  bool On(const format::ProcessSample& r, Event* event) {
    if (r.used != 0)
      owner_.scan_.listed[static_cast<uint32_t>(r.pid)] = r.end;
    return Converter::On(r, event);
  }
  bool On(const format::Past& r, Event* event) {
    owner_.scan_.past_ticks = std::max(owner_.scan_.past_ticks.value_or(r.time), r.time);
    return Converter::On(r, event);
  }
  bool On(const format::ProcessExit& r, Event*) {
    ExitRecord exit{.ticks = r.time, .pid = static_cast<uint32_t>(r.pid), .status = {}};
    if (r.status != format::kStatusNotKnown)
      exit.status = static_cast<int>(r.status);
    owner_.scan_.exits.push_back(exit);
    return false;
  }
  bool On(const format::HostSample& r, Event*) {
    auto& samples = owner_.scan_.host_samples;
    if (dictionaries().Charge("samples of host memory", sizeof samples[0])) {
      samples.push_back({r.time,
                         {.processes = r.processes,
                          .resident_bytes = r.resident,
                          .shared_bytes = r.shared,
                          .largest_pid = r.largest_pid,
                          .largest_bytes = r.largest_resident,
                          .limit_bytes = r.limit,
                          .used_bytes = r.used,
                          .kills = r.kills}});
    }
    return false;
  }
  bool On(const format::SampledProcess& r, Event*) {
    auto& sampled = owner_.scan_.sampled;
    if (dictionaries().Charge("processes",
                              sizeof sampled[0] + r.command.size + r.executable.size)) {
      sampled.push_back({r.time, static_cast<uint32_t>(r.pid), static_cast<uint32_t>(r.parent_pid),
                         trace::Text(r.command), trace::Text(r.executable)});
    }
    return false;
  }

 private:
  DefinitionLog& log() { return owner_.scan_.logs[stream_]; }
  void Enter(const ChunkRef& chunk);
  void Walk(ChunkCursor* cursor);
  void Take(const ChunkSkim& skim);
  void TakeUses(const LocalIds& ids, const std::vector<ChunkSkim::Used>& uses);
  tables::Dictionaries& dictionaries() { return *owner_.tables_->dictionaries; }
  LossCounter& losses() { return *owner_.tables_->losses; }
  StackId Stack(const LocalIds& ids, uint64_t local) {
    const uint32_t known = ids.Find(local);
    if (known != LocalIds::kUndefined) [[likely]]
      return StackId{known};
    losses().Add(format::Loss::kUnknownStack, 1);
    return {};
  }
  void EnterThread(uint32_t tid, std::string_view name) {
    tid_ = tid;
    log().push_back(owner_.tables_->AddThread(owner_.process_, tid, name).value);
  }

  struct Scope {
    StringId path;
    uint32_t depth = 0;
  };

  FileScanner& owner_;
  size_t stream_;
  StreamIds ids_;
  std::vector<Scope> scopes_ = std::vector<Scope>(1);  // what the ids of scopes lead to
  PythonStacks python_;
  uint32_t tid_ = 0;
  // Of Continue(): the chunk that was read last, as far as it was read.
  size_t next_chunk_ = 0;
  ChunkCursor cursor_;
  uint32_t cursor_bytes_ = 0;
};

void StreamScanner::Walk(ChunkCursor* cursor) {
  Event event;
  for (;;) {
    const size_t left = cursor->bytes_left();
    const auto step = cursor->Next(*this, &event);
    if (step == ChunkCursor::Step::kEnd)
      break;
    if (step == ChunkCursor::Step::kDamaged) {
      losses().Add(format::Loss::kDamagedBytes, 1, left);
      *cursor = {};
      break;
    }
    if (step == ChunkCursor::Step::kEvent)
      ++owner_.scan_.event_count;
    if (step == ChunkCursor::Step::kUnknown)
      losses().Add(format::Loss::kUnknownRecord, 1, left - cursor->bytes_left());
  }
}

void StreamScanner::TakeUses(const LocalIds& ids, const std::vector<ChunkSkim::Used>& uses) {
  for (const ChunkSkim::Used& used : uses) {
    if (ids.Find(used.id) == LocalIds::kUndefined)
      losses().Add(format::Loss::kUnknownStack, used.count);
  }
}

// As a walk leaves things.
void StreamScanner::Take(const ChunkSkim& skim) {
  FileScan& scan = owner_.scan_;
  scan.event_count += skim.event_count;
  if (skim.last_ticks)
    Ns(*skim.last_ticks);
  scan.anchors.insert(scan.anchors.end(), skim.anchors.begin(), skim.anchors.end());
  for (const format::Bytes& text : skim.texts)
    Text(text);
  for (const int64_t device : skim.devices)
    AddDevice(device);
  TakeUses(ids_.python_stacks, skim.python_stacks);
  TakeUses(ids_.native_stacks, skim.native_stacks);
}

void StreamScanner::Walk(std::span<const ChunkRef> chunks) {
  while (!chunks.empty()) {
    const auto batch = chunks.first(std::min(chunks.size(), kSkimAtOnce));
    chunks = chunks.subspan(batch.size());
    std::vector<ChunkSkim> skims;
    if (owner_.workers_ > 1 && batch.size() >= kFewestToSkim)
      skims = SkimChunks(owner_.file_, batch, owner_.workers_);
    for (size_t i = 0; i < batch.size(); ++i) {
      const ChunkRef& chunk = batch[i];
      Enter(chunk);
      if (!skims.empty() && skims[i].is_told) {
        Take(skims[i]);
      } else {
        ChunkCursor cursor(owner_.file_, chunk);
        Walk(&cursor);
      }
      owner_.file_.Forget(chunk);
    }
  }
}

void StreamScanner::Enter(const ChunkRef& chunk) {
  if (chunk.base_ns != 0)
    owner_.scan_.anchors.push_back({chunk.base_ticks, chunk.base_ns});
  if (chunk.tid != 0 && chunk.tid != tid_)
    EnterThread(chunk.tid, {});
}

void StreamScanner::Continue(std::span<const ChunkRef> chunks) {
  if (next_chunk_ != 0) {
    const uint32_t bytes = chunks[next_chunk_ - 1].bytes;
    cursor_.Extend(bytes - std::exchange(cursor_bytes_, bytes));
    Walk(&cursor_);
  }
  for (; next_chunk_ < chunks.size(); ++next_chunk_) {
    const ChunkRef& chunk = chunks[next_chunk_];
    Enter(chunk);
    cursor_ = ChunkCursor(owner_.file_, chunk);
    cursor_bytes_ = chunk.bytes;
    Walk(&cursor_);
    owner_.file_.Forget(chunk);
  }
}

void FileScanner::Run() {
  scan_.logs.resize(file_.streams().size());
  for (size_t stream = 0; stream < file_.streams().size(); ++stream)
    StreamScanner(this, stream).Walk(file_.streams()[stream]);
  native_.Resolve(file_.executable(), tables_->dictionaries, tables_->symbols, &scan_.logs);
}

}  // namespace

// Continue() needs the state of every stream.
class GrowingScan::Scanner : public FileScanner {
 public:
  using FileScanner::FileScanner;

  void Continue() {
    scan_.logs.resize(file_.streams().size());
    for (size_t stream = 0; stream < file_.streams().size(); ++stream) {
      if (stream == streams_.size())
        streams_.push_back(std::make_unique<StreamScanner>(this, stream));
      streams_[stream]->Continue(file_.streams()[stream]);
    }
    native_.Resolve(file_.executable(), tables_->dictionaries, tables_->symbols, &scan_.logs);
  }

 private:
  std::vector<std::unique_ptr<StreamScanner>> streams_;
};

GrowingScan::GrowingScan(const LiveFile& file,
                         ProcessId process,
                         ScanTables* tables,
                         FileScan* scan)
    : scanner_(std::make_unique<Scanner>(file, process, tables, 1, scan)) {}
GrowingScan::~GrowingScan() = default;
void GrowingScan::Continue() {
  scanner_->Continue();
}

ThreadId ScanTables::AddThread(ProcessId process, uint32_t tid, std::string_view name) {
  const auto [known, is_new] = thread_ids.try_emplace({process.value, tid}, 0);
  if (!is_new) {
    std::string& known_name = (*threads)[known->second].name;
    if (name.empty() || known_name == name)
      return ThreadId{known->second};
    if (known_name.empty()) {
      known_name = name;
      return ThreadId{known->second};
    }
  }
  known->second = 0;
  if (!dictionaries->Charge("threads", kBytesOfThread + name.size()))
    return {};
  known->second = static_cast<uint32_t>(threads->size());
  threads->push_back({process, tid, std::string(name)});
  return ThreadId{known->second};
}

FileScan ScanFile(const LiveFile& file, ProcessId process, ScanTables* tables, size_t workers) {
  FileScan scan;
  FileScanner(file, process, tables, workers, &scan).Run();
  return scan;
}

}  // namespace vramscope::trace
