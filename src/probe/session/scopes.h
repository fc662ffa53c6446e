// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "format/layout.h"

// The scopes that a thread is in, as the program names them (annotate.h, NVTX ranges).
//
// A push touches its thread's memory alone: it keeps the name and updates one hash of the whole
// path. Only when an event comes, RecordScope compares that hash with the one that the stream wrote
// last, and where they differ the scopes are defined and the change written. So scopes without
// events leave nothing in the file, begin none, and go along through fork.
namespace vramscope::probe {

// Names are cut there, and deeper scopes count as the one around them.
inline constexpr size_t kMaxScopeNameBytes = 1024;
using format::kMaxScopeDepth;
inline constexpr char kNamelessScope[] = "(no name)";

// Pushes and pops are balanced within each domain: if ranges of two libraries overlap, a pop ends a
// range of its own domain.
inline constexpr uint64_t kAnnotateDomain = 0;
inline constexpr uint64_t kNvtxDomain = 1;  // NVTX without a domain; its domains have other values
inline constexpr uint64_t kKokkosDomain = 2;

// The scopes of one thread. Lives in zeroed pages, whose untouched ones cost nothing. A signal
// handler may push and pop at any instruction of a push.
class ScopeStack {
 public:
  struct Level {
    uint64_t path;  // hash of all names down to this one; 0 while a push is under way
    uint64_t name;  // hash of the name alone
    uint64_t domain;
    uint16_t size_bytes;
    uint8_t slot;  // where the text is, plus 1; 0: at the level's own number
  };

  // Beyond kMaxScopeDepth a scope is counted, but not kept.
  void Push(uint64_t domain, const char* name, size_t size_bytes);
  // Ends the innermost scope of the domain; nothing if there is none.
  void Pop(uint64_t domain);

  // Scopes that were not kept, since this was asked last.
  uint32_t TakeLost() {
    const uint32_t lost = lost_;
    lost_ = 0;
    return lost;
  }

  // Hash of the whole path, 0 outside of all scopes.
  uint64_t path() const { return path_; }
  uint32_t size() const { return size_; }
  const Level& level(uint32_t i) const { return levels_[i]; }
  const char* text(uint32_t i) const { return text_[SlotOf(i)]; }

 private:
  // Scopes beyond the depth limit that were not popped yet.
  struct Beyond {
    uint64_t domain;
    uint32_t count;
  };

  uint32_t SlotOf(uint32_t i) const { return levels_[i].slot != 0 ? levels_[i].slot - 1u : i; }
  bool PopBeyond(uint64_t domain);
  void Remove(uint32_t at);

  uint64_t path_;
  uint32_t size_;
  uint32_t lost_;
  uint32_t beyond_total_;
  Beyond beyond_[4];
  Level levels_[kMaxScopeDepth];
  char text_[kMaxScopeDepth][kMaxScopeNameBytes];
};

// Called once when the library is loaded.
void ScopesLoad();

// Act on the calling thread. Nothing if this process is not recorded.
void ScopePush(uint64_t domain, const char* name, size_t size_bytes);
// A program's text, which may be null or empty: without a name it still is a scope, so that its pop
// does not end the one around it.
void ScopePushText(uint64_t domain, const char* name);
void ScopePop(uint64_t domain);

// The size of `text` cut at `limit_bytes`, not within a character of UTF-8.
size_t CutText(const char* text, size_t limit_bytes);

}  // namespace vramscope::probe
