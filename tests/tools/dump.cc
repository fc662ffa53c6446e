// SPDX-License-Identifier: Apache-2.0
// vramscope_dump FILE.vrl: every record of a live file as one JSON object a line, in file order.
// For tests: string ids are replaced by their text, byte fields printed as text or hexadecimal, and
// "in" says the path of the scopes around a record.
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

// What the records of one stream have defined so far.
struct Stream {
  Strings strings;
  Strings scopes;     // paths
  std::string scope;  // the one that the thread is in
};

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
  std::string_view text_ids;  // this record's fields that are string ids, each in spaces
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
    if (text_ids.find(' ' + std::string(field) + ' ') == std::string_view::npos)
      return Add(field, std::to_string(value));
    const auto text = strings.find(value);
    Add(field, text != strings.end() ? Quote(text->second) : "null");
  }
};

template <class Record>
constexpr std::string_view TextIds() {
  if constexpr (std::is_same_v<Record, format::PyCode>)
    return "";
  if constexpr (std::is_same_v<Record, format::Name>)
    return " name detail ";
  if constexpr (std::is_same_v<Record, format::Module>)
    return " path type ";
  return " api name ";
}

template <class Record>
bool Print(const format::RawRecord& raw,
           uint32_t number,
           format::DeltaState* delta,
           Stream* stream) {
  Record record;
  if (!format::Decode(raw, delta, &record))
    return false;
  if constexpr (std::is_same_v<Record, format::String>) {
    stream->strings[record.id] = std::string(record.text.data, record.text.size);
  } else if constexpr (std::is_same_v<Record, format::Scope>) {
    const std::string parent = record.parent != 0 ? stream->scopes[record.parent] + "/" : "";
    stream->scopes[record.id] = parent + stream->strings[record.name];
  } else if constexpr (std::is_same_v<Record, format::ScopeIs>) {
    stream->scope = record.scope != 0 ? stream->scopes[record.scope] : "";
  }
  PrintVisitor visitor{stream->strings, TextIds<Record>(), {}};
  VisitFields(visitor, record);
  if (!stream->scope.empty())
    visitor.Add("in", Quote(stream->scope));
  std::printf("{\"record\": \"%s\", \"stream\": %u%s}\n", format::RecordName(raw.type), number,
              visitor.out.c_str());
  return true;
}

bool PrintAny(const format::RawRecord& raw,
              uint32_t number,
              format::DeltaState* delta,
              Stream* stream) {
  switch (raw.type) {
#define VRAMSCOPE_RECORD(Name, id, doc) \
  case id:                              \
    return Print<format::Name>(raw, number, delta, stream);
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
  std::map<uint32_t, Stream> streams;
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
    Stream& stream = streams[header.stream];
    stream.scope.clear();
    while (cursor < end) {
      if (!format::NextRecord(&cursor, end, &raw) ||
          !PrintAny(raw, header.stream, &delta, &stream)) {
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
