// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/preflight.h"

#include <fmt/core.h>

#include <memory>

#include "checkpoint/host_memory.h"
#include "pipeline/console.h"
#include "util/size_text.h"

namespace vramscope::cli {
namespace {

// What the driver takes beside the contents of the device.
constexpr uint64_t kHostMarginBytes = uint64_t{256} << 20;

std::string Describe(const resolve::Immovable& entry) {
  const char* const s = entry.count == 1 ? "" : "s";
  const std::string bytes =
      entry.bytes != 0 ? util::FormatBytes(entry.bytes) + " of " : std::string();
  switch (entry.kind) {
    case resolve::ImmovableKind::kManaged:
      return fmt::format("{}managed memory ({} allocation{})", bytes, entry.count, s);
    case resolve::ImmovableKind::kOpened:
      return fmt::format("{}memory opened from other processes ({} handle{})", bytes, entry.count,
                         s);
    case resolve::ImmovableKind::kExported:
      return fmt::format("{}memory exported to other processes ({} allocation{})", bytes,
                         entry.count, s);
    case resolve::ImmovableKind::kExternal:
      return fmt::format("{}external memory, of a graphics library ({} mapping{})", bytes,
                         entry.count, s);
    case resolve::ImmovableKind::kMulticast:
      return fmt::format("{} multicast object{} (NCCL makes none with NCCL_NVLS_ENABLE=0)",
                         entry.count, s);
    case resolve::ImmovableKind::kOverflow:
      return fmt::format("{}host memory in place of the GPU's (--overflow, {} allocation{})", bytes,
                         entry.count, s);
  }
  return "";
}

}  // namespace

std::string DescribeImmovable(const resolve::Movability& movability) {
  std::string text;
  for (const resolve::Immovable& entry : movability.immovable)
    text += (text.empty() ? "" : ", ") + Describe(entry);
  return text;
}

util::Status CheckRecording(const Target& target, std::string* unchecked) {
  unchecked->clear();
  if (target.live_directory.empty()) {
    *unchecked = "it is not recorded";
    return {};
  }
  util::Result<std::unique_ptr<trace::Trace>> trace =
      trace::OpenTrace(target.live_directory, {.native_names = false});
  if (!trace) {
    *unchecked = "its recording cannot be read: " + trace.status().message();
    return {};
  }
  Progress progress("checking " + target.live_directory);
  const util::Result<resolve::Movability> found = resolve::FindImmovable(
      **trace, static_cast<uint32_t>(target.pid), [&](double share) { progress.Update(share); });
  if (!found) {
    *unchecked = "its recording cannot be read: " + found.status().message();
    return {};
  }
  if (!found->immovable.empty()) {
    return util::Status::Error(
        fmt::format("process {} ({}) holds {}, which the driver cannot move to the host and back",
                    target.pid, target.name, DescribeImmovable(*found)));
  }
  for (const std::string& gap : found->gaps)
    *unchecked += (unchecked->empty() ? "" : ", ") + gap;
  return {};
}

util::Status CheckHostMemory(const Target& target, uint64_t bytes) {
  const HostMemory memory = FreeHostMemory(target.pid);
  const uint64_t needed = bytes + kHostMarginBytes;
  if (memory.free_bytes >= needed)
    return {};
  return util::Status::Error(fmt::format(
      "the host has no room for the memory of process {} ({}): {} are needed, {} are free within "
      "{}",
      target.pid, target.name, util::FormatBytes(needed), util::FormatBytes(memory.free_bytes),
      memory.limited_by));
}

}  // namespace vramscope::cli
