// SPDX-License-Identifier: Apache-2.0
#include "reference.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "transforms.h"

// The loop that takes nearly all the time, also for processors with AVX2.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define VGG19_VECTORISED __attribute__((target_clones("arch=haswell", "default"), optimize("O3")))
#else
#define VGG19_VECTORISED
#endif

namespace vgg19 {

namespace {

constexpr int kOutputsAtOnce = 4;  // outputs of a convolution that use the same inputs

// Calls work(0) ... work(count - 1), on all cores.
template <class Work>
void InParallel(size_t count, const Work& work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      work(i);
    }
  };
  std::vector<std::thread> threads;
  const size_t wanted = std::min<size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
  for (size_t i = 1; i < wanted; ++i) {
    threads.emplace_back(run);
  }
  run();
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// sums[x] += the three products of a filter's row with row[x], row[x + 1], row[x + 2]
VGG19_VECTORISED void AddRow(const float* row, const float* filter, int width, double* sums) {
  const double a = filter[0];
  const double b = filter[1];
  const double c = filter[2];
  for (int x = 0; x < width; ++x) {
    sums[x] += a * row[x] + b * row[x + 1] + c * row[x + 2];
  }
}

VGG19_VECTORISED double Product(const float* a, const float* b, size_t count) {
  constexpr int kLanes = 8;
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += static_cast<double>(a[i + lane]) * b[i + lane];
    }
  }
  double sum = 0;
  for (; i < count; ++i) {
    sum += static_cast<double>(a[i]) * b[i];
  }
  for (const double lane : lanes) {
    sum += lane;
  }
  return sum;
}

// The pictures with a rim of zeros.
std::vector<float> Padded(const Shape& shape, int batch, const std::vector<float>& input) {
  const size_t planes = static_cast<size_t>(batch) * shape.channels;
  const size_t width = shape.width + 2;
  std::vector<float> padded(planes * (shape.height + 2) * width);
  InParallel(planes, [&](size_t plane) {
    for (int y = 0; y < shape.height; ++y) {
      const float* const from = &input[(plane * shape.height + y) * shape.width];
      std::copy_n(from, shape.width, &padded[(plane * (shape.height + 2) + y + 1) * width + 1]);
    }
  });
  return padded;
}

void Convolve(const Layer& layer,
              int batch,
              const std::vector<float>& input,
              const float* weight,
              const float* bias,
              std::vector<float>* output) {
  const Shape& in = layer.input;
  const std::vector<float> padded = Padded(in, batch, input);
  const size_t padded_width = in.width + 2;
  const size_t padded_plane = padded_width * (in.height + 2);
  const int outputs = layer.output.channels;
  const size_t groups = (outputs + kOutputsAtOnce - 1) / kOutputsAtOnce;

  InParallel(batch * groups, [&](size_t item) {
    const size_t picture = item / groups;
    const int first = static_cast<int>(item % groups) * kOutputsAtOnce;
    const int end = std::min(first + kOutputsAtOnce, outputs);
    std::vector<double> sums(static_cast<size_t>(end - first) * in.width);
    for (int y = 0; y < in.height; ++y) {
      for (int o = first; o < end; ++o) {
        std::fill_n(&sums[static_cast<size_t>(o - first) * in.width], in.width, bias[o]);
      }
      for (int c = 0; c < in.channels; ++c) {
        const float* const rows =
            &padded[(picture * in.channels + c) * padded_plane + y * padded_width];
        for (int o = first; o < end; ++o) {
          const float* const filter = weight + (static_cast<size_t>(o) * in.channels + c) * 9;
          double* const sum = &sums[static_cast<size_t>(o - first) * in.width];
          for (int ky = 0; ky < 3; ++ky) {
            AddRow(rows + ky * padded_width, filter + ky * 3, in.width, sum);
          }
        }
      }
      for (int o = first; o < end; ++o) {
        const double* const sum = &sums[static_cast<size_t>(o - first) * in.width];
        const size_t row = (picture * outputs + o) * in.height + y;
        std::copy_n(sum, in.width, &(*output)[row * in.width]);
      }
    }
  });
}

void Multiply(const Layer& layer,
              int batch,
              const std::vector<float>& input,
              const float* weight,
              const float* bias,
              std::vector<float>* output) {
  const size_t inputs = layer.input.elements();
  const size_t outputs = layer.output.elements();
  InParallel(outputs, [&](size_t o) {
    for (int picture = 0; picture < batch; ++picture) {
      const double product = Product(&input[picture * inputs], weight + o * inputs, inputs);
      (*output)[picture * outputs + o] = static_cast<float>(product + bias[o]);
    }
  });
}

// Largest value or mean of each window, one output after the other.
void Pool(const Layer& layer,
          int batch,
          const std::vector<float>& input,
          std::vector<float>* output) {
  const Shape& in = layer.input;
  const Shape& out = layer.output;
  const bool largest = layer.kind == Kind::kMaxPool;
  InParallel(static_cast<size_t>(batch) * in.channels, [&](size_t plane) {
    const float* const from = &input[plane * in.height * in.width];
    float* to = &(*output)[plane * out.height * out.width];
    for (int y = 0; y < out.height; ++y) {
      const int top = largest ? 2 * y : AdaptiveFirst(y, in.height, out.height);
      const int bottom = largest ? 2 * y + 2 : AdaptiveEnd(y, in.height, out.height);
      for (int x = 0; x < out.width; ++x) {
        const int left = largest ? 2 * x : AdaptiveFirst(x, in.width, out.width);
        const int right = largest ? 2 * x + 2 : AdaptiveEnd(x, in.width, out.width);
        double sum = 0;
        float most = -std::numeric_limits<float>::infinity();
        for (int row = top; row < bottom; ++row) {
          for (int column = left; column < right; ++column) {
            const float value = from[static_cast<size_t>(row) * in.width + column];
            sum += value;
            most = std::max(most, value);
          }
        }
        *to++ = largest ? most : static_cast<float>(sum / ((bottom - top) * (right - left)));
      }
    }
  });
}

}  // namespace

std::vector<float> Reference(const Layer& layer,
                             int batch,
                             const std::vector<float>& input,
                             const float* weight,
                             const float* bias) {
  std::vector<float> output(batch * layer.output.elements());
  switch (layer.kind) {
    case Kind::kConvolution:
      Convolve(layer, batch, input, weight, bias, &output);
      break;
    case Kind::kLinear:
      Multiply(layer, batch, input, weight, bias, &output);
      break;
    case Kind::kMaxPool:
    case Kind::kAveragePool:
      Pool(layer, batch, input, &output);
      break;
    case Kind::kRelu:
      std::transform(input.begin(), input.end(), output.begin(),
                     [](float value) { return std::max(value, 0.0f); });
      break;
  }
  return output;
}

double LargestError(const std::vector<float>& values, const std::vector<float>& reference) {
  if (values.size() != reference.size()) {
    return std::numeric_limits<double>::infinity();
  }
  double largest = 0;
  double scale = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double difference = std::abs(static_cast<double>(values[i]) - reference[i]);
    if (!std::isfinite(difference)) {
      return std::numeric_limits<double>::infinity();
    }
    largest = std::max(largest, difference);
    scale = std::max(scale, std::abs(static_cast<double>(reference[i])));
  }
  return largest == 0 ? 0 : largest / scale;
}

}  // namespace vgg19
