// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <type_traits>
#include <unordered_map>

#include "pipeline/compact/compaction.h"
#include "pipeline/compact/past_chunks.h"
#include "trace/live/converter.h"

namespace vramscope::compact {

void PastChunks::Begin() {
  const size_t at = out_.size();
  out_.resize(at + sizeof(format::ChunkHeader));
  auto* const chunk = new (out_.data() + at) format::ChunkHeader{};
  chunk->magic = format::kChunkMagic;
  chunk->stream = stream_;
  chunk->sequence = sequence_++;
  chunk->base_ticks = ticks_;
  chunk->base_ns = ns_;
  chunk->tid = tid_;
  begin_ = out_.size();
  delta_ = {.time = ticks_, .address = 0};
}

void PastChunks::End() {
  if (begin_ == 0)
    return;
  const auto committed = static_cast<uint32_t>(out_.size() - begin_);
  out_.resize((out_.size() + format::kPageBytes - 1) / format::kPageBytes * format::kPageBytes);
  uint8_t* const at = out_.data() + begin_ - sizeof(format::ChunkHeader);
  auto* const chunk = reinterpret_cast<format::ChunkHeader*>(at);
  chunk->size_bytes = static_cast<uint32_t>(out_.data() + out_.size() - at);
  chunk->committed_bytes = committed;
  chunk->seal = format::ExtendSeal(0, out_.data() + begin_, committed);
  chunk->crc32c = format::HighHalf(chunk->seal);
  chunk->sealed = 1;
  chunk->head = format::ChunkHead(at, chunk->size_bytes);
  begin_ = 0;
}

namespace {

// How many definitions of each kind a writer can know at once: three quarters of its tables
// (probe/session/stream.h), which it fills with every definition, and begins anew when they are
// full. Older ones it never speaks of again.
constexpr size_t kKnownStrings = 3072;
constexpr size_t kKnownCodes = 3072;
constexpr size_t kKnownScopes = 3072;
constexpr size_t kKnownStacks = 24576;
// Ids of definitions that a writer did not make: its own have 32 bits.
constexpr uint64_t kFirstOwnId = uint64_t{1} << 32;
// Two clocks are paired again where a kept event is so much later; it then keeps its time exactly.
constexpr uint64_t kAnchorTicks = uint64_t{1} << 28;

enum Kind : uint8_t { kString, kCode, kPython, kNative, kScope, kKinds };

struct Definition {
  format::RawRecord raw;
  std::array<uint32_t, 2> needs{};  // other definitions; 0: none
  bool needed = false;
};

// Calls visit(kind, id) for what a record refers to.
#define VRAMSCOPE_RECORD(Name, id, doc)                             \
  template <class Visit>                                            \
  void VisitReferences([[maybe_unused]] const format::Name& record, \
                       [[maybe_unused]] Visit visit) {
#define VRAMSCOPE_STRING(field) visit(kString, record.field);
#define VRAMSCOPE_CODE(field) visit(kCode, record.field);
#define VRAMSCOPE_PY_STACK(field) visit(kPython, record.field);
#define VRAMSCOPE_NATIVE_STACK(field) visit(kNative, record.field);
#define VRAMSCOPE_SCOPE(field) visit(kScope, record.field);
#define VRAMSCOPE_END }
#include "format/records.def"

template <class Record>
constexpr bool Is(std::initializer_list<uint8_t> types) {
  for (const uint8_t type : types) {
    if (type == Record::kType)
      return true;
  }
  return false;
}
template <class Record>
constexpr bool kIsDefinition = Is<Record>({format::String::kType, format::PyCode::kType,
                                           format::PyStack::kType, format::NativeStack::kType,
                                           format::Scope::kType});
// Made anew, or summed up.
template <class Record>
constexpr bool kIsRewritten = Is<Record>({format::Anchor::kType, format::Thread::kType,
                                          format::ScopeIs::kType, format::Lost::kType,
                                          format::PastStream::kType, format::PastRange::kType,
                                          format::PastOrigin::kType, format::Past::kType});
// Kept once.
template <class Record>
constexpr bool kIsDescription = Is<Record>({format::Device::kType, format::Runtime::kType,
                                            format::Image::kType});
// Writes a record that does not depend on the preceding ones: times and addresses in a chunk are
// differences.
template <class Record>
constexpr bool kIsTimeless = kIsDefinition<Record> || kIsDescription<Record> ||
                             Is<Record>({format::Thread::kType, format::ScopeIs::kType,
                                         format::Lost::kType});
template <class Record>
constexpr bool kIsAlwaysKept = Is<Record>({format::ProcessExit::kType,
                                           format::SampledProcess::kType});

// Rewrites one stream, in two walks: what is kept and what that refers to, then the records.
class StreamRewriter {
 public:
  StreamRewriter(const trace::LiveFile& file,
                 const trace::TickClock& clock,
                 const trace::LiveTrace* trace,
                 const CompactionPlan& plan,
                 size_t number,
                 std::vector<uint8_t>* out,
                 LossSums* lost)
      : trace_(trace),
        file_(file),
        clock_(clock),
        chunks_(file.streams()[number]),
        plan_(plan.streams[number]),
        carries_origins_(plan.carries_origins),
        out_(out, chunks_.front().stream),
        lost_(*lost) {}

  void Run() {
    Walk([&](const auto& record, const format::RawRecord& raw) { Look(record, raw); });
    NeedRecent();
    scope_ = 0;
    next_definition_ = 1;
    Walk([&](const auto& record, const format::RawRecord& raw) { Write(record, raw); });
    if (tid_ != 0)
      EnterThread();
    out_.End();
  }

 private:
  template <class Visit>
  void Walk(Visit visit);
  template <class Record>
  void Look(const Record& record, const format::RawRecord& raw);
  template <class Record>
  void Write(const Record& record, const format::RawRecord& raw);
  template <class Record>
  void WriteDescription(const Record& record, const format::RawRecord& raw);
  template <class Record>
  void WriteEvent(const Record& record, std::optional<format::PastOrigin> said);
  // Only new peaks, by a sixteenth: the past of a long run has few of them.
  bool Keeps(const format::HostSample& sample) {
    const auto is_peak = [](uint64_t bytes, uint64_t* most_bytes) {
      if (bytes <= *most_bytes + *most_bytes / 16)
        return false;
      *most_bytes = bytes;
      return true;
    };
    const bool most_resident = is_peak(sample.resident, &most_resident_bytes_);
    return is_peak(sample.used, &most_used_bytes_) || most_resident;
  }
  bool Keeps() const { return record_ < plan_.keep.size() && plan_.keep[record_]; }
  // Whether an event may be kept of the next records. Most chunks keep none.
  bool KeepsAny(uint32_t records) const {
    const auto begin = plan_.keep.begin() + record_;
    return file_.is_launcher() || std::find(begin, begin + records, true) != begin + records;
  }

  uint32_t Find(Kind kind, uint64_t id) const {
    const auto found = ids_[kind].find(id);
    return found != ids_[kind].end() ? found->second : 0;
  }
  void Need(uint32_t definition) {
    waiting_.push_back(definition);
    while (!waiting_.empty()) {
      Definition& next = definitions_[waiting_.back()];
      waiting_.pop_back();
      if (std::exchange(next.needed, true))
        continue;
      for (const uint32_t other : next.needs) {
        if (other != 0)
          waiting_.push_back(other);
      }
    }
  }
  void NeedRecent();

  // Definitions of what the trace knows by its own numbers.
  uint64_t OwnString(tables::StringId text);
  uint64_t OwnStack(tables::StackId stack);
  uint64_t OwnScope(tables::StringId path);
  void EnterThread();

  const trace::LiveTrace* const trace_;
  const trace::LiveFile& file_;
  const trace::TickClock& clock_;
  const std::vector<trace::ChunkRef>& chunks_;
  const StreamPlan& plan_;
  const bool carries_origins_;
  PastChunks out_;
  LossSums& lost_;

  // The walk under way.
  uint32_t record_ = 0;
  uint64_t ticks_ = 0;  // the latest
  uint32_t tid_ = 0;
  std::string thread_name_;
  uint64_t scope_ = 0;
  std::optional<format::PastOrigin> carried_;  // of the next record

  std::vector<Definition> definitions_ = std::vector<Definition>(1);
  std::array<std::unordered_map<uint64_t, uint32_t>, kKinds> ids_;
  std::array<std::vector<uint32_t>, kKinds> made_;
  std::vector<uint32_t> waiting_;
  uint32_t next_definition_ = 1;
  uint64_t last_own_id_ = kFirstOwnId;
  std::map<uint32_t, uint64_t> own_strings_, own_stacks_, own_scopes_;

  // The state of the output.
  uint64_t most_resident_bytes_ = 0;
  uint64_t most_used_bytes_ = 0;
  uint32_t written_tid_ = 0;
  std::string written_name_;
  uint64_t written_scope_ = 0;
  uint32_t written_chunks_ = 0;
  uint64_t anchored_ticks_ = 0;
  std::set<std::string, std::less<>> described_;
  std::map<uint64_t, std::string> images_;  // the latest at each address
};

template <class Visit>
void StreamRewriter::Walk(Visit visit) {
  record_ = 0;
  tid_ = 0;
  thread_name_.clear();
  for (size_t i = 0; i < plan_.chunks; ++i) {
    const trace::ChunkRef& chunk = chunks_[i];
    if (chunk.tid != 0 && chunk.tid != tid_) {
      tid_ = chunk.tid;
      thread_name_.clear();
    }
    scope_ = 0;
    const auto records = file_.Records(chunk);
    const uint8_t* in = records.data();
    const uint8_t* const end = in + records.size();
    format::DeltaState delta{.time = chunk.base_ticks};
    ticks_ = chunk.base_ticks;
    const bool has_events = KeepsAny(plan_.chunk_records[i]);
    for (format::RawRecord raw; in != end && format::NextRecord(&in, end, &raw); ++record_) {
      switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc)            \
  case id: {                                       \
    if (!has_events && !kIsTimeless<format::Name>) \
      break;                                       \
    format::Name record;                           \
    if (format::Decode(raw, &delta, &record)) {    \
      ticks_ = delta.time;                         \
      visit(record, raw);                          \
    }                                              \
    break;                                         \
  }
#include "format/records.def"
        default:
          break;
      }
    }
    file_.Forget(chunk);
  }
}

template <class Record>
void StreamRewriter::Look(const Record& record, const format::RawRecord& raw) {
  if constexpr (std::is_same_v<Record, format::ScopeIs>) {
    scope_ = record.scope;
  } else if constexpr (kIsDefinition<Record>) {
    const Kind kind = std::is_same_v<Record, format::String>        ? kString
                      : std::is_same_v<Record, format::PyCode>      ? kCode
                      : std::is_same_v<Record, format::PyStack>     ? kPython
                      : std::is_same_v<Record, format::NativeStack> ? kNative
                                                                    : kScope;
    Definition definition{.raw = raw};
    size_t count = 0;
    const auto add = [&](Kind of, uint64_t id) {
      if (count < definition.needs.size())
        definition.needs[count++] = Find(of, id);
    };
    VisitReferences(record, add);
    const auto number = static_cast<uint32_t>(definitions_.size());
    definitions_.push_back(definition);
    ids_[kind][record.id] = number;
    made_[kind].push_back(number);
    last_own_id_ = std::max(last_own_id_, record.id);
  } else if constexpr (std::is_same_v<Record, format::PastOrigin>) {
    if (carries_origins_)
      carried_ = record;
  } else if constexpr (!kIsRewritten<Record> && !kIsDescription<Record>) {
    const std::optional<format::PastOrigin> origin = std::exchange(carried_, std::nullopt);
    if (!Keeps())
      return;
    const auto need = [&](Kind of, uint64_t id) {
      if (const uint32_t found = Find(of, id))
        Need(found);
    };
    VisitReferences(record, need);
    if (origin)
      VisitReferences(*origin, need);
    need(kScope, scope_);
  }
}

void StreamRewriter::NeedRecent() {
  const auto need = [&](std::initializer_list<Kind> kinds, size_t most) {
    std::vector<uint32_t> made;
    for (const Kind kind : kinds)
      made.insert(made.end(), made_[kind].begin(), made_[kind].end());
    std::sort(made.begin(), made.end());
    for (size_t i = made.size() - std::min(made.size(), most); i < made.size(); ++i)
      Need(made[i]);
  };
  need({kString}, kKnownStrings);
  need({kCode}, kKnownCodes);
  need({kScope}, kKnownScopes);
  need({kPython, kNative}, kKnownStacks);
}

uint64_t StreamRewriter::OwnString(tables::StringId text) {
  if (text.value == 0)
    return 0;
  uint64_t& id = own_strings_[text.value];
  if (id == 0) {
    id = ++last_own_id_;
    const std::string_view bytes = trace_->string(text);
    out_.Append(format::String{.id = id, .text = {bytes.data(), bytes.size()}});
  }
  return id;
}

uint64_t StreamRewriter::OwnScope(tables::StringId path) {
  uint64_t& id = own_scopes_[path.value];
  if (id == 0) {
    const uint64_t name = OwnString(path);
    id = ++last_own_id_;
    out_.Append(format::Scope{.id = id, .parent = 0, .name = name});
  }
  return id;
}

// A code object of one line for each frame: its line is known.
uint64_t StreamRewriter::OwnStack(tables::StackId innermost) {
  std::vector<tables::StackId> stacks;
  for (tables::StackId at = innermost; at.value != 0 && !own_stacks_.contains(at.value);
       at = trace_->stack(at).parent) {
    stacks.push_back(at);
    if (stacks.size() > tables::Dictionaries::kMaxStackDepth)
      return 0;
  }
  for (size_t i = stacks.size(); i-- != 0;) {
    const tables::StackRow& stack = trace_->stack(stacks[i]);
    const tables::FrameRow& frame = trace_->frame(stack.frame);
    const uint64_t file = OwnString(frame.file);
    const uint64_t name = OwnString(frame.function);
    const uint64_t code = ++last_own_id_;
    const uint64_t parent = stack.parent.value != 0 ? own_stacks_[stack.parent.value] : 0;
    out_.Append(format::PyCode{.id = code,
                               .file = file,
                               .name = name,
                               .first_line = frame.line,
                               .table_kind = 0,
                               .line_table = {}});
    const uint64_t id = own_stacks_[stacks[i].value] = ++last_own_id_;
    out_.Append(format::PyStack{.id = id,
                                .parent = parent,
                                .code = code,
                                .instruction = 0,
                                .object = trace_->dictionaries().object(stacks[i])});
  }
  return own_stacks_[innermost.value];
}

void StreamRewriter::EnterThread() {
  if (tid_ == written_tid_ && (thread_name_ == written_name_ || thread_name_.empty()))
    return;
  written_tid_ = tid_;
  written_name_ = thread_name_;
  out_.set_tid(tid_);
  out_.Append(format::Thread{.tid = tid_, .name = {thread_name_.data(), thread_name_.size()}});
}

template <class Record>
void StreamRewriter::WriteDescription(const Record& record, const format::RawRecord& raw) {
  const std::string_view payload(reinterpret_cast<const char*>(raw.payload), raw.payload_bytes);
  if constexpr (std::is_same_v<Record, format::Image>) {
    std::string& known = images_[record.begin];
    if (known == payload)
      return;
    known = payload;
  } else {
    std::string key(1, static_cast<char>(raw.type));
    key += payload;
    if (!described_.insert(std::move(key)).second)
      return;
  }
  out_.AppendRaw(raw);
}

template <class Record>
void StreamRewriter::WriteEvent(const Record& record, std::optional<format::PastOrigin> said) {
  EnterThread();
  const auto origin = plan_.origins.find(record_);
  if (origin != plan_.origins.end()) {
    said = {.phase = origin->second.phase, .end = origin->second.end};
    if (origin->second.forward.value != 0)
      said->forward = OwnStack(origin->second.forward);
    if (origin->second.scope.value != 0)
      said->scope = OwnScope(origin->second.scope);
  }
  // All in one chunk: what comes before a record says something of it.
  constexpr size_t kBefore = 128;
  out_.Reserve(kBefore + format::EncodedBound(record));
  if (out_.count() != written_chunks_)
    written_scope_ = 0;
  written_chunks_ = out_.count();
  if (file_.ticks_are_tsc() && ticks_ - anchored_ticks_ > kAnchorTicks) {
    anchored_ticks_ = ticks_;
    out_.Append(
        format::Anchor{.time = ticks_, .monotonic_ns = static_cast<uint64_t>(clock_.ToNs(ticks_))});
  }
  if (scope_ != written_scope_) {
    written_scope_ = scope_;
    out_.Append(format::ScopeIs{.scope = scope_});
  }
  if (said)
    out_.Append(*said);
  out_.Append(record);
}

template <class Record>
void StreamRewriter::Write(const Record& record, const format::RawRecord& raw) {
  out_.SetClock(ticks_, clock_.ToNs(ticks_));
  if constexpr (kIsDefinition<Record>) {
    if (definitions_[next_definition_++].needed)
      out_.AppendRaw(raw);
  } else if constexpr (kIsDescription<Record>) {
    WriteDescription(record, raw);
  } else if constexpr (std::is_same_v<Record, format::Thread>) {
    tid_ = static_cast<uint32_t>(record.tid);
    thread_name_.assign(record.name.data, record.name.size);
  } else if constexpr (std::is_same_v<Record, format::ScopeIs>) {
    scope_ = record.scope;
  } else if constexpr (std::is_same_v<Record, format::Lost>) {
    lost_[record.loss].Add(record.count, record.bytes);
  } else if constexpr (std::is_same_v<Record, format::PastOrigin>) {
    if (carries_origins_)
      carried_ = record;
  } else if constexpr (std::is_same_v<Record, format::HostSample>) {
    if (Keeps(record))
      WriteEvent(record, std::nullopt);
  } else if constexpr (!kIsRewritten<Record>) {
    const std::optional<format::PastOrigin> origin = std::exchange(carried_, std::nullopt);
    if (kIsAlwaysKept<Record> || Keeps())
      WriteEvent(record, origin);
  }
}

}  // namespace

void RewriteStream(const trace::LiveFile& file,
                   const trace::TickClock& clock,
                   const trace::LiveTrace* trace,
                   const CompactionPlan& plan,
                   size_t number,
                   std::vector<uint8_t>* out,
                   LossSums* lost) {
  StreamRewriter(file, clock, trace, plan, number, out, lost).Run();
}

}  // namespace vramscope::compact
