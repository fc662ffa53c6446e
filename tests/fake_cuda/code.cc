// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <sstream>

#include "fake.h"

// Modules, libraries, functions and launches. Libraries are modules here, kernels are functions.
namespace fake {
namespace {

constexpr uint64_t kDefaultCodeBytes = 2 * kMiB;

std::set<Module*>& Modules() {
  static auto* modules = new std::set<Module*>;
  return *modules;
}

// Functions of modules that are loaded.
std::set<Function*>& Functions() {
  static auto* functions = new std::set<Function*>;
  return *functions;
}

void Forget(Module* module) {
  for (const auto& [name, function] : module->functions)
    Functions().erase(function.get());
  Modules().erase(module);
  delete module;
}

// From PTX the fake driver reads only the names of kernels.
void AddEntriesOfPtx(const char* text, Context* context, Module* module) {
  constexpr char kEntry[] = ".entry ";
  for (const char* at = strstr(text, kEntry); at != nullptr; at = strstr(at, kEntry)) {
    at += sizeof kEntry - 1;
    auto function = std::make_unique<Function>();
    function->context = context;
    function->name = std::string(at, strcspn(at, "( \n"));
    module->functions[function->name] = std::move(function);
  }
}

// "FAKE code=3145728 global=67108864 kernel=spill:65536:0", or PTX.
CUresult LoadModule(Context* context, const void* image, Module** out) {
  if (context == nullptr)
    return kInvalidContext;
  auto module = std::make_unique<Module>();
  uint64_t code = kDefaultCodeBytes, global = 0;
  const auto* const text = static_cast<const char*>(image);
  if (text != nullptr && strncmp(text, "FAKE", 4) == 0) {
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      if (word.rfind("code=", 0) == 0) {
        code = std::stoull(word.substr(5));
      } else if (word.rfind("global=", 0) == 0) {
        global = std::stoull(word.substr(7));
      } else if (word.rfind("kernel=", 0) == 0) {
        auto function = std::make_unique<Function>();
        function->context = context;
        const size_t colon = word.find(':', 7);
        const size_t second = word.find(':', colon + 1);
        function->name = word.substr(7, colon - 7);
        function->local_bytes = std::stoull(word.substr(colon + 1));
        function->lazy_bytes = std::stoull(word.substr(second + 1));
        module->functions[function->name] = std::move(function);
      }
    }
  } else if (text != nullptr && strstr(text, ".version") != nullptr) {
    AddEntriesOfPtx(text, context, module.get());
  }
  module->bytes = RoundUp(code, kPage) + RoundUp(global, kPage);
  module->context = context;
  if (!ChargeContext(context, module->bytes))
    return kOutOfMemory;
  for (const auto& [name, function] : module->functions)
    Functions().insert(function.get());
  *out = module.release();
  Modules().insert(*out);
  return kSuccess;
}

CUresult Unload(Module* module) {
  if (Modules().count(module) == 0)
    return kInvalidHandle;
  Refund(module->context->device, module->bytes);
  module->context->charged -= module->bytes;
  Forget(module);
  return kSuccess;
}

CUresult Find(Module* module, const char* name, Function** out) {
  if (Modules().count(module) == 0)
    return kInvalidHandle;
  const auto found = module->functions.find(name);
  if (found == module->functions.end())
    return kNotFoundError;
  *out = found->second.get();
  return kSuccess;
}

CUresult LoadLazily(Function* function) {
  if (Functions().count(function) == 0 || function->context != CurrentContext())
    return kInvalidHandle;
  if (function->loaded)
    return kSuccess;
  if (!ChargeContext(function->context, RoundUp(function->lazy_bytes, kPage)))
    return kOutOfMemory;
  function->loaded = true;
  return kSuccess;
}

// Local memory is for every thread that can be resident, and is never given back.
CUresult Launch(CUfunction handle) {
  Context* const context = CurrentContext();
  if (context == nullptr)
    return kInvalidContext;
  auto* const function = reinterpret_cast<Function*>(handle);
  if (Functions().count(function) == 0 || function->context != context)
    return kInvalidHandle;
  if (const CUresult result = LoadLazily(function); result != kSuccess)
    return result;
  if (function->name.starts_with("touch"))
    LaunchTouching(context->device);
  const uint64_t wanted = RoundUp(function->local_bytes * kThreads, kPage);
  if (wanted <= context->local_bytes)
    return kSuccess;
  if (!ChargeContext(context, wanted - context->local_bytes))
    return kOutOfMemory;
  context->local_bytes = wanted;
  return kSuccess;
}

Module* AsModule(CUmodule handle) {
  return reinterpret_cast<Module*>(handle);
}

}  // namespace

