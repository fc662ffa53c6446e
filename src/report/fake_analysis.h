// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "report/report_fixture.h"

namespace vramscope::report {

// Answers every question with what the test put there.
class FakeAnalysis : public engine::Analysis {
 public:
  const trace::Trace& trace() const override { return trace_; }
  util::Result<engine::Report> MakeReport(const engine::ReportQuery& query) override {
    queries.push_back(query);
    if (!failure.ok())
      return failure;
    return report;
  }
  util::Result<std::vector<engine::Timeline>> MakeTimelines(size_t) override {
    return std::vector<engine::Timeline>{};
  }
  util::Result<engine::Lives> MakeLives(size_t) override { return engine::Lives{}; }
  util::Result<engine::Iterations> MakeIterations() override { return iterations; }
  util::Result<engine::Leaks> MakeLeaks(const engine::LeakOptions&) override { return leaks; }
  util::Status ForEachLife(const std::function<void(const engine::Life&)>& sink) override {
    for (const engine::Life& life : lives)
      sink(life);
    return failure;
  }
  const std::vector<std::string>& LifePath(uint32_t path) const override { return paths.at(path); }

  FakeTrace trace_;
  engine::Report report;
  util::Status failure;
  std::vector<engine::Life> lives;
  engine::Iterations iterations;
  engine::Leaks leaks;
  std::vector<std::vector<std::string>> paths;
  std::vector<engine::ReportQuery> queries;
};

}  // namespace vramscope::report
