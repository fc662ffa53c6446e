// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

// How bytes grow with a size, such as that of a batch.
namespace vramscope::query {

// constant + linear * size + square * size * size.
struct Curve {
  double constant = 0;
  double linear = 0;
  double square = 0;

  double At(double size) const { return constant + (linear + square * size) * size; }
  // "constant", "linear" or "quadratic": the highest power that has more than a hundredth of the
  // bytes at that size.
  const char* FormAt(double size) const;
  Curve operator*(double factor) const {
    return {constant * factor, linear * factor, square * factor};
  }
  Curve& operator+=(const Curve& other);
};

struct Fit {
  Curve curve;
  // Bytes that depend on the size alone are a number of elements: whole multiples of the size, of
  // the size plus a whole number, of products of such. What is certain looks like that; figures
  // that depend on data, or of two different algorithms, hardly ever do.
  bool certain = false;
};

// The simplest curve without a negative part that explains the bytes at these sizes; where none
// does, a guess that is not below the bytes at the largest size. As many parts as there are
// different sizes, three at the most.
Fit FitCurve(const std::vector<double>& sizes, const std::vector<double>& bytes);

}  // namespace vramscope::query
