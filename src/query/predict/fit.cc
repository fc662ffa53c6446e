// SPDX-License-Identifier: Apache-2.0
#include "query/predict/fit.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
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

Curve FitCurve(const std::vector<double>& sizes, const std::vector<double>& bytes) {
  const double largest = *std::max_element(sizes.begin(), sizes.end());
  std::vector<double> shares;
  shares.reserve(sizes.size());
  for (const double size : sizes)
    shares.push_back(size / largest);
  const size_t different = std::set<double>(sizes.begin(), sizes.end()).size();
  const double highest = *std::max_element(bytes.begin(), bytes.end());
  CurveParts best{highest};
  double least_squares = std::numeric_limits<double>::max();
  for (const uint8_t shape : kShapes) {
    if (CountOf(shape) > different)
      continue;
    std::optional<CurveParts> parts = Solve(shares, bytes, shape);
    if (!parts)
      continue;
    // What is left of a sum is no part of it.
    for (double& part : *parts)
      part = std::abs(part) < highest * 1e-9 ? 0 : part;
    if (std::any_of(parts->begin(), parts->end(), [](double part) { return part < 0; }))
      continue;
    double squares = 0;
    bool explains = true;
    for (size_t i = 0; i < shares.size(); ++i) {
      const double fitted = (*parts)[0] + ((*parts)[1] + (*parts)[2] * shares[i]) * shares[i];
      const double rest = std::abs(fitted - bytes[i]);
      squares += rest * rest;
      explains = explains && rest <= kExplainedBytes + kExplainedShare * bytes[i];
    }
    // A richer curve that is no better says nothing more.
    if (explains || squares < least_squares * (1 - 1e-9)) {
      best = *parts;
      least_squares = squares;
    }
    if (explains)
      break;
  }
  if (best[1] == 0 && best[2] == 0)
    best[0] = highest;
  return {best[0], best[1] / largest, best[2] / largest / largest};
}

}  // namespace vramscope::query
