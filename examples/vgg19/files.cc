// SPDX-License-Identifier: Apache-2.0
#include "files.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <stdexcept>

namespace vgg19 {

namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the files are little-endian");

constexpr char kWeightsMagic[] = "VGG19W01";
constexpr float kMean[] = {0.485f, 0.456f, 0.406f};
constexpr float kDeviation[] = {0.229f, 0.224f, 0.225f};

// A file that is read from its beginning; every read is whole or an error.
class File {
 public:
  explicit File(const std::string& path) : path_(path), stream_(path, std::ios::binary) {
    if (!stream_) {
      Fail("cannot be opened");
    }
  }
  [[noreturn]] void Fail(const std::string& what) const {
    throw std::runtime_error(path_ + ": " + what);
  }
  void Read(void* to, size_t bytes) {
    if (!stream_.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
      Fail("ends too early");
    }
  }
  template <class Integer>
  Integer Number() {
    Integer value;
    Read(&value, sizeof(value));
    return value;
  }
  std::string Text(size_t bytes) {
    std::string text(bytes, '\0');
    Read(text.data(), bytes);
    return text;
  }
  // The next word of a .ppm's header; a '#' begins a comment.
  int PpmNumber() {
    stream_ >> std::ws;
    while (stream_.peek() == '#') {
      std::string comment;
      std::getline(stream_, comment);
      stream_ >> std::ws;
    }
    int value = 0;
    if (!(stream_ >> value) || value < 1 || value > 65535) {
      Fail("is no binary .ppm");
    }
    return value;
  }

 private:
  std::string path_;
  std::ifstream stream_;
};

// Interleaved bytes, scaled to size x size between the four nearest pixels.
std::vector<float> ReadPpm(const std::string& path, int size) {
  File file(path);
  if (file.Text(2) != "P6") {
    file.Fail("is no binary .ppm");
  }
  const int width = file.PpmNumber();
  const int height = file.PpmNumber();
  if (file.PpmNumber() != 255) {
    file.Fail("has more than 8 bits a colour");
  }
  file.Text(1);  // one white space ends the header
  std::vector<unsigned char> pixels(static_cast<size_t>(width) * height * 3);
  file.Read(pixels.data(), pixels.size());

  std::vector<float> picture(static_cast<size_t>(3) * size * size);
  for (int y = 0; y < size; ++y) {
    const float from_y = std::clamp((y + 0.5f) * height / size - 0.5f, 0.0f, height - 1.0f);
    const int top = static_cast<int>(from_y);
    const int bottom = std::min(top + 1, height - 1);
    for (int x = 0; x < size; ++x) {
      const float from_x = std::clamp((x + 0.5f) * width / size - 0.5f, 0.0f, width - 1.0f);
      const int left = static_cast<int>(from_x);
      const int right = std::min(left + 1, width - 1);
      for (int c = 0; c < 3; ++c) {
        const auto pixel = [&](int row, int column) {
          return static_cast<float>(pixels[(static_cast<size_t>(row) * width + column) * 3 + c]);
        };
        const float part_x = from_x - static_cast<float>(left);
        const float part_y = from_y - static_cast<float>(top);
        const float above = pixel(top, left) + part_x * (pixel(top, right) - pixel(top, left));
        const float below =
            pixel(bottom, left) + part_x * (pixel(bottom, right) - pixel(bottom, left));
        const float value = (above + part_y * (below - above)) / 255.0f;
        picture[(static_cast<size_t>(c) * size + y) * size + x] =
            (value - kMean[c]) / kDeviation[c];
      }
    }
  }
  return picture;
}

// The numbers behind 'shape': (...) of a .npy header.
std::vector<size_t> NpyShape(const File& file, const std::string& header) {
  const size_t begin = header.find('(', header.find("'shape'"));
  const size_t end = header.find(')', begin);
  if (begin == std::string::npos || end == std::string::npos) {
    file.Fail("has no shape");
  }
  std::vector<size_t> shape;
  size_t value = 0;
  bool digits = false;
  for (size_t i = begin + 1; i <= end; ++i) {
    if (header[i] >= '0' && header[i] <= '9' && value < 1000000) {
      value = value * 10 + static_cast<size_t>(header[i] - '0');
      digits = true;
    } else if (digits) {
      shape.push_back(value);
      value = 0;
      digits = false;
    }
  }
  return shape;
}

std::vector<float> ReadNpy(const std::string& path, int batch, int size) {
  File file(path);
  if (file.Text(6) != "\x93NUMPY") {
    file.Fail("is neither a .npy nor a binary .ppm");
  }
  const auto version = file.Number<uint16_t>() & 0xff;  // major, minor
  const size_t length = version == 1 ? file.Number<uint16_t>() : file.Number<uint32_t>();
  if (length > 65536) {
    file.Fail("has a header of more than 64 KiB");
  }
  const std::string header = file.Text(length);
  const std::vector<size_t> shape = NpyShape(file, header);
  const size_t side = static_cast<size_t>(size);
  if (header.find("'<f4'") == std::string::npos ||
      header.find("'fortran_order': False") == std::string::npos || shape.size() != 4 ||
      shape[0] == 0 || shape[1] != 3 || shape[2] != side || shape[3] != side) {
    file.Fail("is not float32 of N x 3 x " + std::to_string(size) + " x " + std::to_string(size) +
              " in C order (--size says how large the pictures are)");
  }
  std::vector<float> pictures(std::min<size_t>(shape[0], batch) * 3 * side * side);
  file.Read(pictures.data(), pictures.size() * sizeof(float));
  return pictures;
}

// Random numbers between -limit and limit, the same with every standard library.
std::vector<float> Uniform(std::mt19937* random, size_t count, float limit) {
  std::vector<float> values(count);
  for (float& value : values) {
    value = (static_cast<float>((*random)() >> 8) / 8388608.0f - 1.0f) * limit;
  }
  return values;
}

}  // namespace

