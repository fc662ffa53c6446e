// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "format/enums.h"

namespace vramscope::resolve {

// Whether the name of XLA's memory is the path of a leaf in a pytree, as JAX writes it:
// state.opt_state[0].mu['Dense_0']['kernel'].
bool IsPytreePath(std::string_view name);

// The path with slashes, from the first part on that says what it is:
// opt_state/0/mu/Dense_0/kernel. Other paths begin with the argument's name: batch/image.
std::string ShowPytreePath(std::string_view path);

// What the words of the path say that the memory is; a tag if they say nothing.
format::NameKind KindOfPytreePath(std::string_view path);

}  // namespace vramscope::resolve
