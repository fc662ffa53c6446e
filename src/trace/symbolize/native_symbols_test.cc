// SPDX-License-Identifier: Apache-2.0
#include "trace/symbolize/native_symbols.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <string>

namespace vramscope::trace {

// Outside the anonymous namespace, so that it has a name that does not depend on the compiler.
__attribute__((noinline)) int SymbolizedHere(int x) {
  return x * 2 + 1;
}

namespace {

uint64_t LoadBias(const void* address) {
  Dl_info info{};
  link_map* map = nullptr;
  EXPECT_NE(dladdr1(address, &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP), 0);
  return map->l_addr;
}

std::string OwnPath() {
  char path[4096] = {};
  EXPECT_GT(readlink("/proc/self/exe", path, sizeof path - 1), 0);
  return path;
}

TEST(NativeSymbols, FindsAFunctionOfThisProgram) {
  const auto address = reinterpret_cast<uint64_t>(&SymbolizedHere);
  NativeSymbols symbols;
  const auto symbol =
      symbols.Find(OwnPath(), "", address + 1 - LoadBias(reinterpret_cast<void*>(address)));
  EXPECT_EQ(symbol.function, "vramscope::trace::SymbolizedHere(int)");
  // The line where the build has debug information.
  if (!symbol.file.empty()) {
    EXPECT_NE(symbol.file.find("native_symbols_test.cc"), std::string::npos);
    EXPECT_NEAR(symbol.line, 17, 3);
  }
}

TEST(NativeSymbols, FindsAFunctionOfASharedLibraryWithoutSymtab) {
  const void* address = dlsym(RTLD_DEFAULT, "strtol");
  ASSERT_NE(address, nullptr);
  Dl_info info{};
  ASSERT_NE(dladdr(address, &info), 0);
  NativeSymbols symbols;
  const auto symbol =
      symbols.Find(info.dli_fname, "", reinterpret_cast<uint64_t>(address) + 1 - LoadBias(address));
  EXPECT_NE(symbol.function.find("strto"), std::string::npos) << symbol.function;
  EXPECT_EQ(symbol.function.find('@'), std::string::npos) << symbol.function;
}

TEST(NativeSymbols, SaysNothingAboutWhatIsNotThere) {
  NativeSymbols symbols;
  EXPECT_EQ(symbols.Find("/no/such/file", "", 4096).function, "");
  EXPECT_EQ(symbols.Find("/proc/self/maps", "", 4096).function, "");
  EXPECT_EQ(symbols.Find("/dev/zero", "", 4096).function, "");
  EXPECT_EQ(symbols.Find(OwnPath(), "another build", 4096).function, "");
  EXPECT_EQ(symbols.Find(OwnPath(), "", ~uint64_t{0}).function, "");
  EXPECT_EQ(symbols.Find(__FILE__, "", 4096).function, "");
}

TEST(NativeSymbols, Demangles) {
  EXPECT_EQ(Demangled("_ZN3c106detail4nameEv"), "c10::detail::name()");
  EXPECT_EQ(Demangled("cuMemAlloc_v2"), "cuMemAlloc_v2");
  EXPECT_EQ(Demangled("_Znonsense"), "_Znonsense");
}

}  // namespace
}  // namespace vramscope::trace
