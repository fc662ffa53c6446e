// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

// Small whole live files to begin with: what fuzzers and the mutator change.
namespace vramscope::fuzz {

std::string TensorProgram();
std::string DriverProgram();
// Three threads, several chunks each, scopes, native stacks, ticks of a counter.
std::string ScopedProgram();
std::string Launcher();
std::string SessionJson();

}  // namespace vramscope::fuzz
