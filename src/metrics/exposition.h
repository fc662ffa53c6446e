// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vramscope::cli {

enum class Metric : uint8_t {
#define VRAMSCOPE_METRIC(Name, name, type, labels, help) k##Name,
#include "metrics/metrics.def"
};
inline constexpr Metric kAllMetrics[] = {
#define VRAMSCOPE_METRIC(Name, name, type, labels, help) Metric::k##Name,
#include "metrics/metrics.def"
};
inline constexpr size_t kMetricCount = sizeof(kAllMetrics) / sizeof(kAllMetrics[0]);

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Samples as Prometheus' text format 0.0.4. A set of labels has one sample: values with equal
// labels, of two recordings of one process, are added.
class Exposition {
 public:
  void Add(Metric metric, const Labels& labels, uint64_t value);
  void Add(Metric metric, const Labels& labels, int64_t value);
  void Add(Metric metric, const Labels& labels, double value);
  // The value is 1.
  void AddInfo(Metric metric, const Labels& labels);
  // Keeps the value that is farther from 0.
  void AddWorst(Metric metric, const Labels& labels, int64_t value);

  std::string Text() const;

 private:
  // Whole numbers print exactly.
  struct Value {
    int64_t whole = 0;
    double fraction = 0;
  };
  Value& At(Metric metric, const Labels& labels);

  std::array<std::map<std::string, Value>, kMetricCount> samples_;
};

}  // namespace vramscope::cli
