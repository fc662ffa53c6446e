// SPDX-License-Identifier: Apache-2.0
#include "record/attach/pending_call.h"

#include <fmt/core.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "util/file.h"

#if defined(__x86_64__)

// The code, which is copied and never executed here. Its addresses are filled in where it ends.
// xsave: all registers that a call may change, but AMX's tiles (components 17 and 18), which no
// called function uses.
asm(R"(
  .pushsection .rodata
  .balign 8
vramscope_call_code:
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
  call *vramscope_call_table+32(%rip)
  test %eax, %eax
  jz 3f
  lea vramscope_call_pending(%rip), %rdi
  xor %esi, %esi
  call *vramscope_call_table(%rip)
3:
  mov $0xe7, %eax
  xor %edx, %edx
  xrstor64 (%rsp)
  mov %rbp, %rsp
  pop %r15; pop %r14; pop %r13; pop %r12; pop %r11; pop %r10; pop %r9; pop %r8
  pop %rdi; pop %rsi; pop %rbp; pop %rbx; pop %rdx; pop %rcx; pop %rax
  popfq
  ret $128
vramscope_call_pending:
  push %rbx
  push %r12
  sub $8, %rsp
  call *vramscope_call_table+8(%rip)
  mov $-1, %r12
  test %rax, %rax
  jz 1f
  mov %rax, %rbx
  lea vramscope_call_text(%rip), %rdi
  mov $257, %esi
  mov %rbx, %rdx
  mov %rbx, %rcx
  xor %r8d, %r8d
  call *vramscope_call_table+16(%rip)
  mov $-1, %r12
  test %rax, %rax
  jz 2f
  xor %r12d, %r12d
  mov %rax, %rdi
  call *vramscope_call_table+24(%rip)
2:
  mov %rbx, %rdi
  call *vramscope_call_table+24(%rip)
1:
  mov %r12, %rax
  add $8, %rsp
  pop %r12
  pop %rbx
  ret
  .balign 8
vramscope_call_table:
  .quad 0, 0, 0, 0, 0
vramscope_call_text:
  .popsection
)");
extern "C" {
extern const char vramscope_call_code[] __attribute__((visibility("hidden")));
extern const char vramscope_call_table[] __attribute__((visibility("hidden")));
extern const char vramscope_call_text[] __attribute__((visibility("hidden")));
}

namespace vramscope::cli {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kRedZone = 128;
constexpr uint64_t kStackBytes = 65536;  // more than the code and what it calls need
constexpr size_t kScannedWords = 32;     // of the stack, for the callers of a function of a lock
constexpr int kTries = 200;
constexpr milliseconds kStopLimit{2000};

constexpr const char* kNames[] = {"Py_AddPendingCall", "Py_MakePendingCalls", "PyDict_New",
                                  "PyRun_StringFlags", "Py_DecRef",           "Py_IsInitialized"};

bool IsIn(uint64_t value, uint64_t begin, uint64_t end) {
  return value >= begin && value < end;
}

// The code with its addresses and its text.
std::string CodeFor(const PythonCalls& python, const std::string& text) {
  std::string code(vramscope_call_code, vramscope_call_text);
  const uint64_t table[] = {python.add_pending_call.address, python.new_dict, python.run_string,
                            python.release, python.is_initialized};
  std::memcpy(code.data() + (vramscope_call_table - vramscope_call_code), table, sizeof table);
  code += text;
  code.append(sizeof(long) - code.size() % sizeof(long), '\0');
  return code;
}

// The thread that traces. The kernel detaches from the target when it ends, however it does.
class Tracer {
 public:
  explicit Tracer(pid_t pid) : pid_(pid) {}

  util::Status Seize() {
    if (ptrace(PTRACE_SEIZE, pid_, nullptr, nullptr) == 0)
      return {};
    return util::Status::Error(errno == EPERM
                                   ? WhyNotPermitted(pid_)
                                   : fmt::format("process {}: {}", pid_, util::ErrnoText(errno)));
  }

