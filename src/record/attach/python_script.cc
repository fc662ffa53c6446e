// SPDX-License-Identifier: Apache-2.0
#include "record/attach/python_script.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

#include "util/text.h"

namespace vramscope::cli {
namespace {

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
// but ask for another call. The side that removes its file first decides whether it runs. It runs
// in the main thread, or in one that Python does not know: there it must not be the first to import
// `threading`, which would take it for the main thread.
//
// A thread of its own does the work. The main thread continues at once: signal handlers of the
// program run there, and may raise. The interpreter waits for that thread before it ends. Where
// threads are greenlets, it would run in the middle of the program's.
//
// The package has a name of its own, and its __init__ does not run: the program's own `import
// vramscope` is not affected, and takes its time when it comes.
constexpr char kScriptText[] = R"(
import _thread, posix, sys

def is_whole(name):
    module = sys.modules.get(name)
    return module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False)

def imports():
    frame = sys._getframe()
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
        frame = frame.f_back
    return frame is not None

def is_ready():
    try:
        open  # becomes a builtin late; from 3.14 on the module io may never be imported
    except NameError:
        return False
    if not is_whole("os") or ("io" in sys.modules and not is_whole("io")):
        return False
    is_main = _thread.get_native_id() == posix.getpid()
    return is_whole("threading") or (is_main and "threading" not in sys.modules and not imports())

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

def hurry():
    """Has threads hand over the interpreter sooner; returns what ends that. A thread asks for it after this interval, which
    begins anew each time that another gives it up for a moment: one that does so often can keep it for seconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    sooner = sys.getswitchinterval()
    if before <= sooner:  # another call's, which ends it
        sys.setswitchinterval(before)
    return lambda: sys.getswitchinterval() == sooner and sys.setswitchinterval(before)

def call(calm_down):
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
        text = ""
    except BaseException as error:
        text = str(error) or type(error).__name__
    try:
        answer(text)
    except OSError:
        pass  # nobody waits for it any more
    calm_down()
    globals().clear()  # these functions and their names keep each other

def begin():
    import threading
    if not threading.main_thread().is_alive():
        return answer("it is ending")
    start = getattr(threading, "_start_joinable_thread", None) or threading._start_new_thread
    if type(start) is not type(posix.open):
        return answer("its threads are not the system's (gevent or eventlet): start it with `vramscope run`")
    calm_down = hurry()
    try:
        threading.Thread(target=call, args=(calm_down,), name="vramscope", daemon=False).start()
    except BaseException as error:
        calm_down()
        last = error.__traceback__
        while last.tb_next is not None:
            last = last.tb_next
        if not isinstance(error, RuntimeError) or last.tb_frame.f_code.co_filename != threading.__file__:
            raise  # of a signal handler
        answer("it is ending" if "shutdown" in str(error) else str(error))

if not is_ready():
    posix.symlink("again", {later})
    globals().clear()
elif is_taken():
    begin()
)";

}  // namespace

std::string ScriptFor(const PythonCall& call) {
  std::string arguments;
  for (const std::string& argument : call.arguments)
    arguments += PythonText(argument) + ", ";
  return fmt::format(kScriptText, fmt::arg("script", PythonText(call.script)),
                     fmt::arg("answer", PythonText(call.answer)),
                     fmt::arg("later", PythonText(call.later)),
                     fmt::arg("folder", PythonText(call.package)),
                     fmt::arg("function", call.function), fmt::arg("arguments", arguments));
}

std::string TextFor(const PythonCall& call) {
  return fmt::format(kText, PythonText(call.script));
}

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

}  // namespace vramscope::cli
