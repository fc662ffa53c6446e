// SPDX-License-Identifier: Apache-2.0
#include "output/answers.h"
#include "output/results/result_json.h"

namespace vramscope::output {

void WriteReportJson(const query::Report& report,
                     const tables::Recording& recording,
                     util::JsonWriter& json) {
  WriteAnswer(kReportSchema, report, {&recording, &report}, json);
}

std::string ReportJson(const query::Report& report, const tables::Recording& recording) {
  return AnswerJson(kReportSchema, report, {&recording, &report});
}

std::string IterationsJson(const query::Iterations& iterations,
                           const tables::Recording& recording) {
  return AnswerJson(kIterationsSchema, iterations, {&recording});
}

std::string LeaksJson(const query::Leaks& leaks, const tables::Recording& recording) {
  return AnswerJson(kLeaksSchema, leaks, {&recording});
}

void WriteDiffJson(const query::Diff& diff, util::JsonWriter& json) {
  WriteAnswer(kDiffSchema, diff, {}, json);
}

std::string DiffJson(const query::Diff& diff) {
  return AnswerJson(kDiffSchema, diff, {});
}

void WriteRanksJson(const query::RankReport& report, util::JsonWriter& json) {
  WriteAnswer(kRanksSchema, report, {}, json);
}

std::string RanksJson(const query::RankReport& report) {
  return AnswerJson(kRanksSchema, report, {});
}

std::string OutOfMemoryJson(const query::Refusals& refusals, const tables::Recording& recording) {
  return AnswerJson(kOutOfMemorySchema, refusals, {&recording});
}

std::string JsonOfFiles(const std::vector<std::string>& objects) {
  if (objects.size() == 1)
    return objects[0];
  std::string text;
  for (const std::string& object : objects) {
    text += text.empty() ? "[\n" : ",\n";
    text.append(object, 0, object.find_last_not_of('\n') + 1);
  }
  return text + "\n]\n";
}

}  // namespace vramscope::output
