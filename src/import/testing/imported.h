// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "import/import.h"
#include "tables/memory_recording.h"

namespace vramscope::imports {
inline constexpr int64_t kSecondNs = 1'000'000'000;
}  // namespace vramscope::imports

namespace vramscope::imports::testing {

// Gone with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content, const std::string& name = "input") {
    std::string folder = ::testing::TempDir() + "vramscope-import-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder_ + "/" + name;
    std::ofstream(path_, std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
};

// What became of a text.
struct Imported {
  std::string format;  // as which it was recognized; "" as none
  std::string error;
  tables::Tables tables;
  std::vector<tables::AllocationRow> rows;

  std::string Text(tables::StringId id) const { return std::string(tables.strings[id]); }
  std::string TagOf(const tables::AllocationRow& row) const {
    return Text(tables.sites[row.site.value].tag);
  }
  int32_t DeviceOf(tables::AccountId account) const {
    return tables.devices[tables.accounts[account.value].device.value].index;
  }
  std::string NoteOf(const std::string& key) const {
    for (const tables::NoteRow& note : tables.notes) {
      if (Text(note.key) == key)
        return Text(note.value);
    }
    return "";
  }
  std::map<std::string, uint64_t> Losses() const {
    std::map<std::string, uint64_t> losses;
    for (const tables::LossRow& loss : tables.losses)
      losses[Text(loss.name)] = loss.count;
    return losses;
  }
  // Of counters, by device and pid: their bytes at the end of each step.
  std::map<std::pair<int32_t, uint32_t>, std::vector<std::pair<int64_t, int64_t>>> Counters()
      const {
    std::map<std::pair<int32_t, uint32_t>, std::vector<std::pair<int64_t, int64_t>>> counters;
    for (const tables::StepRow& step : tables.steps) {
      const tables::SiteRow& site = tables.sites[tables.counters[step.counter.value].site.value];
      const tables::AccountRow& account = tables.accounts[site.account.value];
      auto& steps = counters[{DeviceOf(site.account), tables.processes[account.process.value].pid}];
      steps.emplace_back(step.time_ns, step.bytes + (steps.empty() ? 0 : steps.back().second));
    }
    return counters;
  }
};

class RowSink : public tables::AllocationSink {
 public:
  explicit RowSink(std::vector<tables::AllocationRow>* rows) : rows_(*rows) {}
  util::Status Add(const tables::AllocationRow& row) override {
    rows_.push_back(row);
    return {};
  }

 private:
  std::vector<tables::AllocationRow>& rows_;
};

inline Imported ImportText(const std::string& content,
                           const Options& options = {},
                           const std::string& name = "input",
                           const std::string& format = "") {
  const TemporaryFile file(content, name);
  Imported imported;
  const util::Result<Input> input = Input::Open(file.path());
  if (!input) {
    imported.error = input.status().message();
    return imported;
  }
  const Format* const found = format.empty() ? Recognize(*input) : *FindFormat(format);
  if (found == nullptr)
    return imported;
  imported.format = found->name;
  RowSink sink(&imported.rows);
  util::Result<tables::Tables> tables = Import(*input, *found, options, sink);
  if (tables)
    imported.tables = std::move(*tables);
  else
    imported.error = tables.status().message();
  return imported;
}

}  // namespace vramscope::imports::testing
