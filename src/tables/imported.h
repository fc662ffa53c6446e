// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "tables/recording.h"

// What the notes of a recording say that was made of another tool's data.
namespace vramscope::tables {

// The file and its format.
inline constexpr char kImportedNote[] = "imported from";
// Of data without a clock: what the seconds count, "readings".
inline constexpr char kCountedNote[] = "seconds count";

// The value of the first note of that key; "" where there is none.
std::string_view NoteOf(const Recording& recording, std::string_view key);

}  // namespace vramscope::tables
