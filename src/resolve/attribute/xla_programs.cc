// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/xla_programs.h"

#include "format/enums.h"

namespace vramscope::resolve {

void ExecutedPrograms::On(const trace::XlaBlock& e) {
  if (e.name.value == 0)
    return;
  if (e.kind == format::XlaBlockKind::kOutput) {
    if (with_results_.size() < kMost)
      with_results_.insert(e.name);
    return;
  }
  const std::pair program(e.name, e.requested);
  if (e.kind != format::XlaBlockKind::kTemporary || e.requested == 0 || program == last_)
    return;
  last_ = program;
  if (with_memory_.contains(program))
    return;
  if (with_memory_.size() == kMost)
    ++unlisted_;
  else
    with_memory_.insert(program);
}

ExecutedPrograms::Programs ExecutedPrograms::all() const {
  Programs all = with_memory_;
  for (const tables::StringId name : with_results_) {
    const auto known = all.lower_bound({name, 0});
    if (known == all.end() || known->first != name)
      all.insert({name, 0});
  }
  return all;
}

}  // namespace vramscope::resolve
