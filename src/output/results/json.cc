// SPDX-License-Identifier: Apache-2.0
#include "output/results/json.h"

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
