// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

// The Python texts that call a function of the package in a process that already runs.
namespace vramscope::cli {

struct PythonCall {
  std::string package;                 // "/.../site-packages/vramscope"
  std::string function;                // of its module _attached: "begin"
  std::vector<std::string> arguments;  // passed as str
  std::string script;                  // path of the script; who deletes it decides whether it runs
  std::string answer;                  // path of the answer: "", or the text of an exception
  std::string later;                   // symbolic link by which the script asks for another call
};

// The file `call.script`.
std::string ScriptFor(const PythonCall& call);
// What the interpreter executes: the script, if it is still there.
std::string TextFor(const PythonCall& call);

// `text`, which need not be UTF-8, as a literal of type str, decoded as by os.fsdecode(). A seam
// for tests.
std::string PythonText(const std::string& text);

}  // namespace vramscope::cli
