// SPDX-License-Identifier: Apache-2.0
#include "util/spelling.h"

#include <algorithm>
#include <cstddef>

namespace vramscope::util {
namespace {

// Letters to insert, drop, replace or swap with their neighbour.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before_last(b.size() + 1);
  std::vector<size_t> last(b.size() + 1);
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j)
    last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
    before_last.swap(last);
    last.swap(row);
  }
  return last[b.size()];
}

}  // namespace

std::string ClosestName(const std::string& word, const std::vector<std::string>& names) {
  std::string closest;
  size_t smallest = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& name : names) {
    // A beginning is a good hint however much is missing.
    const bool begins = word.size() > 3 && name.starts_with(word);
    const size_t distance = begins ? 1 : EditDistance(word, name);
    // Of words of two letters everything is close to everything.
    if (distance < smallest && distance < name.size() - 1) {
      smallest = distance;
      closest = name;
    }
  }
  return closest;
}

}  // namespace vramscope::util
