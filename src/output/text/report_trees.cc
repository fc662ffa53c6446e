// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "output/names.h"
#include "output/text/text_parts.h"
#include "query/dimensions/frames.h"

namespace vramscope::output {
namespace {

// Removes brackets and their content. Those of "operator()" and "operator<" belong to the name.
std::string WithoutBrackets(std::string_view name) {
  constexpr std::string_view kOperator = "operator";
  constexpr std::string_view kSigns = "<>=+-*/!&|^%~[]";
  std::string text;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (depth == 0 && name.substr(i).starts_with(kOperator)) {
      size_t end = i + kOperator.size();
      if (name.substr(end).starts_with("()")) {
        end += 2;
      } else {
        while (end < name.size() && kSigns.find(name[end]) != std::string_view::npos)
          ++end;
      }
      text += name.substr(i, end - i);
      i = end - 1;
      continue;
    }
    const char c = name[i];
    if (c == '<' || c == '(')
      ++depth;
    else if (c == '>' || c == ')')
      depth = std::max(depth - 1, 0);
    else if (depth == 0)
      text += c;
  }
  return text;
}

// "0x7f43 (libcudart.so.13)": the function is unknown.
bool IsNameless(std::string_view frame) {
  return frame.starts_with("0x") || frame.starts_with("(unknown function)");
}

std::string ShortNativeFrame(const std::string& frame) {
  // "name (image)", or with debugging information "file.cc:12 in name".
  const size_t image = frame.ends_with(')') ? frame.rfind(" (") : std::string::npos;
  if (IsNameless(frame)) {
    return image == std::string::npos ? frame : frame.substr(image + 2, frame.size() - image - 3);
  }
  const size_t in = frame.find(" in ");
  if (in != std::string::npos && in < frame.find('('))
    return frame.substr(0, in + 4) + ShortCxxName(std::string_view(frame).substr(in + 4));
  return ShortCxxName(std::string_view(frame).substr(0, image));
}

}  // namespace

std::string ShortCxxName(std::string_view name) {
  std::string text = WithoutBrackets(name.substr(0, name.find(" [clone")));
  // Qualifiers of the object follow the name: "operator()() const &".
  for (bool cut = true; cut;) {
    cut = false;
    for (const std::string_view end : {" ", " const", " volatile", " &", " &&", " noexcept"}) {
      if (text.ends_with(end)) {
        text.resize(text.size() - end.size());
        cut = true;
      }
    }
  }
  if (const size_t space = text.rfind(' '); space != std::string::npos)
    text.erase(0, space + 1);  // the type that it returns
  size_t begin = text.size();
  for (int names = 0; begin > 0;) {
    const size_t separator = text.rfind("::", begin - 1);
    if (separator == std::string::npos) {
      begin = 0;
      break;
    }
    names += separator + 2 < begin ? 1 : 0;
    if (names == 2) {
      begin = separator + 2;
      break;
    }
    begin = separator;
  }
  text.erase(0, begin);
  // An unnamed namespace leaves its separators alone.
  for (size_t at = text.find("::::"); at != std::string::npos; at = text.find("::::"))
    text.erase(at, 2);
  if (text.starts_with("::"))
    text.erase(0, 2);
  return text.empty() ? std::string(name) : text;
}

StackNames::StackNames(const tables::Recording& recording,
                       query::Dimension dimension,
                       const std::vector<std::string>& own)
    : native_(dimension == query::Dimension::kNative) {
  if (native_)
    return;
  for (uint32_t i = 1; i < recording.tables().frames.size(); ++i) {
    const tables::FrameId frame{i};
    const auto [found, added] = library_.try_emplace(query::FormatFrame(recording, frame), true);
    found->second = found->second && !query::IsUserFrame(recording, frame, own);
  }
}

std::vector<std::string> StackNames::Frames(const std::string& stack) const {
  std::vector<std::string> frames;
  std::vector<std::string> nameless;
  for (size_t end = stack.size(); end != std::string::npos;) {
    const size_t separator = end == 0 ? std::string::npos : stack.rfind(';', end - 1);
    const size_t begin = separator == std::string::npos ? 0 : separator + 1;
    const std::string frame = stack.substr(begin, end - begin);
    end = separator;
    std::vector<std::string>& list = native_ && IsNameless(frame) ? nameless : frames;
    std::string text = native_ ? ShortNativeFrame(frame) : frame;
    if (list.empty() || list.back() != text)
      list.push_back(std::move(text));
  }
  return frames.empty() ? nameless : frames;
}

void StackNames::Add(const std::string& stack) {
  const std::vector<std::string> frames = Frames(stack);
  for (const std::string& frame : std::set<std::string>(frames.begin(), frames.end()))
    ++stacks_of_[frame];
}

