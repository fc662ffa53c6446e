// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "probe/stack/python/api.h"

// What agent.cc, agent_builtins.cc and steps.cc share. All of it is called with the GIL.
namespace vramscope::probe {

// Tells the agent of tensors that no known module has, a list; it looks for their modules. False
// where it did not run: it has only just done so, or another thread is in it. `*interrupted` is set
// where an exception of the program's (a signal handler's) is left to be passed on.
bool AgentSearch(Object tensors, bool* interrupted);

// Before a step, which may be one of those at which the agent looks at the buffers of all models.
// `*interrupted` as above.
void AgentBeforeStep(bool* interrupted);

// Whether anything is to be written now.
bool AgentMayRecord();

// Builtins: step_begin(optimizer), step_end(optimizer), called by hooks around Optimizer.step.
Object StepBegin(Object self, Object optimizer);
Object StepEnd(Object self, Object optimizer);
// name_optimizer(optimizer): its parameters, their gradients and its state, between two steps.
Object NameOptimizer(Object self, Object optimizer);
// Makes what they need. False when Python is short of memory.
bool StepsPrepare();
// In a forked child.
void StepsForget();

}  // namespace vramscope::probe
