// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "record/attach/remote_call.h"
#include "record/attach/shared_folder.h"
#include "record/environment.h"
#include "record/recording_place.h"
#include "record/sample/nvml.h"
#include "record/sample/sampler.h"
#include "record/watch/onlooker.h"
#include "record/watch/watches.h"
#include "util/status.h"

// Recording a process that runs already. The launcher's part is here; what happens in the process
// is in python/vramscope/_attached.py and probe/inject/late.cc.
namespace vramscope::cli {

struct AttachOptions {
  pid_t pid = 0;
  std::string output;
  int64_t duration_ns = 0;  // 0: without a limit
  uint64_t steps = 0;       // 0: any number
  int64_t timeout_ns = 0;
  std::string timeout;  // as the user wrote it
  RecordingOptions recording;
  std::string html;  // a page that is written at the end
};

// "process 4711 (python)"
std::string ProcessText(pid_t pid);

// Root takes the place of the process's user, so that both may write the recording, and keeps the
// one right that it came for.
util::Status BecomeUserOf(pid_t pid);

class Attacher {
 public:
  explicit Attacher(AttachOptions options) : options_(std::move(options)) {}

  // Up to the recording. After an error nothing is left.
  util::Status Start();
  // Until the program ends, the time or the iterations are over, or a signal or `detach` comes.
  void AwaitEnd();
  // Ends the recording. If the process still records, the error says so.
  util::Status End();
  // The signals that End() waited for have their usual effect again.
  void Release() { onlooker_.reset(); }

  // Calls a function of the package's _attached in the process.
  util::Status CallPackage(const std::string& function, std::vector<std::string> arguments);

  bool has_ended() const { return end_ == Onlooker::Seen::kEnd; }  // the program
  const AttachOptions& options() const { return options_; }
  RecordingPlace& place() { return place_; }
  const SharedFolder& folder() const { return folder_; }

 private:
  util::Status Check();
  util::Status Share();
  util::Status Begin();
  util::Status OpenPlace();
  void StartWatches();
  util::Result<CallEnd> Call(const RemoteCall& call);
  util::Status Ask(const RemoteCall& call);
  bool HasSteps();
  util::Status EndInProcess();
  void Close();

  AttachOptions options_;
  RemoteFiles files_;
  bool has_python_ = false;
  int64_t began_ns_ = 0;
  int64_t next_count_ns_ = 0;
  SharedFolder folder_;
  RecordingPlace place_;
  std::unique_ptr<Onlooker> onlooker_;
  std::unique_ptr<Nvml> nvml_;
  std::unique_ptr<Sampler> sampler_;
  std::unique_ptr<RingKeeper> ring_;
  Onlooker::Seen end_ = Onlooker::Seen::kNothing;
};

// Ends the recording of a process whose `vramscope attach` was killed. Returns the folder that was
// used for it.
util::Result<SharedFolder> EndWithoutAttacher(pid_t pid);

}  // namespace vramscope::cli
