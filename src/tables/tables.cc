// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "format/memory_words.h"
#include "tables/imported.h"
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
      counters(1),
      nvtx_counters(1) {}

std::string_view NoteOf(const Recording& recording, std::string_view key) {
  const std::vector<NoteRow>& notes = recording.tables().notes;
  const auto found = std::find_if(notes.begin(), notes.end(), [&](const NoteRow& note) {
    return recording.string(note.key) == key;
  });
  return found == notes.end() ? std::string_view() : recording.string(found->value);
}

bool IsSampled(const Recording& recording) {
  return NoteOf(recording, format::kModeNote) == format::kSampledMode;
}

}  // namespace vramscope::tables
