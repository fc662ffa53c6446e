// SPDX-License-Identifier: Apache-2.0
#include "record/attach/python_script.h"

#include <fmt/core.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "pipeline/survivors.h"
#include "record/attach/pending_call.h"
#include "util/file.h"
#include "util/owned_file.h"

namespace vramscope::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr char kScript[] = "call.py";
constexpr char kAnswer[] = "answer";
constexpr size_t kMostAnswerBytes = 1 << 16;
constexpr milliseconds kLook{1};
constexpr milliseconds kLong{1000};

// What runs at the interpreter's safe point: the script, once. Whoever removes the file first has
// decided whether it runs. Exceptions of the program's signal handlers, which can run meanwhile,
// pass.
constexpr char kText[] = R"(import os
p=os.fsdecode({0})
try:
 with open(p) as f:t=f.read()
 os.unlink(p)
except OSError as e:
 if e.filename!=p:raise
 t=''
g={{}}
try:exec(compile(t,'<vramscope>','exec'),g)
except RuntimeError as e:
 if 'thread' not in str(e):raise
 g['answer'](str(e))
)";

// The work is done by a thread of its own: the main thread, where the program's signal handlers run
// and may raise, goes on at once. The interpreter waits for that thread before it ends.
//
// The package has a name of its own, and its __init__ does not run: the program's own `import
// vramscope` is not affected, and takes its time when it comes.
constexpr char kScriptText[] = R"(
def answer(text):
    import os
    path = os.fsdecode({answer})
    with open(path + ".new", "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    os.rename(path + ".new", path)

def call():
    try:
        import importlib, os, sys
        folder = os.fsdecode({folder})
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

import sys, threading
if sys.version_info < (3, 9):
    answer("its Python is older than 3.9")
else:
    threading.Thread(target=call, name="vramscope").start()
)";

util::Status WriteScript(const util::OwnedDirectory& folder, const PackageCall& call) {
  std::string arguments;
  for (const std::string& argument : call.arguments)
    arguments += fmt::format("os.fsdecode({}), ", PythonBytes(argument));
  const std::string text =
      fmt::format(kScriptText, fmt::arg("folder", PythonBytes(call.folder)),
                  fmt::arg("answer", PythonBytes(folder.path() + "/" + kAnswer)),
                  fmt::arg("function", call.function), fmt::arg("arguments", arguments));
  VRAMSCOPE_ASSIGN_OR_RETURN(const util::UniqueFd file, folder.CreateFile(kScript));
  return util::ReplaceContents(file, text);
}

void RemoveAll(const util::OwnedDirectory& folder) {
  for (const std::string& name : folder.Names()) {
    if (util::Result<util::UniqueFd> file = folder.Open(name, nullptr); file)
      (void)folder.Remove(name, *file);
  }
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
                            const CallLimits& limits) {
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
    std::this_thread::sleep_for(kLook);
  }
}

}  // namespace

std::string PythonBytes(const std::string& text) {
  std::string literal = "b'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_plain = (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
                          (byte >= '0' && byte <= '9') || c == '/' || c == '.' || c == '_' ||
                          c == '-' || c == ',' || c == '=';
    literal += is_plain ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return literal + "'";
}

util::Result<util::OwnedDirectory> MakePrivateFolder() {
  std::error_code error;
  const std::string place = std::filesystem::temp_directory_path(error).string();
  return util::OwnedDirectory::CreateTemporary(place + "/vramscope-");
}

util::Result<CallEnd> CallInPython(pid_t pid, const PackageCall& call, const CallLimits& limits) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const PythonCalls python, FindPython(pid));
  VRAMSCOPE_ASSIGN_OR_RETURN(util::OwnedDirectory folder, MakePrivateFolder());
  util::Status status = WriteScript(folder, call);
  if (status.ok()) {
    status =
        AddPendingCall(pid, python, fmt::format(kText, PythonBytes(folder.path() + "/" + kScript)));
  }
  util::Result<CallEnd> end = status;
  if (status.ok())
    end = Await(pid, folder, limits);
  RemoveAll(folder);
  (void)folder.RemoveSelf();
  return end;
}

}  // namespace vramscope::cli
