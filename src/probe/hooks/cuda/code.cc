// SPDX-License-Identifier: Apache-2.0
#include "probe/hooks/cuda/code.h"

#include "format/enums.h"
#include "format/records.h"
#include "probe/hooks/cuda/context.h"
#include "probe/hooks/cuda/handle_set.h"
#include "probe/hooks/cuda/hook_call.h"
#include "probe/hooks/cuda/launch.h"
#include "probe/hooks/cuda/reading.h"
#include "probe/hooks/cuda/record.h"
#include "probe/session/stream.h"

// Code takes memory when it is loaded, and, being loaded lazily, when it is first asked for.
namespace vramscope::probe::cuda {
namespace {

using format::ImplicitKind;

// Functions and kernels that were asked for: programs do that again for every launch.
constinit HandleSet<16384> g_touched{};

template <HookId kId, class Module, class... Args>
CUresult LoadCode(const char* name, Module* module, Args... args) {
  return CallEstimated<kId>(
      ImplicitKind::kModule, WriteWhen::kAlways,
      [=] { return Subject{.name = name, .detail = Bits(*module)}; }, module, args...);
}

template <HookId kId, class Module>
CUresult UnloadCode(Module module) {
  const CUresult result = CallEstimated<kId>(
      ImplicitKind::kModule, WriteWhen::kAlways, [=] { return Subject{.detail = Bits(module)}; },
      module);
  if (result == kSuccess)
    ForgetFunctions();
  return result;
}

// A library has code in every context that used it, on any device: only the current one was read.
void NoteUnloadElsewhere(uint64_t begin, uint64_t end) {
  const uint64_t known = KnownDevices();
  if (t_cuda_depth != 0 || !IsRecording() || (known & (known - 1)) == 0)
    return;
  RecordScope scope(Want::kAlways);
  if (!scope)
    return;
  scope->Append(format::Implicit{.begin = begin,
                                 .end = end,
                                 .api = scope->InternLiteral(HookName(HookId::cuLibraryUnload)),
                                 .kind = static_cast<uint64_t>(ImplicitKind::kModule),
                                 .device = format::kNoDevice});
  RequestReading(format::kNoDevice);
}

// Looks something up by name, each time between readings: programs keep what they get.
template <HookId kId, class Out, class Module, class... Extra>
CUresult LookUp(Out* out, Module module, const char* name, Extra... extra) {
  return CallEstimated<kId>(
      ImplicitKind::kFunction, WriteWhen::kMoved,
      [=] { return Subject{.name = name, .detail = Bits(module)}; }, out, extra..., module, name);
}

// Between readings at the first sight of `handle` in the current context only.
template <HookId kId, class Handle, class... Args>
CUresult Touch(Handle handle, Args... args) {
  HookCall<kId> call;
  if (!call.watching())
    return call(args...);
  const Place place = CurrentPlace();
  const uint64_t key = HandleIn(Bits(place.context), Bits(handle));
  if (!g_touched.Insert(key))
    return call(args...);
  const FreeMemory before = BeginEstimate(place);
  const CUresult result = call(args...);
  if (result != kSuccess)
    g_touched.Erase(key);
  FinishEstimate(kId, call.times(), result, ImplicitKind::kFunction, WriteWhen::kMoved, place,
                 before, {.detail = Bits(handle)});
  return result;
}

}  // namespace

void ForgetFunctions() {
  g_touched.Clear();
  ForgetLaunches();
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleLoad)(CUmodule* module, const char* file) {
  return LoadCode<HookId::cuModuleLoad>(file, module, file);
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleLoadData)(CUmodule* module, const void* image) {
  return LoadCode<HookId::cuModuleLoadData>(nullptr, module, image);
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleLoadDataEx)
(CUmodule* module,
 const void* image,
 unsigned int option_count,
 CUjit_option* options,
 void** values) {
  return LoadCode<HookId::cuModuleLoadDataEx>(nullptr, module, image, option_count, options,
                                              values);
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleLoadFatBinary)(CUmodule* module, const void* image) {
  return LoadCode<HookId::cuModuleLoadFatBinary>(nullptr, module, image);
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleUnload)(CUmodule module) {
  return UnloadCode<HookId::cuModuleUnload>(module);
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleGetFunction)
(CUfunction* function, CUmodule module, const char* name) {
  return LookUp<HookId::cuModuleGetFunction>(function, module, name);
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleGetGlobal)
(CUdeviceptr_v1* address, unsigned int* size, CUmodule module, const char* name) {
  return LookUp<HookId::cuModuleGetGlobal>(address, module, name, size);
}

VRAMSCOPE_CUDA_WRAPPER(cuModuleGetGlobal_v2)
(CUdeviceptr* address, size_t* size, CUmodule module, const char* name) {
  return LookUp<HookId::cuModuleGetGlobal_v2>(address, module, name, size);
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryLoadData)
(CUlibrary* library,
 const void* code,
 CUjit_option* options,
 void** values,
 unsigned int option_count,
 CUlibraryOption* library_options,
 void** library_values,
 unsigned int library_option_count) {
  return LoadCode<HookId::cuLibraryLoadData>(nullptr, library, code, options, values, option_count,
                                             library_options, library_values, library_option_count);
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryLoadFromFile)
(CUlibrary* library,
 const char* file,
 CUjit_option* options,
 void** values,
 unsigned int option_count,
 CUlibraryOption* library_options,
 void** library_values,
 unsigned int library_option_count) {
  return LoadCode<HookId::cuLibraryLoadFromFile>(file, library, file, options, values, option_count,
                                                 library_options, library_values,
                                                 library_option_count);
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryUnload)(CUlibrary library) {
  const uint64_t begin = Now();
  const CUresult result = UnloadCode<HookId::cuLibraryUnload>(library);
  if (result == kSuccess)
    NoteUnloadElsewhere(begin, Now());
  return result;
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryGetKernel)
(CUkernel* kernel, CUlibrary library, const char* name) {
  return LookUp<HookId::cuLibraryGetKernel>(kernel, library, name);
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryGetModule)(CUmodule* module, CUlibrary library) {
  return CallEstimated<HookId::cuLibraryGetModule>(
      ImplicitKind::kFunction, WriteWhen::kMoved, [=] { return Subject{.detail = Bits(library)}; },
      module, library);
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryGetGlobal)
(CUdeviceptr* address, size_t* size, CUlibrary library, const char* name) {
  return LookUp<HookId::cuLibraryGetGlobal>(address, library, name, size);
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryGetManaged)
(CUdeviceptr* address, size_t* size, CUlibrary library, const char* name) {
  return LookUp<HookId::cuLibraryGetManaged>(address, library, name, size);
}

VRAMSCOPE_CUDA_WRAPPER(cuLibraryGetUnifiedFunction)
(void** function, CUlibrary library, const char* name) {
  return LookUp<HookId::cuLibraryGetUnifiedFunction>(function, library, name);
}

VRAMSCOPE_CUDA_WRAPPER(cuKernelGetFunction)(CUfunction* function, CUkernel kernel) {
  return Touch<HookId::cuKernelGetFunction>(kernel, function, kernel);
}

VRAMSCOPE_CUDA_WRAPPER(cuFuncLoad)(CUfunction function) {
  return Touch<HookId::cuFuncLoad>(function, function);
}

VRAMSCOPE_CUDA_WRAPPER(cuFuncGetAttribute)
(int* value, CUfunction_attribute attribute, CUfunction function) {
  return Touch<HookId::cuFuncGetAttribute>(function, value, attribute, function);
}

VRAMSCOPE_CUDA_WRAPPER(cuFuncSetAttribute)
(CUfunction function, CUfunction_attribute attribute, int value) {
  return Touch<HookId::cuFuncSetAttribute>(function, function, attribute, value);
}

}  // namespace vramscope::probe::cuda
