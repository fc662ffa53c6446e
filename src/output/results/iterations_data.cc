// SPDX-License-Identifier: Apache-2.0
#include "output/iterations.h"
#include "output/iterations.h"
#include "output/results/result_csv.h"
#include "output/results/result_json.h"

namespace vramscope::output {

std::string IterationsJson(const query::Iterations& iterations,
                           const tables::Recording& recording) {
  return AnswerJson(kIterationsSchema, iterations, {&recording});
}

std::string IterationsCsv(const query::Iterations& iterations, const tables::Recording& recording) {
  return RowsCsv(iterations.iterations, recording);
}

}  // namespace vramscope::output
