// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "resolve/attribute/parts.h"
#include "resolve/attribute/stack_facts.h"
#include "trace/event.h"

namespace vramscope::resolve {

// What the stack at the allocation says the memory is for, whatever the phase.
enum class Purpose : uint8_t {
  kNone,
  kCommunication,
  kCollective,  // a collective operation's own copies, which are no parameter's gradient
  kWorkspace,
  kPrior,  // it was made before the recording: only names can say
};

// Where memory comes from, in the words of the program: what its names and its category are made
// of.
struct Origin {
  tables::StackId forward;  // memory of a backward: the stack of the operator whose gradient it is
  tables::StringId scope;
  uint32_t names = 0;  // a set of Names
  uint32_t epoch = 0;  // of its phase, when it was allocated: see phases.h
  Phase phase = Phase::kOther;
  Purpose purpose = Purpose::kNone;
  // Since the end of its lifetime, or of the recording; the second where nothing told the phases of
  // its process.
  Category category = Category::kUnknown;
  Category without_phases = Category::kUnknown;
  // Counts the modules of the process that were gone by then: addresses name modules, and are used
  // again.
  uint32_t module_epoch = 0;
};

}  // namespace vramscope::resolve
