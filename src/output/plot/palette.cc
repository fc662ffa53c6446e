// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "output/plot/chart_parts.h"

namespace vramscope::output {
namespace {

struct Swatch {
  std::string_view name;
  uint32_t rgb;
};
constexpr Swatch kKnown[] = {
#define VRAMSCOPE_SWATCH(name, rgb) {name, rgb},
#include "output/plot/palette.def"
};
constexpr uint32_t kSpare[] = {
#define VRAMSCOPE_SPARE(rgb) rgb,
#include "output/plot/palette.def"
};

constexpr Colour Unpack(uint32_t rgb) {
  return {static_cast<uint8_t>(rgb >> 16), static_cast<uint8_t>(rgb >> 8),
          static_cast<uint8_t>(rgb)};
}

// The category that a dictionary's name means; null where it means none.
const Swatch* FindKnown(const std::string& name) {
  // "PyTorch / cached" has the colour of cached bytes.
  const size_t slash = name.rfind(" / ");
  std::string lower = slash == std::string::npos ? name : name.substr(slash + 3);
  if (name.starts_with("driver-owned"))
    lower = "driver";
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (lower == "kept by the allocator")
    lower = "cached";
  const auto* const found = std::find_if(
      std::begin(kKnown), std::end(kKnown),
      [&](const Swatch& s) { return s.name == lower || std::string(s.name) + "s" == lower; });
  return found == std::end(kKnown) ? nullptr : found;
}

double Luminance(Colour colour) {
  const auto linear = [](uint8_t value) {
    const double share = value / 255.0;
    return share <= 0.04045 ? share / 12.92 : std::pow((share + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
}

}  // namespace

Palette::Palette(const std::vector<std::string>& names) {
  std::vector<Colour> taken;
  for (const std::string& name : names) {
    if (const Swatch* const known = FindKnown(name)) {
      colours_[name] = Unpack(known->rgb);
      taken.push_back(Unpack(known->rgb));
    }
  }
  std::vector<Colour> spare;
  for (const uint32_t rgb : kSpare) {
    if (std::find(taken.begin(), taken.end(), Unpack(rgb)) == taken.end())
      spare.push_back(Unpack(rgb));
  }
  size_t next = 0;
  for (const std::string& name : names) {
    if (!colours_.contains(name))
      colours_[name] = spare[next++ % spare.size()];
  }
}

Colour Palette::Of(const std::string& name) const {
  const auto found = colours_.find(name);
  return found == colours_.end() ? kPale : found->second;
}

double StackRank(const std::string& name) {
  const auto place = [](const Swatch* swatch) {
    return static_cast<double>(std::distance(std::begin(kKnown), swatch));
  };
  const Swatch* const known = FindKnown(name);
  return known != nullptr ? place(known) : place(FindKnown("other places")) - 0.5;
}

Colour HueOf(size_t index) {
  return Unpack(kSpare[index % std::size(kSpare)]);
}

Colour InkOn(Colour ground) {
  const double luminance = Luminance(ground);
  // Contrast by WCAG: (lighter + 0.05) / (darker + 0.05).
  const double with_white = 1.05 / (luminance + 0.05);
  const double with_black = (luminance + 0.05) / (Luminance(kBlack) + 0.05);
  return with_white >= with_black ? kWhite : kBlack;
}

}  // namespace vramscope::output
