// SPDX-License-Identifier: Apache-2.0
// One process makes memory and exports it, another imports it; the maker frees it or dies first:
// driver_sharing ipc|fabric|descriptor free|die. The bytes are the machine's until the importer has
// closed it, and only once.
#include <sys/wait.h>

#include <cstring>
#include <string>

#include "steps.h"

namespace {

constexpr size_t kBytes = size_t{64} << 20;
constexpr CUmemAllocationHandleType kDescriptor = 1;

struct Message {
  CUipcMemHandle ipc{};
  CUmemFabricHandle fabric{};
  int descriptor = -1;
};

struct Pipe {
  int ends[2];
  Pipe() { REQUIRE(pipe(ends) == 0); }
  void Send(const Message& message) const {
    REQUIRE(write(ends[1], &message, sizeof message) == sizeof message);
  }
  Message Receive() const {
    Message message;
    REQUIRE(read(ends[0], &message, sizeof message) == sizeof message);
    return message;
  }
};

struct Program {
  std::string way;
  bool dies;
  Pipe to_importer, to_exporter;

  void* Begin() const {
    void* const driver = LoadDriver();
    DRIVER_HOOK(driver, cuInit);
    DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
    DRIVER_HOOK(driver, cuCtxSetCurrent);
    CUcontext context = nullptr;
    CHECK(cuInit(0));
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    return driver;
  }

  // A process of the recording ends with its last call: one after the step that is looked at.
  static void UseMemory(void* driver) {
    DRIVER_HOOK(driver, cuMemAlloc_v2);
    DRIVER_HOOK(driver, cuMemFree_v2);
    CUdeviceptr address = 0;
    CHECK(cuMemAlloc_v2(&address, 4u << 20));
    CHECK(cuMemFree_v2(address));
  }

  int Export() {
    void* const driver = Begin();
    DRIVER_HOOK(driver, cuMemAlloc_v2);
    DRIVER_HOOK(driver, cuMemFree_v2);
    DRIVER_HOOK(driver, cuMemCreate);
    DRIVER_HOOK(driver, cuMemRelease);
    DRIVER_HOOK(driver, cuIpcGetMemHandle);
    DRIVER_HOOK(driver, cuMemExportToShareableHandle);
    Message message;
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    if (way == "ipc") {
      CHECK(cuMemAlloc_v2(&address, kBytes));
      CHECK(cuIpcGetMemHandle(&message.ipc, address));
    } else {
      CUmemAllocationProp properties{};
      properties.type = 1;
      properties.location = {kLocationDevice, 0};
      CHECK(cuMemCreate(&handle, kBytes, &properties, 0));
      if (way == "fabric")
        CHECK(cuMemExportToShareableHandle(&message.fabric, handle, kHandleFabric, 0));
      else
        CHECK(cuMemExportToShareableHandle(&message.descriptor, handle, kDescriptor, 0));
    }
    Step("exported");
    to_importer.Send(message);
    to_exporter.Receive();
    UseMemory(driver);
    if (dies)
      _exit(0);
    CHECK(way == "ipc" ? cuMemFree_v2(address) : cuMemRelease(handle));
    to_importer.Send(message);
    to_exporter.Receive();
    UseMemory(driver);
    return 0;
  }

  int Import() {
    Message message = to_importer.Receive();
    void* const driver = Begin();
    DRIVER_HOOK(driver, cuIpcOpenMemHandle_v2);
    DRIVER_HOOK(driver, cuIpcCloseMemHandle);
    DRIVER_HOOK(driver, cuMemImportFromShareableHandle);
    DRIVER_HOOK(driver, cuMemAddressReserve);
    DRIVER_HOOK(driver, cuMemMap);
    DRIVER_HOOK(driver, cuMemUnmap);
    DRIVER_HOOK(driver, cuMemRelease);
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    if (way == "ipc") {
      CHECK(cuIpcOpenMemHandle_v2(&address, message.ipc, 1));
    } else {
      if (way == "fabric") {
        CHECK(cuMemImportFromShareableHandle(&handle, &message.fabric, kHandleFabric));
      } else {
        void* const descriptor = reinterpret_cast<void*>(intptr_t{message.descriptor});
        CHECK(cuMemImportFromShareableHandle(&handle, descriptor, kDescriptor));
      }
      CHECK(cuMemAddressReserve(&address, kBytes, 0, 0, 0));
      CHECK(cuMemMap(address, kBytes, 0, handle, 0));
    }
    Step("imported");
    to_exporter.Send(message);
    to_importer.Receive();
    LetEndBeSeen();
    Step("exporter-gone");
    if (way == "ipc") {
      CHECK(cuIpcCloseMemHandle(address));
    } else {
      CHECK(cuMemRelease(handle));
      CHECK(cuMemUnmap(address, kBytes));
    }
    Step("closed");
    to_exporter.Send(message);
    UseMemory(driver);
    return 0;
  }
};

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc == 3);
  Program program{argv[1], std::strcmp(argv[2], "die") == 0, {}, {}};
  const pid_t exporter = fork();
  if (exporter == 0)
    _exit(program.Export());
  const pid_t importer = fork();
  if (importer == 0)
    _exit(program.Import());
  int status = 0;
  if (program.dies) {
    REQUIRE(waitpid(exporter, &status, 0) == exporter && status == 0);
    program.to_importer.Send({});
  }
  REQUIRE(waitpid(importer, &status, 0) == importer && status == 0);
  if (!program.dies)
    REQUIRE(waitpid(exporter, &status, 0) == exporter && status == 0);
  return 0;
}
