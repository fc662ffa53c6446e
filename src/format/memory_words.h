// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

// The words that a finished recording says memory with: what it is for, which leaf of the ledger it
// is, and what the program was at when it was allocated.
namespace vramscope::format {

enum class Category : uint8_t {
#define VRAMSCOPE_CATEGORY(number, Name, text) k##Name = (number),
#include "format/categories.def"
};
inline constexpr Category kAllCategories[] = {
#define VRAMSCOPE_CATEGORY(number, Name, text) Category::k##Name,
#include "format/categories.def"
};
inline constexpr size_t kCategoryCount = sizeof(kAllCategories) / sizeof(kAllCategories[0]);

enum class Part : uint8_t {
#define VRAMSCOPE_PART(number, Name, text, category) k##Name = (number),
#include "format/parts.def"
};
inline constexpr Part kAllParts[] = {
#define VRAMSCOPE_PART(number, Name, text, category) Part::k##Name,
#include "format/parts.def"
};
inline constexpr size_t kPartCount = sizeof(kAllParts) / sizeof(kAllParts[0]);

// kNone: it was not allocated by anybody that has a phase, as slack and what the driver owns.
enum class Phase : uint8_t {
  kNone = 0,
  kOther = 1,
  kLoad = 2,
  kForward = 3,
  kBackward = 4,
  kOptimizer = 5,
  // An inference engine's (resolve/attribute/engines.def).
  kInit = 6,
  kLoadModel = 7,
  kProfile = 8,
  kKvCache = 9,
  kCapture = 10,
  kServe = 11,
  kSleep = 12,
};
inline constexpr Phase kAllPhases[] = {
    Phase::kOther,   Phase::kLoad,      Phase::kForward, Phase::kBackward,
    Phase::kInit,    Phase::kLoadModel, Phase::kProfile, Phase::kOptimizer,
    Phase::kKvCache, Phase::kCapture,   Phase::kServe,   Phase::kSleep,
};
inline constexpr size_t kPhaseCount = sizeof(kAllPhases) / sizeof(kAllPhases[0]) + 1;

// An engine runs its model without a training's forward.
constexpr bool RunsModel(Phase phase) {
  return phase == Phase::kForward || phase == Phase::kServe;
}

// The note that says how a recording was made, and what it says where NVML's figures are all there
// is; programs that recorded themselves have none.
inline constexpr char kModeNote[] = "mode";
inline constexpr char kSampledMode[] = "sampled";

// The note of a ring that took more than its size: by how much, and why.
inline constexpr char kRingNote[] = "ring";

// Notes of a process that has PyTorch: its version, and whether the probe can name its modules and
// tensors ("off: why" where it cannot).
inline constexpr char kTorchNote[] = "PyTorch";
inline constexpr char kModuleNamesNote[] = "module names";
inline constexpr char kTensorNamesNote[] = "tensor names";

// Parameters have names from 2.2 on.
constexpr bool IsTorchTooOld(std::string_view version) {
  return version.starts_with("0.") || version.starts_with("1.") || version.starts_with("2.0") ||
         version.starts_with("2.1.");
}

constexpr bool SaysNamesAreOff(std::string_view key, std::string_view value) {
  return key == kTorchNote
             ? IsTorchTooOld(value)
             : (key == kModuleNamesNote || key == kTensorNamesNote) && value.starts_with("off");
}

constexpr const char* CategoryName(Category category) {
  switch (category) {
#define VRAMSCOPE_CATEGORY(number, Name, text) \
  case Category::k##Name:                      \
    return text;
#include "format/categories.def"
  }
  return "unknown";
}

constexpr const char* PartName(Part part) {
  switch (part) {
#define VRAMSCOPE_PART(number, Name, text, category) \
  case Part::k##Name:                                \
    return text;
#include "format/parts.def"
  }
  return "unknown";
}

// kUnknown where the part alone does not say it.
constexpr Category PartCategory(Part part) {
  switch (part) {
#define VRAMSCOPE_PART(number, Name, text, category) \
  case Part::k##Name:                                \
    return Category::k##category;
#include "format/parts.def"
  }
  return Category::kUnknown;
}

constexpr const char* PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kLoad:
    case Phase::kLoadModel:
      return "load";
    case Phase::kInit:
      return "init";
    case Phase::kProfile:
      return "profile";
    case Phase::kKvCache:
      return "kv cache";
    case Phase::kCapture:
      return "capture";
    case Phase::kServe:
      return "serve";
    case Phase::kSleep:
      return "sleep";
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kOptimizer:
      return "optimizer";
    case Phase::kOther:
      return "other";
    case Phase::kNone:
      break;
  }
  return "(none)";
}

// Unused memory: free bytes of allocators, and slack.
constexpr bool IsSlack(Part part) {
  return part == Part::kCached || part == Part::kFragmentation || part == Part::kGraphPool ||
         part == Part::kRounding || part == Part::kGraphCached || part == Part::kSlabSlack;
}

// Held by the UVM driver: in NVML's figure of the device, and in that of no process.
constexpr bool IsOfUvm(Part part) {
  return part == Part::kManaged || part == Part::kUvmDriver;
}

}  // namespace vramscope::format
