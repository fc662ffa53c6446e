// SPDX-License-Identifier: Apache-2.0
#include "resolve/attribute/pytree_path.h"

#include <algorithm>
#include <array>
#include <vector>

namespace vramscope::resolve {
namespace {

using format::NameKind;

struct Word {
  std::string_view text;
  NameKind kind;
};

// Collections of Flax, Optax, Equinox, Haiku and of most programs; a path begins with these.
constexpr std::array kCollections = {
    Word{"params", NameKind::kParameter},
    Word{"parameters", NameKind::kParameter},
    Word{"opt_state", NameKind::kOptimizerState},
    Word{"optimizer_state", NameKind::kOptimizerState},
    Word{"opt_states", NameKind::kOptimizerState},
    Word{"batch_stats", NameKind::kBuffer},
    Word{"grads", NameKind::kGradient},
    Word{"gradients", NameKind::kGradient},
};
// Fields of Optax's states, wherever they are. Their order is that of rank.
constexpr std::array kFields = {
    Word{"mu", NameKind::kOptimizerState},    Word{"nu", NameKind::kOptimizerState},
    Word{"trace", NameKind::kOptimizerState}, Word{"inner_state", NameKind::kOptimizerState},
    Word{"kernel", NameKind::kParameter},     Word{"bias", NameKind::kParameter},
    Word{"embedding", NameKind::kParameter},  Word{"weight", NameKind::kParameter},
};

// state.params['Dense_0'][3] -> state, params, Dense_0, 3
std::vector<std::string_view> PartsOf(std::string_view path) {
  std::vector<std::string_view> parts;
  while (!path.empty()) {
    size_t end = 0;
    if (path.starts_with('[')) {
      const bool quoted = path.size() > 1 && (path[1] == '\'' || path[1] == '"');
      const size_t from = quoted ? 2 : 1;
      const size_t close =
          quoted ? path.find(std::string{path[1], ']'}, from) : path.find(']', from);
      parts.push_back(path.substr(from, close == std::string_view::npos ? close : close - from));
      end = close == std::string_view::npos ? path.size() : close + (quoted ? 2 : 1);
    } else {
      const size_t from = path.starts_with('.') ? 1 : 0;
      end = std::min(path.find_first_of(".[", from), path.size());
      if (end > from)
        parts.push_back(path.substr(from, end - from));
    }
    path.remove_prefix(end);
  }
  return parts;
}

template <size_t kSize>
const Word* Find(const std::array<Word, kSize>& words, std::string_view part) {
  const auto found =
      std::find_if(words.begin(), words.end(), [&](const Word& word) { return word.text == part; });
  return found == words.end() ? nullptr : &*found;
}

// The first part that is a collection; the number of parts if none is.
size_t CollectionOf(const std::vector<std::string_view>& parts) {
  const auto found = std::find_if(parts.begin(), parts.end(), [](std::string_view part) {
    return Find(kCollections, part) != nullptr;
  });
  return static_cast<size_t>(found - parts.begin());
}

}  // namespace

bool IsPytreePath(std::string_view name) {
  return name.find('[') != std::string_view::npos;
}

std::string ShowPytreePath(std::string_view path) {
  const std::vector<std::string_view> parts = PartsOf(path);
  const size_t collection = CollectionOf(parts);
  std::string shown;
  for (size_t i = collection < parts.size() ? collection : 0; i < parts.size(); ++i) {
    if (!shown.empty())
      shown += '/';
    shown += parts[i];
  }
  return shown;
}

format::NameKind KindOfPytreePath(std::string_view path) {
  const std::vector<std::string_view> parts = PartsOf(path);
  if (const size_t at = CollectionOf(parts); at < parts.size())
    return Find(kCollections, parts[at])->kind;
  for (const Word& field : kFields) {
    if (std::find(parts.begin(), parts.end(), field.text) != parts.end())
      return field.kind;
  }
  return NameKind::kTag;
}

}  // namespace vramscope::resolve
