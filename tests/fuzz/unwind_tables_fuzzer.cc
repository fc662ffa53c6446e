// SPDX-License-Identifier: Apache-2.0
// The input is a binary's unwinding tables, from .eh_frame_hdr on, as the probe reads them inside
// the program. Each address is looked up, and what its rules say is computed.
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "probe/stack/native/cfi.h"
#include "probe/stack/native/rows.h"
#include "probe/stack/native/window.h"

namespace {

using namespace vramscope::probe;

constexpr uintptr_t kFunctions = 0x1000;  // behind the tables' beginning, as in the seed
constexpr uintptr_t kStep = 7;

// A page of zeros, away from this thread's stack: between the variables there AddressSanitizer
// has gaps, which a walk may read.
uintptr_t Stack() {
  static void* const page = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED)
    std::abort();
  return reinterpret_cast<uintptr_t>(page);
}

void ComputeAll(const CfiRules& rules, const ByteRange& bytes) {
  Registers registers{};
  for (uint32_t i = 0; i < kRegisterCount; ++i)
    registers.Put(i, Stack() + i * sizeof(uint64_t));
  StackWindow window(Stack());
  const auto compute = [&](const CfiRule& rule) {
    if (rule.kind != CfiRule::kExpression && rule.kind != CfiRule::kValueExpression)
      return;
    const ByteRange expression = rule.expression();
    if (expression.begin != expression.end &&
        (!bytes.Contains(expression.begin) || !bytes.Contains(expression.end - 1))) {
      std::abort();
    }
    uint64_t result = 0;
    (void)Evaluate(expression, registers, nullptr, &window, &result);
  };
  compute(rules.cfa);
  for (const CfiRule& rule : rules.registers)
    compute(rule);
  (void)UnwindRow(rules);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // A copy of just that size: what is read beyond it is found.
  const std::vector<uint8_t> tables(data, data + size);
  if (tables.empty())
    return 0;
  ElfW(Phdr) header{};
  header.p_type = PT_LOAD;
  header.p_flags = PF_R;
  header.p_filesz = tables.size();
  const auto bias = reinterpret_cast<uintptr_t>(tables.data());
  const CodeModule module{bias, &header, 1, tables.data()};
  for (uintptr_t offset = 0; offset < 0x200; offset += kStep) {
    CfiRules rules;
    if (FindRules(module, bias + kFunctions + offset, &rules))
      ComputeAll(rules, {tables.data(), tables.data() + tables.size()});
  }
  return 0;
}
