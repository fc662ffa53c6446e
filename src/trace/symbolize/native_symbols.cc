// SPDX-License-Identifier: Apache-2.0
#include "trace/symbolize/native_symbols.h"

#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace vramscope::trace {
namespace {

// Longer names are template expansions that are never read to the end, and the demangler's
// recursion grows with their length.
constexpr size_t kMaxSymbolBytes = 4096;

char* g_debuginfo_path = nullptr;  // libdw's default

// By build id only: the standard callbacks would also ask debuginfod servers over the network.
const Dwfl_Callbacks kCallbacks = {
    .find_elf = dwfl_build_id_find_elf,
    .find_debuginfo = dwfl_build_id_find_debuginfo,
    .section_address = dwfl_offline_section_address,
    .debuginfo_path = &g_debuginfo_path,
};

bool IsRegularFile(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace

std::string Demangled(const std::string& name) {
  if (name.compare(0, 2, "_Z") != 0 || name.size() > kMaxSymbolBytes)
    return name;
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  if (text == nullptr)
    return name;
  std::string result(text);
  std::free(text);
  return result;
}

// One ELF file. Its symbols are sorted once: libdw searches them all for every address.
class NativeSymbols::Binary {
 public:
  Binary(const std::string& path, const std::string& build_id) {
    if (!IsRegularFile(path))
      return;
    dwfl_ = dwfl_begin(&kCallbacks);
    if (dwfl_ == nullptr)
      return;
    dwfl_report_begin(dwfl_);
    module_ = dwfl_report_offline(dwfl_, path.c_str(), path.c_str(), -1);
    dwfl_report_end(dwfl_, nullptr, nullptr);
    if (module_ == nullptr || dwfl_module_getelf(module_, &bias_) == nullptr ||
        !HasBuildId(build_id)) {
      module_ = nullptr;
      return;
    }
    ReadSymbols();
  }
  ~Binary() {
    if (dwfl_ != nullptr)
      dwfl_end(dwfl_);
  }
  Binary(const Binary&) = delete;
  Binary& operator=(const Binary&) = delete;

  Symbol Find(uint64_t address) const {
    Symbol symbol;
    if (module_ == nullptr)
      return symbol;
    const auto after = std::upper_bound(
        functions_.begin(), functions_.end(), address,
        [](uint64_t value, const Function& function) { return value < function.begin; });
    if (after != functions_.begin()) {
      const Function& function = *(after - 1);
      if (address - function.begin < function.size) {
        // Without the symbol's version: strtol@@GLIBC_2.2.5.
        const std::string_view name = function.name;
        symbol.function = Demangled(std::string(name.substr(0, name.find('@'))));
      }
    }
    if (Dwfl_Line* line = dwfl_module_getsrc(module_, address + bias_)) {
      int number = 0;
      const char* file = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
      if (file != nullptr) {
        symbol.file = file;
        symbol.line = number > 0 ? static_cast<uint32_t>(number) : 0;
      }
    }
    return symbol;
  }

 private:
  struct Function {
    uint64_t begin;
    uint64_t size;
    const char* name;  // belongs to libdw
  };

  bool HasBuildId(const std::string& expected) const {
    if (expected.empty())
      return true;
    const unsigned char* bits = nullptr;
    GElf_Addr address = 0;
    const int length = dwfl_module_build_id(module_, &bits, &address);
    return length > 0 && static_cast<size_t>(length) == expected.size() &&
           std::memcmp(bits, expected.data(), expected.size()) == 0;
  }

  // Bytes of instructions from `address` to the end of its section; 0 if it holds none: _end,
  // _edata and the like are not functions.
  static uint64_t CodeBytesFrom(Elf* elf, GElf_Word section, uint64_t address) {
    if (section == SHN_UNDEF || section >= SHN_LORESERVE)
      return 0;
    GElf_Shdr header;
    Elf_Scn* found = elf_getscn(elf, section);
    if (found == nullptr || gelf_getshdr(found, &header) == nullptr ||
        (header.sh_flags & SHF_EXECINSTR) == 0 || address - header.sh_addr >= header.sh_size) {
      return 0;
    }
    return header.sh_addr + header.sh_size - address;
  }

  void ReadSymbols() {
    const int count = dwfl_module_getsymtab(module_);
    for (int i = 0; i < count; ++i) {
      GElf_Sym symbol;
      GElf_Addr address = 0;
      GElf_Word section = 0;
      Elf* elf = nullptr;
      const char* name =
          dwfl_module_getsym_info(module_, i, &symbol, &address, &section, &elf, nullptr);
      if (name == nullptr || *name == '\0')
        continue;
      const auto type = GELF_ST_TYPE(symbol.st_info);
      if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE)
        continue;
      const uint64_t room = CodeBytesFrom(elf, section, symbol.st_value);
      if (room == 0)
        continue;
      // Hand-written assembly has no sizes: such a symbol reaches to the next one.
      functions_.push_back({address - bias_, symbol.st_size != 0 ? symbol.st_size : room, name});
    }
    // Several names for one address are equivalent, but the choice must be stable.
    std::sort(functions_.begin(), functions_.end(), [](const Function& a, const Function& b) {
      return a.begin != b.begin ? a.begin < b.begin : std::strcmp(a.name, b.name) > 0;
    });
  }

  Dwfl* dwfl_ = nullptr;
  Dwfl_Module* module_ = nullptr;
  GElf_Addr bias_ = 0;
  std::vector<Function> functions_;
};

NativeSymbols::NativeSymbols() = default;
NativeSymbols::~NativeSymbols() = default;

NativeSymbols::Symbol NativeSymbols::Find(const std::string& path,
                                          const std::string& build_id,
                                          uint64_t address) {
  std::unique_ptr<Binary>& binary = binaries_[path + '\0' + build_id];
  if (binary == nullptr)
    binary = std::make_unique<Binary>(path, build_id);
  return binary->Find(address);
}

}  // namespace vramscope::trace
