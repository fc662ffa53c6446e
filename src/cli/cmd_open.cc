// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/options.h"
#include "output/answers.h"
#include "output/terminal.h"
#include "pipeline/open_recording.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

// A browser that is still there after so long has started.
constexpr int kStartedMs = 1500;

std::string Environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The directory of caches, by the XDG base directory specification; "" if it is not set. The
// specification ignores relative paths.
std::string CacheHome() {
  const std::string home = Environment("XDG_CACHE_HOME");
  if (home.starts_with('/'))
    return home;
  return Environment("HOME").starts_with('/') ? Environment("HOME") + "/.cache" : std::string();
}

// One page a recording: the same name each time, another for another recording of that name.
std::string PageName(const std::string& file) {
  const std::filesystem::path path = std::filesystem::absolute(file).lexically_normal();
  std::string name = path.filename().empty() ? path.parent_path().filename() : path.filename();
  for (const std::string_view ending : {".vram.d", ".vram"}) {
    if (name.ends_with(ending)) {
      name.resize(name.size() - ending.size());
      break;
    }
  }
  constexpr size_t kMaxName = 100;
  return fmt::format("{}-{:08x}.html", name.substr(0, kMaxName),
                     static_cast<uint32_t>(std::hash<std::string>{}(path.string())));
}

util::Result<std::string> PlaceOfPage(const std::string& file) {
  const std::string home = CacheHome();
  if (home.empty()) {
    return util::Status::Error(
        "the page needs a cache directory, and neither XDG_CACHE_HOME nor HOME is set: `vramscope "
        "report FILE --html PAGE` writes it elsewhere");
  }
  struct stat status {};
  if (stat(home.c_str(), &status) != 0) {
    VRAMSCOPE_ASSIGN_OR_RETURN(auto made, util::OwnedDirectory::Create(home));
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(auto directory,
                             util::OwnedDirectory::OpenOrCreatePrivate(home + "/vramscope"));
  return home + "/vramscope/" + PageName(file);
}

std::string UrlOf(const std::string& path) {
  std::string url = "file://";
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || std::string_view("/-._~").find(c) != std::string_view::npos)
      url += c;
    else
      url += fmt::format("%{:02X}", byte);
  }
  return url;
}

// Whether the command runs, or ran without an error: away from this terminal, which it may outlive.
bool Starts(const std::vector<std::string>& command) {
  std::vector<char*> words;
  for (const std::string& word : command)
    words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0)
    return false;
  if (pid == 0) {
    setsid();
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd)
      dup2(nothing, fd);
    execvp(words[0], words.data());
    _exit(127);
  }
  constexpr int kStepMs = 20;
  for (int waited_ms = 0; waited_ms < kStartedMs; waited_ms += kStepMs) {
    int status = 0;
    const pid_t ended = waitpid(pid, &status, WNOHANG);
    if (ended == pid)
      return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (ended < 0 && errno != EINTR)
      return false;
    usleep(kStepMs * 1000);
  }
  return true;
}

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    if (end > begin)
      parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// With $BROWSER, a list of commands in which %s is the address; without it as the desktop does.
bool OpenInBrowser(const std::string& url) {
  for (const std::string& choice : Split(Environment("BROWSER"), ':')) {
    std::vector<std::string> command;
    bool placed = false;
    for (std::string word : Split(choice, ' ')) {
      const size_t place = word.find("%s");
      if (place != std::string::npos) {
        word.replace(place, 2, url);
        placed = true;
      }
      command.push_back(std::move(word));
    }
    if (command.empty())
      continue;
    if (!placed)
      command.push_back(url);
    if (Starts(command))
      return true;
  }
  if (!Environment("BROWSER").empty())
    return false;
  // Without a desktop xdg-open would look for browsers in the terminal.
  const bool desktop = !Environment("DISPLAY").empty() || !Environment("WAYLAND_DISPLAY").empty();
  return desktop && Starts({"xdg-open", url});
}

// The page of a recording, or of all ranks in a folder.
util::Result<std::string> MakePage(const std::string& file) {
  if (IsFolder(file)) {
    VRAMSCOPE_ASSIGN_OR_RETURN(const std::vector<std::string> files, RankFiles({file}));
    VRAMSCOPE_ASSIGN_OR_RETURN(const query::RankReport ranks, ReadRanks(files, true));
    util::Result<std::string> page = PlaceOfPage(file);
    if (!page.ok())
      return page;
    VRAMSCOPE_RETURN_IF_ERROR(output::WriteRanksHtml(ranks, *page));
    return page;
  }
  util::Result<std::unique_ptr<tables::Recording>> recording = OpenRecording(file);
  if (!recording.ok())
    return recording.status();
  util::Result<std::string> page = PlaceOfPage(file);
  if (!page.ok())
    return page;
  Progress progress("writing " + *page);
  VRAMSCOPE_RETURN_IF_ERROR(output::WriteHtml(**recording, *page));
  return page;
}

util::Status OpenPage(const std::string& file) {
  const util::Result<std::string> page = MakePage(file);
  if (!page.ok())
    return page.status();
  const bool opened = OpenInBrowser(UrlOf(*page));
  const std::string shown = output::Printable(*page, output::LocaleIsUtf8());
  return PrintOut(opened
                      ? fmt::format("Page:  {}\n", shown)
                      : fmt::format("No browser could be started here; the page is {}\n", shown));
}

}  // namespace

void RegisterOpen(CLI::App& app, int* exit_code) {
  CLI::App* const open = app.add_subcommand("open", "Show a recording as a page in the browser");
  auto file = std::make_shared<std::string>();
  open->add_option("FILE", *file,
                   std::string(kRecordingHelp) +
                       ". A directory with the recordings of a program's ranks is one page")
      ->required();
  open->footer(
      "The page works offline. It is written to $XDG_CACHE_HOME/vramscope, or to\n"
      "~/.cache/vramscope. $BROWSER selects the browser: commands separated by colons;\n"
      "%s in a command is the address.");
  open->callback([file, exit_code] { *exit_code = ExitOf(OpenPage(*file)); });
}

}  // namespace vramscope::cli
