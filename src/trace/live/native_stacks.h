// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tables/dictionaries.h"
#include "trace/event.h"
#include "trace/live/definitions.h"
#include "trace/symbolize/native_symbols.h"

namespace vramscope::trace {

// The native stacks of one process. They are gathered first and given their names last: the
// binaries that were mapped are described by any of its threads, often after the stack.
class NativeStacks {
 public:
  // Where a stack's table entry goes in the logs of its file.
  struct Slot {
    size_t stream = 0;
    size_t log_index = 0;
  };

  // What a stack and a described binary take, for the reader's budget.
  static constexpr uint64_t kBytesOfStack = 96;
  static uint64_t BytesOf(const format::Image& image) {
    return 512 + 2 * (image.path.size + image.build_id.size);
  }

  // `parent` is what Add() returned for the caller's stack, 0 for the outermost one. Returns a
  // number for this stack, from 1.
  uint32_t Add(uint32_t parent, uint64_t pc, Slot slot);
  // A mapped binary as a stream describes it; an empty path is the program itself.
  void AddImage(size_t stream, const format::Image& image);

  // Enters all stacks into the tables and writes their entries to their slots.
  void Resolve(const std::string& executable,
               tables::Dictionaries* dictionaries,
               NativeSymbols* symbols,
               std::vector<DefinitionLog>* logs);

 private:
  struct Stack {
    uint32_t parent;
    uint64_t pc;
    Slot slot;
  };
  struct Image {
    uint64_t begin;
    uint64_t end;
    uint64_t bias;
    std::string path;
    std::string build_id;
    bool operator<(const Image& other) const;
  };
  // Which image a stream described, and how many stacks there were then.
  struct Mention {
    uint32_t image;
    size_t stack_count;
  };
  static constexpr uint32_t kNoImage = 0xffffffff;

  // Which binary stood at an address last: each one that is laid down covers what was there.
  class AddressMap {
   public:
    void Cover(const Image& image, uint32_t id);
    uint32_t At(uint64_t address) const;

   private:
    struct Piece {
      uint64_t end;
      uint32_t image;
    };
    std::map<uint64_t, Piece> pieces_;  // by their begin; they do not overlap
  };

  std::vector<uint32_t> FindImages() const;
  FrameId AddFrame(uint64_t pc,
                   uint32_t image,
                   const std::string& executable,
                   tables::Dictionaries* dictionaries,
                   NativeSymbols* symbols);

  std::vector<Stack> stacks_;
  std::vector<Image> images_;
  std::map<Image, uint32_t> image_ids_;
  std::unordered_map<size_t, std::vector<Mention>> mentions_;  // by stream
};

}  // namespace vramscope::trace
