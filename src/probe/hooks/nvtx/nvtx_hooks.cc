// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstring>

#include "base/compiler.h"
#include "format/records.h"
#include "probe/hooks/nvtx/nvtx.h"
#include "probe/platform/dynamic.h"
#include "probe/session/scopes.h"
#include "probe/session/session.h"
#include "probe/session/stream.h"
#include "probe/stack/native/unwind.h"

// Ranges of a thread (push and pop) become scopes, marks become marks. Ranges of the process
// (start and end, which any thread may end) say nothing of where an allocation was made, so those
// functions stay as they are without a tool. Nor do ranges and marks in a domain that a library
// made for itself: NCCL's are NCCL's steps, and no layer of the program. They say which
// communicator its memory belongs to.
namespace vramscope::probe::nvtx {
namespace {

constexpr int kMaxUtf8Bytes = 4;

// Writes the code point and returns the byte after it. A value that is not a Unicode scalar (a lone
// surrogate, a number beyond the last plane) becomes U+FFFD.
char* PutUtf8(char* out, uint32_t c) {
  if (c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
    c = 0xfffd;
  if (c < 0x80) {
    *out++ = static_cast<char>(c);
    return out;
  }
  if (c < 0x800) {
    *out++ = static_cast<char>(0xc0 | (c >> 6));
  } else {
    if (c < 0x10000) {
      *out++ = static_cast<char>(0xe0 | (c >> 12));
    } else {
      *out++ = static_cast<char>(0xf0 | (c >> 18));
      *out++ = static_cast<char>(0x80 | ((c >> 12) & 0x3f));
    }
    *out++ = static_cast<char>(0x80 | ((c >> 6) & 0x3f));
  }
  *out++ = static_cast<char>(0x80 | (c & 0x3f));
  return out;
}

// A program's own domains come from its executable, from libraries of its own and from Python's
// nvtx package, so that a domain comes from some library says nothing. Known are the libraries that
// GPU programs are built on, by their file names; and by the names of their domains where they were
// linked into something else, or are headers.
constexpr const char* kDomains[] = {"NCCL", "NVSHMEM", "CCCL", "CUB", "Thrust", "UCX"};

constexpr const char* kFilePrefixes[] = {
    "libnccl",     "libnvshmem", "libcublas", "libcudnn", "libcufft", "libcusolver", "libcusparse",
    "libcutensor", "libnvinfer", "libtorch",  "libc10",   "libcudf",  "librmm",      "libraft",
    "libcuml",     "libkvikio",  "libucp",    "libucs",   "libuct"};

// Whether a library made that domain for its own steps. `caller`: where the call came from.
bool IsLibraryDomain(const char* name, size_t size_bytes, const void* caller) {
  for (const char* domain : kDomains) {
    if (size_bytes == std::strlen(domain) && std::memcmp(name, domain, size_bytes) == 0)
      return true;
  }
  dl_phdr_info info{};
  if (!DescribeModule(reinterpret_cast<uintptr_t>(caller), &info) || info.dlpi_name == nullptr)
    return false;
  const char* const slash = std::strrchr(info.dlpi_name, '/');
  const char* const file = slash != nullptr ? slash + 1 : info.dlpi_name;
  for (const char* prefix : kFilePrefixes) {
    if (std::strncmp(file, prefix, std::strlen(prefix)) == 0)
      return true;
  }
  return false;
}

// A name as the program gave it, as UTF-8 and cut. Lives for one call.
class Text {
 public:
  explicit Text(const char* text) { SetNarrow(text); }
  explicit Text(const wchar_t* text) { SetWide(text); }
  explicit Text(const EventAttributes* attributes) {
    if (attributes == nullptr || attributes->size < sizeof(EventAttributes))
      return;
    const void* const message = attributes->message;
    if (attributes->message_type == MessageType::kAscii) {
      SetNarrow(static_cast<const char*>(message));
    } else if (attributes->message_type == MessageType::kUnicode) {
      SetWide(static_cast<const wchar_t*>(message));
    } else if (attributes->message_type == MessageType::kRegistered) {
      if (const Registered* string = FromHandle(message))
        Set(string->text, string->size_bytes);
    }
  }
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  const char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  void Set(const char* data, size_t size_bytes) {
    data_ = data;
    size_ = size_bytes;
  }
  void SetNarrow(const char* text) {
    if (text != nullptr && *text != '\0')
      Set(text, CutText(text, kMaxScopeNameBytes));
  }
  void SetWide(const wchar_t* text) {
    if (text == nullptr || *text == L'\0')
      return;
    char* end = utf8_;
    for (; *text != L'\0' && end + kMaxUtf8Bytes <= utf8_ + sizeof utf8_; ++text)
      end = PutUtf8(end, static_cast<uint32_t>(*text));
    Set(utf8_, static_cast<size_t>(end - utf8_));
  }

  const char* data_ = kNamelessScope;
  size_t size_ = sizeof kNamelessScope - 1;
  char utf8_[kMaxScopeNameBytes];
};

// A domain's handle is its name, as it was registered; that of a library's domain is odd.
bool IsLibrarys(const void* domain) {
  return (reinterpret_cast<uintptr_t>(domain) & 1) != 0;
}

uint64_t DomainOf(const void* handle) {
  return handle != nullptr ? reinterpret_cast<uintptr_t>(handle) : kNvtxDomain;
}

int Push(uint64_t domain, const Text& name) {
  ScopePush(domain, name.data(), name.size());
  return kNoPushPopTracking;
}

int Pop(uint64_t domain) {
  ScopePop(domain);
  return kNoPushPopTracking;
}

// Programs may mark each of millions of steps, so a mark does not read the driver's figure.
void WriteMark(const Text& name) {
  if (RecordScope scope(Want::kAlways); scope)
    scope->Append(format::Mark{.time = Now(), .name = {name.data(), name.size()}});
}

// Only a thread's own name: the writer of another one is not ours to write to.
void NameThread(uint32_t thread_id, const Text& name) {
  if (thread_id != static_cast<uint32_t>(syscall(SYS_gettid)))
    return;
  if (RecordScope scope(Want::kAlways); scope)
    scope->Append(format::Thread{.tid = thread_id, .name = {name.data(), name.size()}});
}

const void* Intern(const Text& name) {
  return Register(name.data(), name.size());
}

void MarkEx(const EventAttributes* attributes) {
  WriteMark(Text(attributes));
}
void MarkA(const char* message) {
  WriteMark(Text(message));
}
void MarkW(const wchar_t* message) {
  WriteMark(Text(message));
}
int RangePushEx(const EventAttributes* attributes) {
  return Push(kNvtxDomain, Text(attributes));
}
int RangePushA(const char* message) {
  return Push(kNvtxDomain, Text(message));
}
int RangePushW(const wchar_t* message) {
  return Push(kNvtxDomain, Text(message));
}
int RangePop() {
  return Pop(kNvtxDomain);
}
void NameOsThreadA(uint32_t thread_id, const char* name) {
  NameThread(thread_id, Text(name));
}
void NameOsThreadW(uint32_t thread_id, const wchar_t* name) {
  NameThread(thread_id, Text(name));
}

void DomainMarkEx(const void* domain, const EventAttributes* attributes) {
  if (!IsLibrarys(domain))
    WriteMark(Text(attributes));
}
int DomainRangePushEx(const void* domain, const EventAttributes* attributes) {
  if (!IsLibrarys(domain))
    return Push(DomainOf(domain), Text(attributes));
  if (IsNccl(domain)) {
    const Text name(attributes);
    BeginRange(attributes, name.data(), name.size());
  }
  return kNoPushPopTracking;
}
int DomainRangePop(const void* domain) {
  if (!IsLibrarys(domain))
    return Pop(DomainOf(domain));
  if (IsNccl(domain))
    EndRange(nullptr, 0);
  return kNoPushPopTracking;
}
const void* DomainRegisterStringA(const void*, const char* text) {
  return Intern(Text(text));
}
const void* DomainRegisterStringW(const void*, const wchar_t* text) {
  return Intern(Text(text));
}
// A domain is its name: no more is needed to tell one from another. Without room it is the default
// one, whose handle is null.
const void* CreateDomain(const Text& name, const void* caller) {
  const auto* const handle = static_cast<const char*>(Intern(name));
  if (handle == nullptr || !IsLibraryDomain(name.data(), name.size(), caller))
    return handle;
  NoteDomain(handle + 1, name.data(), name.size());
  return handle + 1;
}
const void* DomainCreateA(const char* name) {
  return CreateDomain(Text(name), __builtin_return_address(0));
}
const void* DomainCreateW(const wchar_t* name) {
  return CreateDomain(Text(name), __builtin_return_address(0));
}

// The functions of the payload extension. A payload is made of the program's own types, and its
// message is somewhere in it: these ranges and marks have no name. A range that was pushed without
// a payload may be popped with one, as NCCL's are.
void MarkPayload(const void* domain, const void*, size_t) {
  DomainMarkEx(domain, nullptr);
}
int RangePushPayload(const void* domain, const void*, size_t) {
  return DomainRangePushEx(domain, nullptr);
}
int RangePopPayload(const void* domain, const PayloadData* payloads, size_t count) {
  if (!IsNccl(domain))
    return DomainRangePop(domain);
  EndRange(payloads, count);
  return kNoPushPopTracking;
}
// Says what it says without a tool.
uint64_t SchemaRegister(const void* domain, const SchemaAttributes* schema) {
  if (IsNccl(domain))
    NoteSchema(schema);
  return kNoSchema;
}

struct Entry {
  uint32_t id;
  FunctionPointer function;
};

template <class Id, class Function>
Entry On(Id id, Function* function) {
  return {static_cast<uint32_t>(id), reinterpret_cast<FunctionPointer>(function)};
}

template <size_t kCount>
bool Fill(const CallbacksTable& callbacks, Module module, const Entry (&entries)[kCount]) {
  FunctionPointer** table = nullptr;
  unsigned int size = 0;
  if (callbacks.GetModuleFunctionTable(module, &table, &size) == 0 || table == nullptr)
    return false;
  for (const Entry& entry : entries) {
    if (entry.id < size && table[entry.id] != nullptr)
      *table[entry.id] = entry.function;
  }
  return true;
}

}  // namespace

bool FillTables(GetExportTable get_export_table) {
  if (get_export_table == nullptr)
    return false;
  const auto* const callbacks =
      static_cast<const CallbacksTable*>(get_export_table(kCallbacksTable));
  if (callbacks == nullptr || callbacks->struct_size < sizeof(CallbacksTable))
    return false;
  const Entry core[] = {
      On(CoreId::kMarkEx, MarkEx),
      On(CoreId::kMarkA, MarkA),
      On(CoreId::kMarkW, MarkW),
      On(CoreId::kRangePushEx, RangePushEx),
      On(CoreId::kRangePushA, RangePushA),
      On(CoreId::kRangePushW, RangePushW),
      On(CoreId::kRangePop, RangePop),
      On(CoreId::kNameOsThreadA, NameOsThreadA),
      On(CoreId::kNameOsThreadW, NameOsThreadW),
  };
  const Entry core2[] = {
      On(Core2Id::kDomainMarkEx, DomainMarkEx),
      On(Core2Id::kDomainRangePushEx, DomainRangePushEx),
      On(Core2Id::kDomainRangePop, DomainRangePop),
      On(Core2Id::kDomainRegisterStringA, DomainRegisterStringA),
      On(Core2Id::kDomainRegisterStringW, DomainRegisterStringW),
      On(Core2Id::kDomainCreateA, DomainCreateA),
      On(Core2Id::kDomainCreateW, DomainCreateW),
  };
  // An NVTX of before domains lacks the second.
  const bool filled = Fill(*callbacks, Module::kCore, core);
  return Fill(*callbacks, Module::kCore2, core2) || filled;
}

bool FillExtension(const ExtensionModule* module) {
  if (module == nullptr || module->struct_size < sizeof(ExtensionModule) ||
      module->segment_count == 0 || module->segments == nullptr ||
      module->segments->slots == nullptr) {
    return false;
  }
  const ExtensionSegment& segment = *module->segments;
  const auto fill = [&](auto id, auto* function) {
    if (static_cast<size_t>(id) < segment.slot_count)
      segment.slots[static_cast<size_t>(id)] = reinterpret_cast<intptr_t>(function);
  };
  if (module->module_id == kPayloadExtension) {
    fill(PayloadId::kSchemaRegister, SchemaRegister);
    fill(PayloadId::kMarkPayload, MarkPayload);
    fill(PayloadId::kRangePushPayload, RangePushPayload);
    fill(PayloadId::kRangePopPayload, RangePopPayload);
    fill(PayloadId::kScopeRegister, RegisterScope);
    return true;
  }
  if (module->module_id == kCountersExtension) {
    fill(CounterCall::kRegister, RegisterCounter);
    fill(CounterCall::kSampleInt64, SampleInt64);
    fill(CounterCall::kSampleFloat64, SampleFloat64);
    fill(CounterCall::kSampleNoValue, SampleNoValue);
    return true;
  }
  return false;
}

}  // namespace vramscope::probe::nvtx

using namespace vramscope::probe;

namespace {

// Preloaded functions are in the program's own scope. If the probe was only loaded through the
// environment variable, the process is not recorded.
template <class Function>
bool IsPreloaded(const char* name, Function* function) {
  void* const program = RealDlopen(nullptr, RTLD_LAZY);
  return program != nullptr && RealDlsym(program, name) == reinterpret_cast<void*>(function);
}

}  // namespace

// 0 means that no tool is present: NVTX then costs what it costs without one.
VRAMSCOPE_EXPORT int InitializeInjectionNvtx2(nvtx::GetExportTable get_export_table) {
  if (SessionIsOff() || !IsPreloaded("InitializeInjectionNvtx2", &InitializeInjectionNvtx2))
    return 0;
  return nvtx::FillTables(get_export_table) ? 1 : 0;
}

VRAMSCOPE_EXPORT int InitializeInjectionNvtxExtension(const nvtx::ExtensionModule* module) {
  if (SessionIsOff() ||
      !IsPreloaded("InitializeInjectionNvtxExtension", &InitializeInjectionNvtxExtension)) {
    return 0;
  }
  return nvtx::FillExtension(module) ? 1 : 0;
}
