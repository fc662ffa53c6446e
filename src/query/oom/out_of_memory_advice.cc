// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "query/dimensions/fold_names.h"
#include "query/oom/out_of_memory.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using util::FormatBytes;

// Below a hundredth of the device nothing is worth a line.
constexpr uint64_t kLeastShare = 100;
// Ends of segments that nothing fits into are in any pool: a small request fails for want of them
// where the pool is full, too.
constexpr uint64_t kFragmentedShare = 8;
// Firmware keeps some memory of a device, which neither the ledger nor the recorded total contains.
// A limit is to blame only if more than that was free.
constexpr uint64_t kHeldBack = uint64_t{1} << 30;

uint64_t Of(const RefusalFacts& facts, Category category) {
  return facts.categories[static_cast<size_t>(category)];
}

std::string At(const std::string& place, const std::string& layer) {
  std::string text = place.empty() ? "" : " at " + place;
  if (!layer.empty())
    text += " (" + query::LayerWords(layer) + ")";
  return text;
}

uint64_t WholeOf(const OutOfMemory& what) {
  return what.total_bytes != 0 ? what.total_bytes : what.used_bytes;
}

std::string ShareOf(uint64_t bytes, const OutOfMemory& what) {
  const uint64_t whole = WholeOf(what);
  if (whole == 0)
    return "";
  return " (" + std::to_string(bytes * 100 / whole) + " % of the device)";
}

const MemoryHolder* Holder(const OutOfMemory& what, HolderKind kind) {
  for (const MemoryHolder& holder : what.holders) {
    if (holder.kind == kind)
      return &holder;
  }
  return nullptr;
}

// The largest holder that a program can do without; null: there is none.
const MemoryHolder* ToBlame(const OutOfMemory& what) {
  for (const MemoryHolder& holder : what.holders) {
    if (holder.kind != HolderKind::kDriver || holder.bytes > WholeOf(what) / 2)
      return &holder;
  }
  return nullptr;
}

}  // namespace

std::string CauseOf(const OutOfMemory& what) {
  const uint64_t wanted = std::max(what.refusal.requested_bytes, what.refusal.asked_driver_bytes);
  const std::string asked = FormatBytes(wanted);
  if (what.xla_pool.limit_bytes != 0)
    return CauseInXlaPool(what.xla_pool, wanted);
  if (what.total_bytes != 0 && wanted > what.total_bytes)
    return "the request alone is larger than the device: " + asked + " of " +
           FormatBytes(what.total_bytes) + At(what.place, what.layer);
  // What a context or a module needs the driver does not say.
  if (what.total_bytes != 0 && wanted != 0 && what.free_bytes &&
      *what.free_bytes >= wanted + kHeldBack + what.unexplained_bytes)
    return "a limit below the size of the device: " + FormatBytes(*what.free_bytes) +
           " were free when " + asked + " were refused";
  if (wanted != 0 && what.free_in_segments_bytes >= what.refusal.requested_bytes &&
      what.free_in_segments_bytes >= what.in_segments_bytes / kFragmentedShare &&
      what.largest_free_range_bytes < what.refusal.requested_bytes) {
    std::string text = "fragmentation: " + FormatBytes(what.free_in_segments_bytes) +
                       " are free in the allocator's segments, but no more than " +
                       FormatBytes(what.largest_free_range_bytes) + " at one place";
    if (!what.pins.empty())
      text += "; most is pinned by a block of " + FormatBytes(what.pins[0].block_bytes) +
              At(what.pins[0].place, what.pins[0].layer);
    return text;
  }
  const MemoryHolder* const blamed = ToBlame(what);
  // Other processes and the driver have the rest of a device whose size is unknown.
  if (what.total_bytes == 0 && (blamed == nullptr || blamed->bytes < wanted))
    return "unknown: the recording has neither the size of the device nor what else was on it";
  if (blamed == nullptr || what.refusal.requested_bytes >= blamed->bytes)
    return "the request itself: " + FormatBytes(what.refusal.requested_bytes) +
           At(what.place, what.layer) + "; nothing held is larger";
  const MemoryHolder& holder = *blamed;
  std::string text = holder.name + ": " + FormatBytes(holder.bytes) + ShareOf(holder.bytes, what);
  if (holder.largest_bytes != 0 && !(holder.place.empty() && holder.layer.empty())) {
    text += holder.largest_bytes == holder.bytes ? "," : ", most of it";
    if (holder.largest_bytes != holder.bytes)
      text += ", " + FormatBytes(holder.largest_bytes) + ",";
    text += At(holder.place, holder.layer);
  }
  return text;
}

