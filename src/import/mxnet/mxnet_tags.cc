// SPDX-License-Identifier: Apache-2.0
#include "import/mxnet/mxnet_tags.h"

#include <algorithm>
#include <iterator>

namespace vramscope::imports {
namespace {

using format::Category;

struct Word {
  std::string_view text;
  Category category;
};
// The first word that the tag contains decides.
constexpr Word kWords[] = {
    {"arg_grad", Category::kGradient},
    {"head_grad", Category::kGradient},
    {"grad of ", Category::kGradient},
    {"optimizer_state", Category::kOptimizerState},
    {"_optimizer_", Category::kOptimizerState},
    {"in_arg", Category::kParameter},
    {"aux_state", Category::kBuffer},
    {"data_entry", Category::kActivation},
    {"forward_features", Category::kActivation},
    {"workspace", Category::kWorkspace},
    {"temp_space", Category::kWorkspace},
    {"reserve_space", Category::kWorkspace},
    {"kvstore:", Category::kCommunication},
    {"comm_dev:", Category::kCommunication},
    {"image_io:", Category::kInput},
};

const Word* WordOf(std::string_view tag) {
  const auto found = std::find_if(std::begin(kWords), std::end(kWords), [&](const Word& word) {
    return tag.find(word.text) != std::string_view::npos;
  });
  return found == std::end(kWords) ? nullptr : found;
}

// "fc_weight" of "net:arg_grad:fc_weight" and "optimizer_state:mean:fc_weight"; otherwise "".
std::string_view ParameterOf(std::string_view tag) {
  for (const std::string_view word : {"in_arg:", "arg_grad:", "grad of "}) {
    const size_t at = tag.find(word);
    if (at != std::string_view::npos && !tag.starts_with("optimizer_state:"))
      return tag.substr(at + word.size());
  }
  for (const std::string_view word : {"_optimizer_weight_update_", "_optimizer_grad_update_"}) {
    if (tag.starts_with(word))
      return tag.substr(word.size());
  }
  constexpr std::string_view kState = "optimizer_state:";
  const size_t slot_end = tag.find(':', std::min(kState.size(), tag.size()));
  if (tag.starts_with(kState) && slot_end != std::string_view::npos)
    return tag.substr(slot_end + 1);
  return {};
}

}  // namespace

Category CategoryOfTag(std::string_view tag) {
  if (const Word* const word = WordOf(tag); word != nullptr)
    return word->category;
  // Other tools' tables have such names too, so they do not identify the format.
  if (tag.starts_with("resource:"))
    return Category::kWorkspace;
  if (tag.ends_with("fwd_backward"))
    return Category::kGradient;
  if (tag.ends_with("_fwd") || tag.ends_with(":fwd"))
    return Category::kActivation;
  return Category::kUnknown;
}

bool IsMxnetTag(std::string_view tag) {
  return WordOf(tag) != nullptr || tag.starts_with("unknown");
}

void NameSite(std::string_view tag, Builder* builder, tables::SiteRow* site) {
  site->tag = builder->Text(tag);
  site->category = CategoryOfTag(tag);
  site->parameter = builder->Text(ParameterOf(tag));
}

}  // namespace vramscope::imports
