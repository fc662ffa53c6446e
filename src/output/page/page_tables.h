// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "query/dimensions/cells.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/report.h"
#include "tables/recording.h"
#include "util/json.h"

// The parts of the page's data: dictionaries (what the page uses of the recording's, renumbered
// densely), the allocations that it does not list, and the findings.
namespace vramscope::output {

// Texts, each once; 0 is "".
class PageTexts {
 public:
  PageTexts() { Of(""); }
  uint32_t Of(std::string_view text);
  void Write(const char* key, util::JsonWriter& json) const;

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string, uint32_t> ids_;
};

// Frames and stacks; 0: none.
class PageStacks {
 public:
  PageStacks(const tables::Recording& recording, PageTexts& strings)
      : recording_(recording), strings_(strings) {}
  uint32_t Of(tables::StackId stack);
  void Write(util::JsonWriter& json) const;

 private:
  struct Frame {
    uint32_t function;
    uint32_t file;
    uint32_t line;
    uint32_t kind;  // 1: native, 2: not the user's own code
  };
  uint32_t FrameOf(tables::FrameId id);

  const tables::Recording& recording_;
  PageTexts& strings_;
  std::vector<Frame> frames_;                          // the page's number less 1
  std::vector<std::pair<uint32_t, uint32_t>> stacks_;  // the same
  std::map<std::pair<uint32_t, uint32_t>, uint32_t>
      used_lines_;  // file id and line: the page's file
  std::unordered_map<uint32_t, uint32_t> frame_ids_;
  std::unordered_map<uint32_t, uint32_t> stack_ids_;
};

// The sites of bytes, as far as the page distinguishes them. Rounding and the free bytes of
// segments have sites of their own. 0: none. If there are more than `most_layers` layers, those
// whose names differ in numbers only become one, "h.*.attn", since a browser has no room for a
// million.
class PageSites {
 public:
  PageSites(const tables::Recording& recording,
            PageStacks& stacks,
            PageTexts& names,
            size_t most_layers);
  uint32_t Of(tables::SiteId site);
  uint32_t OfRounding(tables::SiteId site);
  uint32_t OfRow(const tables::SiteRow& site) { return Add(Describe(site)); }
  const tables::SiteRow& Row(tables::SiteId site) const;
  std::string LayerName(tables::StringId layer);
  // How many layers there are, where some are one; else 0.
  size_t folded_layers() const { return folded_layers_; }
  void Write(util::JsonWriter& json) const;

 private:
  struct Site {
    uint32_t account = 0;
    uint32_t path = 0;
    uint32_t category = 0;
    uint32_t backing = 0;
    uint32_t unbacked = 0;  // 1: no device memory is mapped below it
    uint32_t held = 0;      // 1: somebody has it: no slack
    uint32_t line = 0;
    uint32_t module = 0;
    uint32_t name = 0;   // parameter, else tag
    uint32_t stack = 0;  // Python, else native
    uint32_t place = 0;  // that people name it by, where that is another one
    auto operator<=>(const Site&) const = default;
  };
  Site Describe(const tables::SiteRow& row);
  uint32_t Add(const Site& site);

  const tables::Recording& recording_;
  query::DimensionValues texts_;
  PageStacks& stacks_;
  PageTexts& names_;
  size_t most_layers_;
  size_t folded_layers_ = 0;
  std::unordered_set<std::string> folded_names_;
  std::vector<Site> sites_;  // the page's number less 1
  std::map<Site, uint32_t> ids_;
  std::vector<std::vector<std::string>> paths_;
  std::map<std::vector<std::string>, uint32_t> path_ids_;
  std::vector<uint32_t> of_site_, of_rounding_;  // by site; 0: not asked yet
};

// Selects the `limit` heaviest allocations in bounded memory. Add() every weight, Close(), then
// call Has() for each in the same order. Ties keep that order.
class Heaviest {
 public:
  explicit Heaviest(size_t limit);
  void Add(double weight);
  void Close();
  bool Has(double weight);

 private:
  void Cut();

  size_t limit_;
  double floor_ = -1;
  size_t at_floor_ = 0;  // how many of those that weigh so much still are
  std::vector<double> weights_;
};

// Allocations that are not listed, as sums at stated instants: what changed at each, by site and
// segment. `fixed`: the instants that stay where there are too many changes.
class LeftOut {
 public:
  LeftOut(std::vector<int64_t> instants_ns, const std::set<int64_t>& fixed);

  void Count() { ++count_; }
  void Add(uint32_t site,
           uint32_t segment,
           uint64_t bytes,
           uint64_t count,
           int64_t begin_ns,
           int64_t end_ns);
  // Drops every second instant until at most `most_changes` are left.
  void Thin(size_t most_changes);
  void Write(int64_t start_ns, util::JsonWriter& json) const;

 private:
  struct Change {
    int64_t bytes = 0;
    int64_t count = 0;
  };
  bool ThinOnce();
  // The first instant at or after.
  size_t FirstFrom(int64_t time_ns) const;

  std::vector<int64_t> instants_ns_;
  std::vector<bool> is_fixed_;
  std::map<std::pair<uint32_t, uint32_t>, std::map<size_t, Change>> changes_;
  uint64_t count_ = 0;
};

// What the page's own tables are made of.
struct FindingsOf {
  const tables::Recording& recording;
  const query::Iterations& iterations;               // none where there is an error
  const std::optional<query::EnginePhases>& phases;  // likewise
  int64_t end_ns;                                    // of the page's time
  bool advise;
};

// Writes the page's own tables: answers of query/ that are not about an instant. `device_of`: the
// page's number of a device, -1 for none.
void WriteFindings(const FindingsOf& of,
                   const std::function<int(tables::DeviceId)>& device_of,
                   PageStacks& stacks,
                   util::JsonWriter& json);

}  // namespace vramscope::output
