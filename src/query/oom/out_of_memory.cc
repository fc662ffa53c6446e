// SPDX-License-Identifier: Apache-2.0
#include "query/oom/out_of_memory.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "query/core/instant.h"
#include "query/core/live_set.h"
#include "query/core/parallel.h"
#include "query/core/residual.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/fold_names.h"
#include "tables/row_of.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;

constexpr size_t kMostNamed = 20;
// A segment is worth naming its blocks where a quarter of it and as much as a large one's least
// size is free.
constexpr uint64_t kLeastPinnedBytes = uint64_t{1} << 20;
// From this number on, allocations of one place without a free are not a model under construction.
constexpr uint64_t kFewestNeverFreed = 32;

// With the category, of kCategory only.
using HolderKey = std::pair<HolderKind, Category>;

constexpr HolderKey KeyOf(HolderKind kind) {
  return {kind, Category::kUnknown};
}

const char* HolderName(const HolderKey& holder) {
  switch (holder.first) {
    case HolderKind::kCategory:
      break;
    case HolderKind::kForwardResults:
      return "results of forward passes";
    case HolderKind::kDriver:
      return "context, code and other memory of the driver";
    case HolderKind::kKept:
      return "kept from earlier iterations";
    case HolderKind::kNeverFreed:
      return "allocated and never freed";
    case HolderKind::kOtherProcesses:
      return "other processes";
    case HolderKind::kOtherPools:
      return "free memory in pools of other libraries";
  }
  return holder.second == Category::kUnknown     ? "allocations of the program"
         : holder.second == Category::kTemporary ? "temporaries"
                                                 : format::CategoryName(holder.second);
}

// The driver, its runtime, PyTorch's allocator.
bool HandsOutMemory(std::string_view image) {
  const std::string_view name = image.substr(image.rfind('/') + 1);
  return name.starts_with("libcuda.") || name.starts_with("libcudart") ||
         name.starts_with("libc10");
}

struct Block {
  uint32_t segment;
  uint32_t site;
  uint64_t address;
  uint64_t bytes;
};

struct Sum {
  uint64_t bytes = 0;
  uint64_t count = 0;
};

class Explainer {
 public:
  Explainer(const tables::Recording& recording, const Refusal& refusal)
      : recording_(recording),
        tables_(recording.tables()),
        texts_(recording),
        times_(tables_),
        is_computed_again_(recording, IsComputedAgain),
        pytorch_(PyTorchOwner(recording)) {
    out_.refusal = refusal;
    const tables::AccountRow& account = RowOf(tables_.accounts, refusal.account);
    out_.device = account.device;
    out_.process = account.process;
  }

  util::Result<OutOfMemory> Explain() {
    const Instants at = AllAt(tables_, out_.refusal.time_ns);
    iteration_ = NumberAt(out_.refusal.time_ns);
    const auto live = ReadLiveSet(recording_, at, [this](const tables::AllocationRow& row) {
      return static_cast<uint64_t>(NumberAt(row.alloc_ns) + 1);
    });
    if (!live.ok())
      return live.status();
    FindKept(*live);
    ForEachLeaf(recording_, *live, [&](const Leaf& leaf) {
      if (leaf.device == out_.device)
        Add(leaf);
    });
    VRAMSCOPE_RETURN_IF_ERROR(ReadSegments(*live));
    Conclude();
    return std::move(out_);
  }

 private:
  int64_t NumberAt(int64_t time_ns) const {
    const ProcessIterations& iterations = times_.Of(out_.process);
    return iterations.empty() ? -1 : iterations.NumberAt(time_ns);
  }

