// SPDX-License-Identifier: Apache-2.0
#include <optional>

#include "output/answers.h"
#include "output/keywords.h"
#include "output/names.h"
#include "output/results/json_parts.h"
#include "util/json.h"

namespace vramscope::output {
namespace {

using query::KeywordCategory;
using query::KeywordReport;
using query::KeywordTable;
using util::JsonWriter;

// The entry of one line, with its table.
template <class T>
struct Listed {
  const KeywordTable* table;
  const KeywordCategory* category;
  const T* item;
};

class KeywordsWriter {
 public:
  KeywordsWriter(const KeywordReport& report, JsonWriter& json) : report_(report), json_(json) {}

  void Write() {
    json_.BeginObject();
    json_.Field("schema", kKeywordsSchema);
    WriteList(json_, "devices", report_.report.devices, WriteDevice);
    WriteList(json_, "dictionaries", report_.dictionaries, WriteDictionary);
    WriteList(json_, "tables", report_.tables,
              [&](const KeywordTable& table, JsonWriter& out) { WriteTable(table, out); });
    WriteCategories();
    WriteGroups();
    WriteOverlaps();
    WriteList(json_, "unnamed", report_.unnamed, [&](const auto& stack, JsonWriter& out) {
      out.Field("device", DeviceIndex(report_.report, stack.device));
      TextOrNull(out, "line", stack.line);
      TextList(out, "stack", stack.frames);
      out.Field("bytes", stack.bytes);
      out.Field("count", stack.count);
    });
    json_.EndObject();
  }

 private:
  static void WriteDevice(const query::DeviceReport& device, JsonWriter& json) {
    json.Field("index", device.index);
    json.Field("kind", DeviceKindName(device.kind));
    TextOrNull(json, "uuid", device.uuid);
    json.Field("name", device.name);
    NumberOrNull(json, "nvml_bytes", device.nvml_bytes);
    json.Field("ledger_bytes", device.ledger_bytes);
    json.Key("at");
    json.BeginObject();
    json.Field("kind", device.at_kind);
    json.Field("time_ns", device.at_ns);
    NumberOrNull(json, "iteration", device.at_iteration);
    json.EndObject();
  }

  static void WriteDictionary(const query::KeywordDictionary& dictionary, JsonWriter& json) {
    json.Field("name", dictionary.name);
    json.Field("title", dictionary.title);
    std::vector<std::string> over;
    for (const query::Dimension dimension : query::DimensionsOf(dictionary))
      over.emplace_back(query::DimensionName(dimension));
    TextList(json, "over", over);
  }

  // Which table an item is of.
  void Head(const KeywordTable& table, JsonWriter& json) const {
    json.Field("device", DeviceIndex(report_.report, table.device));
    json.Field("dictionary", report_.dictionaries[table.dictionary].name);
  }

  void WriteTable(const KeywordTable& table, JsonWriter& json) const {
    Head(table, json);
    json.Field("row_bytes", table.row_bytes);
    json.Field("others_bytes", table.others.bytes);
    NumberOrNull(json, "expected_bytes", table.expected_bytes);
    TextOrNull(json, "expected_from",
               !table.expected_bytes     ? ""
               : table.expected_is_given ? "given"
                                         : "nvml");
    NumberOrNull(json, "untrackable_bytes", table.untrackable_bytes);
    json.Field("overlap_rows", table.overlap_rows);
    json.Field("overlap_bytes", table.overlap_bytes);
  }

  void WriteCategories() {
    std::vector<Listed<KeywordCategory>> categories;
    std::vector<Listed<query::KeywordEntry>> entries;
    for (const KeywordTable& table : report_.tables) {
      const auto add = [&](const KeywordCategory& category) {
        categories.push_back({&table, &category, &category});
        for (const query::KeywordEntry& entry : category.entries)
          entries.push_back({&table, &category, &entry});
      };
      for (const KeywordCategory& category : table.categories)
        add(category);
      add(table.others);
    }
    WriteList(json_, "categories", categories, [&](const auto& of, JsonWriter& out) {
      Head(*of.table, out);
      out.Field("category", of.item->name);
      TextOrNull(out, "group", of.item->group);
      out.Field("bytes", of.item->bytes);
      out.Field("rows", of.item->rows);
      out.Field("count", of.item->count);
    });
    WriteList(json_, "entries", entries, [&](const auto& of, JsonWriter& out) {
      Head(*of.table, out);
      out.Field("category", of.category->name);
      TextOrNull(out, "dimension", of.item->dimension);
      out.Field("name", of.item->name);
      out.Field("bytes", of.item->bytes);
      out.Field("rows", of.item->rows);
      out.Field("count", of.item->count);
    });
  }

  void WriteGroups() {
    std::vector<Listed<query::KeywordGroup>> groups;
    for (const KeywordTable& table : report_.tables) {
      for (const query::KeywordGroup& group : table.groups)
        groups.push_back({&table, nullptr, &group});
    }
    WriteList(json_, "groups", groups, [&](const auto& of, JsonWriter& out) {
      Head(*of.table, out);
      out.Field("group", of.item->name);
      out.Field("bytes", of.item->bytes);
      out.Field("rows", of.item->rows);
      out.Field("count", of.item->count);
    });
  }

  void WriteOverlaps() {
    std::vector<Listed<query::KeywordOverlap>> overlaps;
    for (const KeywordTable& table : report_.tables) {
      for (const query::KeywordOverlap& overlap : table.overlaps)
        overlaps.push_back({&table, nullptr, &overlap});
    }
    WriteList(json_, "overlaps", overlaps, [&](const auto& of, JsonWriter& out) {
      Head(*of.table, out);
      TextList(out, "names", of.item->names);
      TextList(out, "categories", of.item->categories);
      out.Field("bytes", of.item->bytes);
      out.Field("count", of.item->count);
    });
  }

  const KeywordReport& report_;
  JsonWriter& json_;
};

}  // namespace

void WriteKeywords(const KeywordReport& report, JsonWriter& json) {
  KeywordsWriter(report, json).Write();
}

std::string KeywordsJson(const KeywordReport& report) {
  return JsonText([&](JsonWriter& json) { WriteKeywords(report, json); });
}

}  // namespace vramscope::output
