// SPDX-License-Identifier: Apache-2.0
#include "format/records.h"

namespace vramscope::format {

const char* RecordName(uint8_t type) {
  switch (type) {
#define VRAMSCOPE_RECORD(Name, id, doc) \
  case id:                              \
    return #Name;
#include "format/records.def"
    default:
      return nullptr;
  }
}

const char* LossName(uint64_t loss) {
  switch (static_cast<Loss>(loss)) {
#define VRAMSCOPE_LOSS(Name, id, text, help) \
  case Loss::k##Name:                        \
    return text;
#include "format/losses.def"
  }
  return "unknown loss";
}

}  // namespace vramscope::format