  std::string LineOf(const tables::SiteRow& site) const {
    const tables::FrameId frame = texts_.LineOf(site);
    return frame.value == 0 ? "" : FormatFrame(recording_, frame);
  }
  std::string NameOf(const tables::SiteRow& site) const {
    for (const tables::StringId id : {site.parameter, site.tag, site.module, site.scope}) {
      if (id.value != 0)
        return std::string(recording_.string(id));
    }
    return "";
  }
  // Of the request, whose stacks no site has.
  std::string PlaceOf(const Refusal& refusal) const {
    if (refusal.stack.value == 0)
      return NativePlaceOf(refusal);
    const tables::FrameId frame = UserFrame(recording_, refusal.stack);
    return frame.value == 0 ? "" : FormatFrame(recording_, frame);
  }
  // Autograd's threads run no Python: the requester is the operation whose backward runs.
  // Otherwise, skip allocator frames to find the requester.
  std::string NativePlaceOf(const Refusal& refusal) const {
    constexpr std::string_view kNode = "torch::autograd::generated::";
    tables::FrameId wanted;
    for (const tables::FrameId frame : StackFrames(recording_, refusal.native_stack)) {
      if (IsUserFrame(recording_, frame))
        return FormatFrame(recording_, frame);
      const tables::FrameRow& row = tables_.frames[frame.value];
      const std::string_view function = recording_.string(row.function);
      // In between are helpers of the node, "details::mul_tensor_backward(...)".
      if (function.starts_with(kNode) && !function.substr(kNode.size()).starts_with("details::")) {
        // "MseLossBackward0_apply_functional(...)" or "MseLossBackward0::apply(...)"
        std::string_view node = function.substr(kNode.size());
        node = node.substr(0, std::min(node.find("_apply"), node.find("::")));
        return std::string(node) + " (backward)";
      }
      if (wanted.value == 0 && !function.empty() && !HandsOutMemory(recording_.string(row.image)))
        wanted = frame;
    }
    if (refusal.thread.value < tables_.threads.size() &&
        recording_.string(tables_.threads[refusal.thread.value].name).starts_with("pt_autograd"))
      return "autograd's thread, which runs no Python";
    if (wanted.value == 0)
      wanted = UserFrame(recording_, refusal.native_stack);
    return wanted.value == 0 ? "" : FormatFrame(recording_, wanted);
  }

  // Memory that passes with an iteration, of two earlier ones at least.
  void FindKept(const LiveSet& live) {
    std::map<uint32_t, std::set<int64_t>> iterations;
    for (const LiveGroup& group : live.groups) {
      const tables::SiteRow& site = tables_.sites[group.row.site.value];
      const int64_t number = NumberAt(group.row.alloc_ns);
      if (site.account == out_.refusal.account && number >= 0 && number < iteration_ &&
          group.sum.count > 0 && IsPassing(site.category))
        iterations[texts_.LineOf(site).value].insert(number);
    }
    for (const auto& [line, numbers] : iterations) {
      if (numbers.size() >= 2)
        kept_lines_.insert(line);
    }
  }

  HolderKey HolderOf(const Leaf& leaf, Category category, int64_t number) const {
    if (leaf.site.part == Part::kOtherProcesses ||
        (leaf.process.value != 0 && leaf.process != out_.process))
      return KeyOf(HolderKind::kOtherProcesses);
    if (IsPassing(category) && leaf.row != nullptr && leaf.count > 0) {
      if (number >= 0 && number < iteration_ &&
          kept_lines_.contains(texts_.LineOf(leaf.site).value))
        return KeyOf(HolderKind::kKept);
      if (times_.Of(out_.process).empty() && leaf.count >= kFewestNeverFreed &&
          leaf.site.allocated_count == leaf.count)
        return KeyOf(HolderKind::kNeverFreed);
    }
    if (category == Category::kTemporary && format::RunsModel(leaf.site.phase))
      return KeyOf(HolderKind::kForwardResults);
    if (category == Category::kDriver)
      return KeyOf(HolderKind::kDriver);
    // Each gives it back for its own requests only.
    if (category == Category::kCached && out_.refusal.by_allocator && leaf.site.owner.value != 0 &&
        leaf.site.owner != pytorch_)
      return KeyOf(HolderKind::kOtherPools);
    return {HolderKind::kCategory, category};
  }

  void Add(const Leaf& leaf) {
    out_.used_bytes += leaf.bytes;
    const auto category = leaf.site.category;
    const int64_t number = leaf.row != nullptr ? NumberAt(leaf.row->alloc_ns) : -1;
    const HolderKey holder = HolderOf(leaf, category, number);
    const bool foreign = holder.first == HolderKind::kOtherProcesses;
    const std::string line = foreign ? "" : LineOf(leaf.site);
    const std::string name = foreign ? "" : NameOf(leaf.site);
    const auto add = [&](Sum& sum) {
      sum.bytes += leaf.bytes;
      sum.count += leaf.count;
    };
    add(holders_[holder]);
    if (holder.first == HolderKind::kOtherPools)
      other_pools_[std::string(recording_.string(leaf.site.owner))] += leaf.bytes;
    if (format::IsSlack(leaf.site.part) == false)
      add(parts_of_holders_[holder][{line, name}]);
    add(categories_[foreign ? HolderName(holder) : format::CategoryName(category)]);
    if (foreign)
      return;
    if (leaf.site.module.value != 0)
      add(layers_[std::string(recording_.string(leaf.site.module))]);
    if (!line.empty() && !format::IsSlack(leaf.site.part))
      add(lines_[line]);
    AddFacts(leaf, category, number);
  }