  // Stops the thread between two instructions. Signals that arrive meanwhile go to the program.
  util::Status Stop() {
    if (ptrace(PTRACE_INTERRUPT, pid_, nullptr, nullptr) != 0)
      return Ended();
    const auto deadline = std::chrono::steady_clock::now() + kStopLimit;
    for (;;) {
      int status = 0;
      const pid_t got = waitpid(pid_, &status, __WALL | WNOHANG);
      if (got < 0 || (got == pid_ && !WIFSTOPPED(status)))
        return Ended();
      if (got == pid_ && status >> 16 == PTRACE_EVENT_STOP) {
        if (WSTOPSIG(status) == SIGTRAP)
          return {};
        return util::Status::Error(
            fmt::format("process {} is stopped: continue it with `kill -CONT {}`", pid_, pid_));
      }
      if (got == pid_) {
        (void)ptrace(PTRACE_CONT, pid_, nullptr, WSTOPSIG(status));
      } else if (std::chrono::steady_clock::now() > deadline) {
        return util::Status::Error(fmt::format(
            "process {} does not stop: it waits in the kernel, for a disk or a device; try again",
            pid_));
      } else {
        std::this_thread::sleep_for(microseconds(20));
      }
    }
  }

  // Where the process has ended, the next Stop() says so.
  void Continue() { (void)ptrace(PTRACE_CONT, pid_, nullptr, nullptr); }
  void Detach() { (void)ptrace(PTRACE_DETACH, pid_, nullptr, nullptr); }

  bool Registers(user_regs_struct* registers) const {
    return ptrace(PTRACE_GETREGS, pid_, nullptr, registers) == 0;
  }
  bool SetRegisters(const user_regs_struct& registers) const {
    return ptrace(PTRACE_SETREGS, pid_, nullptr, &registers) == 0;
  }
  bool Write(uint64_t address, const std::string& bytes) const {
    for (size_t at = 0; at + sizeof(long) <= bytes.size(); at += sizeof(long)) {
      long word = 0;
      std::memcpy(&word, bytes.data() + at, sizeof word);
      if (ptrace(PTRACE_POKEDATA, pid_, address + at, word) != 0)
        return false;
    }
    return true;
  }
  // Whether the thread is in a restartable sequence of rseq(2), which a detour would break.
  bool IsInRestartableSequence(uint64_t instruction) const {
    struct {
      uint64_t area;
      uint32_t size, signature, flags, pad;
    } configuration{};
    constexpr auto kGetConfiguration = static_cast<__ptrace_request>(0x420f);
    if (ptrace(kGetConfiguration, pid_, sizeof configuration, &configuration) <= 0 ||
        configuration.area == 0)
      return false;
    struct {
      uint32_t version, flags;
      uint64_t start, length, abort;
    } sequence{};
    constexpr uint64_t kPointerOffset = 8;  // struct rseq: rseq_cs
    uint64_t pointer = 0;
    return ReadRemote(pid_, configuration.area + kPointerOffset, &pointer) && pointer != 0 &&
           ReadRemote(pid_, pointer, &sequence) && instruction - sequence.start < sequence.length;
  }

 private:
  util::Status Ended() const {
    return util::Status::Error(fmt::format("process {} has ended", pid_));
  }

