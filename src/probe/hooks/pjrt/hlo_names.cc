// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/pjrt/hlo_names.h"

#include <sys/mman.h>

#include <cstring>

// The few fields of xla/service/hlo.proto that are needed, read without a copy: of the parts that
// do not matter only the length is looked at.
namespace vramscope::probe::pjrt {
namespace {

constexpr uint32_t kMostNames = 65536;
constexpr uint32_t kMostTextBytes = 1024;

struct Bytes {
  const uint8_t* at = nullptr;
  const uint8_t* end = nullptr;

  bool empty() const { return at >= end; }
};

struct Field {
  uint32_t number = 0;
  uint64_t value = 0;  // of a varint
  Bytes bytes;         // of a message or text
};

bool ReadVarint(Bytes* in, uint64_t* value) {
  *value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (in->empty())
      return false;
    const uint8_t byte = *in->at++;
    *value |= uint64_t{byte & 0x7fu} << shift;
    if ((byte & 0x80) == 0)
      return true;
  }
  return false;
}

// False at the end, or where the bytes are no protobuf.
bool ReadField(Bytes* in, Field* field) {
  enum : uint64_t { kVarint = 0, kFixed64 = 1, kLength = 2, kFixed32 = 5 };
  uint64_t tag = 0, size = 0;
  if (in->empty() || !ReadVarint(in, &tag))
    return false;
  field->number = static_cast<uint32_t>(tag >> 3);
  field->bytes = {};
  field->value = 0;
  switch (tag & 7) {
    case kVarint:
      return ReadVarint(in, &field->value);
    case kFixed64:
      size = 8;
      break;
    case kFixed32:
      size = 4;
      break;
    case kLength:
      if (!ReadVarint(in, &size))
        return false;
      break;
    default:
      return false;
  }
  if (size > static_cast<uint64_t>(in->end - in->at))
    return false;
  field->bytes = {in->at, in->at + size};
  in->at += size;
  return true;
}

Bytes FirstOf(Bytes message, uint32_t number) {
  Field field;
  while (ReadField(&message, &field)) {
    if (field.number == number)
      return field.bytes;
  }
  return {};
}

bool Equals(Bytes text, const char* other) {
  const size_t size = std::strlen(other);
  return static_cast<size_t>(text.end - text.at) == size && std::memcmp(text.at, other, size) == 0;
}

struct Module {
  Bytes entry;    // HloComputationProto
  Bytes aliases;  // HloInputOutputAliasProto
};

Module FindParts(const Bytes module) {
  enum : uint32_t { kComputations = 3, kEntryId = 6, kAliases = 8, kComputationId = 5 };
  Module parts;
  uint64_t entry_id = 0;
  Field field, inner;
  for (Bytes in = module; ReadField(&in, &field);) {
    if (field.number == kEntryId)
      entry_id = field.value;
    else if (field.number == kAliases)
      parts.aliases = field.bytes;
  }
  for (Bytes in = module; ReadField(&in, &field);) {
    if (field.number != kComputations)
      continue;
    for (Bytes computation = field.bytes; ReadField(&computation, &inner);) {
      if (inner.number == kComputationId && inner.value == entry_id)
        parts.entry = field.bytes;
    }
  }
  return parts;
}

// Calls visit(number, name) for each named parameter.
template <class Visit>
void ForEachParameter(Bytes computation, Visit visit) {
  enum : uint32_t { kInstructions = 2, kOpcode = 2, kMetadata = 7, kNumber = 9, kOpName = 2 };
  Field field, inner;
  while (ReadField(&computation, &field)) {
    if (field.number != kInstructions || !Equals(FirstOf(field.bytes, kOpcode), "parameter"))
      continue;
    uint64_t number = 0;
    Bytes name;
    for (Bytes instruction = field.bytes; ReadField(&instruction, &inner);) {
      if (inner.number == kNumber)
        number = inner.value;
      else if (inner.number == kMetadata)
        name = FirstOf(inner.bytes, kOpName);
    }
    if (number < kMostNames && !name.empty())
      visit(static_cast<uint32_t>(number), name);
  }
}

// Calls visit(result, parameter) for each result that takes the memory of a whole argument.
template <class Visit>
void ForEachAlias(Bytes aliases, Visit visit) {
  enum : uint32_t { kEntries = 1, kResultIndex = 1, kParameter = 2, kParameterIndex = 3 };
  Field field, inner;
  while (ReadField(&aliases, &field)) {
    if (field.number != kEntries)
      continue;
    uint64_t result = 0, parameter = 0;
    bool is_whole = true;
    for (Bytes entry = field.bytes; ReadField(&entry, &inner);) {
      if (inner.number == kResultIndex && inner.bytes.at != nullptr) {
        Bytes index = inner.bytes;
        is_whole &= index.empty() || (ReadVarint(&index, &result) && index.empty());
      } else if (inner.number == kResultIndex) {
        result = inner.value;
      } else if (inner.number == kParameter) {
        parameter = inner.value;
      } else if (inner.number == kParameterIndex) {
        is_whole &= inner.bytes.at != nullptr && inner.bytes.empty();
      }
    }
    if (is_whole && result < kMostNames && parameter < kMostNames)
      visit(static_cast<uint32_t>(result), static_cast<uint32_t>(parameter));
  }
}

}  // namespace

HloNames* HloNames::Read(const uint8_t* proto, size_t size, bool has_config) {
  constexpr uint32_t kModule = 1;
  Bytes bytes{proto, proto + size};
  const Module module = FindParts(has_config ? FirstOf(bytes, kModule) : bytes);
  uint32_t arguments = 0, results = 0;
  size_t text_bytes = 0;
  ForEachParameter(module.entry, [&](uint32_t number, Bytes name) {
    arguments = number >= arguments ? number + 1 : arguments;
    text_bytes += static_cast<size_t>(name.end - name.at);
  });
  if (arguments == 0)
    return nullptr;
  ForEachAlias(module.aliases, [&](uint32_t result, uint32_t) {
    results = result >= results ? result + 1 : results;
  });
  const size_t mapped =
      sizeof(HloNames) + (size_t{arguments} + results) * sizeof(Text) + text_bytes;
  void* const pages =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED)
    return nullptr;
  auto* const names = static_cast<HloNames*>(pages);
  names->mapped_bytes_ = mapped;
  names->argument_count_ = arguments;
  names->result_count_ = results;
  char* out = reinterpret_cast<char*>(names->texts() + arguments + results);
  ForEachParameter(module.entry, [&](uint32_t number, Bytes name) {
    const auto name_size = static_cast<size_t>(name.end - name.at);
    std::memcpy(out, name.at, name_size);
    names->texts()[number] = {
        out, name_size < kMostTextBytes ? static_cast<uint32_t>(name_size) : kMostTextBytes};
    out += name_size;
  });
  ForEachAlias(module.aliases, [&](uint32_t result, uint32_t parameter) {
    names->texts()[arguments + result] = names->Argument(parameter);
  });
  return names;
}

void HloNames::Free(HloNames* names) {
  if (names != nullptr)
    munmap(names, names->mapped_bytes_);
}

}  // namespace vramscope::probe::pjrt
