// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/records.h"
#include "tables/dictionaries.h"
#include "trace/event.h"
#include "trace/python/lines.h"
#include "trace/symbolize/native_symbols.h"

// A live file defines its strings, stacks and threads as it goes, numbered within each stream. The
// reader goes over every stream twice. The first pass enters all definitions into the tables of the
// Trace and logs, in order, the table entry of each. Later passes, which stream events, take the
// entries from that log. So ids that a writer uses anew resolve rightly, and the tables are
// complete before the first event is seen.
namespace vramscope::trace {

// The definitions of one stream, by local id.
class LocalIds {
 public:
  // The value of an id that was never defined.
  static constexpr uint32_t kUndefined = 0xffffffff;

  void Set(uint64_t local, uint32_t global);
  // The table entry; 0 for local id 0. Each event asks twice: no std::optional, which is stored in
  // parts and read as a whole, while the processor waits.
  uint32_t Find(uint64_t local) const {
    return local < dense_.size() ? dense_[local] : FindSparse(local);
  }
  // The same with 0, none, for what was never defined.
  uint32_t FindOrNone(uint64_t local) const {
    const uint32_t found = Find(local);
    return found == kUndefined ? 0 : found;
  }

 private:
  uint32_t FindSparse(uint64_t local) const;

  // Ids are small and dense, but all kinds may share one counter and a file may be false: a table
  // grows only in proportion to its contents, and larger ids go to a map.
  std::vector<uint32_t> dense_ = std::vector<uint32_t>(1);
  std::unordered_map<uint64_t, uint32_t> sparse_;
  size_t count_ = 0;
};

struct StreamIds {
  LocalIds strings;
  LocalIds python_stacks;
  LocalIds native_stacks;
  LocalIds scopes;
};

// The first pass's log of one stream, in order of the definitions.
using DefinitionLog = std::vector<uint32_t>;

// Python stacks of one stream, as far as only the first pass needs them.
class PythonStacks {
 public:
  explicit PythonStacks(tables::Dictionaries* dictionaries) : dictionaries_(dictionaries) {}

  void AddCode(const format::PyCode& code, const LocalIds& strings);
  // The table entry of that stack, whose caller's is `parent`. A frame whose code is not
  // known (it was defined in a damaged part), or of the interpreter, is left out of the stack.
  StackId AddStack(StackId parent, const format::PyStack& stack);

 private:
  struct Code {
    StringId file;
    StringId name;
    PythonLineTable lines;
  };
  tables::Dictionaries* dictionaries_;
  LocalIds code_ids_;
  std::vector<Code> codes_ = std::vector<Code>(1);
};

// The native stacks of one process. They are gathered first and given their names last: the
// binaries that were mapped are described by any of its threads, often after the stack.
class NativeStacks {
 public:
  // The place of a stack's table entry in the logs of its file.
  struct Slot {
    size_t stream = 0;
    size_t log_index = 0;
  };

  // The memory of a stack and of a described binary, for the reader's budget.
  static constexpr uint64_t kBytesOfStack = 96;
  static uint64_t BytesOf(const format::Image& image) {
    return 512 + 2 * (image.path.size + image.build_id.size);
  }

  // `parent` is what Add() returned for the caller's stack, 0 for the outermost one. Returns a
  // number for this stack, from 1.
  uint32_t Add(uint32_t parent, uint64_t pc, Slot slot);
  // A mapped binary as a stream describes it; an empty path is the program itself.
  void AddImage(size_t stream, const format::Image& image);

  // Enters all stacks into the tables and writes their entries to their slots; later calls those
  // that are new.
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
  // An image that a stream described, and the number of stacks at that time.
  struct Mention {
    uint32_t image;
    size_t stack_count;
  };
  static constexpr uint32_t kNoImage = 0xffffffff;

  // Finds the binary that was last mapped at an address: each new mapping covers the older ones.
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
  std::map<std::pair<uint64_t, uint32_t>, FrameId> frames_;  // by pc and image
  std::vector<StackId> resolved_;                            // the first of `stacks_`
  std::vector<Image> images_;
  std::map<Image, uint32_t> image_ids_;
  std::unordered_map<size_t, std::vector<Mention>> mentions_;  // by stream
};

}  // namespace vramscope::trace
