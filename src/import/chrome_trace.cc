// SPDX-License-Identifier: Apache-2.0 Reads a Chrome trace of torch.profiler with
// profile_memory=True, plain or gzip. Its events are unordered:
//
//   {"ph": "i", "name": "[memory]", "pid": 4711, "tid": 4711, "ts": 1717.5, "args": {"Device Type":
//   1,
//    "Device Id": 0, "Addr": 139637976727552, "Bytes": 1024, "Total Allocated": 1024, "Total
//    Reserved": 2097152}}
//   {"ph": "X", "cat": "cpu_op", "name": "aten::empty", "pid": 4711, "tid": 4711, "ts": 1717.1,
//   "dur": 3.2}
//
// Negative bytes are a free. The totals are PyTorch's, after the event, and include memory
// allocated before the trace. The events of the same thread that enclose an event are its stack.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "import/event_log.h"
#include "import/import.h"
#include "import/log_text.h"
#include "util/json.h"
#include "util/size_text.h"

namespace vramscope::imports {
namespace {

using format::Part;
using Token = util::JsonReader::Token;

constexpr size_t kMostFrames = 256;
constexpr double kMostUs = 4e15;  // also for time stamps since 1970
constexpr int32_t kMostDevices = 1024;

// One of `traceEvents`: the fields that are used.
struct Event {
  std::string phase, category, name;
  uint32_t pid = 0, tid = 0;
  double time_us = NAN, duration_us = 0;
  std::optional<int64_t> bytes, device, device_type;
  std::optional<uint64_t> address, allocated_bytes, reserved_bytes;
};

// A change of memory.
struct Change {
  int64_t time_ns = 0;
  int64_t bytes = 0;
  uint64_t address = 0;
  std::optional<uint64_t> allocated_bytes, reserved_bytes;
  tables::AccountId account;
  tables::ThreadId thread;
};

// A span of work on a thread.
struct Span {
  tables::ThreadId thread;
  int64_t begin_ns = 0, end_ns = 0;
  tables::FrameId frame;
};

// A span whose name may be an iteration's.
struct NamedSpan {
  std::string name;
  tables::ProcessId process;
  size_t span = 0;  // its number
};

class Trace {
 public:
  Trace(std::string name, Builder* builder)
      : name_(std::move(name)), builder_(*builder), blocks_(builder) {}

  void Add(const Event& event);
  void SetRank(int32_t rank) { rank_ = rank; }
  void NameDevice(int32_t index, const std::string& name, uint64_t total_bytes) {
    names_[index] = {name, total_bytes};
  }
  void Finish();

 private:
  // A device's totals less its known blocks.
  struct Pool {
    tables::SegmentId segment;
    tables::CounterId reserved, before;
    bool has_totals = false;
  };

  void AddMemory(const Event& event);
  tables::FrameId FrameOf(const Event& event);
  void FindStacks();
  void Apply(const Change& change, tables::StackId stack);
  Pool& PoolOf(tables::AccountId account);
  void Balance(const Change& change, Pool* pool);

