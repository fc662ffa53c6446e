// SPDX-License-Identifier: Apache-2.0
#include "query/predict/fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>

namespace vramscope::query {
namespace {

constexpr size_t kCurveParts = 3;  // powers 0, 1 and 2
using CurveParts = std::array<double, kCurveParts>;

// What a fit may leave: libraries pad.
constexpr double kExplainedShare = 0.005;
constexpr double kExplainedBytes = 16;
// A part of a curve that is less of it does not name it.
constexpr double kTellingShare = 0.01;

// The powers of each curve that is tried, as bits, the simplest first. A part that is constant
// beside one that grows is more frequent than two that grow.
constexpr uint8_t kShapes[] = {0b001, 0b010, 0b100, 0b011, 0b110, 0b101, 0b111};

double Power(double size, size_t part) {
  return part == 0 ? 1 : part == 1 ? size : size * size;
}

// By least squares: the normal equations of the parts in `shape`. Sizes are between 0 and 1.
std::optional<CurveParts> Solve(const std::vector<double>& sizes,
                                const std::vector<double>& bytes,
                                uint8_t shape) {
  std::array<std::array<double, kCurveParts + 1>, kCurveParts> rows{};
  for (size_t row = 0; row < kCurveParts; ++row) {
    if ((shape >> row & 1) == 0) {
      rows[row][row] = 1;  // it is 0
      continue;
    }
    for (size_t i = 0; i < sizes.size(); ++i) {
      const double factor = Power(sizes[i], row);
      for (size_t column = 0; column < kCurveParts; ++column)
        rows[row][column] += (shape >> column & 1) != 0 ? factor * Power(sizes[i], column) : 0;
      rows[row][kCurveParts] += factor * bytes[i];
    }
  }
  for (size_t column = 0; column < kCurveParts; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < kCurveParts; ++row)
      pivot = std::abs(rows[row][column]) > std::abs(rows[pivot][column]) ? row : pivot;
    if (std::abs(rows[pivot][column]) < 1e-12)
      return std::nullopt;
    std::swap(rows[pivot], rows[column]);
    for (size_t row = 0; row < kCurveParts; ++row) {
      if (row == column)
        continue;
      const double factor = rows[row][column] / rows[column][column];
      for (size_t i = column; i <= kCurveParts; ++i)
        rows[row][i] -= factor * rows[column][i];
    }
  }
  CurveParts parts{};
  for (size_t part = 0; part < kCurveParts; ++part)
    parts[part] = rows[part][kCurveParts] / rows[part][part];
  return parts;
}

size_t CountOf(uint8_t shape) {
  return static_cast<size_t>(std::popcount(shape));
}

// Without a negative part, and nearly the bytes.
bool Explains(CurveParts* parts,
              const std::vector<double>& shares,
              const std::vector<double>& bytes,
              double highest) {
  // Rounding leaves such rests of a sum.
  for (double& part : *parts)
    part = std::abs(part) < highest * 1e-9 ? 0 : part;
  if (std::any_of(parts->begin(), parts->end(), [](double part) { return part < 0; }))
    return false;
  for (size_t i = 0; i < shares.size(); ++i) {
    const double fitted = (*parts)[0] + ((*parts)[1] + (*parts)[2] * shares[i]) * shares[i];
    if (std::abs(fitted - bytes[i]) > kExplainedBytes + kExplainedShare * bytes[i])
      return false;
  }
  return true;
}

// A quarter: layers that halve a length twice.
bool IsQuarters(double number) {
  return std::abs(number * 4 - std::round(number * 4)) < 1e-6 * std::max(1.0, number);
}

// k * (size + a), k * size * (size + a) or k * (size + a) * (size + b).
bool IsOfElements(const Curve& curve) {
  if (curve.square == 0)
    return curve.linear != 0 && IsQuarters(curve.constant / curve.linear);
  return IsQuarters(curve.linear / curve.square) && IsQuarters(curve.constant / curve.square);
}

// Where no curve explains them.
Curve Guess(const std::vector<double>& sizes, const std::vector<double>& bytes) {
  const auto last =
      static_cast<size_t>(std::max_element(sizes.begin(), sizes.end()) - sizes.begin());
  const std::optional<CurveParts> line = Solve(sizes, bytes, 0b011);
  if (line && (*line)[1] <= 0)
    return {*std::max_element(bytes.begin(), bytes.end())};
  if (line && (*line)[0] >= 0) {
    const Curve curve{(*line)[0], (*line)[1]};
    return curve * std::max(1.0, bytes[last] / curve.At(sizes[last]));
  }
  return {0, bytes[last] / sizes[last]};
}

}  // namespace

Curve& Curve::operator+=(const Curve& other) {
  constant += other.constant;
  linear += other.linear;
  square += other.square;
  return *this;
}

const char* Curve::FormAt(double size) const {
  const double least = kTellingShare * At(size);
  if (square * size * size > least)
    return "quadratic";
  return linear * size > least ? "linear" : "constant";
}

Fit FitCurve(const std::vector<double>& sizes, const std::vector<double>& bytes) {
  const double largest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<double> shares;
  shares.reserve(sizes.size());
  for (const double size : sizes)
    shares.push_back(size / largest);
  const size_t different = std::set<double>(sizes.begin(), sizes.end()).size();
  const double highest = *std::max_element(bytes.begin(), bytes.end());
  for (const uint8_t shape : kShapes) {
    if (CountOf(shape) > different)
      continue;
    std::optional<CurveParts> parts = Solve(shares, bytes, shape);
    if (!parts || !Explains(&*parts, shares, bytes, highest))
      continue;
    Fit fit{{(*parts)[0], (*parts)[1] / largest, (*parts)[2] / largest / largest}};
    // As many parts as figures explain anything.
    fit.certain = CountOf(shape) < different || CountOf(shape) == 1 || IsOfElements(fit.curve);
    return fit;
  }
  return {Guess(sizes, bytes)};
}

}  // namespace vramscope::query
