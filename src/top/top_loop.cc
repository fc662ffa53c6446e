// SPDX-License-Identifier: Apache-2.0
#include "top/top_loop.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "output/terminal.h"
#include "pipeline/console.h"
#include "pipeline/open_recording.h"
#include "record/sample/nvml.h"
#include "record/watch/onlooker.h"
#include "top/attachments.h"
#include "top/layout.h"
#include "top/terminal_screen.h"
#include "top/watch.h"

namespace vramscope::cli {
namespace {

TopWatch MakeWatch(const TopTarget& target) {
  auto nvml = Nvml::Load();
  if (!nvml)
    return TopWatch(target, nullptr, nvml.status().message());
  return TopWatch(target, std::move(*nvml), "");
}

// The screen, and what the user does with it.
class Top {
 public:
  Top(const TopTarget& target,
      int64_t period_ns,
      RecordingsReader* reader,
      const CapturedErrors& errors,
      Attachments* attachments)
      : errors_(errors),
        watch_(MakeWatch(target)),
        reader_(*reader),
        attachments_(*attachments),
        period_ns_(period_ns) {
    reader_.Start(period_ns);
  }

  // Until the user quits or the terminal is gone.
  void Show() {
    while (Look() && Wait()) {
    }
  }

 private:
  bool Look() {
    const int64_t now_ns = base::MonotonicNs();
    if (now_ns >= next_look_ns_) {
      model_ = watch_.Look(reader_.Take());
      attachments_.Reap();
      next_look_ns_ = now_ns + period_ns_;
    }
    SortProcesses(view_.order, &model_.processes);
    // The first one is selected until the user has chosen, or the chosen one is gone.
    if (Selected() == model_.processes.end() && !model_.processes.empty())
      Select(model_.processes.begin());
    view_.rows = screen_.rows();
    return screen_.Draw(TopScreen(model_, view_, output::DetectStyle(STDOUT_FILENO)));
  }

  // False: the user wants to quit, or has gone.
  bool Wait() {
    pollfd polls[] = {{stops_.fd(), POLLIN, 0},
                      {screen_.signals(), POLLIN, 0},
                      {STDIN_FILENO, POLLIN, 0},
                      {errors_.fd(), POLLIN, 0}};
    const int64_t left_ns = std::max<int64_t>(next_look_ns_ - base::MonotonicNs(), 0);
    if (poll(polls, std::size(polls), static_cast<int>(left_ns / 1'000'000) + 1) <= 0)
      return true;
    if (polls[0].revents != 0)
      return false;
    if (polls[1].revents != 0)
      screen_.OnSignals();
    if (polls[3].revents != 0)
      TakeMessage();
    if (polls[2].revents == 0)
      return true;
    const std::string keys = screen_.ReadKeys();
    return !keys.empty() && OnKeys(keys);
  }

  void TakeMessage() {
    std::string text = errors_.Take();
    text.erase(text.find_last_not_of('\n') + 1);
    text.erase(0, text.rfind('\n') + 1);
    constexpr std::string_view kProgram = "vramscope: ";
    view_.message = text.substr(text.starts_with(kProgram) ? kProgram.size() : 0);
    // A recording begins or ends.
    reader_.Hurry();
  }

  bool OnKeys(std::string_view keys) {
    if (std::exchange(view_.help, false))
      return true;
    while (!keys.empty()) {
      // An arrow is one key of three bytes.
      const bool is_arrow = keys.size() >= 3 && keys[0] == '\x1b';
      const char key = is_arrow ? keys[2] : keys[0];
      keys.remove_prefix(is_arrow ? 3 : 1);
      if (is_arrow ? OnArrow(key) : !OnKey(key))
        return false;
    }
    return true;
  }

  // Always false: arrows do not quit.
  bool OnArrow(char key) {
    if (key == 'A' && Selected() != model_.processes.begin())
      Select(Selected() - 1);
    if (key == 'B' && Selected() != model_.processes.end() &&
        Selected() + 1 != model_.processes.end())
      Select(Selected() + 1);
    return false;
  }

  bool OnKey(char key) {
    switch (key) {
      case 'q':
        return false;
      case 'b':
        view_.order = TopOrder::kBytes;
        break;
      case 'g':
        view_.order = TopOrder::kGrowth;
        break;
      case 'p':
        view_.order = TopOrder::kPid;
        break;
      case 'n':
        view_.order = TopOrder::kName;
        break;
      case '\n':
      case '\r':
        view_.detail = !view_.detail;
        break;
      case '\x1b':
        view_.detail = false;
        break;
      case '?':
        view_.help = true;
        break;
      case 'r':
        reader_.Hurry();
        break;
      case 'a':
        if (Selected() != model_.processes.end())
          view_.message = attachments_.Toggle(Selected()->pid);
        break;
      default:
        break;
    }
    return true;
  }

  std::vector<TopProcess>::const_iterator Selected() const {
    return std::find_if(model_.processes.begin(), model_.processes.end(),
                        [&](const TopProcess& process) {
                          return std::pair(process.pid, process.device) == view_.selected;
                        });
  }
  void Select(std::vector<TopProcess>::const_iterator process) {
    view_.selected = {process->pid, process->device};
  }

  const StopSignals stops_;
  TerminalScreen screen_;
  const CapturedErrors& errors_;
  TopWatch watch_;
  RecordingsReader& reader_;
  Attachments& attachments_;
  const int64_t period_ns_;
  int64_t next_look_ns_ = 0;
  TopModel model_;
  TopView view_;
};

}  // namespace

util::Status PrintTop(const TopTarget& target, bool json) {
  RecordingsReader reader(target);
  reader.ReadOnce();
  TopWatch watch = MakeWatch(target);
  TopModel model = watch.Look(reader.Take());
  SortProcesses(TopOrder::kBytes, &model.processes);
  if (json)
    return PrintOut(TopJson(model));
  std::string text;
  for (const std::string& line : TopScreen(model, {}, output::DetectStyle(STDOUT_FILENO)))
    output::AppendLine(line, &text);
  return PrintOut(text);
}

void ShowTop(const TopTarget& target, int64_t period_ns) {
  RecordingsReader reader(target);
  const CapturedErrors errors;
  Attachments attachments;
  Top(target, period_ns, &reader, errors, &attachments).Show();
  errors.Restore();
  // Recordings that were begun here end.
  attachments.EndAll(errors);
  // Not waiting for a long reading.
  EndQuietly();
}

}  // namespace vramscope::cli
