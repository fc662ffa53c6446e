// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "base/compiler.h"
#include "format/enums.h"
#include "probe/hooks/cuda/cuda.h"
#include "probe/hooks/pjrt/plugins.h"
#include "probe/inject/sources.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"
#include "probe/stack/stacks.h"

// The C functions behind include/vramscope/annotate.h and the Python package. Null pointers and
// pops without a push do nothing; long names are cut.
namespace vramscope::probe {
namespace {

constexpr size_t kMaxNameBytes = 1024;

void RecordName(format::NameKind kind, const void* memory, const char* name, uint64_t requested) {
  if (memory == nullptr || name == nullptr || *name == '\0')
    return;
  // Names are of what the driver gave out too, and that is recorded always.
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Name{.time = Now(),
                             .address = reinterpret_cast<uintptr_t>(memory),
                             .size = requested,
                             .device = format::kNoDevice,
                             .kind = static_cast<uint64_t>(kind),
                             .name = scope->InternString(name, CutText(name, kMaxNameBytes))});
}

}  // namespace
}  // namespace vramscope::probe

using namespace vramscope;
using namespace vramscope::probe;

VRAMSCOPE_EXPORT void vramscope_start() {
  // Libraries that were loaded since may be bound past a probe that came late.
  if (g_flags.late.load(std::memory_order_relaxed))
    PatchLoadedObjects();
  SessionSetPaused(false);
}

VRAMSCOPE_EXPORT void vramscope_stop() {
  SessionSetPaused(true);
}

VRAMSCOPE_EXPORT void vramscope_mark(const char* name) {
  if (name == nullptr)
    return;
  CudaMarkReading();
  PjrtMarkReading();
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Mark{.time = Now(), .name = {name, CutText(name, kMaxNameBytes)}});
}

VRAMSCOPE_EXPORT void vramscope_scope_push(const char* name) {
  ScopePushText(kAnnotateDomain, name);
}

VRAMSCOPE_EXPORT void vramscope_scope_pop() {
  ScopePop(kAnnotateDomain);
}

VRAMSCOPE_EXPORT void vramscope_tag(const void* memory,
                                    const char* name,
                                    unsigned long requested_bytes) {
  RecordName(format::NameKind::kTag, memory, name, requested_bytes);
}

VRAMSCOPE_EXPORT void vramscope_name_pool(const void* pool, const char* name) {
  RecordName(format::NameKind::kPool, pool, name, 0);
}

VRAMSCOPE_EXPORT void vramscope_block_alloc(const void* block,
                                            unsigned long bytes,
                                            unsigned long requested_bytes,
                                            const char* name) {
  if (block == nullptr)
    return;
  const int32_t device = CudaDeviceOf(block);
  RecordScope scope(Want::kTensor);
  if (!scope)
    return;
  const uint64_t now = Now();
  scope->Append(format::PoolBlock{
      .time = now,
      .address = reinterpret_cast<uintptr_t>(block),
      .size = bytes,
      .requested = requested_bytes,
      .device = device,
      .name = name != nullptr ? scope->InternString(name, CutText(name, kMaxNameBytes)) : 0,
      .stack = CapturePythonStack(*scope),
      .native = CaptureNativeStack(*scope)});
}

VRAMSCOPE_EXPORT void vramscope_block_free(const void* block) {
  if (block == nullptr)
    return;
  const int32_t device = CudaDeviceOf(block);
  RecordScope scope(Want::kTensor);
  if (!scope)
    return;
  scope->Append(format::BlockFree{
      .time = Now(), .address = reinterpret_cast<uintptr_t>(block), .size = 0, .device = device});
}

VRAMSCOPE_EXPORT int vramscope_is_recording() {
  return !SessionIsOff() && !g_flags.paused.load(std::memory_order_relaxed) ? 1 : 0;
}

VRAMSCOPE_EXPORT const char* vramscope_session_path() {
  return SessionDirectory();
}
