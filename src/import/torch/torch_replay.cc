// SPDX-License-Identifier: Apache-2.0
#include "import/torch/torch_replay.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "util/text.h"

namespace vramscope::imports {
namespace {

using tables::kNever;

// PyTorch's allocator rounds to multiples of it.
constexpr uint64_t kBlockBytes = 512;

uint64_t Rounded(uint64_t bytes) {
  return std::max(bytes + (kBlockBytes - bytes % kBlockBytes) % kBlockBytes, kBlockBytes);
}

// The limit of a plausible range, so that sums cannot overflow.
bool IsPossible(uint64_t address, uint64_t bytes) {
  return bytes <= kMostBytes && address <= UINT64_MAX - kMostBytes;
}

format::Category CategoryOf(std::string_view name) {
  for (const format::Category category : format::kAllCategories) {
    if (name == format::CategoryName(category))
      return category;
  }
  return format::Category::kUnknown;
}

bool IsPython(std::string_view file) {
  return file.ends_with(".py") || file.starts_with("<");
}

// Whether the path belongs to installed or generated code.
bool IsLibrary(std::string_view file) {
  for (const char* const part : {"/site-packages/", "/dist-packages/", "/lib/python"}) {
    if (file.find(part) != std::string_view::npos)
      return true;
  }
  return file.starts_with("<") || util::IsGeneratedCode(file);
}

// "MulBackward0" of "torch::autograd::generated::MulBackward0::apply(...)" and of
// "...::MulBackward0_apply_functional(...)"; "" of any other function.
std::string NodeOf(std::string_view function) {
  constexpr std::string_view kNodes = "torch::autograd::generated::";
  if (!function.starts_with(kNodes))
    return {};
  const std::string_view node = function.substr(kNodes.size());
  return std::string(node.substr(0, std::min(node.find("_apply"), node.find("::"))));
}

}  // namespace

tables::StringId TorchStacks::Text(std::string_view text) {
  if (text.empty())
    return {};
  const auto [found, is_new] = texts_.try_emplace(text.data(), tables::StringId{});
  if (is_new)
    found->second = builder_.Text(text);
  return found->second;
}

const TorchStacks::Frame& TorchStacks::FrameOf(uint32_t number) {
  Frame& known = frames_[number];
  if (std::exchange(known.is_known, true))
    return known;
  const PickleFrame& frame = pickle_.frame(number);
  const std::string_view file = pickle_.text(frame.file);
  const std::string_view function = pickle_.text(frame.function);
  known.is_python = IsPython(file);
  // Frames of the recorder itself are not callers.
  known.is_recorder =
      !known.is_python && (function.starts_with("torch::unwind::") ||
                           function.find("CapturedTraceback::gather") != std::string_view::npos ||
                           function.find("gather_with_cpp") != std::string_view::npos);
  tables::FrameRow row;
  row.kind = known.is_python ? tables::FrameKind::kPython : tables::FrameKind::kNative;
  row.function = Text(function);
  row.file = file == "??" ? tables::StringId{} : Text(file);
  row.line = frame.line;
  row.library = !known.is_python || IsLibrary(file) ? 1 : 0;
  known.id = known.is_recorder ? tables::FrameId{} : builder_.Frame(row);
  if (known.is_python)
    return known;
  known.hands_out = function.find("CachingAllocator") != std::string_view::npos ||
                    function.starts_with("c10::alloc") ||
                    function.starts_with("at::detail::empty_");
  if (const std::string node = NodeOf(function); !node.empty()) {
    tables::FrameRow operation;
    operation.kind = row.kind;
    operation.function = builder_.Text(node + " (backward)");
    known.node = builder_.Frame(operation);
  }
  return known;
}

bool TorchStacks::HasPython(uint32_t stack) {
  std::optional<bool>& has_python = known_[stack].has_python;
  if (!has_python) {
    const std::span<const uint32_t> frames = pickle_.stack(stack);
    has_python = std::any_of(frames.begin(), frames.end(), [&](uint32_t frame) {
      return IsPython(pickle_.text(pickle_.frame(frame).file));
    });
  }
  return *has_python;
}

const TorchStacks::Pair& TorchStacks::Of(uint32_t stack) {
  Known& known = known_[stack];
  if (std::exchange(known.is_known, true))
    return known.stacks;
  const std::span<const uint32_t> frames = pickle_.stack(stack);
  for (auto at = frames.rbegin(); at != frames.rend(); ++at) {
    const Frame& frame = FrameOf(*at);
    if (frame.is_recorder)
      continue;
    tables::StackId& into = frame.is_python ? known.stacks.python : known.stacks.native;
    into = builder_.Stack(into, frame.id);
    if (!frame.is_python && !frame.hands_out)
      known.stacks.place = into;
  }
  // All blocks have the allocator's frames, so they carry no information.
  if (known.stacks.place.value != 0)
    known.stacks.native = known.stacks.place;
  if (known.stacks.python.value != 0) {
    known.stacks.place = known.stacks.python;
    return known.stacks;
  }
  // Autograd's threads run no Python; their operation is the one whose backward runs.
  for (const uint32_t number : frames) {
    if (FrameOf(number).node.value == 0)
      continue;
    known.stacks.place = builder_.Stack({}, FrameOf(number).node);
    break;
  }
  if (known.stacks.place.value == 0)
    known.stacks.place = known.stacks.native;
  return known.stacks;
}

TorchReplay::TorchReplay(const TorchPickle& pickle,
                         TorchStacks* stacks,
                         Builder* builder,
                         tables::AccountId account,
                         bool is_ours)
    : pickle_(pickle),
      stacks_(*stacks),
      builder_(*builder),
      account_(account),
      is_ours_(is_ours),
      torch_(builder->Text("PyTorch")),
      before_(builder->Text("before the trace")),
      no_python_(builder->Text("no Python running")) {}

void TorchReplay::AddSegment(const PickleValue& segment) {
  const uint64_t address = pickle_.Number(pickle_.Get(segment, PickleKey::kAddress)).value_or(0);
  const auto bytes = pickle_.Number(pickle_.Get(segment, PickleKey::kTotalSize));
  if (!bytes || !IsPossible(address, *bytes)) {
    builder_.Lose("segments of a snapshot without a size", 1);
    return;
  }
  FinalSegment found;
  found.bytes = *bytes;
  const PickleValue stream = pickle_.Get(segment, PickleKey::kStream);
  found.stream = stream.kind == PickleValue::Kind::kInt ? stream.bits : 0;
  found.stack = pickle_.StackOf(pickle_.Get(segment, PickleKey::kFrames));
  if (const auto* const pool = pickle_.ListOf(pickle_.Get(segment, PickleKey::kPoolId))) {
    for (const PickleValue& part : std::span(*pool).first(std::min<size_t>(pool->size(), 2)))
      found.is_private |= pickle_.Number(part).value_or(0) != 0;
  }
  const bool is_expandable = pickle_.Get(segment, PickleKey::kIsExpandable).bits != 0;
  if (found.bytes == 0)
    return;
  if (!builder_.budget().Charge("segments", 1, 256))
    return;
  const auto number = static_cast<uint32_t>(final_segments_.size());
  final_segments_.push_back(found);
  if (is_expandable) {
    AddInterval(&past_mapped_, address, address + found.bytes);
    mapped_finals_[address] = number;
  } else if (!past_segments_.try_emplace(address, Past{found.bytes, found.stream, number}).second) {
    builder_.Lose("segments of a snapshot at one address", 1, found.bytes);
    return;
  }
  AddBlocks(segment, address, found.stream);
}

void TorchReplay::AddBlocks(const PickleValue& segment, uint64_t address, uint64_t stream) {
  const auto* const blocks = pickle_.ListOf(pickle_.Get(segment, PickleKey::kBlocks));
  if (blocks == nullptr)
    return;
  for (const PickleValue& block : *blocks) {
    if (!builder_.budget().Charge("blocks", 1, 256))
      return;
    const auto bytes = pickle_.Number(pickle_.Get(block, PickleKey::kSize));
    if (!bytes || !IsPossible(address, *bytes)) {
      builder_.Lose("blocks of a snapshot without a size", 1);
      return;
    }
    const uint64_t at = address;
    address += *bytes;
    const std::string_view state = pickle_.TextOf(pickle_.Get(block, PickleKey::kState));
    // The documentation calls the pending state "active_awaiting_free".
    if (!state.starts_with("active") || *bytes == 0)
      continue;
    FinalBlock found;
    found.bytes = *bytes;
    found.stream = stream;
    std::optional<uint64_t> requested =
        pickle_.Number(pickle_.Get(block, PickleKey::kRequestedSize));
    found.stack = pickle_.StackOf(pickle_.Get(block, PickleKey::kFrames));
    // Before 2.1 a block's frames were with its history.
    const auto* const history = pickle_.ListOf(pickle_.Get(block, PickleKey::kHistory));
    if (history != nullptr && !history->empty()) {
      if (found.stack == 0)
        found.stack = pickle_.StackOf(pickle_.Get(history->front(), PickleKey::kFrames));
      if (!requested)
        requested = pickle_.Number(pickle_.Get(history->front(), PickleKey::kRealSize));
    }
    found.requested_bytes = std::min(requested.value_or(found.bytes), found.bytes);
    found.category = pickle_.TextOf(pickle_.Get(block, PickleKey::kCategory));
    found.metadata = pickle_.TextOf(pickle_.Get(block, PickleKey::kMetadata));
    past_blocks_[at] = {found.requested_bytes, stream, static_cast<uint32_t>(final_blocks_.size())};
    final_blocks_.push_back(found);
  }
}

TorchReplay::Action TorchReplay::ActionOf(const PickleEvent& event) const {
  static constexpr std::pair<std::string_view, Action> kActions[] = {
      {"alloc", Action::kAlloc},
      {"free_requested", Action::kFreeRequested},
      {"free_completed", Action::kFreeCompleted},
      {"free", Action::kFreeCompleted},
      {"segment_alloc", Action::kSegmentAlloc},
      {"segment_free", Action::kSegmentFree},
      {"segment_map", Action::kSegmentMap},
      {"segment_unmap", Action::kSegmentUnmap},
      {"oom", Action::kOutOfMemory},
      {"snapshot", Action::kSnapshot},
      {"user_defined", Action::kNamed},
      {"workspace_snapshot", Action::kIgnored},
  };
  const std::string_view name = pickle_.text(event.action);
  for (const auto& [word, action] : kActions) {
    if (name == word)
      return event.is_damaged || !IsPossible(event.address, event.bytes) ? Action::kUnknown
                                                                         : action;
  }
  return Action::kUnknown;
}

void TorchReplay::AddInterval(std::map<uint64_t, uint64_t>* intervals, uint64_t from, uint64_t to) {
  auto at = intervals->upper_bound(from);
  if (at != intervals->begin() && std::prev(at)->second >= from)
    at = std::prev(at);
  while (at != intervals->end() && at->first <= to) {
    from = std::min(from, at->first);
    to = std::max(to, at->second);
    at = intervals->erase(at);
  }
  if (from < to)
    (*intervals)[from] = to;
}

void TorchReplay::RemoveInterval(std::map<uint64_t, uint64_t>* intervals,
                                 uint64_t from,
                                 uint64_t to) {
  auto at = intervals->upper_bound(from);
  if (at != intervals->begin() && std::prev(at)->second > from)
    at = std::prev(at);
  while (at != intervals->end() && at->first < to) {
    const auto [begin, end] = *at;
    at = intervals->erase(at);
    if (begin < from)
      (*intervals)[begin] = from;
    if (end > to)
      (*intervals)[to] = end;
  }
}

void TorchReplay::TakeBack() {
  if (events_ == nullptr)
    return;
  const size_t count = std::min<size_t>(events_->size(), UINT32_MAX - 1);
  if (!builder_.budget().Charge("events", count, 32))
    return;
  for (size_t i = 0; i < count; ++i) {
    const PickleEvent* const event = pickle_.EventOf((*events_)[i]);
    if (event == nullptr)
      continue;
    const Action action = ActionOf(*event);
    completes_ |= action == Action::kFreeCompleted;
    has_python_ = has_python_ || (action == Action::kAlloc &&
                                  stacks_.HasPython(pickle_.StackOfObject(event->frames)));
  }
  for (size_t i = count; i-- > 0;) {
    const PickleEvent* const event = pickle_.EventOf((*events_)[i]);
    if (event == nullptr)
      continue;
    const auto number = static_cast<uint32_t>(i);
    const auto forget = [&](std::map<uint64_t, Past>* past) {
      const auto found = past->find(event->address);
      if (found == past->end())
        return;
      if (found->second.final != kNoFinal)
        final_of_event_[number] = found->second.final;
      past->erase(found);
    };
    const Action action = ActionOf(*event);
    if (IsFree(action)) {
      past_blocks_.try_emplace(event->address, Past{event->bytes, event->stream, kNoFinal});
      continue;
    }
    switch (action) {
      case Action::kAlloc:
        forget(&past_blocks_);
        break;
      case Action::kSegmentAlloc:
        forget(&past_segments_);
        break;
      case Action::kSegmentFree:
        past_segments_.try_emplace(event->address, Past{event->bytes, event->stream, kNoFinal});
        break;
      case Action::kSegmentMap:
        RemoveInterval(&past_mapped_, event->address, event->address + event->bytes);
        break;
      case Action::kSegmentUnmap:
        AddInterval(&past_mapped_, event->address, event->address + event->bytes);
        break;
      default:
        break;
    }
  }
}

void TorchReplay::Begin(int64_t first_us, bool timed, int64_t begin_ns) {
  step_us_ = timed ? 1 : 1'000'000;
  last_us_ = first_us;
  for (const auto& [address, past] : past_segments_) {
    FinalSegment segment{past.bytes, past.stream, 0, false};
    BeginSegment(past.final == kNoFinal ? segment : final_segments_[past.final], address, begin_ns);
  }
  for (const auto& [from, to] : past_mapped_) {
    const auto after = mapped_finals_.upper_bound(from);
    Map(from, to,
        after == mapped_finals_.begin() ? FinalSegment()
                                        : final_segments_[std::prev(after)->second],
        begin_ns);
  }
  const bool has_events = events_ != nullptr && !events_->empty();
  for (const auto& [address, past] : past_blocks_) {
    FinalBlock block;
    block.requested_bytes = past.bytes;
    block.bytes = is_ours_ ? past.bytes : Rounded(past.bytes);
    block.stream = past.stream;
    BeginBlock(past.final == kNoFinal ? block : final_blocks_[past.final], address, begin_ns,
               has_events);
  }
  past_blocks_.clear();
  past_segments_.clear();
  past_mapped_.clear();
}

int64_t TorchReplay::TimeOf(uint32_t index) const {
  const PickleEvent* const event = pickle_.EventOf((*events_)[index]);
  if (event != nullptr && event->has_time)
    return std::max(event->time_us, last_us_);
  // An event without a time follows the previous one by a step.
  return last_us_ == INT64_MIN ? last_us_ : last_us_ + step_us_;
}

bool TorchReplay::NextTime(int64_t* time_us) const {
  if (events_ == nullptr || next_ >= std::min<size_t>(events_->size(), UINT32_MAX - 1) ||
      builder_.IsOver())
    return false;
  *time_us = TimeOf(next_);
  return true;
}

void TorchReplay::Advance(int64_t first_us) {
  last_us_ = TimeOf(next_);
  const PickleEvent* const event = pickle_.EventOf((*events_)[next_]);
  constexpr int64_t kMostUs = tables::kNever / 4000;
  const auto since_us = static_cast<uint64_t>(last_us_) - static_cast<uint64_t>(first_us);
  const int64_t now_ns = static_cast<int64_t>(std::min<uint64_t>(since_us, kMostUs)) * 1000 + 1000;
  if (event == nullptr)
    builder_.Lose("entries of a trace that are no events", 1);
  else
    Apply(*event, next_, now_ns);
  ++next_;
}

void TorchReplay::Apply(const PickleEvent& event, uint32_t index, int64_t at_ns) {
  const Action action = ActionOf(event);
  builder_.Event();
  const auto final = final_of_event_.find(index);
  const uint32_t stack = pickle_.StackOfObject(event.frames);
  if (IsFree(action)) {
    EndBlock(event.address, builder_.Tick(at_ns));
    return;
  }
  switch (action) {
    case Action::kAlloc: {
      FinalBlock block;
      if (final != final_of_event_.end())
        block = final_blocks_[final->second];
      if (final == final_of_event_.end() || block.requested_bytes != event.bytes) {
        block.requested_bytes = event.bytes;
        block.bytes = std::max(block.bytes, is_ours_ ? event.bytes : Rounded(event.bytes));
      }
      block.stream = event.stream;
      block.stack = stack != 0 ? stack : block.stack;
      if (block.category.empty())
        block.category = pickle_.text(event.category);
      if (block.metadata.empty())
        block.metadata = pickle_.text(event.metadata);
      if (blocks_.count(event.address) != 0) {
        builder_.Lose("blocks that were allocated twice without a free", 1, event.bytes);
        EndBlock(event.address, builder_.Tick(at_ns));
      }
      BeginBlock(block, event.address, builder_.Tick(at_ns), false);
      break;
    }
    case Action::kSegmentAlloc: {
      FinalSegment segment{event.bytes, event.stream, stack, false};
      if (final != final_of_event_.end())
        segment.is_private = final_segments_[final->second].is_private;
      EndSegment(event.address, at_ns);
      BeginSegment(segment, event.address, builder_.Tick(at_ns));
      break;
    }
    case Action::kSegmentFree:
      EndSegment(event.address, at_ns);
      break;
    case Action::kSegmentMap:
      Unmap(event.address, event.address + event.bytes, at_ns);
      Map(event.address, event.address + event.bytes, {event.bytes, event.stream, stack, false},
          builder_.Tick(at_ns));
      break;
    case Action::kSegmentUnmap:
      Unmap(event.address, event.address + event.bytes, at_ns);
      break;
    case Action::kOutOfMemory: {
      tables::OutOfMemoryRow row;
      row.account = account_;
      row.time_ns = builder_.Tick(at_ns);
      row.requested_bytes = event.bytes;
      // This event has no address: the field is the device's free memory.
      row.reported_free = event.address == 0 ? 0 : event.address + 1;
      row.stack = stacks_.Of(stack).python;
      row.native_stack = stacks_.Of(stack).native;
      builder_.OutOfMemory(row);
      break;
    }
    case Action::kSnapshot:
      builder_.Mark(builder_.Tick(at_ns), "snapshot", builder_.account(account_).process);
      break;
    case Action::kNamed:
      if (builder_.budget().Charge("marks", 1, pickle_.text(event.metadata).size()))
        builder_.Mark(builder_.Tick(at_ns), pickle_.text(event.metadata),
                      builder_.account(account_).process);
      break;
    case Action::kFreeRequested:
    case Action::kFreeCompleted:
    case Action::kIgnored:
      break;
    case Action::kUnknown:
      builder_.Lose("entries of a trace that say nothing known", 1);
      break;
  }
}

tables::SiteRow TorchReplay::SiteOf(uint32_t stack, uint64_t stream) const {
  tables::SiteRow site = Builder::SiteOf(account_);
  site.owner = torch_;
  site.stream = stream + 1;
  const TorchStacks::Pair& stacks = stacks_.Of(stack);
  site.stack = stacks.python;
  site.native_stack = stacks.native;
  site.place = stacks.place;
  return site;
}

TorchReplay::Row TorchReplay::NewRow(uint64_t from,
                                     uint64_t to,
                                     const tables::SiteRow& site,
                                     int64_t now_ns) {
  Row live;
  live.end = to;
  live.row.begin_ns = live.row.alloc_ns = now_ns;
  live.row.end_ns = kNever;
  live.row.address = from;
  live.row.bytes = to - from;
  live.row.site = builder_.Site(site);
  return live;
}

void TorchReplay::BeginBlock(const FinalBlock& block,
                             uint64_t address,
                             int64_t now_ns,
                             bool is_before) {
  tables::SiteRow site = SiteOf(block.stack, block.stream);
  site.allocator = torch_;
  site.category = CategoryOf(block.category);
  if (!block.metadata.empty())
    site.tag = stacks_.Text(block.metadata);
  else if (is_before)
    site.tag = before_;
  else if (site.place.value == 0 && !is_ours_ && has_python_)
    site.tag = no_python_;
  Row live = NewRow(address, address + block.bytes, site, now_ns);
  live.row.rounding_bytes = block.bytes - block.requested_bytes;
  live.row.segment = SegmentAt(address, block.bytes);
  if (live.row.segment.value == 0)
    builder_.Violate(tables::InvariantKind::kOutsideSegment, fmt::format("{:#x}", address));
  if (builder_.budget().Charge("live blocks", 1, 1))
    blocks_[address] = live;
}

void TorchReplay::EndBlock(uint64_t address, int64_t now_ns) {
  const auto found = blocks_.find(address);
  if (found == blocks_.end()) {
    builder_.Lose("blocks that were freed twice", 1);
    return;
  }
  found->second.row.end_ns = now_ns;
  builder_.Add(found->second.row);
  blocks_.erase(found);
}

tables::SegmentId TorchReplay::MakeSegment(const FinalSegment& segment,
                                           uint64_t address,
                                           int64_t now_ns) {
  using format::Part;
  const Part part = segment.is_private ? Part::kGraphPool : Part::kCached;
  tables::SiteRow site = Builder::SiteOf(account_, part);
  site.owner = torch_;
  site.stream = segment.stream + 1;
  tables::SegmentRow row;
  row.site = builder_.Site(site);
  row.part_in_use = segment.is_private ? part : Part::kFragmentation;
  row.address = address;
  row.size_bytes = segment.bytes;
  row.begin_ns = now_ns;
  row.end_ns = kNever;
  return builder_.Segment(row);
}

void TorchReplay::BeginSegment(const FinalSegment& segment, uint64_t address, int64_t now_ns) {
  tables::SiteRow site = SiteOf(segment.stack, segment.stream);
  site.backing = 1;
  site.api = builder_.Text("cudaMalloc");
  Row live = NewRow(address, address + segment.bytes, site, now_ns);
  live.row.segment = MakeSegment(segment, address, now_ns);
  segments_[address] = live;
}

void TorchReplay::EndSegment(uint64_t address, int64_t at_ns) {
  const auto found = segments_.find(address);
  if (found == segments_.end())
    return;
  Row live = found->second;
  live.row.end_ns = builder_.Tick(at_ns);
  if (live.row.segment.value != 0)
    builder_.segment(live.row.segment).end_ns = live.row.end_ns;
  builder_.Add(live.row);
  segments_.erase(found);
}

// Expandable segments grow and shrink: all mapped memory backs one segment.
void TorchReplay::Map(uint64_t from, uint64_t to, const FinalSegment& segment, int64_t now_ns) {
  if (from >= to)
    return;
  if (expandable_.value == 0)
    expandable_ = MakeSegment({to - from, segment.stream, 0, segment.is_private}, 0, now_ns);
  tables::SiteRow site = SiteOf(segment.stack, segment.stream);
  site.backing = 1;
  site.api = builder_.Text("cuMemMap");
  Row live = NewRow(from, to, site, now_ns);
  live.row.segment = expandable_;
  mapped_[from] = live;
}

void TorchReplay::Unmap(uint64_t from, uint64_t to, int64_t at_ns) {
  auto at = mapped_.upper_bound(from);
  if (at != mapped_.begin() && std::prev(at)->second.end > from)
    at = std::prev(at);
  std::vector<Row> rests;
  while (at != mapped_.end() && at->first < to) {
    Row whole = at->second;
    at = mapped_.erase(at);
    const uint64_t begin = whole.row.address;
    whole.row.end_ns = builder_.Tick(at_ns);
    builder_.Add(whole.row);
    for (const auto& [rest_from, rest_to] : {std::pair(begin, from), {to, whole.end}}) {
      if (rest_from >= rest_to)
        continue;
      Row rest = whole;
      rest.end = rest_to;
      rest.row.begin_ns = whole.row.end_ns;
      rest.row.end_ns = kNever;
      rest.row.address = rest_from;
      rest.row.bytes = rest_to - rest_from;
      rests.push_back(rest);
    }
  }
  for (const Row& rest : rests)
    mapped_[rest.row.address] = rest;
}

tables::SegmentId TorchReplay::SegmentAt(uint64_t address, uint64_t bytes) const {
  for (const auto* const ranges : {&segments_, &mapped_}) {
    const auto after = ranges->upper_bound(address);
    if (after == ranges->begin())
      continue;
    const Row& range = std::prev(after)->second;
    // A block may span several mapped pieces, but only one segment.
    if (address < range.end && (ranges == &mapped_ || address + bytes <= range.end))
      return range.row.segment;
  }
  return {};
}

void TorchReplay::End() {
  for (const auto* const rows : {&blocks_, &segments_, &mapped_}) {
    for (const auto& [address, live] : *rows)
      builder_.Add(live.row);
  }
}

}  // namespace vramscope::imports
