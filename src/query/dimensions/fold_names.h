// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// Repeated layers in one name: "blocks.[0-11]" for "blocks.0" to "blocks.11".
namespace vramscope::query {

// A name without its numbers, and those: "blocks.3.attn" is "blocks.#.attn" and 3.
struct NumberedName {
  std::string shape;
  std::vector<uint32_t> numbers;
};

// A number counts layers where it is a whole part of the path, or ends one behind an underline.
NumberedName SplitNumbers(std::string_view name);

// "blocks.3" of "blocks.3.attn.qkv": up to its first number; empty where it has none.
std::string_view RepeatedLayerOf(std::string_view module);

// The model in a layer's name: where a process has several, names begin with the model's class,
// "Net.head" or "Net#2.head". Empty where a name has none.
std::string_view ModelOf(std::string_view layer);

// "3", "[0-11]", "[0,2-5]".
std::string RangeText(const std::set<uint32_t>& numbers);

// Some names as one, each with its weight: "blocks.[0-11] x12", "blocks.2.{contract,expand}",
// "head and 3 more". Empty where no name is.
std::string FoldNames(const std::map<std::string, uint64_t>& weights);

// A layer's name in a sentence: "layer 0", "layers [0-3] x4". The layers of a Sequential have only
// numbers, which readers would take for a count. Other names stay as they are.
std::string LayerWords(const std::string& name);

}  // namespace vramscope::query