std::vector<Advice> AdviceFor(const OutOfMemory& what, const RefusalFacts& facts) {
  std::vector<Advice> advice;
  const uint64_t least = WholeOf(what) / kLeastShare;
  const auto add = [&](std::string text, uint64_t bytes, std::string how) {
    if (bytes > least)
      advice.push_back({std::move(text), bytes, std::move(how)});
  };
  if (const MemoryHolder* const kept = Holder(what, HolderKind::kKept)) {
    add("let go of what iterations keep" + At(kept->place, kept->layer) +
            ": `del` it, or keep loss.item() or tensor.detach() in place of the tensor",
        kept->bytes, "all blocks of earlier iterations that are no parameter, buffer or state");
  }
  if (const MemoryHolder* const never = Holder(what, HolderKind::kNeverFreed)) {
    add("free what is allocated" + At(never->place, never->layer), never->bytes,
        std::to_string(never->count) + " allocations of which none was freed");
  }
  if (const MemoryHolder* const others = Holder(what, HolderKind::kOtherProcesses)) {
    add("end the other processes of this device, or choose another one", others->bytes,
        "what they hold");
  }
  if (const MemoryHolder* const pools = Holder(what, HolderKind::kOtherPools)) {
    const bool is_cupy = pools->name.ends_with(" CuPy");
    add(is_cupy ? "cupy.get_default_memory_pool().free_all_blocks() before"
                : "have the other libraries give their free memory back before",
        pools->bytes, "what they keep for requests of their own; at most");
  }
  if (facts.largest_layer_activation < facts.kept_activations) {
    add("checkpoint activations (torch.utils.checkpoint)",
        facts.kept_activations - facts.largest_layer_activation,
        "activations less those of the largest layer, which is computed again; at most");
  }
  const uint64_t of_batch = Of(facts, Category::kActivation) + Of(facts, Category::kInput);
  if (facts.any_backward || facts.unread_bytes == 0)
    add("halve the batch", of_batch / 2, "half of activations and inputs");
  else
    add("halve the batch", (of_batch + facts.unread_bytes) / 2,
        "half of what the forward keeps, and of inputs");
  // The first forward of a training has no backward before it.
  if (!facts.any_backward && facts.forwards > 1) {
    add("run the forward under torch.no_grad(): no backward was recorded",
        facts.forward_bytes - facts.largest_forward_bytes,
        "what layers' forward passes keep, less the largest layer's; at most");
  }
  const uint64_t state = Of(facts, Category::kOptimizerState);
  add("an optimizer with state of 8 bits", state / 4 * 3, "three quarters of states of 32 bits");
  if (facts.ranks > 1) {
    add("shard the optimizer's state over the " + std::to_string(facts.ranks) + " ranks",
        state / static_cast<uint64_t>(facts.ranks) * static_cast<uint64_t>(facts.ranks - 1),
        "all but one rank's share of it");
  }
  if (facts.in_forward) {
    add("optimizer.zero_grad(set_to_none=True) before the forward", facts.old_gradient_bytes,
        "gradients of the step before that still live in this forward");
  }
  if (!facts.expandable_segments) {
    add("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", facts.torch_fragmentation_bytes,
        "free bytes of PyTorch's segments in use; at most");
  }
  if (!what.refusal.by_allocator) {
    add("torch.cuda.empty_cache() before", facts.torch_cached_bytes,
        "PyTorch's free segments, which it gives back by itself only for its own requests");
  }
  if (what.xla_pool.limit_bytes != 0) {
    add("a larger pool for XLA (XLA_PYTHON_CLIENT_MEM_FRACTION)", what.free_bytes.value_or(0),
        "what was free of the device beside the pool; at most");
    for (const XlaArrays& arrays : what.xla_pool.arrays) {
      add("let go of arrays " + arrays.shape + ", or donate them (donate_argnums)", arrays.bytes,
          "all " + std::to_string(arrays.count) + " of this shape that are live; at most");
    }
  }
  add("capture CUDA graphs with one pool (torch.cuda.graph(pool=...)), or fewer",
      Of(facts, Category::kGraphPool), "free bytes that graphs' private pools keep; at most");
  add("smaller workspaces (CUBLAS_WORKSPACE_CONFIG)", Of(facts, Category::kWorkspace),
      "all workspaces; at most");
  add("fewer communicators or smaller buffers (NCCL_BUFFSIZE)", Of(facts, Category::kCommunication),
      "all memory for communication; at most");
  std::stable_sort(advice.begin(), advice.end(),
                   [](const Advice& a, const Advice& b) { return a.saves_bytes > b.saves_bytes; });
  return advice;
}

}  // namespace vramscope::query
