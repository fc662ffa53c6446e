// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "query/predict/sizes.h"
#include "query/results.h"
#include "tables/recording.h"
#include "util/status.h"

namespace vramscope::query {

struct PredictInput {
  const tables::Recording* recording = nullptr;
  std::string file;
  std::string command;
  std::optional<uint64_t> size;  // as the user says
};

struct PredictOptions {
  // None: the largest that fits the card; without a card twice the largest recorded.
  std::optional<uint64_t> size;
  std::optional<uint64_t> card_bytes;
};

// A target beyond this multiple of the largest size is far from what is known.
inline constexpr uint64_t kFarFactor = 16;

// The peak at another size. The recordings are of one program at several sizes. From a single one
// only the model is known to stay as it is: the rest has a range.
util::Result<Prediction> MakePrediction(std::vector<PredictInput> inputs,
                                        const PredictOptions& options);

}  // namespace vramscope::query
