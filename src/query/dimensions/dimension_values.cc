// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "query/dimensions/dimensions.h"
#include "util/text.h"

namespace vramscope::query {
namespace {

// People call modules so; the dimension's own name is in the contract.
constexpr char kLayer[] = "layer";

// Bit of an id: free bytes, with their owner.
constexpr uint64_t kFreeOf = uint64_t{1} << 33;

bool IsFreeOf(const DimensionDef& def, const tables::SiteRow& site) {
  return def.is_of_segment && IsFree(site.part);
}

// "layer.0" is inside of "layer", "solve/jacobi" of "solve".
bool IsBelow(const std::string& text, const std::string& prefix) {
  return !prefix.empty() && text.size() > prefix.size() && text.starts_with(prefix) &&
         (text[prefix.size()] == '.' || text[prefix.size()] == '/');
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (size_t i = 0; i < kDimensionCount; ++i)
    names.emplace_back(DimensionName(static_cast<Dimension>(i)));
  return names;
}

}  // namespace

DimensionValues::DimensionValues(const tables::Recording& recording, std::vector<std::string> own)
    : recording_(recording),
      iterations_(recording.tables()),
      user_frames_(recording, std::move(own)),
      stacks_(recording) {}

bool DimensionValues::IsOfRows(Dimension dimension) {
  return DefOf(dimension).of_rows;
}

uint64_t DimensionValues::Id(Dimension dimension,
                             const tables::SiteRow& site,
                             const tables::AllocationRow* row) const {
  const DimensionDef& def = DefOf(dimension);
  return IsFreeOf(def, site) ? kFreeOf | site.owner.value : def.id(*this, site, row);
}

std::string DimensionValues::Text(Dimension dimension, uint64_t id) const {
  const DimensionDef& def = DefOf(dimension);
  if (IsOfSegment(dimension, id)) {
    const std::string owner = String(tables::StringId{static_cast<uint32_t>(id)});
    return owner.empty() ? "(free in segments)" : "(free in " + owner + "'s segments)";
  }
  return id == 0 ? def.none : def.text(*this, id);
}

bool DimensionValues::IsName(Dimension dimension, uint64_t id) {
  return id != 0 && (id & DefOf(dimension).nameless_bits) == 0;
}

bool DimensionValues::IsOfSegment(Dimension dimension, uint64_t id) {
  return DefOf(dimension).is_of_segment && (id & kFreeOf) != 0;
}

bool DimensionValues::Matches(Dimension dimension,
                              uint64_t id,
                              const std::string& text,
                              const std::string& wanted) const {
  const DimensionDef& def = DefOf(dimension);
  // "(none)" selects rows without a value, not a user's tag of that name.
  if (text == wanted)
    return !IsName(dimension, id) || def.match == DimensionDef::Match::kContains ||
           wanted != def.none;
  if (def.match == DimensionDef::Match::kContains)
    return text.find(wanted) != std::string::npos;
  if (def.match == DimensionDef::Match::kBelow)
    return IsBelow(text, wanted);
  if (def.other_names == nullptr)
    return false;
  const std::vector<std::string> names = def.other_names(*this, id);
  return std::find(names.begin(), names.end(), wanted) != names.end();
}

std::string DimensionValues::StackText(tables::StackId stack) const {
  // Outermost first, as collapsed stacks are written.
  std::string text;
  for (const std::string& frame : stacks_.Texts(stack))
    text.append(text.empty() ? "" : ";").append(frame);
  return text;
}

bool DimensionValues::IsOfPyTorch(const tables::SiteRow& site) const {
  if (!pytorch_)
    pytorch_ = PyTorchOwner(recording_);
  return site.owner.value != 0 && site.owner == *pytorch_;
}

const char* DimensionName(Dimension dimension) {
  return DefOf(dimension).name;
}

std::string DimensionNames() {
  std::string text;
  for (const std::string& name : AllNames())
    text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

util::Result<Dimension> ParseDimension(const std::string& name) {
  std::vector<std::string> candidates = AllNames();
  const auto found = std::find(candidates.begin(), candidates.end(), name);
  if (found != candidates.end())
    return static_cast<Dimension>(found - candidates.begin());
  if (name == kLayer)
    return Dimension::kModule;
  candidates.emplace_back(kLayer);
  if (const std::string closest = util::ClosestName(name, candidates); !closest.empty()) {
    return util::Status::Error("unknown dimension '" + name + "'; did you mean '" + closest + "'?");
  }
  return util::Status::Error("unknown dimension '" + name + "'; use one of: " + DimensionNames());
}

util::Status AddDimension(const std::string& name, std::vector<Dimension>* dimensions) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const Dimension dimension, ParseDimension(name));
  if (std::find(dimensions->begin(), dimensions->end(), dimension) != dimensions->end()) {
    return util::Status::Error("the dimension '" + name + "' is named twice: name each once");
  }
  dimensions->push_back(dimension);
  return {};
}

bool ReportQuery::SelectsWholeDevices() const {
  return std::all_of(where.begin(), where.end(), [](const Where& condition) {
    return condition.dimension == Dimension::kDevice;
  });
}

util::Result<ReportQuery::Where> ParseWhere(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos) {
    return util::Status::Error("the condition '" + text +
                               "' has no '=': write DIM=VALUE, such as category=activation");
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(const Dimension dimension, ParseDimension(text.substr(0, equals)));
  return ReportQuery::Where{dimension, text.substr(equals + 1)};
}

}  // namespace vramscope::query
