// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "format/memory_words.h"
#include "tables/recording.h"

namespace vramscope::tables {

Tables::Tables()
    : hosts(1),
      devices(1),
      processes(1),
      accounts(1),
      threads(1),
      frames(1),
      stacks(1),
      sites(1),
      segments(1),
      counters(1) {}

bool IsSampled(const Recording& recording) {
  const std::vector<NoteRow>& notes = recording.tables().notes;
  return std::any_of(notes.begin(), notes.end(), [&](const NoteRow& note) {
    return recording.string(note.key) == format::kModeNote &&
           recording.string(note.value) == format::kSampledMode;
  });
}

}  // namespace vramscope::tables
