// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/compiler.h"
#include "probe/session/source.h"

// PJRT plugins: the libraries through which JAX, torch_xla and others use XLA on a device. Each
// exports GetPjrtApi(), which returns a table of functions. The program gets a copy of the table in
// which some entries are the probe's wrappers:
//
//   dlopen("xla_cuda_plugin.so")    the probe opens it first, and its symbol table leads
//                                   GetPjrtApi to the probe (platform/symbol_table.h)
//   GetPjrtApi()                    the probe calls the plugin's own and copies what it returns
//   PJRT_LoadedExecutable_Execute   a wrapper of that plugin: calls the plugin's own, then records
//
// No header of XLA is needed: every function takes one pointer to a structure of 8-byte words,
// which begins with its size and grows only at its end.
namespace vramscope::probe {

extern const Source kPjrtSource;

// Reads how much of its pools XLA has in use, at an instant that the program named.
void PjrtMarkReading();

namespace pjrt {

// The words of an argument structure that all have.
inline constexpr size_t kSizeWord = 0, kFirstWord = 2, kSecondWord = 3;

using Word = uint64_t;
using Function = void* (*)(Word* arguments);  // returns an error or null

enum class Call : uint8_t {
#define VRAMSCOPE_PJRT_HOOK(name, place) k##name = place,
#define VRAMSCOPE_PJRT_CALL(name, place) k##name = place,
#include "probe/hooks/pjrt/pjrt_calls.def"
};

// Arguments for a call by the probe: `count` words, larger than any version's structure is today,
// of which the plugin reads as many as it knows.
template <size_t kCount>
struct Arguments {
  Word words[kCount] = {};
  explicit Arguments(const void* first) {
    words[kSizeWord] = sizeof words;
    words[kFirstWord] = reinterpret_cast<uintptr_t>(first);
  }
  template <class T>
  T Get(size_t word) const {
    T value;
    std::memcpy(&value, &words[word], sizeof value);
    return value;
  }
};

// What a structure of the program has at a word; 0 if it ends before.
inline Word WordAt(const Word* arguments, size_t word) {
  return arguments[kSizeWord] >= (word + 1) * sizeof(Word) ? arguments[word] : 0;
}
inline void* PointerAt(const Word* arguments, size_t word) {
  return reinterpret_cast<void*>(WordAt(arguments, word));
}

// One plugin. Its number is part of its wrappers.
struct Plugin {
  static constexpr size_t kHeaderWords = 5;  // size, extensions, a structure of the version
  static constexpr size_t kMostBytes = 8192;
  static constexpr size_t kMost = 4;  // at once

  std::atomic<void* (*)()> get_api;
  std::atomic<const Word*> real;  // the plugin's own table
  std::atomic<Word*> shown;       // the copy, once it is whole
  std::atomic<bool> is_copying;
  char path[256];
  alignas(Word) Word copy[kMostBytes / sizeof(Word)];

  // Null if the plugin does not have it.
  Function Get(Call call) const {
    const Word* const table = real.load(std::memory_order_relaxed);
    const size_t at = kHeaderWords + static_cast<size_t>(call);
    return table[kSizeWord] >= (at + 1) * sizeof(Word) ? reinterpret_cast<Function>(table[at])
                                                       : nullptr;
  }
  // Calls it; whether it succeeded. An error is destroyed.
  template <size_t kCount>
  bool Ask(Call call, Arguments<kCount>* arguments) const {
    const Function function = Get(call);
    if (function == nullptr)
      return false;
    void* const error = function(arguments->words);
    if (VRAMSCOPE_LIKELY(error == nullptr))
      return true;
    DestroyError(error);
    return false;
  }
  void DestroyError(void* error) const {
    if (const Function destroy = Get(Call::kError_Destroy); destroy != nullptr && error != nullptr)
      destroy(Arguments<4>(error).words);
  }
};

// Wrappers of one plugin: call the real entry once, with the program's arguments, and record what
// it did.
void* FromHost(const Plugin& plugin, Word* arguments);
void* Uninitialized(const Plugin& plugin, Word* arguments);
void* RetrieveBuffer(const Plugin& plugin, Word* arguments);
void* CopyToDevice(const Plugin& plugin, Word* arguments);
void* CopyToMemory(const Plugin& plugin, Word* arguments);
void* Donate(const Plugin& plugin, Word* arguments);
void* Delete(const Plugin& plugin, Word* arguments);
void* Destroy(const Plugin& plugin, Word* arguments);
void* Execute(const Plugin& plugin, Word* arguments);
void* DestroyExecutable(const Plugin& plugin, Word* arguments);
void* DestroyClient(const Plugin& plugin, Word* arguments);
void* ReadyEvent(const Plugin& plugin, Word* arguments);

size_t NumberOf(const Plugin& plugin);
const Plugin& PluginAt(size_t number);

// Other threads run on, or are gone (a child after fork).
void ForgetBuffers();
void ForgetPrograms();

}  // namespace pjrt
}  // namespace vramscope::probe
