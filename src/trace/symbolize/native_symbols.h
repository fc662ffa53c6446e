// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace vramscope::trace {

// Names of functions, and source lines if the binary has them. They come from the binaries of the
// recording machine: a trace is symbolised there, when it is finished or read live, because other
// machines have other binaries. Looks at the binary itself and at separate debug files under
// /usr/lib/debug; never at the network.
class NativeSymbols {
 public:
  struct Symbol {
    std::string function;  // demangled; "" when not known
    std::string file;      // "" when not known
    uint32_t line = 0;
  };

  NativeSymbols();
  ~NativeSymbols();
  NativeSymbols(const NativeSymbols&) = delete;
  NativeSymbols& operator=(const NativeSymbols&) = delete;

  // The symbol at `address` (as the binary was linked, not as it was loaded) of the binary at
  // `path`. Nothing if its build id is not `build_id` any more; an empty id is not compared.
  Symbol Find(const std::string& path, const std::string& build_id, uint64_t address);

 private:
  class Binary;
  std::map<std::string, std::unique_ptr<Binary>> binaries_;
};

// `name` as C++ source writes it if it is a mangled name; otherwise unchanged.
std::string Demangled(const std::string& name);

}  // namespace vramscope::trace
