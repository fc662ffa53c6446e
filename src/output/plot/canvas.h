// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "util/status.h"

// What figures are drawn on. Lengths are points, y grows downwards.
namespace vramscope::output {

enum class ImageFormat : uint8_t { kSvg, kPng, kPdf };
// By the ending of a file's name.
util::Result<ImageFormat> ImageFormatOf(const std::string& path);

struct Colour {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;
  friend bool operator==(const Colour&, const Colour&) = default;
};
inline constexpr Colour kBlack{0x1b, 0x1f, 0x24};
inline constexpr Colour kGrey{0x6b, 0x72, 0x7c};
inline constexpr Colour kPale{0xe3, 0xe6, 0xea};
inline constexpr Colour kWhite{0xff, 0xff, 0xff};

struct Point {
  double x = 0;
  double y = 0;
};
struct Size {
  double width = 0;
  double height = 0;
};
struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

enum class Hatching : uint8_t { kRising, kCrossed };

enum class Dashes : uint8_t { kNone, kShort, kLong, kDots, kDashDot };

struct Stroke {
  Colour colour = kBlack;
  double width = 1;
  Dashes dashes = Dashes::kNone;
};

enum class Align : uint8_t { kLeft, kCentre, kRight };
struct Lettering {
  double size = 10;
  bool bold = false;
  Colour colour = kBlack;
  Align align = Align::kLeft;
  bool upwards = false;  // turned by 90 degrees
};

class Canvas {
 public:
  virtual ~Canvas() = default;
  virtual void Fill(const Box& box, Colour colour) = 0;
  // Draws lines over the box.
  virtual void Hatch(const Box& box, Hatching hatching, Colour colour) = 0;
  virtual void Frame(const Box& box, const Stroke& stroke) = 0;
  virtual void Line(const std::vector<Point>& points, const Stroke& stroke) = 0;
  virtual void Area(const std::vector<Point>& points, Colour colour, double opacity) = 0;
  // `at` is on the base line. Control characters and broken UTF-8 become '?'.
  virtual void Text(Point at, const std::string& text, const Lettering& lettering) = 0;
  virtual double TextWidth(const std::string& text, const Lettering& lettering) = 0;
};

// `text` cut so that it is at most `width` wide, with an ellipsis where something is missing.
std::string FitText(Canvas& canvas,
                    const std::string& text,
                    double width,
                    const Lettering& lettering);

// Draws with Cairo, in any of the formats by the same calls.
class CairoCanvas : public Canvas {
 public:
  static util::Result<std::unique_ptr<CairoCanvas>> Create(ImageFormat format, Size size);
  // The file. Nothing can be drawn after it.
  virtual util::Result<std::string> Finish() = 0;
};

}  // namespace vramscope::output