  const pid_t pid_;
};

// Calls that return EINTR after a stop although no signal handler ran, and that have had no effect
// then (signal(7)).
bool HadNoEffect(uint64_t call) {
  constexpr std::array<uint64_t, 12> kCalls = {
      SYS_epoll_wait,   SYS_epoll_pwait, SYS_semop,           SYS_semtimedop,
      SYS_io_getevents, SYS_read,        SYS_rt_sigtimedwait, SYS_recvfrom,
      SYS_recvmsg,      SYS_accept,      SYS_accept4,         441 /* epoll_pwait2 */};
  return std::find(kCalls.begin(), kCalls.end(), call) != kCalls.end();
}

bool HasPendingSignal(pid_t pid) {
  const std::string status = util::ReadProc(pid, "status").value_or("");
  const auto set = [&](const char* key) {
    return strtoull(StatusValue(status, key).c_str(), nullptr, 16);
  };
  return ((set("SigPnd") | set("ShdPnd")) & ~set("SigBlk")) != 0;
}

// Has the thread continue as the kernel would let it: a system call that the stop interrupted is
// restarted. Whether there is one.
bool RestartSystemCall(pid_t pid, user_regs_struct* registers) {
  constexpr int64_t kRestartSys = -512, kRestartNoIntr = -513, kRestartNoHand = -514,
                    kRestartBlock = -516;
  constexpr uint64_t kInstructionBytes = 2;
  const auto call = static_cast<int64_t>(registers->orig_rax);
  const auto result = static_cast<int64_t>(registers->rax);
  if (call < 0)
    return false;
  const bool restarts =
      result == kRestartSys || result == kRestartNoIntr || result == kRestartNoHand ||
      (result == -EINTR && HadNoEffect(registers->orig_rax) && !HasPendingSignal(pid));
  registers->orig_rax = ~uint64_t{0};  // the kernel has nothing left to restart
  if (!restarts && result != kRestartBlock)
    return false;
  registers->rax = restarts ? static_cast<uint64_t>(call) : uint64_t{SYS_restart_syscall};
  registers->rip -= kInstructionBytes;
  return true;
}

// Whether the running thread may hold the lock of the pending calls, for which the code would wait.
// Whoever holds it calls nothing but the functions of a lock.
bool MayHoldLock(pid_t pid, const PythonCalls& python, const user_regs_struct& registers) {
  std::array<uint64_t, kScannedWords + 1> words{};
  size_t count = kScannedWords;
  while (count > 0 && !ReadRemote(pid, registers.rsp, words.data(), count * sizeof words[0]))
    count /= 2;
  words[count++] = registers.rip;
  return std::any_of(words.begin(), words.begin() + count, [&](uint64_t address) {
    const auto is_in = [&](const RemoteObject::Symbol& symbol) {
      return IsIn(address, symbol.address, symbol.address + symbol.size_bytes);
    };
    return is_in(python.add_pending_call) || is_in(python.make_pending_calls);
  });
}

// Whether the thread is on the main thread's own stack, with room for the code and what it calls.
// Coroutines and signal handlers can have a small one elsewhere.
bool HasStack(pid_t pid, const PythonCalls& python, uint64_t pointer) {
  // The stack may have grown since it was looked at. Nothing else is mapped right below it.
  const auto stack = std::find_if(python.mappings.begin(), python.mappings.end(),
                                  [&](const Mapping& mapping) { return pointer < mapping.end; });
  rlimit limit{};
  return stack != python.mappings.end() && stack->file == "[stack]" &&
         prlimit(pid, RLIMIT_STACK, nullptr, &limit) == 0 &&
         stack->end - pointer + kStackBytes < limit.rlim_cur;
}

// Why this is no moment for a detour. None: it is one. `waits`: a system call is interrupted.
std::optional<std::string> WhyNotNow(pid_t pid,
                                     const Tracer& tracer,
                                     const PythonCalls& python,
                                     const user_regs_struct& registers,
                                     bool waits) {
  if (tracer.IsInRestartableSequence(registers.rip))
    return "it is in a restartable sequence";
  if (!HasStack(pid, python, registers.rsp))
    return "it is not on its main stack, or that is nearly full";
  if (!waits && MayHoldLock(pid, python, registers))
    return "it handles pending calls";
  return {};
}

// Executable bytes for the code: all zero, or what another attach has left there.
util::Result<RemoteObject::Range> PlaceFor(pid_t pid,
                                           const PythonCalls& python,
                                           const std::string& code) {
  constexpr uint64_t kAlign = 16;
  const auto fixed = static_cast<size_t>(vramscope_call_text - vramscope_call_code);
  for (const RemoteObject::Range& unused : python.unused) {
    const uint64_t begin = (unused.begin + kAlign - 1) & ~(kAlign - 1);
    if (begin + code.size() > unused.end)
      continue;
    std::string there(unused.end - begin, '\0');
    if (!ReadRemote(pid, begin, there.data(), there.size()))
      continue;
    const bool is_ours = there.compare(0, fixed, code, 0, fixed) == 0;
    if (is_ours || there.find_first_not_of('\0') == std::string::npos)
      return RemoteObject::Range{begin, begin + code.size()};
  }
  return util::Status::Error(
      fmt::format("process {}: no room for the call: start it with `vramscope run`", pid));
}

// `registers`: where the thread is to continue afterwards.
util::Status Detour(pid_t pid,
                    const Tracer& tracer,
                    const std::string& code,
                    uint64_t place,
                    user_regs_struct registers) {
  const uint64_t stack = registers.rsp - kRedZone - sizeof(uint64_t);
  const std::string back(reinterpret_cast<const char*>(&registers.rip), sizeof registers.rip);
  registers.rsp = stack;
  registers.rip = place;
  // Bytes that nothing uses, then all registers in one system call.
  if (!tracer.Write(place, code) || !tracer.Write(stack, back) || !tracer.SetRegisters(registers))
    return util::Status::Error(fmt::format("process {}: {}", pid, util::ErrnoText(errno)));
  return {};
}

util::Status Trace(pid_t pid, const PythonCalls& python, const std::string& text) {
  const std::string code = CodeFor(python, text);
  Tracer tracer(pid);
  VRAMSCOPE_RETURN_IF_ERROR(tracer.Seize());
  std::string why;
  for (int i = 0; i < kTries; ++i) {
    VRAMSCOPE_RETURN_IF_ERROR(tracer.Stop());
    VRAMSCOPE_ASSIGN_OR_RETURN(const RemoteObject::Range place, PlaceFor(pid, python, code));
    user_regs_struct registers{};
    if (!tracer.Registers(&registers))
      return util::Status::Error(fmt::format("process {} has ended", pid));
    const bool waits = RestartSystemCall(pid, &registers);
    const std::optional<std::string> busy = WhyNotNow(pid, tracer, python, registers, waits);
    if (!busy) {
      const util::Status status = Detour(pid, tracer, code, place.begin, registers);
      tracer.Detach();
      return status;
    }
    why = *busy;
    tracer.Continue();
    std::this_thread::sleep_for(milliseconds(1));
  }
  return util::Status::Error(fmt::format("process {}: {}: try again", pid, why));
}

}  // namespace

