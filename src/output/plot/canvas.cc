// SPDX-License-Identifier: Apache-2.0
#include "output/plot/canvas.h"

#include <cairo-pdf.h>
#include <cairo-svg.h>
#include <cairo.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "output/terminal.h"
#include "util/text.h"

namespace vramscope::output {
namespace {

// Cairo's functions with the types of its headers, found in libcairo.so.2 when the first plot is
// drawn: the program starts, and does all else, on machines without it.
struct Cairo {
#define VRAMSCOPE_CAIRO(name) decltype(&::cairo_##name) name = nullptr;
#include "output/plot/cairo_functions.def"

  // The one table of the process; never unloaded.
  static util::Result<const Cairo*> Load();
};

util::Result<const Cairo*> Cairo::Load() {
  static Cairo cairo;
  static bool loaded = false;
  if (loaded)
    return &cairo;
  void* const library = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return util::Status::Error(
        "plots need libcairo.so.2, which cannot be loaded: install it (Debian: apt-get "
        "install libcairo2)");
  }
#define VRAMSCOPE_CAIRO(name)                                                          \
  cairo.name = reinterpret_cast<decltype(cairo.name)>(dlsym(library, "cairo_" #name)); \
  if (cairo.name == nullptr)                                                           \
    return util::Status::Error("libcairo.so.2 was built without cairo_" #name          \
                               ": install Debian's "                                   \
                               "libcairo2");
#include "output/plot/cairo_functions.def"
  loaded = true;
  return &cairo;
}

// Dots of a PNG a point: sharp on paper and on dense screens.
constexpr double kPngScale = 2;
// If it is not installed, Fontconfig replaces it by a font of the same widths.
constexpr char kFont[] = "Helvetica";
constexpr double kHatchStep = 5;

cairo_status_t Append(void* bytes, const unsigned char* data, unsigned int size) {
  static_cast<std::string*>(bytes)->append(reinterpret_cast<const char*>(data), size);
  return CAIRO_STATUS_SUCCESS;
}

class Drawing : public CairoCanvas {
 public:
  Drawing(const Cairo& cairo, ImageFormat format, Size size)
      : cairo_(cairo), format_(format), size_(size) {
    switch (format) {
      case ImageFormat::kSvg:
        surface_ = cairo_.svg_surface_create_for_stream(Append, &bytes_, size.width, size.height);
        break;
      case ImageFormat::kPdf:
        surface_ = cairo_.pdf_surface_create_for_stream(Append, &bytes_, size.width, size.height);
        break;
      case ImageFormat::kPng:
        surface_ = cairo_.image_surface_create(
            CAIRO_FORMAT_RGB24, static_cast<int>(std::ceil(size.width * kPngScale)),
            static_cast<int>(std::ceil(size.height * kPngScale)));
        break;
    }
    context_ = cairo_.create(surface_);
    if (format == ImageFormat::kPng)
      cairo_.scale(context_, kPngScale, kPngScale);
    Use(kWhite);
    cairo_.paint(context_);
  }
  ~Drawing() override {
    cairo_.destroy(context_);
    cairo_.surface_destroy(surface_);
  }

  util::Status status() const {
    const cairo_status_t status = cairo_.status(context_);
    if (status == CAIRO_STATUS_SUCCESS)
      return {};
    return util::Status::Error(fmt::format("a picture of {:.0f} x {:.0f} points: Cairo reports: {}",
                                           size_.width, size_.height,
                                           cairo_.status_to_string(status)));
  }

  void Fill(const Box& box, Colour colour) override {
    Use(colour);
    cairo_.rectangle(context_, box.x, box.y, box.width, box.height);
    cairo_.fill(context_);
  }

  void Hatch(const Box& box, Hatching hatching, Colour colour) override {
    cairo_.save(context_);
    cairo_.rectangle(context_, box.x, box.y, box.width, box.height);
    cairo_.clip(context_);
    Use(colour);
    cairo_.set_line_width(context_, 0.8);
    const double end = box.width + box.height;
    // Counted from the page's corner, so that neighbouring boxes have one pattern.
    const double first = -std::fmod(box.x + box.y + box.height, kHatchStep);
    for (double at = first; at < end; at += kHatchStep) {
      cairo_.move_to(context_, box.x + at, box.y);
      cairo_.line_to(context_, box.x + at - box.height, box.y + box.height);
    }
    if (hatching == Hatching::kCrossed) {
      for (double at = first; at < end; at += kHatchStep) {
        cairo_.move_to(context_, box.x + at - box.height, box.y);
        cairo_.line_to(context_, box.x + at, box.y + box.height);
      }
    }
    cairo_.stroke(context_);
    cairo_.restore(context_);
  }

  void Frame(const Box& box, const Stroke& stroke) override {
    cairo_.rectangle(context_, box.x, box.y, box.width, box.height);
    Draw(stroke);
  }

  void Line(const std::vector<Point>& points, const Stroke& stroke) override {
    Path(points);
    cairo_.set_line_join(context_, CAIRO_LINE_JOIN_ROUND);
    Draw(stroke);
  }

  void Area(const std::vector<Point>& points, Colour colour, double opacity) override {
    Path(points);
    cairo_.close_path(context_);
    Use(colour, opacity);
    cairo_.fill(context_);
  }

  void Text(Point at, const std::string& text, const Lettering& lettering) override {
    const std::string clean = Printable(text, true);
    const double width = TextWidth(text, lettering);
    const double back = lettering.align == Align::kLeft     ? 0
                        : lettering.align == Align::kCentre ? width / 2
                                                            : width;
    cairo_.save(context_);
    Use(lettering.colour);
    cairo_.translate(context_, at.x, at.y);
    if (lettering.upwards)
      cairo_.rotate(context_, -std::acos(-1.0) / 2);
    cairo_.move_to(context_, -back, 0);
    cairo_.show_text(context_, clean.c_str());
    cairo_.restore(context_);
  }

  double TextWidth(const std::string& text, const Lettering& lettering) override {
    cairo_.select_font_face(context_, kFont, CAIRO_FONT_SLANT_NORMAL,
                            lettering.bold ? CAIRO_FONT_WEIGHT_BOLD : CAIRO_FONT_WEIGHT_NORMAL);
    cairo_.set_font_size(context_, lettering.size);
    cairo_text_extents_t extents{};
    cairo_.text_extents(context_, Printable(text, true).c_str(), &extents);
    return extents.x_advance;
  }

  util::Result<std::string> Finish() override {
    VRAMSCOPE_RETURN_IF_ERROR(status());
    if (format_ == ImageFormat::kPng)
      cairo_.surface_write_to_png_stream(surface_, Append, &bytes_);
    else
      cairo_.surface_finish(surface_);
    const cairo_status_t done = cairo_.surface_status(surface_);
    if (done != CAIRO_STATUS_SUCCESS)
      return util::Status::Error(fmt::format("Cairo reports: {}", cairo_.status_to_string(done)));
    return std::move(bytes_);
  }

 private:
  void Use(Colour colour, double opacity = 1) {
    cairo_.set_source_rgba(context_, colour.red / 255.0, colour.green / 255.0, colour.blue / 255.0,
                           opacity);
  }
  void Path(const std::vector<Point>& points) {
    for (size_t i = 0; i < points.size(); ++i)
      (i == 0 ? cairo_.move_to : cairo_.line_to)(context_, points[i].x, points[i].y);
  }
  void Draw(const Stroke& stroke) {
    Use(stroke.colour);
    cairo_.set_line_width(context_, stroke.width);
    static constexpr double kDashes[][4] = {{}, {4, 3}, {7, 2.5}, {1.5, 1.8}, {7, 2, 1.5, 2}};
    static constexpr int kCounts[] = {0, 2, 2, 2, 4};
    const auto dashes = static_cast<size_t>(stroke.dashes);
    cairo_.set_dash(context_, kDashes[dashes], kCounts[dashes], 0);
    cairo_.stroke(context_);
  }

  const Cairo& cairo_;
  ImageFormat format_;
  Size size_;
  std::string bytes_;
  cairo_surface_t* surface_ = nullptr;
  cairo_t* context_ = nullptr;
};

}  // namespace

util::Result<ImageFormat> ImageFormatOf(const std::string& path) {
  if (path.ends_with(".svg"))
    return ImageFormat::kSvg;
  if (path.ends_with(".png"))
    return ImageFormat::kPng;
  if (path.ends_with(".pdf"))
    return ImageFormat::kPdf;
  return util::Status::Error(
      fmt::format("{}: use a file name that ends with .svg, .png or .pdf", path));
}

std::string FitText(Canvas& canvas,
                    const std::string& text,
                    double width,
                    const Lettering& lettering) {
  if (canvas.TextWidth(text, lettering) <= width)
    return text;
  size_t columns = util::DisplayWidth(text);
  std::string cut;
  do {
    cut = CutEnd(Printable(text, true), --columns, {.utf8 = true});
  } while (columns > 1 && canvas.TextWidth(cut, lettering) > width);
  return cut;
}

util::Result<std::unique_ptr<CairoCanvas>> CairoCanvas::Create(ImageFormat format, Size size) {
  const util::Result<const Cairo*> cairo = Cairo::Load();
  if (!cairo.ok())
    return cairo.status();
  auto drawing = std::make_unique<Drawing>(**cairo, format, size);
  VRAMSCOPE_RETURN_IF_ERROR(drawing->status());
  if (drawing->TextWidth("0", {}) <= 0) {
    return util::Status::Error(
        "plots need a font, and none is installed (Debian: apt-get install fonts-dejavu-core)");
  }
  return std::unique_ptr<CairoCanvas>(std::move(drawing));
}

}  // namespace vramscope::output
