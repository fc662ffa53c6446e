// SPDX-License-Identifier: Apache-2.0
#include "differential/operations.h"

namespace differential {

const std::vector<Operation>& Operations() {
  static const std::vector<Operation> operations = [] {
    std::vector<Operation> all = MemoryOperations();
    for (auto* some : {&StreamOperations, &ContextOperations}) {
      const std::vector<Operation> more = some();
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return operations;
}

}  // namespace differential