  std::string name_;  // of the input
  Builder& builder_;
  LiveBlocks blocks_;
  std::vector<Change> changes_;
  std::vector<Span> spans_;
  std::vector<NamedSpan> step_spans_;
  std::vector<tables::StackId> stacks_;  // by change
  std::map<tables::AccountId, Pool> pools_;
  std::map<int32_t, std::pair<std::string, uint64_t>> names_;
  std::optional<int32_t> rank_;
  bool has_events_ = false, has_python_ = false;
};

int64_t NsOf(double us) {
  // An integer may have more digits than a double.
  const double whole_us = std::floor(us);
  return static_cast<int64_t>(whole_us) * 1000 + std::llround((us - whole_us) * 1000);
}

void Trace::Add(const Event& event) {
  if (event.name == "[memory]")
    return AddMemory(event);
  has_events_ = has_events_ || event.phase == "X";
  const bool is_python = event.category == "python_function";
  if (event.phase != "X" || !(is_python || event.category == "cpu_op" ||
                              event.category == "user_annotation" || event.category == "Operator"))
    return;
  const double end_us = event.time_us + event.duration_us;
  if (!(std::fabs(event.time_us) < kMostUs && event.duration_us >= 0 && end_us < kMostUs) ||
      !builder_.budget().Charge("spans", 1, sizeof(Span)))
    return;
  has_python_ = has_python_ || is_python;
  const tables::ProcessId process = builder_.Process(event.pid);
  spans_.push_back(
      {builder_.Thread(process, event.tid), NsOf(event.time_us), NsOf(end_us), FrameOf(event)});
  if (event.category == "user_annotation")
    step_spans_.push_back({event.name, process, spans_.size() - 1});
}

// "torch/nn/modules/linear.py(114): forward".
tables::FrameId Trace::FrameOf(const Event& event) {
  tables::FrameRow row;
  row.kind = tables::FrameKind::kNative;
  row.library = 1;
  row.function = builder_.Text(event.name);
  const size_t open = event.name.find('(');
  const size_t close = event.name.find("): ", open == std::string::npos ? 0 : open);
  if (event.category != "python_function" || close == std::string::npos || open > close)
    return builder_.Frame(row);
  const std::string_view name = event.name;
  const std::string_view file = name.substr(0, open);
  row.kind = tables::FrameKind::kPython;
  row.file = builder_.Text(file);
  row.line = util::WholeNumber<uint32_t>(name.substr(open + 1, close - open - 1)).value_or(0);
  row.function = builder_.Text(name.substr(close + 3));
  row.library = file.starts_with("torch/") || file.starts_with("<") ||
                        file.find("site-packages/") != std::string_view::npos ||
                        file.find("dist-packages/") != std::string_view::npos
                    ? 1
                    : 0;
  return builder_.Frame(row);
}

void Trace::AddMemory(const Event& event) {
  builder_.Event();
  const bool gpu = event.device_type.value_or(0) != 0;
  const int64_t device = event.device.value_or(0);
  if (!event.bytes || !event.address || !(std::fabs(event.time_us) < kMostUs) ||
      *event.bytes == 0 || *event.bytes > static_cast<int64_t>(kMostBytes) ||
      *event.bytes < -static_cast<int64_t>(kMostBytes) ||
      (gpu && (device < 0 || device >= kMostDevices))) {
    builder_.Lose("memory events that are not whole", 1);
    return;
  }
  if (!builder_.budget().Charge("memory events", 1, sizeof(Change) + sizeof(tables::StackId)))
    return;
  const tables::ProcessId process = builder_.Process(event.pid);
  builder_.process(process).command = builder_.Text(name_);
  const tables::DeviceId on = gpu ? builder_.Gpu(static_cast<int32_t>(device))
                                  : builder_.Device(tables::DeviceKind::kCpu, -1);
  Change change;
  change.time_ns = NsOf(event.time_us);
  change.bytes = *event.bytes;
  change.address = *event.address;
  change.account = builder_.Account(process, on);
  change.thread = builder_.Thread(process, event.tid);
  // PyTorch has no totals for CPU tensors.
  if (gpu && event.allocated_bytes.value_or(UINT64_MAX) <= kMostBytes &&
      event.reserved_bytes.value_or(UINT64_MAX) <= kMostBytes) {
    change.allocated_bytes = event.allocated_bytes;
    change.reserved_bytes = event.reserved_bytes;
  }
  changes_.push_back(change);
}

// The stack of a change is the spans open on its thread, outermost first.
void Trace::FindStacks() {
  std::sort(spans_.begin(), spans_.end(), [](const Span& a, const Span& b) {
    return std::tuple(a.thread, a.begin_ns, -a.end_ns) <
           std::tuple(b.thread, b.begin_ns, -b.end_ns);
  });
  std::vector<size_t> order(changes_.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tuple(changes_[a].thread, changes_[a].time_ns) <
           std::tuple(changes_[b].thread, changes_[b].time_ns);
  });
  stacks_.resize(changes_.size());
  std::vector<std::pair<const Span*, tables::StackId>> open;
  size_t next = 0;
  for (const size_t i : order) {
    const Change& change = changes_[i];
    for (; next < spans_.size() && std::tuple(spans_[next].thread, spans_[next].begin_ns) <=
                                       std::tuple(change.thread, change.time_ns);
         ++next) {
      const Span& span = spans_[next];
      while (!open.empty() && (open.back().first->thread != span.thread ||
                               open.back().first->end_ns <= span.begin_ns))
        open.pop_back();
      if (open.size() < kMostFrames)
        open.emplace_back(
            &span,
            builder_.Stack(open.empty() ? tables::StackId() : open.back().second, span.frame));
    }
    while (!open.empty() && (open.back().first->thread != change.thread ||
                             open.back().first->end_ns < change.time_ns))
      open.pop_back();
    stacks_[i] = open.empty() ? tables::StackId() : open.back().second;
  }
}

Trace::Pool& Trace::PoolOf(tables::AccountId account) {
  const auto [found, added] = pools_.try_emplace(account);
  Pool& pool = found->second;
  if (!added)
    return pool;
  tables::SiteRow site = Builder::SiteOf(account, Part::kCached);
  site.owner = builder_.Text("PyTorch");
  tables::SegmentRow segment;
  segment.site = builder_.Site(site);
  segment.part_in_use = Part::kFragmentation;
  segment.end_ns = tables::kNever;
  pool.segment = builder_.Segment(segment);
  pool.reserved = builder_.Counter(segment.site, pool.segment);
  pool.before = builder_.Counter(builder_.Site(Builder::SiteOf(account, Part::kBeforeRecording)));
  return pool;
}

// Memory in PyTorch's totals without a block was allocated before the trace.
void Trace::Balance(const Change& change, Pool* pool) {
  if (!change.allocated_bytes || !change.reserved_bytes)
    return;
  pool->has_totals = true;
  const uint64_t known_bytes = blocks_.live_bytes(change.account.value);
  const uint64_t before_bytes =
      *change.allocated_bytes > known_bytes ? *change.allocated_bytes - known_bytes : 0;
  const uint64_t held_bytes =
      *change.reserved_bytes > before_bytes ? *change.reserved_bytes - before_bytes : 0;
  builder_.Set(pool->before, change.time_ns, before_bytes);
  builder_.Set(pool->reserved, change.time_ns, held_bytes);
}

void Trace::Apply(const Change& change, tables::StackId stack) {
  const bool on_gpu =
      builder_.device(builder_.account(change.account).device).kind == tables::DeviceKind::kGpu;
  Pool* const pool = on_gpu ? &PoolOf(change.account) : nullptr;
  if (change.bytes > 0) {
    tables::SiteRow site = Builder::SiteOf(change.account);
    site.owner = site.allocator = builder_.Text("PyTorch");
    site.thread = change.thread;
    (has_python_ ? site.stack : site.native_stack) = stack;
    site.place = stack;
    blocks_.Allocate(change.account.value, change.address, static_cast<uint64_t>(change.bytes),
                     builder_.Site(site), change.time_ns,
                     pool != nullptr ? pool->segment : tables::SegmentId());
  } else {
    const auto bytes = static_cast<uint64_t>(-change.bytes);
    const uint64_t freed_bytes = blocks_.Free(change.account.value, change.address, change.time_ns);
    // The totals include memory allocated before the trace.
    if (freed_bytes == 0 && !change.allocated_bytes)
      builder_.Lose("frees of unknown allocations", 1, bytes);
    else if (freed_bytes != 0 && freed_bytes != bytes)
      builder_.Lose("frees that give another size than their allocation", 1);
  }
  if (pool != nullptr)
    Balance(change, pool);
}

void Trace::Finish() {
  std::stable_sort(changes_.begin(), changes_.end(),
                   [](const Change& a, const Change& b) { return a.time_ns < b.time_ns; });
  if (!changes_.empty()) {
    const int64_t first_ns = changes_.front().time_ns;
    for (Change& change : changes_)
      change.time_ns -= first_ns;
    for (Span& span : spans_) {
      span.begin_ns -= first_ns;
      span.end_ns -= first_ns;
    }
  }
  StepRanges steps;
  for (const NamedSpan& named : step_spans_)
    steps.Add(named.name, named.process, spans_[named.span].begin_ns, spans_[named.span].end_ns);
  steps.Finish(-1, &builder_);
  FindStacks();
  for (size_t i = 0; i < changes_.size() && !builder_.IsOver(); ++i) {
    changes_[i].time_ns = builder_.Tick(changes_[i].time_ns);
    Apply(changes_[i], stacks_[i]);
    if (rank_)
      builder_.process(builder_.account(changes_[i].account).process).rank = *rank_;
  }
  blocks_.Finish();
  if (changes_.empty() && has_events_)
    builder_.WhyEmpty("the trace has no memory events: record it with profile_memory=True");
  for (const auto& [index, named] : names_) {
    tables::DeviceRow& device = builder_.device(builder_.Gpu(index));
    device.name = builder_.Text(named.first);
    device.total_bytes = named.second;
  }
  builder_.Note("clock", "the trace's own, from its first memory event");
  const bool has_totals = std::any_of(pools_.begin(), pools_.end(),
                                      [](const auto& pool) { return pool.second.has_totals; });
  if (!has_totals)
    builder_.Lacks("memory allocated before the trace, and free memory of PyTorch");
  builder_.Lacks("memory that is not PyTorch's");
  if (!has_python_)
    builder_.Lacks("Python stacks (with_stack=True has them)");
  builder_.Lacks("names of parameters and layers");
}

// The members of an event, after its opening bracket.
void ReadEvent(util::JsonReader* json, size_t depth, Event* event) {
  std::string key;
  bool in_args = false;
  for (Token token = json->Next(); token != Token::kEnd; token = json->Next()) {
    if (token == Token::kObjectEnd) {
      if (json->depth() < depth)
        return;
      in_args = false;
      continue;
    }
    if (token == Token::kKey) {
      key = json->text();
      continue;
    }
    if (token == Token::kObject && key == "args" && !in_args) {
      in_args = true;
      continue;
    }
    if (token == Token::kObject || token == Token::kArray) {
      json->Skip(token);
      continue;
    }
    const std::string_view text = json->text();
    if (in_args) {
      if (key == "Bytes")
        event->bytes = util::WholeNumber<int64_t>(text);
      else if (key == "Addr")
        event->address = util::WholeNumber<uint64_t>(text);
      else if (key == "Device Id")
        event->device = util::WholeNumber<int64_t>(text);
      else if (key == "Device Type")
        event->device_type = util::WholeNumber<int64_t>(text);
      else if (key == "Total Allocated")
        event->allocated_bytes = util::WholeNumber<uint64_t>(text);
      else if (key == "Total Reserved")
        event->reserved_bytes = util::WholeNumber<uint64_t>(text);
    } else if (key == "name") {
      event->name = text;
    } else if (key == "ph") {
      event->phase = text;
    } else if (key == "cat") {
      event->category = text;
    } else if (key == "ts") {
      event->time_us = util::WholeNumber<double>(text).value_or(NAN);
    } else if (key == "dur") {
      event->duration_us = util::WholeNumber<double>(text).value_or(NAN);
    } else if (key == "pid") {
      event->pid = util::WholeNumber<uint32_t>(text).value_or(0);
    } else if (key == "tid") {
      event->tid = util::WholeNumber<uint32_t>(text).value_or(0);
    }
  }
}

void ReadEvents(util::JsonReader* json, Builder* builder, Trace* trace) {
  const size_t depth = json->depth();
  for (Token token = json->Next(); token != Token::kEnd && !builder->IsOver();
       token = json->Next()) {
    if (token == Token::kArrayEnd && json->depth() < depth)
      return;
    if (token != Token::kObject) {
      json->Skip(token);
      continue;
    }
    Event event;
    ReadEvent(json, json->depth(), &event);
    trace->Add(event);
  }
}

// [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150000000000, ...}]
void ReadDevices(util::JsonReader* json, Trace* trace) {
  const size_t depth = json->depth();
  std::string key, name;
  int32_t index = -1;
  uint64_t total_bytes = 0;
  for (Token token = json->Next(); token != Token::kEnd; token = json->Next()) {
    if (token == Token::kArrayEnd && json->depth() < depth)
      return;
    if (token == Token::kKey)
      key = json->text();
    else if (token == Token::kString && key == "name")
      name = json->text();
    else if (token == Token::kNumber && key == "id")
      index = util::WholeNumber<int32_t>(json->text()).value_or(-1);
    else if (token == Token::kNumber && key == "totalGlobalMem")
      total_bytes = util::WholeNumber<uint64_t>(json->text()).value_or(0);
    else if (token == Token::kObjectEnd && index >= 0 && index < kMostDevices)
      trace->NameDevice(index, name, std::min(total_bytes, kMostBytes));
  }
}

}  // namespace

