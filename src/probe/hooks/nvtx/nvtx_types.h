// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

// The parts of nvtx3/nvToolsExt.h that an NVTX injection needs, repeated here so that the probe
// builds without a CUDA toolkit. nvtx_abi_test.cc compares them with the real headers if it finds
// them.
//
// NVTX is a header: each binary that uses it has an instance of its own. At its first call an
// instance loads the library that NVTX_INJECTION64_PATH names and calls InitializeInjectionNvtx2
// with a function that leads to tables of function pointers, one table a module, indexed by
// callback id. The injection fills in what it wants; the rest becomes a test of a null pointer.
// libnvToolsExt.so, the library of older versions, does the same.
namespace vramscope::probe::nvtx {

using FunctionPointer = void (*)();

enum class Module : int { kCore = 1, kCore2 = 5 };

inline constexpr uint32_t kCallbacksTable = 1;
struct CallbacksTable {
  size_t struct_size;
  // Sets *table to the module's array of places of function pointers, *size to its length. 0 if the
  // module does not exist.
  int (*GetModuleFunctionTable)(Module module, FunctionPointer*** table, unsigned int* size);
};
using GetExportTable = const void* (*)(uint32_t id);

enum class CoreId : uint32_t {
  kMarkEx = 1,
  kMarkA = 2,
  kMarkW = 3,
  kRangePushEx = 8,
  kRangePushA = 9,
  kRangePushW = 10,
  kRangePop = 11,
  kNameOsThreadA = 14,
  kNameOsThreadW = 15,
};

enum class Core2Id : uint32_t {
  kDomainMarkEx = 1,
  kDomainRangePushEx = 4,
  kDomainRangePop = 5,
  kDomainRegisterStringA = 10,
  kDomainRegisterStringW = 11,
  kDomainCreateA = 12,
  kDomainCreateW = 13,
};

enum class MessageType : int32_t { kUnknown = 0, kAscii = 1, kUnicode = 2, kRegistered = 3 };

struct EventAttributes {
  uint16_t version;
  uint16_t size;  // of this structure, as the program knows it
  uint32_t category;
  int32_t color_type;
  uint32_t color;
  int32_t payload_type;
  int32_t payload_count;  // where payload_type is kExtendedPayload
  uint64_t payload;
  MessageType message_type;
  const void* message;  // const char*, const wchar_t* or a handle, by message_type
};

// The payload extension: an NVTX instance that uses it calls InitializeInjectionNvtxExtension with
// this. A slot that stays 0 is a function without a tool.
inline constexpr uint16_t kPayloadExtension = 2;
inline constexpr uint16_t kCountersExtension = 4;
struct ExtensionSegment {
  size_t id;
  size_t slot_count;
  intptr_t* slots;
};
struct ExtensionModule {
  uint16_t nvtx_version;
  uint16_t struct_size;
  uint16_t module_id;
  uint16_t compatibility_id;
  size_t segment_count;
  ExtensionSegment* segments;
  intptr_t (*get_export_function)(uint32_t id);
  const void* type_info;
};

// EventAttributes::payload points at PayloadData.
inline constexpr auto kExtendedPayload = static_cast<int32_t>(0xDFBD0009);
struct PayloadData {
  uint64_t schema_id;
  size_t size;
  const void* data;
};

// The layout of a payload, as the program registers it.
inline constexpr uint64_t kFirstStaticSchema = 1 << 24;
inline constexpr uint64_t kEntryInt = 5;
inline constexpr uint64_t kEntryUint64 = 18;
struct SchemaEntry {
  uint64_t flags;
  uint64_t type;
  const char* name;
  const char* description;
  uint64_t detail;
  uint64_t offset;
  const void* semantics;
  const void* reserved;
};
struct SchemaAttributes {
  uint64_t field_mask;  // which of the fields are said
  const char* name;
  uint64_t type;
  uint64_t flags;
  const SchemaEntry* entries;
  size_t entry_count;
  size_t static_size;
  size_t alignment;
  uint64_t schema_id;
  void* extension;
};
// Its entries, their number and its id.
inline constexpr uint64_t kSchemaNeeds = 1 << 4 | 1 << 5 | 1 << 8;

// The result of registering a schema without a tool.
inline constexpr uint64_t kNoSchema = ~uint64_t{0};

enum class PayloadId : uint32_t {
  kSchemaRegister = 0,
  kMarkPayload = 2,
  kRangePushPayload = 3,
  kRangePopPayload = 4,
  kScopeRegister = 12,
};

// What a counter belongs to, registered with the payload extension.
struct ScopeAttributes {
  size_t size;
  const char* path;
  uint64_t parent;
  uint64_t id;
};

// The counters extension.
enum class CounterCall : uint32_t {
  kRegister = 0,
  kSampleInt64 = 1,
  kSampleFloat64 = 2,
  kSampleNoValue = 4,
};
struct SemanticsHeader {
  uint32_t size;
  uint16_t id;
  uint16_t version;
  const SemanticsHeader* next;
};
inline constexpr uint16_t kCounterSemanticsId = 5;
inline constexpr uint16_t kCounterSemanticsVersion = 2;
// Only its first fields: limits follow.
struct CounterSemantics {
  SemanticsHeader header;
  uint64_t flags;
  const char* unit;
  uint64_t scale_numerator;
  uint64_t scale_denominator;
};
inline constexpr uint64_t kNormalize = 1 << 1;
inline constexpr uint64_t kValueType = 3 << 4;
inline constexpr uint64_t kDelta = 2 << 4;
inline constexpr uint64_t kDeltaSinceStart = 3 << 4;
struct CounterAttributes {
  size_t size;
  uint64_t schema_id;
  const char* name;
  const char* description;
  uint64_t scope_id;
  const SemanticsHeader* semantics;
  uint64_t id;
};
inline constexpr uint8_t kSampleZero = 0;

// Of counters and scopes: the tool chooses an id, or there is no tool; and the first such id.
inline constexpr uint64_t kNoId = 0;
inline constexpr uint64_t kFirstDynamicId = uint64_t{1} << 32;

// The result of push and pop if no tool tracks levels. The probe says the same, so that a program
// sees no difference.
inline constexpr int kNoPushPopTracking = -2;

}  // namespace vramscope::probe::nvtx
