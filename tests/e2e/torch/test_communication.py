# SPDX-License-Identifier: Apache-2.0
"""Memory of NCCL: whose it is, and what for, by the function of NCCL that the program called."""
from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import FAKE, MIB, VRAMSCOPE

NVTX = next((path for path in (Path("/usr/local/cuda/include"), Path("/usr/include")) if (path / "nvtx3/nvToolsExtPayload.h").exists()), None)
pytestmark = [
    pytest.mark.skipif(not (FAKE / "libcuda.so.1").exists(), reason="the stand-in driver is not built"),
    pytest.mark.skipif(NVTX is None, reason="no nvtx3/nvToolsExtPayload.h on this machine"),
]

# As NCCL does it: the interface is C and exported, what serves it C++ and hidden, and a proxy has a thread of its own. Ranges in
# a domain of its own say which communicator it is at: what makes one when it ends, a collective when it begins.
LIBRARY = """
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <thread>
extern "C" int cuMemAlloc_v2(unsigned long long*, unsigned long);
extern "C" int cuCtxSetCurrent(void*);
__attribute__((visibility("hidden"), noinline)) int ncclCudaMalloc(unsigned long mib) {
  unsigned long long address = 0;
  const int result = cuMemAlloc_v2(&address, mib << 20);
  return result == 0 && address != 0 ? 0 : 1;
}
#define NCCL extern "C" __attribute__((visibility("default"), noinline)) int

struct Made { uint64_t id; int ranks, rank, device; };
struct Asked { uint64_t id; size_t bytes; };
static const nvtxPayloadSchemaEntry_t kMade[] = {
    {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "NCCL communicator ID", nullptr, 0, offsetof(Made, id), nullptr, nullptr},
    {0, NVTX_PAYLOAD_ENTRY_TYPE_INT, "No. of ranks", nullptr, 0, offsetof(Made, ranks), nullptr, nullptr},
    {0, NVTX_PAYLOAD_ENTRY_TYPE_INT, "Rank", nullptr, 0, offsetof(Made, rank), nullptr, nullptr},
    {0, NVTX_PAYLOAD_ENTRY_TYPE_INT, "CUDA device", nullptr, 0, offsetof(Made, device), nullptr, nullptr}};
static const nvtxPayloadSchemaEntry_t kAsked[] = {
    {0, NVTX_PAYLOAD_ENTRY_TYPE_UINT64, "NCCL communicator ID", nullptr, 0, offsetof(Asked, id), nullptr, nullptr},
    {0, NVTX_PAYLOAD_ENTRY_TYPE_SIZE, "Message size [bytes]", nullptr, 0, offsetof(Asked, bytes), nullptr, nullptr}};
static const uint64_t kMadeId = (1 << 24) + 11;
static const uint64_t kAskedId = (1 << 24) + 5;
static nvtxDomainHandle_t Domain() {
  static const nvtxDomainHandle_t domain = [] {
    const nvtxDomainHandle_t made = nvtxDomainCreateA("NCCL");
    const auto add = [&](const nvtxPayloadSchemaEntry_t* entries, size_t count, uint64_t id, size_t size) {
      const nvtxPayloadSchemaAttr_t schema = {
          1 << 2 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8,  // type, entries, their number, size and id: versions name them otherwise
          nullptr, NVTX_PAYLOAD_SCHEMA_TYPE_STATIC, NVTX_PAYLOAD_SCHEMA_FLAG_NONE, entries, count, size, 0, id, nullptr};
      nvtxPayloadSchemaRegister(made, &schema);
    };
    add(kMade, 4, kMadeId, sizeof(Made));
    add(kAsked, 2, kAskedId, sizeof(Asked));
    return made;
  }();
  return domain;
}
static void Push(const char* name, const nvtxPayloadData_t* payload) {
  nvtxEventAttributes_t attributes = {};
  attributes.version = NVTX_VERSION;
  attributes.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  attributes.messageType = NVTX_MESSAGE_TYPE_REGISTERED;
  attributes.message.registered = nvtxDomainRegisterStringA(Domain(), name);
  if (payload != nullptr) {
    attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    attributes.reserved0 = 1;
    attributes.payload.ullValue = reinterpret_cast<uintptr_t>(payload);
  }
  nvtxDomainRangePushEx(Domain(), &attributes);
}

NCCL ncclCommInitRankConfig(unsigned long mib, void* context, uint64_t id) {
  Push("ncclCommInitRankConfig", nullptr);
  int proxied = 0;
  std::thread([&] { proxied = cuCtxSetCurrent(context) + ncclCudaMalloc(2 * mib); }).join();
  const int made = ncclCudaMalloc(mib);
  const Made payload = {id, 8, 3, 0};
  const nvtxPayloadData_t data = {kMadeId, sizeof payload, &payload};
  nvtxRangePopPayload(Domain(), &data, 1);
  return made + proxied;
}
NCCL ncclAllReduce(unsigned long mib, uint64_t id) {
  const Asked payload = {id, 4};
  const nvtxPayloadData_t data = {kAskedId, sizeof payload, &payload};
  Push("ncclAllReduce", &data);
  const int made = ncclCudaMalloc(mib);
  nvtxDomainRangePop(Domain());
  return made != 0 ? 1 : 0;
}
NCCL ncclGroupStart(void) {
  Push("ncclGroupStart", nullptr);
  nvtxDomainRangePop(Domain());
  return 0;
}
NCCL ncclGroupEnd(unsigned long mib) {
  Push("ncclGroupEnd", nullptr);
  const int made = ncclCudaMalloc(mib);
  nvtxDomainRangePop(Domain());
  return made != 0 ? 3 : 0;
}
NCCL ncclMemAlloc(unsigned long mib) {
  Push("ncclMemAlloc", nullptr);
  const int made = ncclCudaMalloc(mib);
  nvtxDomainRangePop(Domain());
  return made != 0 ? 2 : 0;
}
// What no NCCL does: payloads without data, of a size that is not said, too short, of no known schema, on the last bytes of a
// page before one that cannot be read.
NCCL ncclCommDestroy(unsigned long mib) {
  const long page = sysconf(_SC_PAGESIZE);
  char* const pages = static_cast<char*>(mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  mprotect(pages + page, page, PROT_NONE);
  const nvtxPayloadData_t wrong[] = {{kMadeId, sizeof(Made), nullptr},           {kMadeId, SIZE_MAX, pages + page},
                                     {kMadeId, 7, pages + page - 7},             {kMadeId + 1, 64, pages + page},
                                     {kMadeId + 100000, 64, pages + page},       {0, 64, pages + page},
                                     {kMadeId, sizeof(Made), pages}};
  int failed = 0;
  for (const nvtxPayloadData_t& payload : wrong) {
    Push("ncclCommDestroy", &payload);
    failed += ncclCudaMalloc(mib);
    nvtxRangePopPayload(Domain(), &payload, 1);
  }
  for (int i = 0; i < 20; ++i)
    Push("too deep", nullptr);
  failed += ncclCudaMalloc(mib);
  for (int i = 0; i < 25; ++i)
    nvtxRangePopPayload(Domain(), nullptr, 1 << 20);
  return failed;
}
"""
PROGRAM = """
import ctypes, sys
cuda, nccl = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(sys.argv[1])
context = ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
WORLD, EXPERTS = ctypes.c_uint64(0xa1b2c3d4e5f60718), ctypes.c_uint64(0x99)
def world():
    assert nccl.ncclCommInitRankConfig(ctypes.c_ulong(20), context, WORLD) == 0
def experts():
    assert nccl.ncclCommInitRankConfig(ctypes.c_ulong(30), context, EXPERTS) == 0
def reduce(mib, communicator):
    assert nccl.ncclAllReduce(ctypes.c_ulong(mib), communicator) == 0
def group(mib, *communicators):
    nccl.ncclGroupStart()
    for communicator in communicators:
        reduce(1, communicator)
    assert nccl.ncclGroupEnd(ctypes.c_ulong(mib)) == 0
world()
experts()
reduce(8, EXPERTS)
assert nccl.ncclMemAlloc(ctypes.c_ulong(64)) == 0
if "groups" in sys.argv:
    group(16, WORLD, WORLD)
    group(32, WORLD, EXPERTS)
    assert nccl.ncclCommDestroy(ctypes.c_ulong(4)) == 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("communication")
    (folder / "nccl.cc").write_text(LIBRARY)
    (folder / "program.py").write_text(PROGRAM)
    library = folder / "libnccl.so.2"
    words = ["c++", "-std=c++17", "-O1", "-fPIC", "-shared", "-pthread", "-isystem", NVTX, folder / "nccl.cc", "-o", library]
    done = subprocess.run([*words, FAKE / "libcuda.so.1", "-ldl"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def record(folder: Path, name: str, *words: str) -> Path:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(FAKE), "VRAMSCOPE_FAKE_BOOKS": str(folder / f"books-{name}")}
    program = [sys.executable, folder / "program.py", folder / "libnccl.so.2", *words]
    command = [VRAMSCOPE, "run", "--no-report", "-o", folder / f"{name}.vram", "--", *program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return folder / f"{name}.vram"


@pytest.fixture(scope="module")
def recording(folder) -> Path:
    return record(folder, "x")


def rows(recording, by: str) -> dict[tuple[str, ...], int]:
    words = [VRAMSCOPE, "report", recording, "--by", by, "--where", "category=communication", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return {tuple(row["path"]): row["bytes"] // MIB for row in json.loads(done.stdout)["rows"]}


def test_by_what_was_called(recording):
    assert rows(recording, "owner,tag") == {
        ("NCCL", "ncclCommInitRankConfig"): 50,
        ("NCCL", "a thread of NCCL's own"): 100,
        ("NCCL", "ncclAllReduce"): 8,
        ("NCCL", "ncclMemAlloc"): 64,
    }


def test_communicators_by_the_lines_that_make_them(recording):
    made = {path[1].split(" in ")[-1]: mib for path, mib in rows(recording, "tag,line").items() if path[0] == "ncclCommInitRankConfig"}
    assert made == {"world": 20, "experts": 30}


WORLD, EXPERTS = "0xa1b2c3d4e5f60718 of 8 ranks", "0x99 of 8 ranks"


def test_by_communicator(recording):
    """Threads that NCCL began belong to the communicator that is being made; the program's own buffers to none."""
    assert rows(recording, "communicator,tag") == {
        (WORLD, "ncclCommInitRankConfig"): 20,
        (WORLD, "a thread of NCCL's own"): 40,
        (EXPERTS, "ncclCommInitRankConfig"): 30,
        (EXPERTS, "a thread of NCCL's own"): 60,
        (EXPERTS, "ncclAllReduce"): 8,
        ("(none)", "ncclMemAlloc"): 64,
    }


def test_what_a_group_does_at_its_end_and_payloads_that_are_wrong(folder):
    recording = record(folder, "groups", "groups")
    by_function = rows(recording, "tag,communicator")
    assert {path[1]: mib for path, mib in by_function.items() if path[0] == "ncclGroupEnd"} == {WORLD: 16, "(none)": 32}
    assert {path[1]: mib for path, mib in by_function.items() if path[0] == "ncclCommDestroy"} == {"(none)": 8 * 4}
    assert sum(rows(recording, "communicator").values()) == 20 + 40 + 30 + 60 + 8 + 64 + 4 + 16 + 32 + 32
    # Collectives write nothing where the driver gave nothing: what was called is not counted.
    assert rows(recording, "communicator")[(WORLD,)] == 20 + 40 + 3 + 16