bool IsChromeTrace(const Input& input) {
  const std::string_view head = Trimmed(input.text_head());
  const bool is_array = head.starts_with("[") && head.find("\"ph\"") != std::string_view::npos;
  const bool is_object =
      head.starts_with("{") && (head.find("\"traceEvents\"") != std::string_view::npos ||
                                head.find("\"deviceProperties\"") != std::string_view::npos);
  return is_array || is_object;
}

util::Status ReadChromeTrace(const Input& input, const Options&, Builder* builder) {
  util::JsonReader json(input.Text(), input.path());
  Trace trace(input.name(), builder);
  std::string key;
  for (Token token = json.Next(); token != Token::kEnd && !builder->IsOver(); token = json.Next()) {
    if (token == Token::kKey) {
      key = json.text();
    } else if (token == Token::kArray && (key == "traceEvents" || json.depth() == 1)) {
      ReadEvents(&json, builder, &trace);
    } else if (token == Token::kArray && key == "deviceProperties") {
      ReadDevices(&json, &trace);
    } else if (token == Token::kNumber && key == "rank" && json.depth() == 2) {
      trace.SetRank(std::clamp(util::WholeNumber<int32_t>(json.text()).value_or(-1), -1, 1 << 24));
    } else if (token == Token::kArray ||
               (token == Token::kObject && json.depth() > 1 && key != "distributedInfo")) {
      json.Skip(token);
    }
  }
  // A truncated trace is valid up to its end.
  if (json.depth() > 0 && json.status().ok())
    builder->Lose("traces that are cut off at the end", 1);
  VRAMSCOPE_RETURN_IF_ERROR(json.status());
  trace.Finish();
  return {};
}

}  // namespace vramscope::imports
