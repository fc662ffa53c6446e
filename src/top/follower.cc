// SPDX-License-Identifier: Apache-2.0
#include "top/follower.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "pipeline/console.h"
#include "pipeline/live_directory.h"
#include "pipeline/open_recording.h"
#include "resolve/resolve.h"
#include "tables/reader.h"
#include "trace/live/live_trace.h"

namespace vramscope::cli {
namespace {

// After this pause all calls in progress have been written.
constexpr std::chrono::milliseconds kSettles{2};

int64_t CpuNsOf(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto ns = [](const timeval& time) {
    return int64_t{time.tv_sec} * 1'000'000'000 + int64_t{time.tv_usec} * 1000;
  };
  return ns(usage.ru_utime) + ns(usage.ru_stime);
}

// Rows of memory that is live. What ends before is forgotten.
class LiveRows : public tables::AllocationSink {
 public:
  util::Status Add(const tables::AllocationRow& row) override {
    if (keeps_)
      rows_.push_back(row);
    return {};
  }
  void Keep() { keeps_ = true; }
  util::Status MoveTo(tables::AllocationSink* sink) const {
    for (const tables::AllocationRow& row : rows_)
      VRAMSCOPE_RETURN_IF_ERROR(sink->Add(row));
    return {};
  }

 private:
  bool keeps_ = false;
  std::vector<tables::AllocationRow> rows_;
};

// False if the requester has ended.
bool AwaitQuestion() {
  const int64_t cpu_ns = CpuNsOf(RUSAGE_SELF) + CpuNsOf(RUSAGE_CHILDREN);
  char question = 0;
  return write(STDOUT_FILENO, &cpu_ns, sizeof cpu_ns) == sizeof cpu_ns &&
         read(STDIN_FILENO, &question, 1) == 1;
}

}  // namespace

util::Status FollowRecording(const std::string& live_directory, int fd) {
  LiveRows rows;
  trace::OpenOptions options = UpToNow(live_directory, {});
  options.at_present = [&]() -> std::optional<trace::OpenOptions::Present> {
    const pid_t copy = fork();
    if (copy == 0) {
      rows.Keep();
      return std::nullopt;
    }
    int status = 0;
    while (waitpid(copy, &status, 0) < 0 && errno == EINTR) {
    }
    if (copy < 0 || status != 0 || !AwaitQuestion())
      _exit(kExitError);
    const base::ClockPair now = base::ReadClocks(base::HasInvariantTsc());
    std::this_thread::sleep_for(kSettles);
    return trace::OpenOptions::Present{now.ns, now.ticks};
  };
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto trace,
                             trace::LiveTrace::Open(live_directory, live_directory, options));
  // It comes back in each copy.
  VRAMSCOPE_ASSIGN_OR_RETURN(tables::Tables tables, resolve::Resolve(*trace, rows));
  if (ftruncate(fd, 0) != 0 || lseek(fd, 0, SEEK_SET) != 0)
    return util::Status::Error(live_directory + ": " + util::ErrnoText(errno));
  return WriteFinished(fd, live_directory,
                       [&](tables::AllocationSink& sink) -> util::Result<tables::Tables> {
                         VRAMSCOPE_RETURN_IF_ERROR(rows.MoveTo(&sink));
                         return std::move(tables);
                       });
}

util::Status Follower::Start() {
  int ask[2];
  int answer[2];
  tables_ = util::UniqueFd(memfd_create("vramscope", MFD_CLOEXEC));
  if (!tables_.ok() || pipe2(ask, O_CLOEXEC) != 0)
    return util::Status::Error(util::ErrnoText(errno));
  const util::UniqueFd asked(ask[0]);
  ask_ = util::UniqueFd(ask[1]);
  if (pipe2(answer, O_CLOEXEC) != 0)
    return util::Status::Error(util::ErrnoText(errno));
  answer_ = util::UniqueFd(answer[0]);
  const util::UniqueFd answers(answer[1]);
  cpu_ns_ = 0;
  child_ = fork();
  if (child_ != 0)
    return child_ > 0 ? util::Status() : util::Status::Error(util::ErrnoText(errno));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  dup2(asked.get(), STDIN_FILENO);
  dup2(answers.get(), STDOUT_FILENO);
  dup2(tables_.get(), STDERR_FILENO);  // the file, as the only one that stays open
  execl("/proc/self/exe", "vramscope", "follow", live_directory_.c_str(), nullptr);
  _exit(kExitError);
}

void Follower::End() {
  if (child_ <= 0)
    return;
  kill(child_, SIGKILL);
  while (waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
  child_ = 0;
}

util::Result<std::unique_ptr<tables::Recording>> Follower::Read(int64_t* cpu_ns) {
  if (child_ == 0)
    VRAMSCOPE_RETURN_IF_ERROR(Start());
  else if (write(ask_.get(), "?", 1) != 1)
    End();
  int64_t spent_ns = 0;
  ssize_t got = 0;
  while ((got = read(answer_.get(), &spent_ns, sizeof spent_ns)) < 0 && errno == EINTR) {
  }
  if (got != sizeof spent_ns) {
    End();
    return util::Status::Error(live_directory_ + ": cannot be followed");
  }
  *cpu_ns += spent_ns - cpu_ns_;
  cpu_ns_ = spent_ns;
  return tables::OpenDescriptor(tables_.get(), live_directory_);
}

}  // namespace vramscope::cli
