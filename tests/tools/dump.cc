// SPDX-License-Identifier: Apache-2.0
// vramscope_dump FILE.vrl: every record of a live file as one JSON object a line, in file order.
// For tests: string ids are replaced by their text, byte fields printed as text or hexadecimal.
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/decoder.h"
#include "format/layout.h"
#include "format/records.h"

namespace {

using namespace vramscope;

using Strings = std::map<uint64_t, std::string>;

std::string Quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte >= 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + '"';
}

struct PrintVisitor {
  const Strings& strings;
  bool resolves;  // this record's `api` and `name` are string ids
  std::string out;

  void Add(const char* field, const std::string& value) {
    out += ", \"" + std::string(field) + "\": " + value;
  }
  void Time(const char* field, uint64_t value) { Add(field, std::to_string(value)); }
  void Address(const char* field, uint64_t value) { Add(field, std::to_string(value)); }
  void Sint(const char* field, int64_t value) { Add(field, std::to_string(value)); }
  void Blob(const char* field, const format::Bytes& value) {
    Add(field, Quote({value.data, value.size}));
  }
  void Uint(const char* field, uint64_t value) {
    const std::string_view name = field;
    if (!resolves || (name != "api" && name != "name"))
      return Add(field, std::to_string(value));
    const auto text = strings.find(value);
    Add(field, text != strings.end() ? Quote(text->second) : "null");
  }
};

template <class Record>
bool Print(const format::RawRecord& raw,
           uint32_t stream,
           format::DeltaState* delta,
           Strings* strings) {
  Record record;
  if (!format::Decode(raw, delta, &record))
    return false;
  if constexpr (std::is_same_v<Record, format::String>) {
    (*strings)[record.id] = std::string(record.text.data, record.text.size);
  }
  PrintVisitor visitor{*strings, !std::is_same_v<Record, format::PyCode>, {}};
  VisitFields(visitor, record);
  std::printf("{\"record\": \"%s\", \"stream\": %u%s}\n", format::RecordName(raw.type), stream,
              visitor.out.c_str());
  return true;
}

bool PrintAny(const format::RawRecord& raw,
              uint32_t stream,
              format::DeltaState* delta,
              Strings* strings) {
  switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc) \
  case id:                              \
    return Print<format::Name>(raw, stream, delta, strings);
#include "format/records.def"
    default:
      return false;
  }
}

int Dump(const char* path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), {});
  if (bytes.size() < format::kPageBytes ||
      std::memcmp(bytes.data(), format::kFileMagic, sizeof format::kFileMagic) != 0) {
    std::fprintf(stderr, "vramscope_dump: %s is no live file\n", path);
    return 2;
  }
  std::map<uint32_t, Strings> strings;
  size_t at = format::kPageBytes;
  while (at + sizeof(format::ChunkHeader) <= bytes.size()) {
    format::ChunkHeader header;
    std::memcpy(static_cast<void*>(&header), bytes.data() + at, sizeof header);
    if (header.magic != format::kChunkMagic || header.size_bytes < sizeof header) {
      at += format::kPageBytes;
      continue;
    }
    const auto* cursor = reinterpret_cast<const uint8_t*>(bytes.data() + at + sizeof header);
    const uint8_t* const end = cursor + header.committed_bytes.load();
    format::DeltaState delta{.time = header.base_ticks, .address = 0};
    format::RawRecord raw;
    while (cursor < end) {
      if (!format::NextRecord(&cursor, end, &raw) ||
          !PrintAny(raw, header.stream, &delta, &strings[header.stream])) {
        std::fprintf(stderr, "vramscope_dump: damaged record at %zu\n", at);
        return 1;
      }
    }
    at += header.size_bytes;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: vramscope_dump FILE.vrl\n");
    return 2;
  }
  return Dump(argv[1]);
}
