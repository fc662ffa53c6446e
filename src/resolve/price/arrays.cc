// SPDX-License-Identifier: Apache-2.0 Arrays are opaque: no call reports their size, and their
// first price is an estimate. But an interval between two figures of the device without other
// unknowns is an equation:
//
//   growth - explicit calls = arrays made in it - arrays freed in it
//
// An equation with one unknown array gives its price, whether the array is made or freed in it.
// That may leave one unknown in other equations. If no equation has a single unknown, the earliest
// one divides its bytes by the estimates.
#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <utility>

#include "resolve/price/series.h"

namespace vramscope::resolve::price {
namespace {

struct Term {
  uint32_t array = 0;
  int sign = 1;
};

struct Equation {
  std::vector<Term> terms;
  int64_t bytes = 0;
  size_t unknown = 0;
};

class ArraySolver {
 public:
  ArraySolver(const DeviceInput& input, const Series& series) {
    for (const Move& move : input.moves) {
      if (move.array == kNone)
        continue;
      if (move.array >= prices_.size()) {
        prices_.resize(move.array + 1);
        equations_of_.resize(move.array + 1);
      }
      if (move.bytes > 0)
        prices_[move.array].bytes = move.bytes;
    }
    known_.resize(prices_.size());
    if (!prices_.empty())
      SetUp(input, series);
  }

  std::vector<ArrayPrice> Solve() {
    for (size_t first = 0; first < equations_.size(); ++first) {
      Propagate();
      if (equations_[first].unknown > 0) {
        ShareOut(equations_[first]);
        Propagate();
      }
    }
    return std::move(prices_);
  }

 private:
  void SetUp(const DeviceInput& input, const Series& series) {
    for (const Interval& interval : series.intervals) {
      if (!interval.is_plain)
        continue;
      Equation equation;
      equation.bytes = interval.growth_bytes;
      std::map<uint32_t, int> signs;
      const int64_t to_ns = interval.until.time_ns;
      auto move = std::partition_point(
          input.moves.begin(), input.moves.end(),
          [&](const Move& other) { return other.when.time_ns <= interval.from_ns; });
      for (; move != input.moves.end() && move->when.time_ns <= to_ns; ++move) {
        if (move->array == kNone)
          equation.bytes -= move->bytes;
        else
          signs[move->array] += move->bytes < 0 ? -1 : 1;
      }
      for (const auto& [array, sign] : signs) {
        if (sign != 0)  // an array made and freed between two figures shows in neither
          equation.terms.push_back({array, sign});
      }
      if (equation.terms.empty())
        continue;
      equation.unknown = equation.terms.size();
      for (const Term& term : equation.terms)
        equations_of_[term.array].push_back(equations_.size());
      if (equation.unknown == 1)
        ready_.push_back(equations_.size());
      equations_.push_back(std::move(equation));
    }
  }
  void Propagate() {
    while (!ready_.empty()) {
      Equation& equation = equations_[ready_.front()];
      ready_.pop_front();
      if (equation.unknown == 1)
        ShareOut(equation);
    }
  }

  // Divides the remaining bytes among the unknown arrays. If one would become negative, the figures
  // include other memory, and the estimates are kept.
  void ShareOut(Equation& equation) {
    int64_t left = equation.bytes;
    int64_t estimates = 0;
    std::vector<Term> unknown;
    for (const Term& term : equation.terms) {
      left -= term.sign * prices_[term.array].bytes;
      if (!known_[term.array]) {
        unknown.push_back(term);
        estimates += prices_[term.array].bytes;
      }
    }
    std::vector<int64_t> shares;
    int64_t shared = 0;
    for (const Term& term : unknown) {
      const double part = estimates == 0 ? 1.0 / static_cast<double>(unknown.size())
                                         : static_cast<double>(prices_[term.array].bytes) /
                                               static_cast<double>(estimates);
      const bool is_last = shares.size() + 1 == unknown.size();
      shares.push_back(is_last ? left - shared
                               : static_cast<int64_t>(static_cast<double>(left) * part));
      shared += shares.back();
      if (prices_[term.array].bytes + term.sign * shares.back() < 0) {
        equation.unknown = 0;
        return;
      }
    }
    for (size_t i = 0; i < unknown.size(); ++i) {
      prices_[unknown[i].array].bytes += unknown[i].sign * shares[i];
      prices_[unknown[i].array].by_readings |= shares[i] != 0;
      SetKnown(unknown[i].array);
    }
  }

  void SetKnown(uint32_t array) {
    known_[array] = true;
    for (const size_t number : equations_of_[array]) {
      Equation& equation = equations_[number];
      if (equation.unknown > 0 && --equation.unknown == 1)
        ready_.push_back(number);
    }
  }

  std::vector<ArrayPrice> prices_;
  std::vector<bool> known_;
  std::vector<Equation> equations_;  // by time
  std::vector<std::vector<size_t>> equations_of_;
  std::deque<size_t> ready_;  // with one unknown
};

}  // namespace

std::vector<ArrayPrice> PriceArrays(const DeviceInput& input, const Series& series) {
  return ArraySolver(input, series).Solve();
}

}  // namespace vramscope::resolve::price
