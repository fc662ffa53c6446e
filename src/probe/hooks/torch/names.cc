// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/torch/names.h"

#include <sys/mman.h>

#include <cstring>

namespace vramscope::probe {
namespace {

constexpr size_t kMaxNameBytes = 1024;

// The last record of a name.
struct Said {
  uint64_t key;
  uintptr_t address;
  uint64_t size_bytes;
};

// In pages of its own, which cost nothing until they are touched.
template <class Entry, auto kKey>
class Table {
 public:
  bool Prepare() {
    if (entries_ != nullptr)
      return true;
    void* const memory = mmap(nullptr, sizeof(Entries), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    entries_ = memory != MAP_FAILED ? static_cast<Entries*>(memory) : nullptr;
    return entries_ != nullptr;
  }
  Entry* Find(uint64_t key) { return entries_->Find(key); }
  // Null if it is full: the caller clears it.
  Entry* Add(uint64_t key) { return entries_->Add(key); }
  void Clear() {
    if (entries_ != nullptr)
      madvise(entries_, sizeof(Entries), MADV_DONTNEED);  // zeros again
  }
  Entry* begin() { return entries_->begin(); }
  Entry* end() { return entries_->end(); }

 private:
  using Entries = OrderedTable<Entry, kKey, 65536>;
  Entries* entries_ = nullptr;
};

constinit Table<Parameter, &Parameter::impl> g_parameters;
constinit Table<Said, &Said::key> g_said;
constinit uint32_t g_walk = 0;
constinit bool g_in_survey = false;
constinit bool g_says_again = false;

uint64_t HashText(uint64_t hash, Object text) {
  size_t size = 0;
  const char* const bytes = g_api.Text(text, &size);
  hash = HashMix(hash, size);
  for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes + i, size - i < sizeof word ? size - i : sizeof word);
    hash = HashMix(hash, word);
  }
  return hash;
}

// CPU memory from before the recording is known by its names alone. The tensor lives, so that if
// its storage was recorded, it is live in the ledger and this says nothing new.
void WritePrior(Stream& stream, uint64_t now, const Storage& storage) {
  if (!g_in_survey || storage.device != format::kCpuDevice || !IsOfAllocator(storage))
    return;
  stream.Append(format::Prior{.time = now,
                              .kind = static_cast<uint64_t>(format::PriorKind::kBlock),
                              .device = storage.device,
                              .address = storage.address,
                              .size = storage.size_bytes});
}

// CPU tensors are recorded on request alone.
bool IsRecorded(const Storage& storage) {
  return storage.device != format::kCpuDevice || g_flags.cpu;
}

[[gnu::always_inline]] inline void AppendName(Stream& stream,
                                              uint64_t now,
                                              format::NameKind kind,
                                              uintptr_t owner,
                                              uint32_t name,
                                              uint32_t detail,
                                              const Storage& storage,
                                              const Part& part) {
  WritePrior(stream, now, storage);
  stream.Append(format::Name{.time = now,
                             .address = storage.address,
                             .size = storage.size_bytes,
                             .device = storage.device,
                             .kind = static_cast<uint64_t>(kind),
                             .owner = owner,
                             .name = name,
                             .detail = detail,
                             .offset = part.offset,
                             .bytes = part.bytes});
}

}  // namespace

bool NamesPrepare() {
  return g_parameters.Prepare() && g_said.Prepare();
}

void NamesRelease() {
  for (Parameter& parameter : g_parameters)
    g_api.Py_DecRef(parameter.name);
  g_parameters.Clear();
}

void NamesForget() {
  g_parameters.Clear();
  g_said.Clear();
}

void NamesSurvey(bool is_survey) {
  g_in_survey = is_survey;
}

void NamesSayAgain(bool again) {
  g_says_again = again;
}

bool NamesInSurvey() {
  return g_in_survey;
}

void NamesBeginWalk() {
  ++g_walk;
}

uint64_t WholeBytesOf(const Storage& storage) {
  return PartOf(storage).bytes == 0 ? storage.size_bytes : 0;
}

Parameter* FindParameter(Object tensor, uintptr_t impl) {
  Parameter* const found = g_parameters.Find(impl);
  return found != nullptr && found->object == reinterpret_cast<uintptr_t>(tensor) ? found : nullptr;
}