StackNames::Name StackNames::Of(const std::string& stack) const {
  const std::vector<std::string> frames = Frames(stack);
  size_t head = 0;
  size_t fewest = static_cast<size_t>(-1);
  for (size_t i = 0; i < frames.size(); ++i) {
    const auto found = stacks_of_.find(frames[i]);
    const size_t stacks = found == stacks_of_.end() ? 0 : found->second;
    if (stacks < fewest) {
      head = i;
      fewest = stacks;
    }
  }
  Name name{frames[head], ""};
  if (head > 0)
    name.head += ", through " + frames[0];
  for (size_t i = head + 1; i < frames.size(); ++i) {
    const auto library = library_.find(frames[i]);
    if (library == library_.end() || !library->second)
      name.callers += (name.callers.empty() ? "< " : " < ") + frames[i];
  }
  return name;
}

namespace {

// If none of these has bytes, the purpose of memory is unknown, and the ledger says more than
// categories.
bool IsPurpose(const std::string& category) {
  for (const char* name :
       {"parameter", "gradient", "optimizer state", "buffer", "activation", "temporary", "input"}) {
    if (category == name)
      return true;
  }
  return false;
}

}  // namespace

LedgerTree ReportTrees::Categories(const query::DeviceReport& device) const {
  std::vector<TreeLeaf> leaves;
  bool any_purpose = false;
  for (const query::CategoryEntry& entry : report_.categories) {
    if (entry.device != device.device)
      continue;
    leaves.push_back({{Clean(entry.category)}, entry.bytes, entry.count});
    any_purpose = any_purpose || (entry.bytes > 0 && IsPurpose(entry.category));
  }
  if (!any_purpose || !query_.by.empty())
    leaves.clear();
  return LedgerTree(leaves);
}

LedgerTree ReportTrees::Ledger(const query::DeviceReport& device, bool only_owners) const {
  std::set<uint32_t> pids;
  for (const query::ReportRow& row : report_.rows) {
    if (row.device == device.device && row.bytes > 0 && row.pid)
      pids.insert(*row.pid);
  }
  const bool by_process = query_.by.empty() && pids.size() > 1;
  std::map<size_t, StackNames> stacks;  // by level of `query.by`
  for (size_t level = 0; level < query_.by.size(); ++level) {
    const query::Dimension dimension = query_.by[level];
    if (dimension != query::Dimension::kPython && dimension != query::Dimension::kNative)
      continue;
    StackNames& names = stacks.try_emplace(level, recording_, dimension, query_.own).first->second;
    std::set<std::string> texts;
    for (const query::ReportRow& row : report_.rows) {
      if (row.device == device.device && level < row.path.size() &&
          texts.insert(row.path[level]).second)
        names.Add(row.path[level]);
    }
  }
  std::vector<TreeLeaf> leaves;
  for (const query::ReportRow& row : report_.rows) {
    if (row.device != device.device)
      continue;
    TreeLeaf leaf = LeafOf(row, by_process, stacks);
    if (only_owners) {
      const size_t owner = by_process && row.pid ? 1 : 0;
      const size_t levels = owner < leaf.path.size() && leaf.path[owner] == "driver-owned" ? 2 : 1;
      leaf.path.resize(std::min(leaf.path.size(), owner + levels));
    }
    leaves.push_back(std::move(leaf));
  }
  return LedgerTree(leaves);
}

TreeLeaf ReportTrees::LeafOf(const query::ReportRow& row,
                             bool by_process,
                             const std::map<size_t, StackNames>& stacks) const {
  TreeLeaf leaf;
  leaf.bytes = row.bytes;
  leaf.count = row.count;
  // Bytes of no recorded process name themselves: "other processes", "before recording".
  if (by_process && row.pid) {
    const auto found = std::find_if(report_.processes.begin(), report_.processes.end(),
                                    [&](const auto& process) { return process.pid == *row.pid; });
    leaf.path.push_back(found == report_.processes.end()
                            ? fmt::format("pid {}", *row.pid)
                            : Clean(ProcessLabel(found->command, found->pid, found->rank)));
  }
  std::string layer;
  for (size_t level = 0; level < row.path.size(); ++level) {
    leaf.repeats.resize(leaf.path.size());
    if (const auto names = stacks.find(level); names != stacks.end()) {
      const StackNames::Name name = names->second.Of(row.path[level]);
      leaf.path.push_back(Clean(name.head));
      leaf.below.resize(leaf.path.size());
      leaf.below.back() = Clean(name.callers);
      continue;
    }
    std::string name = row.path[level].empty() ? "-" : Clean(row.path[level]);
    const query::Dimension dimension =
        level < query_.by.size() ? query_.by[level] : query::Dimension::kOwner;
    // Below its layer a parameter needs not say which that is.
    if (dimension == query::Dimension::kParameter && !layer.empty() && name.starts_with(layer) &&
        name[layer.size()] == '.')
      name.erase(0, layer.size() + 1);
    if (dimension == query::Dimension::kModule)
      layer = name;
    if (dimension == query::Dimension::kModule)
      AppendNameLevels(name, &leaf);
    else
      leaf.path.push_back(name);
    leaf.repeats.resize(leaf.path.size(), dimension == query::Dimension::kModule ||
                                              dimension == query::Dimension::kParameter);
  }
  return leaf;
}

}  // namespace vramscope::output
