// SPDX-License-Identifier: Apache-2.0
#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/session/stream.h"

// A process, this one or another, gives all its device memory back and gets it again. The process
// itself makes no call for it: whoever asks the driver records it.
namespace vramscope::probe::cuda {
namespace {

constexpr format::CheckpointKind KindOfAction(HookId id) {
  switch (id) {
    case HookId::cuCheckpointProcessLock:
      return format::CheckpointKind::kLock;
    case HookId::cuCheckpointProcessCheckpoint:
      return format::CheckpointKind::kCheckpoint;
    case HookId::cuCheckpointProcessRestore:
      return format::CheckpointKind::kRestore;
    default:
      return format::CheckpointKind::kUnlock;
  }
}

template <HookId kId, class Args>
CUresult ActOnProcess(int pid, Args* args) {
  constexpr format::CheckpointKind kKind = KindOfAction(kId);
  HookCall<kId> call;
  const CUresult result = call(pid, args);
  // What came back may differ by what the driver makes anew.
  if (kKind == format::CheckpointKind::kUnlock && result == kSuccess)
    RequestReading(format::kNoDevice);
  if (!call.watching() || result != kSuccess)
    return result;
  RecordScope scope(Want::kAlways);
  if (scope) {
    scope->Append(format::Checkpoint{.begin = call.times().begin,
                                     .end = call.times().end,
                                     .api = scope->InternLiteral(HookName(kId)),
                                     .kind = static_cast<uint64_t>(kKind),
                                     .pid = static_cast<uint64_t>(pid)});
  }
  return result;
}

}  // namespace
}  // namespace vramscope::probe::cuda

#define VRAMSCOPE_CUDA_IS_CHECKPOINT 1
#include "probe/hooks/cuda/define_wrappers.h"
