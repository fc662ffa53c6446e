// SPDX-License-Identifier: Apache-2.0
// Defines the wrappers of one section of cuda_hooks.def and exports their names. Included once, at
// the end of the file that has the section's rules, between `#define VRAMSCOPE_CUDA_IS_<section> 1`
// and its #undef.
#include "probe/hooks/cuda/hook_table.h"

// The entry point's own name is exported for programs that are linked with libcuda. It jumps to the
// target of the hook's link: the wrapper, or another tool that exports the same name after us. The
// tool then comes to the wrapper itself, as it would come to the driver.
#ifdef __x86_64__
#define VRAMSCOPE_CUDA_JUMP(link) "endbr64\njmp *" link "+8(%rip)\n"
#else
#define VRAMSCOPE_CUDA_JUMP(link) \
  "hint #34\nadrp x16, " link "+8\nldr x16, [x16, :lo12:" link "+8]\nbr x16\n"
#endif
static_assert(offsetof(vramscope::probe::cuda::HookLink, target) == 8);

#define VRAMSCOPE_CUDA_SECTION(section) VRAMSCOPE_CUDA_IS_##section
#define VRAMSCOPE_CUDA_HOOK(name, rule, prototype)                                               \
  namespace vramscope::probe::cuda {                                                             \
  template <class... Args>                                                                       \
  static CUresult Wrap_##name(Args... args) {                                                    \
    return rule<HookId::name>(args...);                                                          \
  }                                                                                              \
  static constexpr HookTraits<HookId::name>::Function* kWrap_##name = &Wrap_##name;              \
  HookLink vramscope_link_##name = {reinterpret_cast<void*>(kWrap_##name),                       \
                                    reinterpret_cast<void*>(kWrap_##name)};                      \
  }                                                                                              \
  __asm__(".pushsection .text\n.globl " #name "\n.type " #name ", @function\n.p2align 4\n" #name \
          ":\n.cfi_startproc\n" VRAMSCOPE_CUDA_JUMP(                                             \
              "vramscope_link_" #name) ".cfi_endproc\n.size " #name ", .-" #name                 \
                                       "\n.popsection\n");
#include "probe/hooks/cuda/cuda_hooks.def"
