// SPDX-License-Identifier: Apache-2.0
#include "output/page/page_tables.h"

#include <fmt/format.h>

#include <algorithm>

#include "format/memory_words.h"
#include "output/results/json_parts.h"
#include "query/dimensions/fold_names.h"
#include "query/dimensions/frames.h"
#include "tables/row_of.h"

namespace vramscope::output {
namespace {

using util::JsonWriter;

constexpr uint32_t kNativeFrame = 1;
constexpr uint32_t kLibraryFrame = 2;
constexpr size_t kNamesPerLayer = 4;  // a layer has a few parameters

}  // namespace

uint32_t PageTexts::Of(std::string_view text) {
  const auto [found, added] =
      ids_.try_emplace(std::string(text), static_cast<uint32_t>(texts_.size()));
  if (added)
    texts_.emplace_back(text);
  return found->second;
}

void PageTexts::Write(const char* key, JsonWriter& json) const {
  TextList(json, key, texts_);
}

uint32_t PageStacks::Of(tables::StackId id) {
  const std::vector<tables::StackRow>& rows = recording_.tables().stacks;
  // Outwards until a stack that is known; a damaged table may lead round in a circle.
  std::vector<tables::StackId> missing;
  uint32_t parent = 0;
  while (id.value != 0 && id.value < rows.size() && missing.size() < rows.size()) {
    const auto known = stack_ids_.find(id.value);
    if (known != stack_ids_.end()) {
      parent = known->second;
      break;
    }
    missing.push_back(id);
    id = rows[id.value].parent;
  }
  for (auto at = missing.rbegin(); at != missing.rend(); ++at) {
    const uint32_t frame = FrameOf(rows[at->value].frame);
    stacks_.emplace_back(parent, frame);
    parent = static_cast<uint32_t>(stacks_.size());
    stack_ids_.emplace(at->value, parent);
  }
  return parent;
}

uint32_t PageStacks::FrameOf(tables::FrameId id) {
  const std::vector<tables::FrameRow>& rows = recording_.tables().frames;
  if (id.value == 0 || id.value >= rows.size())
    return 0;
  const auto known = frame_ids_.find(id.value);
  if (known != frame_ids_.end())
    return known->second;
  const tables::FrameRow& row = rows[id.value];
  const tables::StringId file = row.file.value != 0 ? row.file : row.image;
  Frame frame{strings_.Of(recording_.string(row.function)), strings_.Of(recording_.string(file)),
              row.line, row.kind == tables::FrameKind::kNative ? kNativeFrame : 0};
  if (!query::IsUserFrame(recording_, id))
    frame.kind |= kLibraryFrame;
  if (row.line != 0)
    used_lines_[{row.file.value, row.line}] = frame.file;
  frames_.push_back(frame);
  return frame_ids_[id.value] = static_cast<uint32_t>(frames_.size());
}

void PageStacks::Write(JsonWriter& json) const {
  json.Key("frames");
  json.BeginArray();
  WriteTuple(json, 0, 0, 0, 0);
  for (const Frame& frame : frames_)
    WriteTuple(json, frame.function, frame.file, frame.line, frame.kind);
  json.EndArray();
  json.Key("stacks");
  json.BeginArray();
  WriteTuple(json, 0, 0);
  for (const auto& [parent, frame] : stacks_)
    WriteTuple(json, parent, frame);
  json.EndArray();
  json.Key("sources");
  json.BeginObject();
  for (const tables::SourceRow& source : recording_.tables().sources) {
    const auto used = used_lines_.find({source.file.value, source.line});
    if (used != used_lines_.end() && source.text.value != 0)
      json.Field(fmt::format("{}:{}", used->second, source.line), recording_.string(source.text));
  }
  json.EndObject();
}

PageSites::PageSites(const tables::Recording& recording,
                     PageStacks& stacks,
                     PageTexts& names,
                     size_t most_layers)
    : recording_(recording),
      texts_(recording),
      stacks_(stacks),
      names_(names),
      most_layers_(most_layers),
      of_site_(recording.tables().sites.size(), 0),
      of_rounding_(recording.tables().sites.size(), 0) {
  std::unordered_set<uint32_t> layers;
  std::unordered_set<uint32_t> inner;  // parameters and tags
  for (const tables::SiteRow& site : recording.tables().sites) {
    layers.insert(site.module.value);
    inner.insert(site.parameter.value != 0 ? site.parameter.value : site.tag.value);
  }
  if (layers.size() > most_layers || inner.size() > kNamesPerLayer * most_layers)
    folded_layers_ = layers.size();
}

std::string PageSites::LayerName(tables::StringId layer) {
  const std::string_view name = recording_.string(layer);
  if (folded_layers_ == 0)
    return std::string(name);
  std::string folded = query::SplitNumbers(name).shape;
  std::replace(folded.begin(), folded.end(), '#', '*');
  // Names without numbers, and without end.
  if (!folded_names_.contains(folded) && folded_names_.size() >= kNamesPerLayer * most_layers_)
    return "(other layers)";
  folded_names_.insert(folded);
  return folded;
}

const tables::SiteRow& PageSites::Row(tables::SiteId site) const {
  return RowOf(recording_.tables().sites, site);
}

PageSites::Site PageSites::Describe(const tables::SiteRow& row) {
  using query::Dimension;
  Site site;
  site.account = row.account.value;
  site.category = static_cast<uint32_t>(row.category);
  site.backing = row.backing;
  site.unbacked = row.unbacked;
  // As the lines of the report count (query/report/tops.cc).
  site.held = row.place.value != 0 && row.unbacked == 0 && !query::IsFree(row.part);
  const auto [path, added] =
      path_ids_.try_emplace(texts_.TreePath(row), static_cast<uint32_t>(paths_.size()));
  if (added)
    paths_.push_back(path->first);
  site.path = path->second;
  site.line = names_.Of(texts_.Of(Dimension::kLine, row, nullptr));
  site.module = names_.Of(LayerName(row.module));
  site.name = names_.Of(LayerName(row.parameter.value != 0 ? row.parameter : row.tag));
  site.stack = stacks_.Of(row.stack.value != 0 ? row.stack : row.native_stack);
  const uint32_t place = stacks_.Of(row.place);
  site.place = place == site.stack ? 0 : place;
  return site;
}

uint32_t PageSites::Add(const Site& site) {
  const auto [found, added] = ids_.try_emplace(site, static_cast<uint32_t>(sites_.size() + 1));
  if (added)
    sites_.push_back(site);
  return found->second;
}

uint32_t PageSites::Of(tables::SiteId site) {
  uint32_t& known = of_site_[site.value < of_site_.size() ? site.value : 0];
  if (known == 0)
    known = Add(Describe(Row(site)));
  return known;
}

uint32_t PageSites::OfRounding(tables::SiteId site) {
  uint32_t& known = of_rounding_[site.value < of_rounding_.size() ? site.value : 0];
  if (known == 0)
    known = Add(Describe(query::RoundingSite(Row(site))));
  return known;
}

void PageSites::Write(JsonWriter& json) const {
  const auto column = [&](const char* key, uint32_t Site::*field) {
    json.Key(key);
    json.BeginArray();
    json.Uint(0);
    for (const Site& site : sites_)
      json.Uint(site.*field);
    json.EndArray();
  };
  json.Key("sites");
  json.BeginObject();
  column("account", &Site::account);
  column("path", &Site::path);
  column("category", &Site::category);
  column("backing", &Site::backing);
  column("unbacked", &Site::unbacked);
  column("held", &Site::held);
  column("line", &Site::line);
  column("module", &Site::module);
  column("name", &Site::name);
  column("stack", &Site::stack);
  column("place", &Site::place);
  json.EndObject();
  json.Key("paths");
  json.BeginArray();
  for (const std::vector<std::string>& path : paths_)
    WriteTexts(json, path);
  json.EndArray();
  // By their numbers, which have no order.
  std::vector<std::string> categories;
  for (const format::Category category : format::kAllCategories) {
    const auto at = static_cast<size_t>(category);
    categories.resize(std::max(categories.size(), at + 1));
    categories[at] = format::CategoryName(category);
  }
  TextList(json, "categories", categories);
}

}  // namespace vramscope::output