Weights ReadWeights(const std::string& path, const std::vector<Layer>& layers) {
  File file(path);
  if (file.Text(8) != kWeightsMagic) {
    file.Fail("is not a file of weights.py");
  }
  struct Entry {
    std::string name;
    size_t elements;
  };
  std::vector<Entry> entries(std::min<size_t>(file.Number<uint32_t>(), 1024));
  size_t header_bytes = 12;
  for (Entry& entry : entries) {
    const size_t length = std::min<size_t>(file.Number<uint32_t>(), 256);
    entry.name = file.Text(length);
    const size_t dimensions = std::min<size_t>(file.Number<uint32_t>(), 8);
    entry.elements = 1;
    for (size_t i = 0; i < dimensions; ++i) {
      entry.elements *= file.Number<uint32_t>();
    }
    header_bytes += 8 + length + 4 * dimensions;
  }
  file.Text((64 - header_bytes % 64) % 64);

  std::map<std::string, size_t> wanted;
  for (const Layer& layer : layers) {
    if (!layer.parameter.empty()) {
      wanted[layer.parameter + ".weight"] = layer.weight_elements();
      wanted[layer.parameter + ".bias"] = layer.bias_elements();
    }
  }
  Weights weights;
  for (const Entry& entry : entries) {
    const auto found = wanted.find(entry.name);
    if (found == wanted.end() || found->second != entry.elements) {
      file.Fail("has " + entry.name + ", which is no parameter of VGG-19 or has another size");
    }
    std::vector<float>& values = weights[entry.name];
    values.resize(entry.elements);
    file.Read(values.data(), entry.elements * sizeof(float));
  }
  if (weights.size() != wanted.size()) {
    file.Fail("has " + std::to_string(weights.size()) + " of " + std::to_string(wanted.size()) +
              " parameters");
  }
  return weights;
}

Weights RandomWeights(const std::vector<Layer>& layers) {
  std::mt19937 random(19);
  Weights weights;
  for (const Layer& layer : layers) {
    if (layer.parameter.empty()) {
      continue;
    }
    const size_t count = layer.weight_elements();
    const float inputs = static_cast<float>(count) / static_cast<float>(layer.output.channels);
    weights[layer.parameter + ".weight"] = Uniform(&random, count, std::sqrt(6.0f / inputs));
    weights[layer.parameter + ".bias"] = Uniform(&random, layer.bias_elements(), 0.1f);
  }
  return weights;
}

std::vector<float> ReadPictures(const std::string& path, int batch, int size) {
  const bool ppm = path.size() > 4 && path.compare(path.size() - 4, 4, ".ppm") == 0;
  std::vector<float> pictures = ppm ? ReadPpm(path, size) : ReadNpy(path, batch, size);
  const size_t there = pictures.size();
  pictures.resize(static_cast<size_t>(batch) * 3 * size * size);
  for (size_t i = there; i < pictures.size(); ++i) {
    pictures[i] = pictures[i - there];
  }
  return pictures;
}

std::vector<float> RandomPictures(int batch, int size) {
  std::mt19937 random(224);
  return Uniform(&random, static_cast<size_t>(batch) * 3 * size * size, 2.0f);
}

void WriteNpy(const std::string& path, const std::vector<float>& values, size_t columns) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(values.size() / columns) + ", " + std::to_string(columns) +
                       "), }";
  // The data begin at a multiple of 64; 10 bytes come before the header.
  header.append(63 - (header.size() + 10) % 64, ' ');
  header += '\n';
  const uint16_t length = static_cast<uint16_t>(header.size());
  std::ofstream file(path, std::ios::binary);
  file.write("\x93NUMPY\x01\x00", 8);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file.write(header.data(), static_cast<std::streamsize>(header.size()));
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
  if (!file.flush()) {
    throw std::runtime_error(path + ": cannot be written");
  }
}

}  // namespace vgg19