// Their bytes are among the context's.
void EndModulesOf(const Context* context) {
  const std::set<Module*> all = Modules();
  for (Module* module : all) {
    if (module->context == context)
      Forget(module);
  }
}

FAKE_HOOK(cuModuleLoadData)(CUmodule* module, const void* image) {
  FAKE_ENTER(cuModuleLoadData);
  return LoadModule(CurrentContext(), image, reinterpret_cast<Module**>(module));
}

FAKE_HOOK(cuModuleLoadDataEx)
(CUmodule* module, const void* image, unsigned int, CUjit_option*, void**) {
  FAKE_ENTER(cuModuleLoadDataEx);
  return LoadModule(CurrentContext(), image, reinterpret_cast<Module**>(module));
}

FAKE_HOOK(cuModuleUnload)(CUmodule module) {
  FAKE_ENTER(cuModuleUnload);
  if (Modules().count(AsModule(module)) != 0 && AsModule(module)->context != CurrentContext())
    return kInvalidContext;
  return Unload(AsModule(module));
}

FAKE_HOOK(cuModuleGetFunction)(CUfunction* function, CUmodule module, const char* name) {
  FAKE_ENTER(cuModuleGetFunction);
  return Find(AsModule(module), name, reinterpret_cast<Function**>(function));
}

FAKE_HOOK(cuLibraryLoadData)
(CUlibrary* library,
 const void* code,
 CUjit_option*,
 void**,
 unsigned int,
 CUlibraryOption*,
 void**,
 unsigned int) {
  FAKE_ENTER(cuLibraryLoadData);
  return LoadModule(CurrentContext(), code, reinterpret_cast<Module**>(library));
}

FAKE_HOOK(cuLibraryUnload)(CUlibrary library) {
  FAKE_ENTER(cuLibraryUnload);
  return Unload(reinterpret_cast<Module*>(library));
}

FAKE_HOOK(cuLibraryGetKernel)(CUkernel* kernel, CUlibrary library, const char* name) {
  FAKE_ENTER(cuLibraryGetKernel);
  return Find(reinterpret_cast<Module*>(library), name, reinterpret_cast<Function**>(kernel));
}

FAKE_HOOK(cuKernelGetFunction)(CUfunction* function, CUkernel kernel) {
  FAKE_ENTER(cuKernelGetFunction);
  *function = reinterpret_cast<CUfunction>(kernel);
  return LoadLazily(reinterpret_cast<Function*>(kernel));
}

FAKE_CALL(cuFuncGetName)(const char** name, CUfunction function) {
  FAKE_ENTER(cuFuncGetName);
  if (Functions().count(reinterpret_cast<Function*>(function)) == 0)
    return kInvalidHandle;
  *name = reinterpret_cast<Function*>(function)->name.c_str();
  return kSuccess;
}

FAKE_HOOK(cuLaunchKernel)
(CUfunction function,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 CUstream,
 void**,
 void**) {
  FAKE_ENTER(cuLaunchKernel);
  return Launch(function);
}

FAKE_HOOK(cuLaunchKernel_ptsz)
(CUfunction function,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 unsigned int,
 CUstream,
 void**,
 void**) {
  FAKE_ENTER(cuLaunchKernel_ptsz);
  return Launch(function);
}

FAKE_HOOK(cuLaunchKernelEx)(const CUlaunchConfig*, CUfunction function, void**, void**) {
  FAKE_ENTER(cuLaunchKernelEx);
  return Launch(function);
}

}  // namespace fake
