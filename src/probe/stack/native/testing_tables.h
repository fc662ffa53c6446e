// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "probe/stack/native/cfi.h"

// Small unwinding tables, for tests and as a seed of the fuzzer.
namespace vramscope::probe::testing_tables {

// One binary with one function, at 0x1000 after the beginning of its tables.
class Tables {
 public:
  static constexpr uint32_t kFunction = 0x1000;
  static constexpr uint32_t kSize = 0x100;

  explicit Tables(std::vector<uint8_t> program, const char* augmentation = "zR") {
    // .eh_frame_hdr: version, encodings, where .eh_frame is, one row.
    Put<uint8_t>({1, 0x1b, 0x03, 0x3b});
    Put<int32_t>({16});
    Put<uint32_t>({1});
    const size_t row = bytes_.size();
    Put<int32_t>({static_cast<int32_t>(kFunction), 0});
    const size_t cie = bytes_.size();
    std::vector<uint8_t> body{0, 0, 0, 0, 1};
    for (const char* c = augmentation; *c != '\0'; ++c)
      body.push_back(static_cast<uint8_t>(*c));
    body.insert(body.end(), {0, 1, 0x78, 16, 1, 0x1b});  // code 1, data -8, ra; pcrel sdata4
    body.insert(body.end(), {0x0c, 7, 8, 0x90, 1});      // CFA = rsp + 8, ra below it
    PutEntry(body);
    const size_t fde = bytes_.size();
    body.assign({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0});
    const auto link = static_cast<uint32_t>(fde + 4 - cie);
    const auto begin = static_cast<int32_t>(kFunction - (fde + 8));
    std::memcpy(body.data(), &link, 4);
    std::memcpy(body.data() + 4, &begin, 4);
    std::memcpy(body.data() + 8, &kSize, 4);
    body.insert(body.end(), program.begin(), program.end());
    PutEntry(body);
    const auto offset = static_cast<int32_t>(fde);
    std::memcpy(bytes_.data() + row + 4, &offset, 4);
  }

  std::vector<uint8_t>& bytes() { return bytes_; }

  bool Find(uint32_t offset, CfiRules* rules) {
    header_ = {};
    header_.p_type = PT_LOAD;
    header_.p_flags = PF_R;
    header_.p_filesz = bytes_.size();
    const auto bias = reinterpret_cast<uintptr_t>(bytes_.data());
    const CodeModule module{bias, &header_, 1, bytes_.data()};
    return FindRules(module, bias + kFunction + offset, rules);
  }

 private:
  template <class T>
  void Put(std::initializer_list<T> values) {
    for (const T value : values) {
      const auto* const raw = reinterpret_cast<const uint8_t*>(&value);
      bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    }
  }
  void PutEntry(const std::vector<uint8_t>& body) {
    Put<uint32_t>({static_cast<uint32_t>(body.size())});
    bytes_.insert(bytes_.end(), body.begin(), body.end());
  }

  std::vector<uint8_t> bytes_;
  ElfW(Phdr) header_{};
};

// push rbp at 1; mov rbp, rsp at 4; leave at 0x20, in the middle.
inline const std::vector<uint8_t> kFramePointer{
    0x41, 0x0e, 16,   0x86, 2,  // advance 1: CFA = rsp + 16, rbp at CFA - 16
    0x43, 0x0d, 6,              // advance 3: CFA = rbp + 16
    0x5c, 0x0a, 0x0c, 7,    8,  // advance 28, remember, CFA = rsp + 8
    0xc6,                       // rbp is the caller's
    0x41, 0x0b,                 // advance 1, restore
};

}  // namespace vramscope::probe::testing_tables