  void AddFacts(const Leaf& leaf, Category category, int64_t number) {
    facts_.categories[static_cast<size_t>(category)] += leaf.bytes;
    const uint32_t module = leaf.site.module.value;
    const auto phase = leaf.site.phase;
    if (category == Category::kActivation && !is_computed_again_.Of(leaf.site.stack)) {
      facts_.kept_activations += leaf.bytes;
      uint64_t& of_layer = layer_activations_[module];
      of_layer += leaf.bytes;
      facts_.largest_layer_activation = std::max(facts_.largest_layer_activation, of_layer);
    }
    const std::string_view repeated = RepeatedLayerOf(recording_.string(leaf.site.module));
    const bool of_forward = format::RunsModel(phase) && !repeated.empty();
    if (category == Category::kTemporary && of_forward) {
      layer_forwards_[repeated].bytes += leaf.bytes;
      layer_forwards_[repeated].count += leaf.count;
      facts_.forwards = std::max(facts_.forwards, leaf.site.allocated_count);
    }
    // Before the first backward, what the forward keeps for it is in these categories.
    if ((category == Category::kTemporary || category == Category::kRetained) && of_forward)
      facts_.unread_bytes += leaf.bytes;
    if (category == Category::kGradient && number >= 0 && number < iteration_)
      facts_.old_gradient_bytes += leaf.bytes;
    if (leaf.site.owner.value == 0 || leaf.site.owner != pytorch_)
      return;
    if (category == Category::kFragmentation)
      facts_.torch_fragmentation_bytes += leaf.bytes;
    if (category == Category::kCached)
      facts_.torch_cached_bytes += leaf.bytes;
  }

