// SPDX-License-Identifier: Apache-2.0
#include "record/attach/remote_process.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "record/attach/detour.h"
#include "record/attach/python_script.h"
#include "record/attach/remote_code.h"
#include "util/file.h"

namespace vramscope::cli {
namespace {

TEST(ParseMaps, LinesOfAProcess_TheirRangesRightsAndFiles) {
  const std::vector<Mapping> maps = ParseMaps(
      "55d0c000-55d0d000 r-xp 00001000 fe:00 79246                      /opt/a b/python3.12\n"
      "7ffd1000-7ffd3000 rw-p 00000000 00:00 0                          [stack]\n"
      "7f001000-7f002000 ---p 00000000 00:00 0 \n"
      "not a line\n");
  ASSERT_EQ(maps.size(), 3u);
  EXPECT_EQ(maps[0].begin, 0x55d0c000u);
  EXPECT_EQ(maps[0].end, 0x55d0d000u);
  EXPECT_EQ(maps[0].offset, 0x1000u);
  EXPECT_TRUE(maps[0].readable && maps[0].executable && !maps[0].writable);
  EXPECT_EQ(maps[0].file, "/opt/a b/python3.12");
  EXPECT_EQ(maps[1].file, "[stack]");
  EXPECT_TRUE(maps[1].writable);
  EXPECT_EQ(maps[2].file, "");
  EXPECT_FALSE(maps[2].readable);
}

// The C library in this process, whose addresses dlsym returns.
std::optional<RemoteObject> OpenCLibrary() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&getpid), &info) == 0)
    return {};
  return RemoteObject::Open(getpid(), reinterpret_cast<uint64_t>(info.dli_fbase));
}

TEST(Refusal, EachCauseOfTheKernel_SaysWhatToDo) {
  const auto text = [](const char* yama, bool is_root, bool is_dumpable) {
    return RefusalText({"process 7 (python)", 7, yama, is_root, is_dumpable});
  };
  EXPECT_NE(text("1\n", false, true).find("sysctl kernel.yama.ptrace_scope=0"), std::string::npos);
  EXPECT_NE(text("2\n", false, true).find("only root may trace here: run `sudo"),
            std::string::npos);
  EXPECT_NE(text("3\n", true, true).find("start the program with `vramscope run`"),
            std::string::npos);
  EXPECT_NE(text("1\n", false, false).find("is set-uid or not dumpable"), std::string::npos);
  for (const char* const open : {"", "0\n", "1\n", "2\n"})
    EXPECT_NE(text(open, true, true).find("--cap-add SYS_PTRACE"), std::string::npos) << open;
}

TEST(Status, NumbersOfAProcess_AreReadFromItsStatus) {
  const std::string status = "Name:\tx\nUid:\t1000\t0\t3\t4\nNSpid:\t4711\t7\n";
  EXPECT_EQ(EffectiveId(status, "Uid"), 0u);
  EXPECT_FALSE(EffectiveId(status, "Gid").has_value());
  EXPECT_TRUE(HasOwnPids(status));
  EXPECT_FALSE(HasOwnPids("NSpid:\t4711\n"));
}

TEST(RemoteObject, ExportedFunctions_AreWhereDlsymFindsThem) {
  const std::optional<RemoteObject> library = OpenCLibrary();
  ASSERT_TRUE(library.has_value());
  void* const handle = dlopen("libc.so.6", RTLD_NOW | RTLD_NOLOAD);
  ASSERT_NE(handle, nullptr);
  for (const char* const name : {"getpid", "malloc", "qsort", "pthread_create"}) {
    const std::optional<RemoteObject::Symbol> symbol = library->Find(name);
    ASSERT_TRUE(symbol.has_value()) << name;
    EXPECT_EQ(symbol->address, reinterpret_cast<uint64_t>(dlsym(handle, name))) << name;
    EXPECT_GT(symbol->size_bytes, 0u) << name;
  }
  EXPECT_FALSE(library->Find("Py_AddPendingCall").has_value());
  EXPECT_FALSE(library->Find("").has_value());
}

TEST(RemoteObject, RestOfTheCode_EndsAtAPageAndIsExecutable) {
  const std::optional<RemoteObject> library = OpenCLibrary();
  ASSERT_TRUE(library.has_value());
  const RemoteObject::Range unused = library->UnusedCode();
  if (unused.begin == unused.end)
    GTEST_SKIP() << "its code fills its last page";
  EXPECT_EQ(unused.end % 4096, 0u);
  EXPECT_LT(unused.end - unused.begin, 4096u);
  const std::vector<Mapping> maps = ParseMaps(util::ReadProc(getpid(), "maps").value_or(""));
  EXPECT_TRUE(std::any_of(maps.begin(), maps.end(), [&](const Mapping& mapping) {
    return mapping.executable && unused.begin >= mapping.begin && unused.end <= mapping.end;
  }));
}

