// SPDX-License-Identifier: Apache-2.0
#include "record/attach/python_script.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "pipeline/survivors.h"
#include "record/attach/pending_call.h"
#include "util/file.h"
#include "util/owned_file.h"
#include "util/text.h"

namespace vramscope::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kScript[] = "call.py";
constexpr char kAnswer[] = "answer";
constexpr char kLater[] = "later";
constexpr size_t kMostAnswerBytes = 1 << 16;
constexpr milliseconds kLook{1};
constexpr milliseconds kLong{1000};
constexpr milliseconds kRetry{50};

// What runs at the interpreter's safe point, which can be before `os` is imported. It runs the
// script, if that is still there. Exceptions of the program's signal handlers, which can run
// meanwhile, pass.
constexpr char kText[] = R"(import posix
try:f=posix.open({0},0)
except OSError as e:
 if e.filename!={0}:raise
else:
 t=posix.read(f,65536);posix.close(f)
 exec(compile(t,'<vramscope>','exec'),{{}})
)";

// While Python starts, and while the main thread imports what this needs, the script does nothing
// but to ask for another call. Whoever removes its file first has decided whether it runs.
//
// A thread of its own does the work. The main thread continues at once: signal handlers of the
// program run there, and may raise. The interpreter waits for that thread before it ends.
//
// The package has a name of its own, and its __init__ does not run: the program's own `import
// vramscope` is not affected, and takes its time when it comes.
constexpr char kScriptText[] = R"(
import posix, sys

def is_whole(name):
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)

def imports():
    frame = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
        frame = frame.f_back
    return frame is not None

def is_ready():
    if not is_whole("os") or not is_whole("io"):
        return False
    return is_whole("threading") or ("threading" not in sys.modules and not imports())

def is_taken():
    try:
        posix.unlink({script})
    except OSError as error:
        if error.filename != {script}:
            raise  # of a signal handler
        return False
    return True

def answer(text):
    with open({answer} + ".new", "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    posix.rename({answer} + ".new", {answer})

def call():
    try:
        import importlib
        folder = {folder}
        name = "_vramscope_attached"
        package = sys.modules.get(name)
        if package is None or package.__path__ != [folder]:
            package = type(sys)(name)
            package.__path__ = [folder]
            sys.modules[name] = package
        writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            importlib.import_module(name + "._attached").{function}({arguments})
        finally:
            sys.dont_write_bytecode = writes
        answer("")
    except BaseException as error:
        answer(str(error) or type(error).__name__)

def begin():
    import threading
    if not threading.main_thread().is_alive():
        return answer("it is ending")
    try:
        threading.Thread(target=call, name="vramscope").start()
    except RuntimeError as error:
        last = error.__traceback__
        while last.tb_next is not None:
            last = last.tb_next
        if last.tb_frame.f_code.co_filename != threading.__file__:
            raise  # of a signal handler
        answer(str(error))

if sys.version_info < (3, 9):
    if is_ready() and is_taken():
        answer("its Python is older than 3.9")
elif not is_ready():
    posix.symlink("again", {later})
elif is_taken():
    begin()
)";

util::Status WriteScript(const util::OwnedDirectory& folder, const PackageCall& call) {
  std::string arguments;
  for (const std::string& argument : call.arguments)
    arguments += PythonText(argument) + ", ";
  const auto path = [&](const char* name) { return PythonText(folder.path() + "/" + name); };
  const std::string text =
      fmt::format(kScriptText, fmt::arg("script", path(kScript)), fmt::arg("answer", path(kAnswer)),
                  fmt::arg("later", path(kLater)), fmt::arg("folder", PythonText(call.folder)),
                  fmt::arg("function", call.function), fmt::arg("arguments", arguments));
  VRAMSCOPE_ASSIGN_OR_RETURN(const util::UniqueFd file, folder.CreateFile(kScript));
  return util::ReplaceContents(file, text);
}

