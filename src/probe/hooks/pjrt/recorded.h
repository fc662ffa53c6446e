// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/enums.h"
#include "probe/hooks/pjrt/hlo_names.h"
#include "probe/hooks/pjrt/plugins.h"
#include "probe/session/stream.h"

// What the wrappers of buffers and of programs record.
namespace vramscope::probe::pjrt {

// How XLA's allocator rounds on GPUs.
inline constexpr uint64_t kGranuleBytes = 256;
inline constexpr uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kGranuleBytes - 1) & ~(kGranuleBytes - 1);
}

// What several buffers of one call have in common.
struct Made {
  format::XlaBlockKind kind;
  const char* name = "";  // of the program that made them
  size_t name_size = 0;
};

// Records the call's buffers one after another.
class MakeScope {
 public:
  MakeScope(const Plugin& plugin, const Made& made);
  explicit operator bool() const { return static_cast<bool>(scope_); }
  // A new buffer, null or not. Nothing if its memory is the host's or it has none. `path`: what the
  // program calls it.
  void Buffer(const void* buffer, HloNames::Text path = {});
  // Temporary memory of a program; `key` is its own address as long as it runs.
  void Temporary(const void* key, uint64_t bytes, int32_t device);

 private:
  void Append(const void* key,
              uint64_t bytes,
              int32_t device,
              format::XlaBlockKind kind,
              HloNames::Text path);

  const Plugin& plugin_;
  RecordScope scope_;
  format::XlaBlockKind kind_;
  uint64_t now_ = 0;
  uint32_t name_ = 0;
  uint32_t stack_ = 0;
  uint32_t native_ = 0;
};

// Records what the program calls a buffer, if it has no name yet or `anew`. Whether it had none.
bool NameBuffer(Stream& stream, const void* buffer, HloNames::Text path, bool anew);
// Records that the buffer's memory is given back, unless it is recorded already.
void EndBuffer(const void* buffer);
// The device of a buffer that is recorded as live; -1 if it is not.
int32_t RecordedDeviceOf(const void* buffer);
// The same of what is recorded under `key`, which is no buffer's.
void EndBlock(const void* key, uint64_t bytes, int32_t device);

// Ends the temporary memory of the last programs on the device. Whether there was any.
bool EndTemporaryOf(int32_t device);
// Whether another thread is doing so, and has not recorded it yet.
bool IsEndingTemporary();

// The device that a PJRT_Device is, by its number in this process; -1 if unknown.
int32_t OrdinalOf(const Plugin& plugin, const void* device);

// Whether the plugin says that the buffer is deleted, or was donated.
bool AskIsDeleted(const Plugin& plugin, const void* buffer);

}  // namespace vramscope::probe::pjrt
