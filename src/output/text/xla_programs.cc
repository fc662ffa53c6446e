// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "output/answers.h"
#include "output/text/text_table.h"
#include "util/size_text.h"

namespace vramscope::output {
namespace {

using util::FormatBytes;

constexpr size_t kMostXlaOperations = 10;

// Operations that read alike.
struct AlikeOperations {
  const query::XlaOperation* first = nullptr;
  uint64_t bytes = 0;
  size_t count = 0;
};

std::string KindText(const query::XlaOperation& operation) {
  std::string text;
  if (operation.fused > 1)
    text = fmt::format("fusion of {}", operation.fused);
  if (operation.rematerialized)
    text += text.empty() ? "remat" : ", remat";
  return text;
}

// Without the program's own name, which all operations of "jit_step" begin with: "jit(step)/".
std::string NameText(const query::XlaProgram& program, const query::XlaOperation& operation) {
  const size_t slash = operation.op_name.find("/");
  std::string start = operation.op_name.substr(0, slash);
  if (start.ends_with(')'))
    start.pop_back();
  std::replace(start.begin(), start.end(), '(', '_');
  if (operation.op_name.empty())
    return operation.instruction;
  return slash != std::string::npos && start == program.name ? operation.op_name.substr(slash + 1)
                                                             : operation.op_name;
}

std::vector<AlikeOperations> GroupAlike(const query::XlaProgram& program) {
  std::vector<AlikeOperations> groups;
  std::map<std::string, size_t> known;
  for (const query::XlaOperation& operation : program.operations) {
    const std::string text =
        NameText(program, operation) + '\n' + operation.place + '\n' + KindText(operation);
    const size_t group = known.try_emplace(text, groups.size()).first->second;
    if (group == groups.size())
      groups.push_back({&operation});
    groups[group].bytes += operation.bytes;
    ++groups[group].count;
  }
  std::stable_sort(
      groups.begin(), groups.end(),
      [](const AlikeOperations& a, const AlikeOperations& b) { return a.bytes > b.bytes; });
  return groups;
}

void AddProgram(const query::XlaProgram& program, TextLines* text) {
  text->AddCut(fmt::format("{}: {} of temporary memory at its peak{}", text->Clean(program.name),
                           FormatBytes(program.temp_bytes),
                           program.dumped ? "" : ", without a dump"));
  if (!program.dumped)
    return;
  const std::vector<AlikeOperations> groups = GroupAlike(program);
  TextTable table(text, {{.title = "bytes", .width = 10},
                         {.title = "count", .width = 5, .gap = 2},
                         {.title = "line", .width = 8, .most = 28, .fit = Fit::kCutStart, .gap = 2},
                         {.title = "", .width = 5, .most = 20, .fit = Fit::kLeft, .gap = 2},
                         {.title = "operation", .fit = Fit::kCutStart, .gap = 2}});
  table.AddTitles();
  uint64_t others = 0;
  size_t count = 0;
  for (size_t i = 0; i < groups.size(); ++i) {
    const AlikeOperations& group = groups[i];
    if (i >= kMostXlaOperations) {
      others += group.bytes;
      count += group.count;
      continue;
    }
    table.AddRow({{FormatBytes(group.bytes)},
                  {std::to_string(group.count)},
                  {text->Clean(group.first->place)},
                  {KindText(*group.first)},
                  {text->Clean(NameText(program, *group.first))}});
  }
  if (count != 0)
    table.AddRest({{FormatBytes(others)}, {std::to_string(count)}, {"others"}, {}, {}});
  if (program.idle_bytes != 0)
    table.AddRest({{FormatBytes(program.idle_bytes)}, {}, {"not live at the peak"}, {}, {}});
}

}  // namespace

std::string FormatXlaPrograms(const query::XlaPrograms& programs, const Style& style) {
  TextLines text(style);
  for (const query::XlaProgram& program : programs.programs) {
    if (text.size() != 0)
      text.Add("");
    AddProgram(program, &text);
  }
  return text.Take();
}

}  // namespace vramscope::output
