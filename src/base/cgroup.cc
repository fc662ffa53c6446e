// SPDX-License-Identifier: Apache-2.0
#include "base/cgroup.h"

#include <algorithm>
#include <cstddef>

namespace vramscope::base {
namespace {

constexpr size_t kContainerDigits = 64;
constexpr size_t kUidChars = 36;

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

// substr() would need the C++ library, which the probe does without.
std::string_view From(std::string_view text, size_t begin) {
  text.remove_prefix(std::min(begin, text.size()));
  return text;
}
std::string_view First(std::string_view text, size_t size) {
  return {text.data(), std::min(size, text.size())};
}

// Without `.scope` or `.slice`.
std::string_view WithoutUnit(std::string_view name) {
  for (const std::string_view unit : {".scope", ".slice"}) {
    if (name.ends_with(unit))
      return First(name, name.size() - unit.size());
  }
  return name;
}

// `ID`, `docker-ID.scope`, `cri-containerd-ID.scope` or `crio-ID.scope`.
std::string_view ContainerOf(std::string_view name) {
  const std::string_view plain = WithoutUnit(name);
  const std::string_view id = From(plain, plain.rfind('-') + 1);
  return id.size() == kContainerDigits && std::all_of(id.begin(), id.end(), IsHex)
             ? id
             : std::string_view();
}

// `podUID`, or `kubepods-burstable-podUID.slice`.
std::string_view PodOf(std::string_view name) {
  constexpr std::string_view kPod = "pod";
  const std::string_view plain = WithoutUnit(name);
  if (plain.size() < kPod.size() + kUidChars)
    return {};
  const size_t begin = plain.size() - kUidChars;
  const std::string_view uid = From(plain, begin);
  const bool is_pod = First(plain, begin).ends_with(kPod);
  const auto is_of_uid = [](char c) { return IsHex(c) || c == '-' || c == '_'; };
  return is_pod && std::all_of(uid.begin(), uid.end(), is_of_uid) ? uid : std::string_view();
}

// Splits off the part before the first of `separators`.
std::string_view Next(std::string_view* rest, std::string_view separators) {
  const size_t end = std::min(rest->find_first_of(separators), rest->size());
  const std::string_view part = First(*rest, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return part;
}

}  // namespace

CgroupIds FindCgroupIds(std::string_view text) {
  CgroupIds found;
  while (!text.empty()) {
    std::string_view line = Next(&text, "\n");
    std::string_view name;
    while (!line.empty()) {
      name = Next(&line, "/:");
      if (found.pod.empty())
        found.pod = PodOf(name);
    }
    // A container in a container has the last name.
    if (found.container.empty())
      found.container = ContainerOf(name);
  }
  return found;
}

}  // namespace vramscope::base
