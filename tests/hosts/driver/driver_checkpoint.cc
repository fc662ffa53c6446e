// SPDX-License-Identifier: Apache-2.0
// A program whose device memory is moved to host memory and back while it runs:
//
//   driver_checkpoint self               by a thread of its own
//   driver_checkpoint recorded           by another program, recorded as this one is
//   driver_checkpoint outside            by an unrecorded one
//   driver_checkpoint with PROGRAM       by PROGRAM yield PID --unverified and PROGRAM resume PID
//   driver_checkpoint dies               as recorded, and it is killed meanwhile
//
//   driver_checkpoint leave|return PID   is that other program
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "steps.h"

namespace {

constexpr size_t kMiB = size_t{1} << 20;
const char* g_self = nullptr;

void Leave(int pid) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuCheckpointProcessLock);
  DRIVER_HOOK(driver, cuCheckpointProcessCheckpoint);
  if (pid != getpid())  // otherwise it would wait
    CHECK(cuInit(0));
  CHECK(cuCheckpointProcessLock(pid, nullptr));
  CHECK(cuCheckpointProcessCheckpoint(pid, nullptr));
}

void Return(int pid) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuCheckpointProcessRestore);
  DRIVER_HOOK(driver, cuCheckpointProcessUnlock);
  if (pid != getpid())  // otherwise it would wait
    CHECK(cuInit(0));
  CHECK(cuCheckpointProcessRestore(pid, nullptr));
  CHECK(cuCheckpointProcessUnlock(pid, nullptr));
}

// The parent of the working process: it moves its memory on request.
struct Mover {
  std::string way;
  const char* program;
  int asked[2];
  int done[2];

  bool outside() const { return way == "outside" || way == "with"; }

  void Do(bool leave) const {
    if (way == "self")
      return leave ? Leave(getpid()) : Return(getpid());
    char answer = 0;
    REQUIRE(write(asked[1], leave ? "l" : "r", 1) == 1 && read(done[0], &answer, 1) == 1);
  }

  void Serve(pid_t worker) const {
    close(asked[1]);
    const std::string pid = std::to_string(worker);
    for (char what = 0; read(asked[0], &what, 1) == 1;) {
      const bool leave = what == 'l';
      const bool other = way == "with";
      const char* const verb = other ? leave ? "yield" : "resume" : leave ? "leave" : "return";
      const char* const file = other ? program : g_self;
      const pid_t child = fork();
      REQUIRE(child >= 0);
      if (child == 0) {
        if (outside())
          unsetenv("LD_PRELOAD");
        REQUIRE(dup2(STDERR_FILENO, STDOUT_FILENO) >= 0);
        // The run without a recording has nothing to be verified by.
        const char* const unverified = other && leave ? "--unverified" : nullptr;
        execl(file, file, verb, pid.c_str(), unverified, nullptr);
        _exit(127);
      }
      int status = 0;
      REQUIRE(waitpid(child, &status, 0) == child);
      REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      REQUIRE(write(done[1], "d", 1) == 1);
    }
  }

  // An unrecorded process shows when NVML lists processes: once a second, less often on a busy
  // machine. A
  // process that was killed has an end where the launcher saw it alive.
  void LetItBeSeen() const {
    if ((outside() || way == "dies") && std::getenv("VRAMSCOPE_TEST_STEPS") != nullptr)
      std::this_thread::sleep_for(std::chrono::seconds(2));
  }
};

int Work(const Mover& mover) {
  void* const driver = LoadDriver();
  DRIVER_HOOK(driver, cuInit);
  DRIVER_HOOK(driver, cuDevicePrimaryCtxRetain);
  DRIVER_HOOK(driver, cuCtxSetCurrent);
  DRIVER_HOOK(driver, cuMemAlloc_v2);
  DRIVER_HOOK(driver, cuMemFree_v2);
  CUcontext context = nullptr;
  CHECK(cuInit(0));
  CHECK(cuDevicePrimaryCtxRetain(&context, 0));
  CHECK(cuCtxSetCurrent(context));
  std::vector<CUdeviceptr> blocks(8);
  for (size_t i = 0; i < blocks.size(); ++i)
    CHECK(cuMemAlloc_v2(&blocks[i], (i * 5 + 1) * kMiB / 2 + 512));
  Step("first");
  const int rounds = mover.way == "with" ? 1 : 2;
  for (int round = 0; round < rounds; ++round) {
    const std::string number = std::to_string(round);
    mover.LetItBeSeen();
    Step(("there-" + number).c_str());
    mover.Do(true);
    // It waits until the memory is back.
    std::thread frees([&] {
      CHECK(cuCtxSetCurrent(context));
      CHECK(cuMemFree_v2(blocks.back()));
    });
    mover.LetItBeSeen();
    Step(("away-" + number).c_str());
    if (mover.way == "dies")
      kill(getpid(), SIGKILL);
    mover.Do(false);
    frees.join();
    blocks.pop_back();
    CHECK(cuMemAlloc_v2(&*blocks.insert(blocks.begin(), 0), 6 * kMiB));
    Step(("back-" + number).c_str());
  }
  for (const CUdeviceptr block : blocks)
    CHECK(cuMemFree_v2(block));
  Step("freed");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  REQUIRE(argc >= 2);
  g_self = argv[0];
  const std::string way = argv[1];
  if (way == "leave" || way == "return") {
    REQUIRE(argc == 3);
    (way == "leave" ? Leave : Return)(std::atoi(argv[2]));
    return 0;
  }
  Mover mover{way, argc > 2 ? argv[2] : nullptr, {}, {}};
  REQUIRE((way == "with") == (mover.program != nullptr));
  if (way == "self")
    return Work(mover);
  REQUIRE(pipe(mover.asked) == 0 && pipe(mover.done) == 0);
  const pid_t worker = fork();
  REQUIRE(worker >= 0);
  if (worker == 0) {
    close(mover.asked[0]);
    close(mover.done[1]);
    return Work(mover);
  }
  mover.Serve(worker);
  int status = 0;
  REQUIRE(waitpid(worker, &status, 0) == worker);
  REQUIRE(way == "dies" ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
  LetEndBeSeen();
  Step("gone");
  return 0;
}
