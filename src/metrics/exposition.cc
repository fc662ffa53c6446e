// SPDX-License-Identifier: Apache-2.0
#include "metrics/exposition.h"

#include <fmt/core.h>

#include <cmath>

#include "util/text.h"

namespace vramscope::cli {
namespace {

struct Description {
  std::string_view name;
  std::string_view type;
  std::string_view help;
};
constexpr Description kDescriptions[] = {
#define VRAMSCOPE_METRIC(Name, name, type, labels, help) {name, #type, help},
#include "metrics/metrics.def"
};

// Prometheus rejects the whole answer if a label is not UTF-8.
std::string Escaped(std::string_view text) {
  std::string out;
  for (const char c : util::ValidUtf8(text)) {
    if (c == '\\' || c == '"')
      out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

// `{gpu="0",pid="1"}`, or nothing.
std::string TextOf(const Labels& labels) {
  std::string out;
  for (const auto& [name, value] : labels)
    out += fmt::format("{}{}=\"{}\"", out.empty() ? "{" : ",", name, Escaped(value));
  return out.empty() ? out : out + "}";
}

}  // namespace

Exposition::Value& Exposition::At(Metric metric, const Labels& labels) {
  return samples_[static_cast<size_t>(metric)][TextOf(labels)];
}

void Exposition::Add(Metric metric, const Labels& labels, uint64_t value) {
  Add(metric, labels, static_cast<int64_t>(value));
}

void Exposition::Add(Metric metric, const Labels& labels, int64_t value) {
  Value& sample = At(metric, labels);
  // A damaged recording may hold any number.
  if (__builtin_add_overflow(sample.whole, value, &sample.whole))
    sample.whole = INT64_MAX;
}

void Exposition::Add(Metric metric, const Labels& labels, double value) {
  At(metric, labels).fraction += value;
}

void Exposition::AddInfo(Metric metric, const Labels& labels) {
  At(metric, labels).whole = 1;
}

void Exposition::AddWorst(Metric metric, const Labels& labels, int64_t value) {
  Value& sample = At(metric, labels);
  if (std::abs(static_cast<double>(value)) > std::abs(static_cast<double>(sample.whole)))
    sample.whole = value;
}

std::string Exposition::Text() const {
  std::string out;
  for (size_t i = 0; i < kMetricCount; ++i) {
    if (samples_[i].empty())
      continue;
    const Description& of = kDescriptions[i];
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", of.name, of.help, of.name, of.type);
    for (const auto& [labels, value] : samples_[i]) {
      if (value.fraction == 0)
        out += fmt::format("{}{} {}\n", of.name, labels, value.whole);
      else
        out += fmt::format("{}{} {}\n", of.name, labels,
                           static_cast<double>(value.whole) + value.fraction);
    }
  }
  return out;
}

}  // namespace vramscope::cli
