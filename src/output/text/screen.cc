// SPDX-License-Identifier: Apache-2.0
#include "output/text/screen.h"

#include <algorithm>

namespace vramscope::output {
namespace {

size_t LinesFor(const Section& section, size_t entries) {
  return entries * section.lines_per_entry + kSectionHeadLines + (entries < section.all ? 1 : 0);
}

size_t FewestLines(const Section& section) {
  return LinesFor(section, std::min(section.fewest, section.entries));
}

}  // namespace

std::vector<size_t> ShareLines(size_t lines, const std::vector<Section>& sections) {
  std::vector<size_t> shown(sections.size(), 0);
  std::vector<size_t> open;  // sections that are not settled yet
  for (size_t i = 0; i < sections.size(); ++i) {
    if (lines == 0)
      shown[i] = sections[i].entries;
    else if (sections[i].entries > 0)
      open.push_back(i);
  }
  const auto lighter = [&](size_t a, size_t b) { return sections[a].weight < sections[b].weight; };
  while (!open.empty()) {
    double weight = 0;
    for (const size_t i : open)
      weight += sections[i].weight;
    const auto share = [&](size_t i) {
      return static_cast<double>(lines) * sections[i].weight / weight;
    };
    const auto all_of_it = [&](size_t i) {
      return static_cast<double>(LinesFor(sections[i], sections[i].entries)) <= share(i);
    };
    const auto too_little = [&](size_t i) {
      return static_cast<double>(FewestLines(sections[i])) > share(i);
    };
    if (const auto found = std::find_if(open.begin(), open.end(), all_of_it); found != open.end()) {
      shown[*found] = sections[*found].entries;
      lines -= LinesFor(sections[*found], shown[*found]);
      open.erase(found);
      continue;
    }
    auto lightest = open.end();
    for (auto i = open.begin(); i != open.end(); ++i) {
      if (too_little(*i) && (lightest == open.end() || !lighter(*lightest, *i)))
        lightest = i;
    }
    if (lightest != open.end()) {
      open.erase(lightest);
      continue;
    }
    // Whole entries, and what that leaves to the heaviest that has room for it.
    size_t left = lines;
    for (const size_t i : open) {
      const auto share_lines = static_cast<size_t>(share(i));
      const size_t beside = LinesFor(sections[i], 0);
      shown[i] = std::max(share_lines, beside) - beside;
      shown[i] /= sections[i].lines_per_entry;
      // The last entry may take the place of the line that says "(1 more)".
      if (shown[i] < sections[i].entries && LinesFor(sections[i], shown[i] + 1) <= share_lines)
        ++shown[i];
      left -= LinesFor(sections[i], shown[i]);
    }
    std::stable_sort(open.begin(), open.end(), [&](size_t a, size_t b) { return lighter(b, a); });
    for (bool any = true; any;) {
      any = false;
      for (const size_t i : open) {
        if (sections[i].lines_per_entry > left || shown[i] == sections[i].entries)
          continue;
        ++shown[i];
        left -= sections[i].lines_per_entry;
        any = true;
      }
    }
    break;
  }
  return shown;
}

}  // namespace vramscope::output