util::Result<PythonCalls> FindPython(pid_t pid) {
  PythonCalls python;
  const std::optional<std::string> maps = util::ReadProc(pid, "maps");
  python.mappings = ParseMaps(maps.value_or(""));
  if (python.mappings.empty())
    return util::Status::Error(WhyNotPermitted(pid));
  bool permitted = false;
  for (const Mapping& mapping : python.mappings) {
    if (mapping.offset != 0 || !mapping.readable || !mapping.file.starts_with('/'))
      continue;
    const std::optional<RemoteObject> object = RemoteObject::Open(pid, mapping.begin);
    if (!object) {
      permitted = permitted || errno != EPERM;
      continue;
    }
    permitted = true;
    if (const RemoteObject::Range unused = object->UnusedCode(); unused.begin < unused.end)
      python.unused.push_back(unused);
    RemoteObject::Symbol found[std::size(kNames)];
    if (python.add_pending_call.address != 0)
      continue;
    const bool is_python =
        std::all_of(std::begin(kNames), std::end(kNames), [&](const char* const& name) {
          const std::optional<RemoteObject::Symbol> symbol = object->Find(name);
          found[&name - kNames] = symbol.value_or(RemoteObject::Symbol{});
          return symbol.has_value();
        });
    if (!is_python)
      continue;
    python.add_pending_call = found[0];
    python.make_pending_calls = found[1];
    python.new_dict = found[2].address;
    python.run_string = found[3].address;
    python.release = found[4].address;
    python.is_initialized = found[5].address;
  }
  if (!permitted)
    return util::Status::Error(WhyNotPermitted(pid));
  if (python.add_pending_call.address == 0) {
    return util::Status::Error(fmt::format(
        "process {} ({}) runs no Python: start it with `vramscope run`, or use `vramscope sample "
        "--pid {}`",
        pid, util::ProcCommand(pid), pid));
  }
  return python;
}

util::Status AddPendingCall(pid_t pid, const PythonCalls& python, const std::string& text) {
  util::Status status;
  // The kernel detaches from the target when the thread that traces it ends.
  std::thread([&] { status = Trace(pid, python, text); }).join();
  return status;
}

}  // namespace vramscope::cli

#else

namespace vramscope::cli {

util::Result<PythonCalls> FindPython(pid_t) {
  return util::Status::Error("attach works on x86-64: start the program with `vramscope run`");
}

util::Status AddPendingCall(pid_t, const PythonCalls&, const std::string&) {
  return {};
}

}  // namespace vramscope::cli

#endif