  // The process's segments: what is free in them, and the blocks that keep them.
  util::Status ReadSegments(const LiveSet& live) {
    std::vector<bool> mine(tables_.segments.size());
    bool any = false;
    for (size_t i = 1; i < live.segments.size(); ++i) {
      const uint32_t site = tables_.segments[i].site.value;
      const auto part = tables_.segments[i].part_in_use;
      mine[i] = site < tables_.sites.size() &&
                tables_.sites[site].account == out_.refusal.account && part != Part::kGraphPool &&
                (!out_.refusal.by_allocator || tables_.sites[site].owner == pytorch_);
      if (mine[i])
        out_.in_segments_bytes += live.segments[i].HeldBytes();
      mine[i] = mine[i] && live.segments[i].FreeBytes() > 0;
      if (!mine[i])
        continue;
      any = true;
      out_.free_in_segments_bytes += live.segments[i].FreeBytes();
      if (!live.segments[i].IsInUse())
        NoteRange(live.segments[i].FreeBytes());
    }
    if (!any)
      return {};
    const int64_t at_ns = out_.refusal.time_ns;
    std::vector<size_t> frames;
    for (size_t i = 0; i < recording_.frame_count(); ++i) {
      if (recording_.zone(i).MayHoldLiveAt(at_ns))
        frames.push_back(i);
    }
    std::vector<Block> blocks;
    const uint32_t wanted = tables::kBeginNs | tables::kEndNs | tables::kAddress | tables::kBytes |
                            tables::kSite | tables::kSegment;
    VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(
        recording_, frames, wanted, 1, [&](size_t, const tables::AllocationFrame& frame) {
          for (size_t i = 0; i < frame.rows; ++i) {
            const uint32_t segment = frame.segment[i];
            if (segment < mine.size() && mine[segment] && frame.site[i] < tables_.sites.size() &&
                tables_.sites[frame.site[i]].backing == 0 &&
                tables_.sites[frame.site[i]].unbacked == 0 && frame.begin_ns[i] <= at_ns &&
                at_ns < frame.end_ns[i])
              blocks.push_back({segment, frame.site[i], frame.address[i], frame.bytes[i]});
          }
        }));
    std::sort(blocks.begin(), blocks.end(), [](const Block& a, const Block& b) {
      return std::pair(a.segment, a.address) < std::pair(b.segment, b.address);
    });
    for (size_t from = 0; from < blocks.size();) {
      size_t to = from;
      while (to < blocks.size() && blocks[to].segment == blocks[from].segment)
        ++to;
      AddSegment(live.segments[blocks[from].segment], {&blocks[from], &blocks[from] + (to - from)});
      from = to;
    }
    std::stable_sort(out_.pins.begin(), out_.pins.end(),
                     [](const auto& a, const auto& b) { return a.free_bytes > b.free_bytes; });
    out_.pins.resize(std::min(out_.pins.size(), kMostNamed));
    return {};
  }

  void NoteRange(uint64_t bytes) {
    out_.largest_free_range_bytes = std::max(out_.largest_free_range_bytes, bytes);
  }

  void AddSegment(const SegmentState& live, std::pair<const Block*, const Block*> blocks) {
    const tables::SegmentRow& row = tables_.segments[blocks.first->segment];
    // Gaps of a partly mapped range have no memory, so the sum is limited by the free bytes.
    uint64_t at = row.address;
    uint64_t range = 0;
    for (const Block* block = blocks.first; block != blocks.second; ++block) {
      if (block->address > at)
        range = std::max(range, block->address - at);
      at = std::max(at, block->address + block->bytes);
    }
    if (const uint64_t end = row.address + row.size_bytes; end > at)
      range = std::max(range, end - at);
    NoteRange(std::min(range, live.FreeBytes()));
    const uint64_t held = live.HeldBytes();
    if (live.FreeBytes() < held / 4 || live.FreeBytes() < kLeastPinnedBytes)
      return;
    const Block* const largest =
        std::max_element(blocks.first, blocks.second,
                         [](const Block& a, const Block& b) { return a.bytes < b.bytes; });
    const tables::SiteRow& site = tables_.sites[largest->site];
    out_.pins.push_back({held, live.FreeBytes(),
                         static_cast<uint64_t>(blocks.second - blocks.first), largest->bytes,
                         LineOf(site), NameOf(site)});
  }

  static std::vector<NamedBytes> Sorted(const std::map<std::string, Sum>& sums) {
    std::vector<NamedBytes> sorted;
    for (const auto& [name, sum] : sums) {
      if (sum.bytes > 0)
        sorted.push_back({name, sum.bytes, sum.count});
    }
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return sorted;
  }

  void FillHolders() {
    for (const auto& [key, sum] : holders_) {
      MemoryHolder holder{HolderName(key), sum.bytes, sum.count, 0, "", "", key.first};
      if (key.first == HolderKind::kOtherPools && other_pools_.size() == 1)
        holder.name = "free memory in the pool of " + other_pools_.begin()->first;
      for (const auto& [part, of_part] : parts_of_holders_[key]) {
        if (of_part.bytes <= holder.largest_bytes)
          continue;
        holder.largest_bytes = of_part.bytes;
        holder.place = part.first;
        holder.layer = part.second;
      }
      out_.holders.push_back(std::move(holder));
    }
    std::sort(out_.holders.begin(), out_.holders.end(), [](const auto& a, const auto& b) {
      return std::pair(b.bytes, a.name) < std::pair(a.bytes, b.name);
    });
  }

  // The process's sites and ranks: what happened at all.
  void FillFacts() {
    std::set<int32_t> ranks;
    for (size_t i = 1; i < tables_.processes.size(); ++i) {
      if (tables_.processes[i].rank >= 0)
        ranks.insert(tables_.processes[i].rank);
    }
    facts_.ranks = static_cast<int32_t>(ranks.size());
    // A layer that keeps less may keep keys and values for the next token.
    constexpr uint64_t kFewestKept = 3;
    for (const auto& [layer, sum] : layer_forwards_) {
      if (sum.count < kFewestKept)
        continue;
      facts_.forward_bytes += sum.bytes;
      facts_.largest_forward_bytes = std::max(facts_.largest_forward_bytes, sum.bytes);
    }
    for (const tables::SiteRow& site : tables_.sites) {
      if (site.account != out_.refusal.account)
        continue;
      facts_.any_backward = facts_.any_backward || site.phase == format::Phase::kBackward;
      if (site.backing != 0 && recording_.string(site.api).starts_with("cuMemCreate"))
        facts_.expandable_segments = true;
    }
    // Autograd's own threads have no Python frames.
    facts_.in_forward = out_.refusal.stack.value != 0;
    for (const tables::FrameId frame : StackFrames(recording_, out_.refusal.stack)) {
      const std::string_view function = recording_.string(tables_.frames[frame.value].function);
      if (function == "backward" || function.ends_with(".backward") || function == "step" ||
          function.ends_with(".step"))
        facts_.in_forward = false;
    }
  }

  // What NVML's last figure before the refusal had beyond the ledger.
  uint64_t Unexplained() const {
    const tables::SampleRow* last = nullptr;
    for (const tables::SampleRow& sample : tables_.samples) {
      if (sample.device == out_.device && sample.time_ns <= out_.refusal.time_ns &&
          (last == nullptr || sample.time_ns > last->time_ns))
        last = &sample;
    }
    return last == nullptr
               ? 0
               : static_cast<uint64_t>(std::max<int64_t>(JudgeSample(*last).residual_bytes, 0));
  }

  void Conclude() {
    const Refusal& refusal = out_.refusal;
    out_.place = PlaceOf(refusal);
    const tables::DeviceRow& device = tables_.devices[out_.device.value];
    out_.total_bytes = device.total_bytes;
    const uint64_t beside =
        static_cast<uint64_t>(std::max<int64_t>(device.reading_offset_bytes, 0));
    if (refusal.reported_free_bytes)
      out_.free_bytes = refusal.reported_free_bytes;
    else if (device.total_bytes != 0)
      out_.free_bytes = device.total_bytes - std::min(device.total_bytes, out_.used_bytes + beside);
    out_.unexplained_bytes = Unexplained();
    FindLayer();
    FillHolders();
    FillFacts();
    out_.xla_pool = FindXlaPool(recording_, refusal);
    out_.categories = Sorted(categories_);
    out_.layers = Sorted(layers_);
    out_.lines = Sorted(lines_);
    out_.layers.resize(std::min(out_.layers.size(), kMostNamed));
    out_.lines.resize(std::min(out_.lines.size(), kMostNamed));
    out_.cause = CauseOf(out_);
    out_.advice = AdviceFor(out_, facts_);
  }

  // The refused request has no site of its own: others of the same stack have its layer.
  void FindLayer() {
    if (out_.refusal.stack.value == 0)
      return;
    for (const tables::SiteRow& site : tables_.sites) {
      if (site.account == out_.refusal.account && site.stack == out_.refusal.stack &&
          site.module.value != 0) {
        out_.layer = recording_.string(site.module);
        return;
      }
    }
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  DimensionValues texts_;
  IterationTimes times_;
  StackQuestion is_computed_again_;
  const tables::StringId pytorch_;  // the owner; 0: none
  int64_t iteration_ = -1;          // that the refusal is in
  std::set<uint32_t> kept_lines_;
  std::map<std::string, Sum> categories_, layers_, lines_;
  std::map<HolderKey, Sum> holders_;
  std::map<std::string, uint64_t> other_pools_;  // by owner
  std::map<HolderKey, std::map<std::pair<std::string, std::string>, Sum>> parts_of_holders_;
  std::unordered_map<uint32_t, uint64_t> layer_activations_;
  std::map<std::string_view, Sum> layer_forwards_;  // by repeated layer
  RefusalFacts facts_;
  OutOfMemory out_;
};

}  // namespace

int64_t OutOfMemory::TimeNs() const {
  return refusal.time_ns;
}
uint64_t OutOfMemory::RequestedBytes() const {
  return refusal.requested_bytes;
}
std::optional<XlaPool> OutOfMemory::XlaPoolIfAny() const {
  return xla_pool.limit_bytes == 0 ? std::nullopt : std::optional(xla_pool);
}

util::Result<OutOfMemory> ExplainRefusal(const tables::Recording& recording,
                                         const Refusal& refusal) {
  return Explainer(recording, refusal).Explain();
}

}  // namespace vramscope::query
