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

template <HookId kId, class Args>
CUresult ActOn(format::CheckpointKind kind, int pid, Args* args) {
  HookCall<kId> call;
  const CUresult result = call(pid, args);
  if (!call.watching() || result != kSuccess)
    return result;
  RecordScope scope(Want::kAlways);
  if (scope) {
    scope->Append(format::Checkpoint{.begin = call.times().begin,
                                     .end = call.times().end,
                                     .api = scope->InternLiteral(HookName(kId)),
                                     .kind = static_cast<uint64_t>(kind),
                                     .pid = static_cast<uint64_t>(pid)});
  }
  return result;
}

}  // namespace

VRAMSCOPE_CUDA_WRAPPER(cuCheckpointProcessLock)(int pid, CUcheckpointLockArgs* args) {
  return ActOn<HookId::cuCheckpointProcessLock>(format::CheckpointKind::kLock, pid, args);
}

VRAMSCOPE_CUDA_WRAPPER(cuCheckpointProcessCheckpoint)(int pid, CUcheckpointCheckpointArgs* args) {
  return ActOn<HookId::cuCheckpointProcessCheckpoint>(format::CheckpointKind::kCheckpoint, pid,
                                                      args);
}

VRAMSCOPE_CUDA_WRAPPER(cuCheckpointProcessRestore)(int pid, CUcheckpointRestoreArgs* args) {
  return ActOn<HookId::cuCheckpointProcessRestore>(format::CheckpointKind::kRestore, pid, args);
}

VRAMSCOPE_CUDA_WRAPPER(cuCheckpointProcessUnlock)(int pid, CUcheckpointUnlockArgs* args) {
  const CUresult result =
      ActOn<HookId::cuCheckpointProcessUnlock>(format::CheckpointKind::kUnlock, pid, args);
  // What came back may differ by what the driver makes anew.
  if (result == kSuccess)
    RequestReading(format::kNoDevice);
  return result;
}

}  // namespace vramscope::probe::cuda
