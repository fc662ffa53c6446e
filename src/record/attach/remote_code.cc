// SPDX-License-Identifier: Apache-2.0
#include "record/attach/remote_code.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "util/file.h"

namespace vramscope::cli {

bool RemoteProgram::HasAll(RemoteFunction first, RemoteFunction last) const {
  const auto begin = functions.begin();
  return std::all_of(begin + static_cast<size_t>(first), begin + static_cast<size_t>(last) + 1,
                     [](const RemoteObject::Symbol& symbol) { return symbol.address != 0; });
}

}  // namespace vramscope::cli

#if defined(__x86_64__)

// The code, which is copied and never executed here. It continues in the numbers of a table and in
// texts, which end it.
//
// The main thread enters at the begin, with the address at which it continues on its stack, 128
// bytes below what it has there. xsave: all registers that a call may change, but AMX's tiles
// (components 17 and 18), which no called function uses.
asm(R"(
  .pushsection .rodata
  .set table_create,        vramscope_remote_table + 8*0
  .set table_self,          vramscope_remote_table + 8*1
  .set table_detach,        vramscope_remote_table + 8*2
  .set table_dlopen,        vramscope_remote_table + 8*3
  .set table_dlsym,         vramscope_remote_table + 8*4
  .set table_dlerror,       vramscope_remote_table + 8*5
  .set table_symlink,       vramscope_remote_table + 8*6
  .set table_initialized,   vramscope_remote_table + 8*7
  .set table_add_pending,   vramscope_remote_table + 8*8
  .set table_take_gil,      vramscope_remote_table + 8*10
  .set table_release_gil,   vramscope_remote_table + 8*11
  .set table_new_dict,      vramscope_remote_table + 8*12
  .set table_run_string,    vramscope_remote_table + 8*13
  .set table_release,       vramscope_remote_table + 8*14
  .set table_clear_error,   vramscope_remote_table + 8*15
  .set table_uses_thread,   vramscope_remote_table + 8*16
  .set table_library,       vramscope_remote_table + 8*17
  .set table_text,          vramscope_remote_table + 8*18
  .set table_function,      vramscope_remote_table + 8*19
  .set table_arguments,     vramscope_remote_table + 8*20
  .balign 8
vramscope_remote_code:
  pushfq
  push %rax; push %rcx; push %rdx; push %rbx; push %rbp; push %rsi; push %rdi
  push %r8;  push %r9;  push %r10; push %r11; push %r12; push %r13; push %r14; push %r15
  mov %rsp, %rbp
  cld
  sub $2944, %rsp
  and $-64, %rsp
  lea 512(%rsp), %rdi
  xor %eax, %eax
  mov $8, %ecx
  rep stosq
  mov $0xe7, %eax
  xor %edx, %edx
  xsave64 (%rsp)
  cmpq $0, table_uses_thread(%rip)
  je 1f
  lea 2880(%rsp), %rdi
  xor %esi, %esi
  lea remote_thread(%rip), %rdx
  xor %ecx, %ecx
  call *table_create(%rip)
  jmp 2f
1:
  call *table_initialized(%rip)
  test %eax, %eax
  jz 2f
  lea remote_text(%rip), %rdi
  xor %esi, %esi
  call *table_add_pending(%rip)
2:
  mov $0xe7, %eax
  xor %edx, %edx
  xrstor64 (%rsp)
  mov %rbp, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %r11; pop %r10; pop %r9; pop %r8
  pop %rdi; pop %rsi; pop %rbp; pop %rbx; pop %rdx; pop %rcx; pop %rax
  popfq
  ret $128
remote_text:          # int (void*): executes the text; -1 with an exception set
  push %rbx
  push %r12
  sub $8, %rsp
  call *table_new_dict(%rip)
  mov $-1, %r12
  test %rax, %rax
  jz 2f
  mov %rax, %rbx
  mov table_text(%rip), %rdi
  mov $257, %esi
  mov %rbx, %rdx
  mov %rbx, %rcx
  xor %r8d, %r8d
  call *table_run_string(%rip)
  test %rax, %rax
  jz 1f
  xor %r12d, %r12d
  mov %rax, %rdi
  call *table_release(%rip)
1:
  mov %rbx, %rdi
  call *table_release(%rip)
2:
  mov %r12, %rax
  add $8, %rsp
  pop %r12
  pop %rbx
  ret
remote_thread:        # void* (void*)
  push %rbx
  call *table_self(%rip)
  mov %rax, %rdi
  call *table_detach(%rip)
  cmpq $0, table_library(%rip)
  jne 2f
  call *table_initialized(%rip)
  test %eax, %eax
  jz 4f
  call *table_take_gil(%rip)
  mov %eax, %ebx
  call remote_text
  test %eax, %eax
  jz 1f
  call *table_clear_error(%rip)
1:
  mov %ebx, %edi
  call *table_release_gil(%rip)
  jmp 4f
2:
  mov table_library(%rip), %rdi
  mov $0x102, %esi    # RTLD_NOW | RTLD_GLOBAL
  call *table_dlopen(%rip)
  test %rax, %rax
  jz 3f
  mov %rax, %rdi
  mov table_function(%rip), %rsi
  call *table_dlsym(%rip)
  test %rax, %rax
  jz 3f
  mov table_arguments(%rip), %rdi
  mov table_arguments+8(%rip), %rsi
  mov table_arguments+16(%rip), %rdx
  call *%rax
  jmp 4f
3:
  call *table_dlerror(%rip)
  mov %rax, %rdi
  mov table_arguments+16(%rip), %rsi
  call *table_symlink(%rip)
4:
  xor %eax, %eax
  pop %rbx
  ret
  .balign 8
vramscope_remote_table:
  .fill 24, 8, 0
vramscope_remote_texts:
  .popsection
)");
extern "C" {
extern const char vramscope_remote_code[] __attribute__((visibility("hidden")));
extern const char vramscope_remote_table[] __attribute__((visibility("hidden")));
extern const char vramscope_remote_texts[] __attribute__((visibility("hidden")));
}

