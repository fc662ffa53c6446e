// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <string>

#include "fake.h"

// Checkpoints of other processes, through the books that all share: states, what each call says in
// which of them, calls of a locked process that wait, and its memory, which leaves the figures and
// comes back, as cuda.h documents it.
namespace fake {
namespace {

constexpr CUresult kNotReady = 600;
constexpr CUresult kUnknown = 999;
constexpr useconds_t kTurnUs = 200;

thread_local int t_calls = 0;

FakeCheckpoint* EntryOf(int pid) {
  FakeBooks* const books = TheDriver().books;
  for (FakeCheckpoint& entry : books->checkpoints) {
    if (pid > 0 && __atomic_load_n(&entry.pid, __ATOMIC_ACQUIRE) == static_cast<uint32_t>(pid) &&
        FakeProcessIsAlive(static_cast<uint32_t>(pid))) {
      return &entry;
    }
  }
  return nullptr;
}

uint32_t StateOf(const FakeCheckpoint* entry) {
  return __atomic_load_n(&entry->state, __ATOMIC_SEQ_CST);
}

void SetState(FakeCheckpoint* entry, uint32_t state) {
  __atomic_store_n(&entry->state, state, __ATOMIC_SEQ_CST);
}

FakeProcess* RowOf(FakeDevice* device, uint32_t pid) {
  for (FakeProcess& row : device->processes) {
    if (__atomic_load_n(&row.pid, __ATOMIC_ACQUIRE) == pid)
      return &row;
  }
  return nullptr;
}

// Common to all calls: the caller has called cuInit, and the process must exist.
CUresult Begin(const char* name, int pid, FakeCheckpoint** entry) {
  const bool injected_failure = EnterCall(name);
  if (TheDriver().init_pid != static_cast<uint32_t>(getpid()))
    return kNotInitialised;
  *entry = EntryOf(pid);
  if (*entry == nullptr)
    return kInvalidValue;
  return injected_failure ? kOutOfMemory : kSuccess;
}

bool Breaks(const char* name) {
  const char* const broken = getenv("VRAMSCOPE_FAKE_BREAK");
  return broken != nullptr && std::string(broken) == name;
}

}  // namespace

bool BeginCheckpoints() {
  Driver& driver = TheDriver();
  for (FakeCheckpoint& entry : driver.books->checkpoints) {
    uint32_t owner = __atomic_load_n(&entry.pid, __ATOMIC_ACQUIRE);
    if (FakeProcessIsAlive(owner) && owner != static_cast<uint32_t>(getpid()))
      continue;
    SetState(&entry, FAKE_RUNNING);
    __atomic_store_n(&entry.calls, 0u, __ATOMIC_SEQ_CST);
    if (__atomic_compare_exchange_n(&entry.pid, &owner, static_cast<uint32_t>(getpid()), 0,
                                    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
      driver.checkpoint = &entry;
      return true;
    }
  }
  return false;
}

CallUnderWay::CallUnderWay() {
  const Driver& driver = TheDriver();
  if (t_calls++ != 0 || driver.checkpoint == nullptr ||
      driver.init_pid != static_cast<uint32_t>(getpid())) {
    return;
  }
  entry_ = driver.checkpoint;
  for (;;) {
    __atomic_fetch_add(&entry_->calls, 1u, __ATOMIC_SEQ_CST);
    if (StateOf(entry_) == FAKE_RUNNING)
      return;
    __atomic_fetch_sub(&entry_->calls, 1u, __ATOMIC_SEQ_CST);
    usleep(kTurnUs);
  }
}

CallUnderWay::~CallUnderWay() {
  --t_calls;
  if (entry_ != nullptr)
    __atomic_fetch_sub(&entry_->calls, 1u, __ATOMIC_SEQ_CST);
}

FAKE_OTHER(cuCheckpointProcessGetState, int pid, int* state) {
  FakeCheckpoint* entry = nullptr;
  if (const CUresult result = Begin("cuCheckpointProcessGetState", pid, &entry); result != kSuccess)
    return result;
  *state = static_cast<int>(StateOf(entry));
  return kSuccess;
}

FAKE_HOOK(cuCheckpointProcessLock)(int pid, CUcheckpointLockArgs* args) {
  FakeCheckpoint* entry = nullptr;
  if (const CUresult result = Begin("cuCheckpointProcessLock", pid, &entry); result != kSuccess)
    return result;
  // The first field is timeoutMs; 0 means no limit.
  const unsigned limit_ms = args != nullptr ? *reinterpret_cast<const unsigned*>(args) : 0;
  if (Breaks("cuCheckpointProcessLock")) {
    SetState(entry, FAKE_FAILED);
    return kUnknown;
  }
  uint32_t expected = FAKE_RUNNING;
  if (!__atomic_compare_exchange_n(&entry->state, &expected, uint32_t{FAKE_LOCKED}, 0,
                                   __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    return kIllegalState;
  }
  const auto begin = std::chrono::steady_clock::now();
  while (__atomic_load_n(&entry->calls, __ATOMIC_SEQ_CST) != 0) {
    if (EntryOf(pid) != entry)
      return kInvalidValue;
    if (limit_ms != 0 &&
        std::chrono::steady_clock::now() - begin > std::chrono::milliseconds(limit_ms)) {
      SetState(entry, FAKE_RUNNING);
      return kNotReady;
    }
    usleep(kTurnUs);
  }
  return kSuccess;
}

FAKE_HOOK(cuCheckpointProcessCheckpoint)(int pid, CUcheckpointCheckpointArgs*) {
  FakeCheckpoint* entry = nullptr;
  const CUresult result = Begin("cuCheckpointProcessCheckpoint", pid, &entry);
  if (result != kSuccess)
    return result;
  if (StateOf(entry) != FAKE_LOCKED)
    return kIllegalState;
  if (Breaks("cuCheckpointProcessCheckpoint")) {
    SetState(entry, FAKE_FAILED);
    return kUnknown;
  }
  FakeBooks* const books = TheDriver().books;
  for (uint32_t i = 0; i < books->device_count; ++i) {
    FakeProcess* const row = RowOf(&books->devices[i], entry->pid);
    entry->rows[i] = {};
    if (row == nullptr)
      continue;
    entry->rows[i] = *row;
    __atomic_store_n(&row->has_context, 0u, __ATOMIC_RELAXED);
    __atomic_store_n(&row->process_bytes, int64_t{0}, __ATOMIC_RELAXED);
    __atomic_store_n(&row->device_bytes, int64_t{0}, __ATOMIC_RELAXED);
  }
  SetState(entry, FAKE_CHECKPOINTED);
  return kSuccess;
}

FAKE_HOOK(cuCheckpointProcessRestore)(int pid, CUcheckpointRestoreArgs*) {
  FakeCheckpoint* entry = nullptr;
  if (const CUresult result = Begin("cuCheckpointProcessRestore", pid, &entry); result != kSuccess)
    return result;
  if (StateOf(entry) != FAKE_CHECKPOINTED)
    return kIllegalState;
  if (Breaks("cuCheckpointProcessRestore")) {
    SetState(entry, FAKE_FAILED);
    return kUnknown;
  }
  FakeBooks* const books = TheDriver().books;
  for (uint32_t i = 0; i < books->device_count; ++i) {
    const FakeDevice& device = books->devices[i];
    const uint64_t limit = device.total_bytes - device.reserved_bytes;
    if (FakeBooksDeviceUsed(&device) + static_cast<uint64_t>(entry->rows[i].device_bytes) > limit)
      return kOutOfMemory;
  }
  for (uint32_t i = 0; i < books->device_count; ++i) {
    FakeProcess* const row = RowOf(&books->devices[i], entry->pid);
    if (row == nullptr)
      continue;
    __atomic_store_n(&row->process_bytes, entry->rows[i].process_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&row->device_bytes, entry->rows[i].device_bytes, __ATOMIC_RELAXED);
    __atomic_store_n(&row->has_context, entry->rows[i].has_context, __ATOMIC_RELAXED);
  }
  SetState(entry, FAKE_LOCKED);
  return kSuccess;
}

FAKE_HOOK(cuCheckpointProcessUnlock)(int pid, CUcheckpointUnlockArgs*) {
  FakeCheckpoint* entry = nullptr;
  if (const CUresult result = Begin("cuCheckpointProcessUnlock", pid, &entry); result != kSuccess)
    return result;
  if (StateOf(entry) != FAKE_LOCKED)
    return kIllegalState;
  if (Breaks("cuCheckpointProcessUnlock")) {
    SetState(entry, FAKE_FAILED);
    return kUnknown;
  }
  SetState(entry, FAKE_RUNNING);
  return kSuccess;
}

}  // namespace fake
