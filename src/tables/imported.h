// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "tables/recording.h"

// What the notes of a recording say to this program; people read them in `info`.
namespace vramscope::tables {

// The file and its format.
inline constexpr char kImportedNote[] = "imported from";
// Of data without a clock: what the seconds count, "readings".
inline constexpr char kCountedNote[] = "seconds count";
// For data of a single instant, without any time: its kind, such as "profile".
inline constexpr char kInstantNote[] = "one instant";

// The classes of the optimizers that stepped: "AdamW, SGD".
inline constexpr char kOptimizersNote[] = "optimizers";

// The number of the process that continued after `attach` ended its recording.
inline constexpr char kDetachedNote[] = "detached";

// The launcher's options, as it hands them to the probe, and the note of a recording that was
// paused from its start to its end.
inline constexpr char kOptionsNote[] = "options";
inline constexpr char kPausedOption[] = "paused";
inline constexpr char kPausedNote[] = "paused all the time";

// "mesh of rank N": where a rank stands in the job's mesh, "dp=0,tp=1".
inline constexpr char kMeshNote[] = "mesh of rank ";
// "place of pid N": "local_rank=0,node=n1", as format::kPlaceVariables has them.
inline constexpr char kPlaceNote[] = "place of pid ";

// The value of the first note of that key; "" where there is none.
std::string_view NoteOf(const Recording& recording, std::string_view key);

}  // namespace vramscope::tables