TEST(RemoteObject, MemoryThatIsNoObject_IsNone) {
  const std::string text(8192, 'x');
  EXPECT_FALSE(RemoteObject::Open(getpid(), reinterpret_cast<uint64_t>(text.data())).has_value());
  EXPECT_FALSE(RemoteObject::Open(getpid(), 0).has_value());
}

TEST(PythonText, AnyPath_IsALiteralWithoutQuotesInIt) {
  EXPECT_EQ(PythonText("/tmp/a-b.c"), "'/tmp/a-b.c'");
  EXPECT_EQ(PythonText("it's \\ \xff\n"), "'it\\x27s \\x5c \\udcff\\x0a'");
  EXPECT_EQ(PythonText("n\xc3\xa9"), "'n\xc3\xa9'");
}

#if defined(__x86_64__)
TEST(Detour, CallsThatHoldNoLockOfTheCLibrary_AreIdle) {
  for (const uint64_t call : std::initializer_list<uint64_t>{SYS_clock_nanosleep, SYS_poll,
                                                             SYS_epoll_wait, SYS_read, SYS_wait4})
    EXPECT_TRUE(IsIdleCall(call, 0)) << call;
  for (const uint64_t call :
       std::initializer_list<uint64_t>{SYS_write, SYS_mmap, SYS_ioctl, SYS_openat})
    EXPECT_FALSE(IsIdleCall(call, 0)) << call;
  constexpr uint64_t kSemaphore = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
  constexpr uint64_t kLockOfMalloc = FUTEX_WAIT | FUTEX_PRIVATE_FLAG;
  EXPECT_TRUE(IsIdleCall(SYS_futex, kSemaphore));
  EXPECT_FALSE(IsIdleCall(SYS_futex, kLockOfMalloc));
}

TEST(RemoteCode, OfATask_HoldsTheAddressesOfItsTextsAndItsSequence) {
  const RemoteTask task{.way = RemoteTask::Way::kLibrary,
                        .library = "/lib/probe.so",
                        .function = "begin",
                        .arguments = {"directory", "", "answer"}};
  constexpr uint64_t kPlace = 0x7f0000001230;
  const std::string code = CodeFor(task, RemoteProgram{}, kPlace, 7);
  EXPECT_EQ(code.size(), CodeSize(task));
  EXPECT_EQ(code.size() % sizeof(long), 0u);
  EXPECT_EQ(SequenceOf(code), 7u);
  EXPECT_EQ(SequenceOf(std::string(code.size(), '\0')), 0u);
  EXPECT_EQ(SequenceOf(code.substr(0, 100)), 0u);
  for (const char* const text : {"/lib/probe.so", "begin", "directory", "answer"}) {
    const uint64_t address = kPlace + code.find(text);
    const std::string bytes(reinterpret_cast<const char*>(&address), sizeof address);
    EXPECT_NE(code.find(bytes), std::string::npos) << text;
    EXPECT_EQ(code[code.find(text) + std::string(text).size()], '\0') << text;
  }
}

// Words are written one after the other, over zeros or older code.
TEST(RemoteCode, WriterKilledAtAnyWord_LeavesAPlaceForTheNext) {
  const std::string code = CodeFor({.text = "pass"}, {}, 0x1000, 7);
  bool has_sequence = false;
  for (size_t written = 0; written <= code.size(); written += sizeof(uint64_t)) {
    const std::string place = code.substr(0, written) + std::string(4096 - written, '\0');
    EXPECT_TRUE(SequenceOf(place) == 0 || SequenceOf(place) == 7);
    EXPECT_NE(IsUnfinished(place), SequenceOf(place) == 7) << written;
    has_sequence |= SequenceOf(place) == 7;
  }
  EXPECT_TRUE(has_sequence);
  std::string others(4096, '\0');
  others[4000] = 1;
  EXPECT_FALSE(IsUnfinished(others));
  EXPECT_FALSE(IsUnfinished(code.substr(0, 16) + others));
}

TEST(RemoteCode, ThisProcess_HasACLibraryAndNoPython) {
  const util::Result<RemoteProgram> program = FindProgram(getpid());
  ASSERT_TRUE(program.ok());
  EXPECT_TRUE(program->HasThreads());
  EXPECT_TRUE(program->HasLoader());
  EXPECT_FALSE(program->has_python);
  EXPECT_FALSE(program->has_driver);
  const auto function = reinterpret_cast<uint64_t>(&getpid);
  EXPECT_TRUE(std::any_of(
      program->c_library.begin(), program->c_library.end(),
      [&](const auto& range) { return range.begin <= function && function < range.end; }));
}
#endif

}  // namespace
}  // namespace vramscope::cli