Parameter* AddParameter(Object tensor,
                        uintptr_t impl,
                        uintptr_t owner,
                        Object name,
                        const Storage& storage,
                        bool walk) {
  Parameter* found = g_parameters.Find(impl);
  const auto object = reinterpret_cast<uintptr_t>(tensor);
  if (found != nullptr && found->object == object && walk && found->walk == g_walk)
    return found;
  if (found == nullptr)
    found = g_parameters.Add(impl);
  if (found == nullptr) {
    NamesRelease();
    found = g_parameters.Add(impl);
  }
  Object const old = found->name;
  g_api.Py_IncRef(name);
  *found = {.impl = impl,
            .object = object,
            .owner = owner,
            .name = name,
            .address = storage.address,
            .size_bytes = storage.size_bytes,
            .whole_bytes = WholeBytesOf(storage),
            .walk = walk ? g_walk : 0,
            .stream = nullptr,
            .name_id = 0};
  if (old != nullptr)
    g_api.Py_DecRef(old);
  return found;
}

bool WriteNameIfNew(Stream& stream,
                    format::NameKind kind,
                    uintptr_t owner,
                    uint64_t scope,
                    Object name,
                    Object detail,
                    const Storage& storage,
                    const Part* part) {
  if (!IsRecorded(storage))
    return false;
  uint64_t key = HashMix(HashMix(static_cast<uint64_t>(kind), owner), scope);
  key = HashText(HashText(key, name), detail) | 1;
  Said* said = g_said.Find(key);
  if (!g_says_again && said != nullptr && said->address == storage.address &&
      said->size_bytes == storage.size_bytes) {
    return false;
  }
  if (said == nullptr)
    said = g_said.Add(key);
  if (said == nullptr) {
    g_said.Clear();
    said = g_said.Add(key);
  }
  *said = {key, storage.address, storage.size_bytes};
  const uint32_t name_id = InternText(stream, name);
  const uint32_t detail_id = InternText(stream, detail);
  AppendName(stream, Now(), kind, owner, name_id, detail_id, storage,
             part != nullptr ? *part : PartOf(storage));
  return true;
}

void WriteName(Stream& stream,
               uint64_t now,
               format::NameKind kind,
               const Storage& storage,
               Parameter* parameter,
               uint32_t detail) {
  if (!IsRecorded(storage))
    return;
  const uint32_t name = ParameterNameId(stream, parameter);
  // A gradient as large as the whole storage of its parameter has all of its own.
  const Part part = storage.size_bytes == parameter->whole_bytes ? Part{} : PartOf(storage);
  AppendName(stream, now, kind, parameter->owner, name, detail, storage, part);
}

void WriteGradient(Stream& stream, uint64_t now, uintptr_t impl, Parameter* parameter) {
  const Gradient gradient = GradientOf(impl);
  if (gradient.has_values)
    WriteName(stream, now, format::NameKind::kGradient, gradient.values, parameter);
  if (gradient.has_indices) {
    WriteName(stream, now, format::NameKind::kGradient, gradient.indices, parameter,
              stream.InternLiteral("indices"));
  }
}

uint32_t ParameterNameId(Stream& stream, Parameter* parameter) {
  if (parameter->stream != &stream) {
    parameter->stream = &stream;
    parameter->name_id = InternText(stream, parameter->name);
  }
  return parameter->name_id;
}

uint32_t InternText(Stream& stream, Object text) {
  size_t size = 0;
  const char* const bytes = g_api.Text(text, &size);
  return stream.InternString(bytes, size < kMaxNameBytes ? size : kMaxNameBytes);
}

const char* TypeNameOf(Object object) {
  constexpr uint32_t kTypeName = 24;  // PyTypeObject.tp_name
  const auto* const name = ReadAt<const char*>(PythonApi::TypeOf(object), kTypeName);
  const char* const dot = std::strrchr(name, '.');
  return dot != nullptr ? dot + 1 : name;
}

uint32_t InternTypeName(Stream& stream, Object object) {
  const char* const name = TypeNameOf(object);
  return stream.InternString(name, strnlen(name, kMaxNameBytes));
}

}  // namespace vramscope::probe