void RemoveAll(const util::OwnedDirectory& folder) {
  for (const std::string& name : folder.Names()) {
    if (util::Result<util::UniqueFd> file = folder.Open(name, nullptr); file)
      (void)folder.Remove(name, *file);
  }
  (void)folder.RemoveLink(kLater);
}

// The answer, when it is there.
std::optional<std::string> ReadAnswer(const util::OwnedDirectory& folder) {
  if (!folder.Has(kAnswer))
    return {};
  const util::Result<util::UniqueFd> file = folder.Open(kAnswer, nullptr);
  return file ? util::ReadToEnd(file->get(), kMostAnswerBytes) : std::nullopt;
}

// Whether the script will not run any more.
bool TakeBack(const util::OwnedDirectory& folder) {
  const util::Result<util::UniqueFd> file = folder.Open(kScript, nullptr);
  return file && folder.Remove(kScript, *file);
}

util::Result<CallEnd> Await(pid_t pid,
                            const util::OwnedDirectory& folder,
                            const CallLimits& limits,
                            const std::function<util::Status()>& ask) {
  const auto began = steady_clock::now();
  bool said = false;
  for (;;) {
    const bool runs = IsRunning(pid);
    if (const std::optional<std::string> answer = ReadAnswer(folder)) {
      if (answer->empty())
        return CallEnd::kDone;
      return util::Status::Error(
          fmt::format("process {} ({}): {}", pid, util::ProcCommand(pid), *answer));
    }
    if (!runs)
      return CallEnd::kGone;
    const auto waited = steady_clock::now() - began;
    const bool is_late = waited > limits.limit;
    // Once the program has taken the script, its answer comes soon.
    if ((is_late || (limits.give_up && limits.give_up())) && TakeBack(folder))
      return is_late ? CallEnd::kTimeOut : CallEnd::kGivenUp;
    if (!said && waited > kLong && limits.on_wait && folder.Has(kScript)) {
      said = true;
      limits.on_wait();
    }
    // The script asks for another call.
    if (folder.RemoveLink(kLater)) {
      std::this_thread::sleep_for(kRetry);
      VRAMSCOPE_RETURN_IF_ERROR(ask());
    }
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

std::string PythonText(const std::string& text) {
  std::string literal = "'";
  for (size_t at = 0; at < text.size();) {
    const size_t length = util::Utf8SequenceBytes(std::string_view(text).substr(at));
    const auto byte = static_cast<unsigned char>(text[at]);
    constexpr unsigned char kFirst = 0x20, kEnd = 0x7f;
    if (length > 1)
      literal += text.substr(at, length);
    else if (byte > kEnd)
      literal += fmt::format("\\udc{:02x}", byte);  // surrogateescape (PEP 383)
    else if (byte < kFirst || byte == kEnd || byte == '\'' || byte == '\\')
      literal += fmt::format("\\x{:02x}", byte);
    else
      literal += text[at];
    at += std::max<size_t>(length, 1);
  }
  return literal + "'";
}

util::Result<util::OwnedDirectory> MakePrivateFolder() {
  std::error_code error;
  const std::string place = std::filesystem::temp_directory_path(error).string();
  return util::OwnedDirectory::CreateTemporary(place + "/vramscope-");
}

util::Result<CallEnd> CallInPython(pid_t pid, const PackageCall& call, const CallLimits& limits) {
  VRAMSCOPE_ASSIGN_OR_RETURN(util::OwnedDirectory folder, MakePrivateFolder());
  const std::string text = fmt::format(kText, PythonText(folder.path() + "/" + kScript));
  // What is loaded may have changed when it is asked again.
  const auto ask = [&]() -> util::Status {
    VRAMSCOPE_ASSIGN_OR_RETURN(const PythonCalls python, FindPython(pid));
    return AddPendingCall(pid, python, text);
  };
  util::Status status = WriteScript(folder, call);
  if (status.ok())
    status = ask();
  util::Result<CallEnd> end = status.ok() ? Await(pid, folder, limits, ask) : status;
  RemoveAll(folder);
  (void)folder.RemoveSelf();
  return end;
}

}  // namespace vramscope::cli
