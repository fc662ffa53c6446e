// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "format/layout.h"

namespace vramscope::fuzz {

// Changes live files in two ways.
//
// Damage() does what disks, memory and crashes do: bits, sectors and pages change, the end is
// missing. Nothing is put right afterwards, so a reader has to notice whatever it changes.
//
// Forge() imitates an attacker with knowledge of the format: it changes records, chunks and
// headers, and then corrects lengths and checksums. A reader believes it, and has to stay within
// its
// bounds all the same.
class LiveMutator {
 public:
  explicit LiveMutator(uint64_t seed) : rng_(seed) {}

  std::string Damage(std::string file);
  std::string Forge(const std::string& file);
  // The same with chunks and records of another file too.
  std::string Cross(const std::string& file, const std::string& other);
  // Text with anything in it that JSON can be hard to read for.
  std::string ForgeJson(std::string text);

 private:
  struct Chunk {
    std::string header;                // sizeof(ChunkHeader)
    std::vector<std::string> records;  // each with type and length
  };
  struct Image {
    std::string header;  // a page
    std::vector<Chunk> chunks;
  };

  static Image Parse(const std::string& file);
  static std::string Assemble(const Image& image);

  // From 0 up to limit - 1.
  uint64_t Below(uint64_t limit) { return limit == 0 ? 0 : rng_() % limit; }
  uint64_t Interesting();
  std::string SomeText();
  void ChangeField(std::string* record);
  std::string SomeRecord();
  void ChangeRecords(Chunk* chunk);
  void ChangeChunks(Image* image);
  void ChangeHeader(std::string* header);
  // Many records that are small here and could be large to who reads them.
  void AddBomb(Image* image);

  std::mt19937_64 rng_;
};

}  // namespace vramscope::fuzz