namespace vramscope::cli {
namespace {

constexpr size_t kFunctions = static_cast<size_t>(RemoteFunction::kCount);
constexpr char kNewInPython39[] = "PyFrame_GetCode";
constexpr const char* kNames[] = {
#define VRAMSCOPE_ENTRY(name, symbol) symbol,
    VRAMSCOPE_REMOTE_FUNCTIONS(VRAMSCOPE_ENTRY)
#undef VRAMSCOPE_ENTRY
};

// The table behind the code.
struct Table {
  uint64_t functions[kFunctions];
  uint64_t uses_thread;
  uint64_t library;  // addresses of texts; 0: none
  uint64_t text;
  uint64_t function;
  uint64_t arguments[3];
  uint64_t sequence;
};

const std::string& CodeAlone() {
  static const std::string code(vramscope_remote_code, vramscope_remote_table);
  return code;
}

std::vector<const std::string*> TextsOf(const RemoteTask& task) {
  return {&task.library,      &task.text,         &task.function,
          &task.arguments[0], &task.arguments[1], &task.arguments[2]};
}

std::string NameOf(const std::string& file) {
  return file.substr(file.rfind('/') + 1);
}

bool IsOfCLibrary(const RemoteObject& object, const std::string& file) {
  const std::string name = NameOf(file);
  const auto is = [&](const char* library) {
    return name.starts_with(std::string(library) + ".so") ||
           name.starts_with(std::string(library) + "-2.");  // libdl-2.31.so
  };
  return object.Find("__libc_start_main") || is("libpthread") || is("libdl");
}

// Of an object that was not loaded whole, code can be mapped without the right to execute it.
bool IsExecutable(const std::vector<Mapping>& mappings, const RemoteObject::Range& range) {
  return std::any_of(mappings.begin(), mappings.end(), [&](const Mapping& mapping) {
    return mapping.executable && range.begin >= mapping.begin && range.end <= mapping.end;
  });
}

void LookInto(const RemoteObject& object, const std::string& file, RemoteProgram* program) {
  constexpr auto kPython = static_cast<size_t>(kFirstOfPython);
  if (const RemoteObject::Range unused = object.UnusedCode();
      unused.begin < unused.end && IsExecutable(program->mappings, unused))
    program->unused.push_back(unused);
  std::array<RemoteObject::Symbol, kFunctions> found{};
  const auto find = [&](size_t first, size_t end) {
    bool has_all = true;
    for (size_t i = first; i < end; ++i) {
      found[i] = object.Find(kNames[i]).value_or(RemoteObject::Symbol{});
      if (!IsExecutable(program->mappings, {found[i].address, found[i].address + 1}))
        found[i] = {};
      has_all = has_all && found[i].address != 0;
    }
    return has_all;
  };
  if (IsOfCLibrary(object, file)) {
    program->c_library.push_back(object.Extent());
    (void)find(0, kPython);
    for (size_t i = 0; i < kPython; ++i) {
      if (program->functions[i].address == 0)
        program->functions[i] = found[i];
    }
  } else if (object.Find("__tls_get_addr")) {
    program->c_library.push_back(object.Extent());
  } else if (object.Find("malloc")) {
    program->allocators.push_back(object.Extent());
  }
  // A process can have two Pythons loaded: all functions come from one.
  if (!program->has_python && object.Find(kNames[kPython]) && find(kPython, kFunctions)) {
    program->has_python = true;
    program->has_old_python = !object.Find(kNewInPython39);
    std::copy(found.begin() + kPython, found.end(), program->functions.begin() + kPython);
  }
}

}  // namespace

static_assert(std::size(kNames) == kFunctions);

util::Result<RemoteProgram> FindProgram(pid_t pid) {
  RemoteProgram program;
  program.mappings = ParseMaps(util::ReadProc(pid, "maps").value_or(""));
  if (program.mappings.empty())
    return util::Status::Error(WhyNotPermitted(pid));
  bool permitted = false;
  for (const Mapping& mapping : program.mappings) {
    if (mapping.offset != 0 || !mapping.readable || !mapping.file.starts_with('/'))
      continue;
    const std::optional<RemoteObject> object = RemoteObject::Open(pid, mapping.begin);
    permitted = permitted || object || errno != EPERM;
    program.has_driver = program.has_driver || NameOf(mapping.file).starts_with("libcuda.so");
    if (object)
      LookInto(*object, mapping.file, &program);
  }
  if (!permitted)
    return util::Status::Error(WhyNotPermitted(pid));
  return program;
}

size_t CodeSize(const RemoteTask& task) {
  size_t size = CodeAlone().size() + sizeof(Table);
  for (const std::string* const text : TextsOf(task))
    size += text->size() + 1;
  return (size + sizeof(long) - 1) / sizeof(long) * sizeof(long);
}

std::string CodeFor(const RemoteTask& task,
                    const RemoteProgram& program,
                    uint64_t place,
                    uint64_t sequence) {
  std::string texts;
  const auto address_of = [&](const std::string& text) -> uint64_t {
    if (text.empty())
      return 0;
    const uint64_t address = place + CodeAlone().size() + sizeof(Table) + texts.size();
    texts.append(text.c_str(), text.size() + 1);
    return address;
  };
  Table table{};
  for (size_t i = 0; i < kFunctions; ++i)
    table.functions[i] = program.functions[i].address;
  table.uses_thread = task.way != RemoteTask::Way::kSafePoint ? 1 : 0;
  table.library = address_of(task.library);
  table.text = address_of(task.text);
  table.function = address_of(task.function);
  for (size_t i = 0; i < task.arguments.size(); ++i)
    table.arguments[i] = address_of(task.arguments[i]);
  table.sequence = sequence;
  std::string code = CodeAlone();
  code.append(reinterpret_cast<const char*>(&table), sizeof table);
  code += texts;
  code.resize(CodeSize(task));
  return code;
}

uint64_t SequenceOf(const std::string& bytes) {
  const std::string& code = CodeAlone();
  uint64_t sequence = 0;
  const size_t at = code.size() + offsetof(Table, sequence);
  if (bytes.size() < at + sizeof sequence || !bytes.starts_with(code))
    return 0;
  std::memcpy(&sequence, bytes.data() + at, sizeof sequence);
  return sequence;
}

bool IsUnfinished(const std::string& bytes) {
  const std::string& code = CodeAlone();
  const auto [end, same] = std::mismatch(bytes.begin(), bytes.end(), code.begin(), code.end());
  if (same == code.end())
    return SequenceOf(bytes) == 0;
  return std::all_of(end, bytes.end(), [](char byte) { return byte == 0; });
}

}  // namespace vramscope::cli

#else

namespace vramscope::cli {

util::Result<RemoteProgram> FindProgram(pid_t) {
  return util::Status::Error("attach works on x86-64: start the program with `vramscope run`");
}

size_t CodeSize(const RemoteTask&) {
  return 0;
}

std::string CodeFor(const RemoteTask&, const RemoteProgram&, uint64_t, uint64_t) {
  return "";
}

uint64_t SequenceOf(const std::string&) {
  return 0;
}

bool IsUnfinished(const std::string&) {
  return false;
}

}  // namespace vramscope::cli

#endif
