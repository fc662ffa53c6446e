// SPDX-License-Identifier: Apache-2.0
#include "probe/platform/import_plan.h"

#include <cstring>

#include "probe/platform/got_patch.h"

namespace vramscope::probe {
namespace {

bool IsFile(const char* path, const char* prefix) {
  const char* const slash = std::strrchr(path, '/');
  return std::strncmp(slash != nullptr ? slash + 1 : path, prefix, std::strlen(prefix)) == 0;
}

}  // namespace

void ImportPlan::Add(const char* symbol, const char* object, void* function) {
  if (count_ < kMaxEntries)
    entries_[count_++] = {symbol, object, function};
}

void* ImportPlan::Choose(const Import& import, void* data) {
  const auto* const plan = static_cast<const ImportPlan*>(data);
  for (size_t i = 0; i < plan->count_; ++i) {
    const Entry& entry = plan->entries_[i];
    // One look at most of the names.
    if (import.symbol[0] != entry.symbol[0] || std::strcmp(import.symbol, entry.symbol) != 0)
      continue;
    const bool wanted = entry.object == nullptr || IsFile(import.object, entry.object);
    return wanted ? entry.function : nullptr;
  }
  return nullptr;
}

void ImportPlan::Apply() const {
  PatchImports(Choose, const_cast<ImportPlan*>(this));
}

}  // namespace vramscope::probe
