// SPDX-License-Identifier: Apache-2.0
#include "vramscope/read.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "query/dimensions/report.h"
#include "query/testing/random_recording.h"
#include "read/arrow_stream.h"
#include "tables/reader.h"
#include "tables/testing/file_model.h"
#include "tables/testing/random_tables.h"
#include "util/text.h"

namespace vramscope::read {
namespace {

using tables::testing::MemoryFile;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Random = std::mt19937_64;

// What frees a recording, an answer and a cursor.
struct Closer {
  void operator()(vramscope_recording* recording) const { vramscope_read_close(recording); }
  void operator()(const vramscope_answer* answer) const { vramscope_read_free(answer); }
  void operator()(vramscope_cursor* cursor) const { vramscope_read_end(cursor); }
  void operator()(vramscope_dataset* dataset) const { vramscope_read_dataset_end(dataset); }
};
using RecordingPtr = std::unique_ptr<vramscope_recording, Closer>;
using AnswerPtr = std::unique_ptr<const vramscope_answer, Closer>;
using CursorPtr = std::unique_ptr<vramscope_cursor, Closer>;
using DatasetPtr = std::unique_ptr<vramscope_dataset, Closer>;

std::string PathOf(const MemoryFile& file) {
  return "/proc/self/fd/" + std::to_string(file.fd());
}
RecordingPtr OpenFile(const MemoryFile& file) {
  return RecordingPtr(vramscope_read_open(PathOf(file).c_str(), nullptr));
}
std::string Error() {
  return vramscope_read_error();
}

const vramscope_column& ColumnOf(const vramscope_table* table, const char* name) {
  static const vramscope_column kNone{};
  const vramscope_column* const column = vramscope_find_column(table, name);
  EXPECT_NE(column, nullptr) << name;
  return column != nullptr ? *column : kNone;
}
std::string TextAt(const vramscope_table* table, const char* name, size_t row) {
  const char* const text = vramscope_text_of(&ColumnOf(table, name), row);
  return text != nullptr ? text : "null";
}
uint64_t NumberAt(const vramscope_table* table, const char* name, size_t row) {
  return vramscope_number(&ColumnOf(table, name), row);
}

// 3,000 allocations of two processes that share a GPU, for a second.
struct Sample {
  Sample() {
    query::RecordingBuilder builder;
    Random random(5);
    const auto gpu = builder.Device(tables::DeviceKind::kGpu, 3);
    builder.tables.session.end_ns = 1'000'000'000;
    for (uint32_t pid = 11; pid <= 12; ++pid) {
      const auto account = builder.Account(builder.Process(pid, 900'000'000), gpu);
      for (int kind = 0; kind < 7; ++kind) {
        tables::SiteRow site = builder.SiteOf(account);
        site.category = static_cast<format::Category>(random() % 5);
        site.module = builder.Text("layer." + std::to_string(kind));
        builder.Site(site);
      }
    }
    for (int i = 0; i < 3000; ++i) {
      tables::AllocationRow row;
      row.begin_ns = row.alloc_ns = static_cast<int64_t>(random() % 800'000'000);
      row.end_ns = random() % 9 == 0
                       ? tables::kNever
                       : row.begin_ns + 1 + static_cast<int64_t>(random() % 100'000'000);
      row.address = 0x7f0000000000 + static_cast<uint64_t>(i) * 512;
      row.bytes = 1 + random() % 100'000;
      row.site = tables::SiteId{static_cast<uint32_t>(1 + random() % 14)};
      builder.rows.push_back(row);
    }
    rows = builder.rows;
    std::stable_sort(builder.rows.begin(), builder.rows.end(),
                     [](const auto& a, const auto& b) { return a.end_ns < b.end_ns; });
    bytes = tables::testing::WriteFile(builder.tables, builder.rows, 256);
  }
  std::vector<tables::AllocationRow> rows;
  std::string bytes;
};
const Sample& TheSample() {
  static const Sample sample;
  return sample;
}

TEST(ReadTest, TablesAreThoseOfTheFile) {
  Random random(1);
  const tables::Tables tables = tables::testing::RandomTables(&random, 20);
  const MemoryFile file(tables::testing::WriteFile(tables, {}, 64));
  const RecordingPtr recording = OpenFile(file);
  ASSERT_NE(recording, nullptr) << Error();
  const AnswerPtr names(vramscope_read_table(recording.get(), "tables"));
  const vramscope_table* const list = vramscope_find_table(names.get(), "tables");
  size_t listed = 0;
  tables::Tables::ForEach(tables, [&]<class Row>(const std::vector<Row>& rows) {
    const char* const name = tables::TableOf<Row>::kName;
    const AnswerPtr answer(vramscope_read_table(recording.get(), name));
    const vramscope_table* const table = vramscope_find_table(answer.get(), name);
    ASSERT_NE(table, nullptr) << Error();
    ASSERT_EQ(table->row_count, rows.size()) << name;
    const auto check = [&]<class Type>(const tables::Column<Row, Type>& column) {
      EXPECT_EQ(TextAt(list, "table", listed), name);
      EXPECT_EQ(TextAt(list, "column", listed++), column.name);
      for (size_t i = 0; i < rows.size(); ++i) {
        const Type value = rows[i].*column.field;
        if constexpr (std::is_same_v<Type, tables::StringId>)
          ASSERT_EQ(TextAt(table, column.name, i), util::ValidUtf8(tables.strings[value]).c_str())
              << column.name;
        else if constexpr (tables::kIsId<Type>)
          ASSERT_EQ(NumberAt(table, column.name, i), value.value) << column.name;
        else
          ASSERT_EQ(static_cast<Type>(NumberAt(table, column.name, i)), value) << column.name;
      }
    };
    tables::TableOf<Row>::VisitColumns(check);
  });
  // Behind those in memory.
  EXPECT_EQ(TextAt(list, "table", listed), "allocations");
  EXPECT_EQ(TextAt(list, "column", listed), "begin_ns");
  EXPECT_EQ(list->row_count, listed + 8);
}

TEST(ReadTest, ReportIsTheQuerys) {
  const MemoryFile file(TheSample().bytes);
  const RecordingPtr recording = OpenFile(file);
  ASSERT_NE(recording, nullptr) << Error();
  const auto expected_of = tables::OpenDescriptor(file.fd(), "x.vram");
  ASSERT_TRUE(expected_of.ok());
  const char* const by[] = {"category", "module"};
  const char* const where[] = {"process=12"};
  vramscope_query query{};
  query.size = sizeof query;
  query.at = "@400000000";
  query.by = by;
  query.by_count = 2;
  query.where = where;
  query.where_count = 1;
  const AnswerPtr answer(vramscope_read_report(recording.get(), &query));
  ASSERT_NE(answer, nullptr) << Error();
  query::ReportQuery same;
  same.at = *query::ParseInstant("@400000000");
  same.by = {query::Dimension::kCategory, query::Dimension::kModule};
  same.where = {*query::ParseWhere("process=12")};
  const auto expected = query::MakeReport(**expected_of, same);
  ASSERT_TRUE(expected.ok());
  const vramscope_table* const rows = vramscope_find_table(answer.get(), "rows");
  ASSERT_EQ(rows->row_count, expected->rows.size());
  ASSERT_GT(rows->row_count, 3U);
  for (size_t i = 0; i < rows->row_count; ++i) {
    EXPECT_EQ(NumberAt(rows, "index", i), 3U);
    EXPECT_EQ(NumberAt(rows, "pid", i), 12U);
    EXPECT_EQ(TextAt(rows, "category", i), expected->rows[i].path[0]);
    EXPECT_EQ(TextAt(rows, "module", i), expected->rows[i].path[1]);
    EXPECT_EQ(NumberAt(rows, "bytes", i), expected->rows[i].bytes);
    EXPECT_EQ(NumberAt(rows, "count", i), expected->rows[i].count);
  }
  const vramscope_table* const devices = vramscope_find_table(answer.get(), "devices");
  ASSERT_EQ(devices->row_count, 1U);
  EXPECT_EQ(NumberAt(devices, "ledger_bytes", 0), expected->devices[0].ledger_bytes);
  EXPECT_EQ(ColumnOf(devices, "nvml_bytes").null[0], 1) << "there is no sample";
  EXPECT_EQ(TextAt(devices, "kind", 0), "gpu");
}

TEST(ReadTest, ACallerMayKnowFewerFields) {
  const MemoryFile file(TheSample().bytes);
  const RecordingPtr recording = OpenFile(file);
  const char* const by[] = {"no such dimension"};
  vramscope_query query{};
  query.size = offsetof(vramscope_query, by);
  query.at = "peak";
  query.by = by;
  query.by_count = 1;
  EXPECT_NE(AnswerPtr(vramscope_read_report(recording.get(), &query)), nullptr) << Error();
  query.size = sizeof query;
  EXPECT_EQ(AnswerPtr(vramscope_read_report(recording.get(), &query)), nullptr);
  EXPECT_THAT(Error(), HasSubstr("unknown dimension 'no such dimension'"));
  query.size = sizeof query + 64;  // of a later version: what is behind is not read
  query.by_count = 0;
  EXPECT_NE(AnswerPtr(vramscope_read_report(recording.get(), &query)), nullptr) << Error();
  EXPECT_NE(AnswerPtr(vramscope_read_report(recording.get(), nullptr)), nullptr) << Error();
}

TEST(ReadTest, TheCursorGivesWhatLivesInTheWindow) {
  const MemoryFile file(TheSample().bytes);
  const RecordingPtr recording = OpenFile(file);
  const char* const by[] = {"module"};
  for (const auto& [from_ns, to_ns] :
       std::vector<std::pair<int64_t, int64_t>>{{INT64_MIN, INT64_MAX},
                                                {300'000'000, 300'000'000},
                                                {100'000'000, 200'000'000},
                                                {-5, -1}}) {
    vramscope_window window{sizeof window, from_ns, to_ns, by, 1, nullptr, 0};
    const CursorPtr cursor(vramscope_read_allocations(recording.get(), &window));
    std::map<uint64_t, std::tuple<int64_t, uint64_t, std::string>> found, expected;
    AnswerPtr answer;
    while ((answer = AnswerPtr(vramscope_read_next(cursor.get()))) != nullptr) {
      const vramscope_table* const table = vramscope_find_table(answer.get(), "allocations");
      for (size_t i = 0; i < table->row_count; ++i) {
        found[NumberAt(table, "address", i)] = {
            static_cast<int64_t>(NumberAt(table, "begin_ns", i)), NumberAt(table, "bytes", i),
            TextAt(table, "module", i)};
        const vramscope_column& free = ColumnOf(table, "free_ns");
        const auto end_ns = static_cast<int64_t>(NumberAt(table, "end_ns", i));
        EXPECT_GT(end_ns, from_ns);
        EXPECT_EQ(free.null != nullptr && free.null[i] == 1, end_ns == tables::kNever);
      }
    }
    EXPECT_EQ(Error(), "");
    for (const tables::AllocationRow& row : TheSample().rows) {
      if (row.begin_ns <= to_ns && row.end_ns > from_ns)
        expected[row.address] = {row.begin_ns, row.bytes,
                                 "layer." + std::to_string((row.site.value - 1) % 7)};
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(ReadTest, ErrorsSayWhatAndWhereAndAreForgotten) {
  EXPECT_EQ(vramscope_read_version(), VRAMSCOPE_READ_VERSION);
  EXPECT_EQ(vramscope_read_open("/no/such.vram", nullptr), nullptr);
  EXPECT_THAT(Error(), StartsWith("/no/such.vram: cannot be opened"));
  EXPECT_EQ(vramscope_read_open(nullptr, nullptr), nullptr);
  EXPECT_EQ(Error(), "no path was given");
  EXPECT_EQ(vramscope_read_open("a\nb", nullptr), nullptr);
  EXPECT_THAT(Error(), StartsWith("a b: "));
  const MemoryFile file(TheSample().bytes);
  const RecordingPtr recording = OpenFile(file);
  EXPECT_EQ(Error(), "");
  EXPECT_EQ(vramscope_read_table(recording.get(), "allocations"), nullptr);
  EXPECT_THAT(Error(), HasSubstr("cursor"));
  EXPECT_EQ(vramscope_read_iterations(recording.get()), nullptr);
  EXPECT_THAT(Error(), StartsWith("/proc/self/fd/"));
  std::thread([] { EXPECT_EQ(Error(), "") << "each thread has its own"; }).join();
  vramscope_read_free(nullptr);
  vramscope_read_close(nullptr);
  vramscope_read_end(nullptr);
}

TEST(ReadTest, ALiveDirectoryNeedsTheProgram) {
  vramscope_open_options options{};
  options.size = sizeof options;
  options.program = "/no/such/program";
  EXPECT_EQ(vramscope_read_open("/tmp", &options), nullptr);
  EXPECT_THAT(Error(), HasSubstr("the program '/no/such/program', which cannot be started"));
  options.program = "/bin/false";
  EXPECT_EQ(vramscope_read_open("/tmp", &options), nullptr);
  EXPECT_EQ(Error(), "/tmp: the program that reads it ended with status 1");
  options.program = "/bin/true";
  EXPECT_EQ(vramscope_read_open("/tmp", &options), nullptr);
  EXPECT_NE(Error(), "") << "it wrote nothing";
}

TEST(ReadTest, BucketsAreBounded) {
  const MemoryFile file(TheSample().bytes);
  const RecordingPtr recording = OpenFile(file);
  for (const size_t buckets : {size_t{0}, size_t{1'000'001}, SIZE_MAX}) {
    EXPECT_EQ(vramscope_read_timeline(recording.get(), buckets), nullptr);
    EXPECT_THAT(Error(), StartsWith("a timeline has 1 to 1,000,000 buckets"));
  }
}

TEST(ReadTest, AnErrorIsOneLineThatDrivesNoTerminal) {
  EXPECT_EQ(vramscope_read_open("/a\x1b[2J\n\xc2\x9b.vram", nullptr), nullptr);
  EXPECT_THAT(Error(), StartsWith("/a\xef\xbf\xbd[2J \xef\xbf\xbd.vram: "));
  const std::string longest = "/" + std::string(9000, 'x');
  EXPECT_EQ(vramscope_read_open(longest.c_str(), nullptr), nullptr);
  EXPECT_THAT(Error(), StartsWith(longest.substr(0, 8191)));
}

TEST(ReadTest, AnswersOutliveTheRecordingAndThreadsMayAskAtOnce) {
  const MemoryFile file(TheSample().bytes);
  RecordingPtr recording = OpenFile(file);
  std::vector<AnswerPtr> answers(4);
  std::vector<std::thread> threads;
  for (AnswerPtr& answer : answers) {
    threads.emplace_back(
        [&] { answer = AnswerPtr(vramscope_read_report(recording.get(), nullptr)); });
  }
  for (std::thread& thread : threads)
    thread.join();
  const AnswerPtr timeline(vramscope_read_timeline(recording.get(), 7));
  recording.reset();
  uint64_t highest = 0;
  const vramscope_table* const table = vramscope_find_table(timeline.get(), "timeline");
  std::map<uint64_t, uint64_t> totals;
  for (size_t i = 0; i < table->row_count; ++i)
    highest =
        std::max(highest, totals[NumberAt(table, "begin_ns", i)] += NumberAt(table, "bytes", i));
  EXPECT_EQ(totals.size(), 7U);
  for (const AnswerPtr& answer : answers) {
    const vramscope_table* const devices = vramscope_find_table(answer.get(), "devices");
    EXPECT_EQ(NumberAt(devices, "ledger_bytes", 0), highest);
  }
}

TEST(ReadTest, AStreamPointsIntoItsAnswerAndKeepsIt) {
  const MemoryFile file(TheSample().bytes);
  RecordingPtr recording = OpenFile(file);
  AnswerPtr answer(vramscope_read_report(recording.get(), nullptr));
  const vramscope_table* const rows = vramscope_find_table(answer.get(), "rows");
  const size_t count = rows->row_count;
  const void* const values = ColumnOf(rows, "bytes").values;
  ArrowArrayStream stream{};
  EXPECT_EQ(vramscope_read_answer_stream(answer.get(), "no such", &stream), nullptr);
  EXPECT_EQ(Error(), "the answer has no table 'no such'");
  ASSERT_EQ(vramscope_read_answer_stream(answer.get(), "rows", &stream), &stream);
  recording.reset();
  answer.reset();
  ArrowSchema schema{};
  ArrowArray batch{};
  ASSERT_EQ(stream.get_schema(&stream, &schema), 0);
  ASSERT_EQ(stream.get_next(&stream, &batch), 0);
  ArrowArray end{};
  ASSERT_EQ(stream.get_next(&stream, &end), 0);
  EXPECT_EQ(end.release, nullptr);
  stream.release(&stream);
  ASSERT_EQ(batch.n_children, schema.n_children);
  EXPECT_EQ(static_cast<size_t>(batch.length), count);
  int64_t at = 0;
  while (std::string(schema.children[at]->name) != "bytes")
    ++at;
  EXPECT_STREQ(schema.children[at]->format, "L");
  EXPECT_EQ(batch.children[at]->buffers[1], values);
  // A consumer may take a column out and let go of the rest.
  ArrowArray moved = *batch.children[at];
  batch.children[at]->release = nullptr;
  batch.release(&batch);
  schema.release(&schema);
  EXPECT_GT(static_cast<const uint64_t*>(moved.buffers[1])[0], 0U);
  moved.release(&moved);
}

TEST(ReadTest, AStreamSaysWhatIsWrong) {
  auto whole = std::make_unique<Answer>();
  whole->Add("x").Text("t").Text("a");
  ArrowSource source;
  source.schema = std::shared_ptr<const Answer>(
      static_cast<const Answer*>(Answer::Release(std::move(whole))), Answer::Unref);
  source.next = []() -> util::Result<std::shared_ptr<const Answer>> {
    return util::Status::Error("a.vram: damaged");
  };
  ArrowArrayStream stream{};
  MakeArrowStream(std::move(source), &stream);
  ArrowArray batch{};
  EXPECT_NE(stream.get_next(&stream, &batch), 0);
  EXPECT_STREQ(stream.get_last_error(&stream), "a.vram: damaged");
  EXPECT_EQ(batch.release, nullptr);
  ArrowSchema schema{};
  ASSERT_EQ(stream.get_schema(&stream, &schema), 0);
  EXPECT_EQ(stream.get_last_error(&stream), nullptr);
  EXPECT_STREQ(schema.children[0]->dictionary->format, "u");
  schema.release(&schema);
  stream.release(&stream);
}

// The integer columns of the rows that a table of a dataset has; nulls are INT64_MIN.
std::map<std::string, std::vector<int64_t>> Take(vramscope_dataset* dataset, const char* table) {
  std::map<std::string, std::vector<int64_t>> columns;
  ArrowArrayStream stream{};
  ArrowSchema schema{};
  ArrowArray batch{};
  EXPECT_EQ(vramscope_read_dataset_take(dataset, table, &stream), &stream) << Error();
  EXPECT_EQ(stream.get_schema(&stream, &schema), 0);
  EXPECT_EQ(stream.get_next(&stream, &batch), 0);
  for (int64_t at = 0; at < schema.n_children; ++at) {
    if (std::string(schema.children[at]->format) != "l")
      continue;
    const ArrowArray& column = *batch.children[at];
    const auto* const valid = static_cast<const uint8_t*>(column.buffers[0]);
    for (int64_t row = 0; row < column.length; ++row) {
      const bool is_null = valid != nullptr && (valid[row / 8] >> (row % 8) & 1) == 0;
      columns[schema.children[at]->name].push_back(
          is_null ? INT64_MIN : static_cast<const int64_t*>(column.buffers[1])[row]);
    }
  }
  schema.release(&schema);
  batch.release(&batch);
  stream.release(&stream);
  return columns;
}

TEST(ReadTest, ADatasetHasEveryAllocationInWholeBatches) {
  const MemoryFile file(TheSample().bytes);
  const RecordingPtr recording = OpenFile(file);
  std::multiset<std::pair<int64_t, int64_t>> expected;
  for (int i = 0; i < 2; ++i) {
    for (const tables::AllocationRow& row : TheSample().rows) {
      expected.emplace(static_cast<int64_t>(row.address),
                       row.end_ns == tables::kNever ? INT64_MIN : row.end_ns);
    }
  }
  const size_t count = TheSample().rows.size();
  for (const size_t group_rows : {size_t{1000}, count + 500, 3 * count}) {
    const DatasetPtr dataset(vramscope_read_dataset(group_rows, nullptr));
    std::multiset<std::pair<int64_t, int64_t>> found;
    std::vector<size_t> batches;
    const auto take = [&] {
      auto columns = Take(dataset.get(), "allocations");
      batches.push_back(columns["address"].size());
      for (size_t i = 0; i < batches.back(); ++i)
        found.emplace(columns["address"][i], columns["end_ns"][i]);
      const std::vector<int64_t>& begins = columns["begin_ns"];
      // Each of the recordings in a batch is sorted.
      for (size_t first = 0; group_rows > count && first < begins.size(); first += count) {
        const auto begin = begins.begin() + static_cast<ptrdiff_t>(first);
        EXPECT_TRUE(std::is_sorted(begin, begin + static_cast<ptrdiff_t>(count)));
      }
    };
    for (int i = 0; i < 2; ++i) {
      while (vramscope_read_dataset_detail(dataset.get(), recording.get()) == 0)
        take();
    }
    take();
    EXPECT_EQ(found, expected);
    EXPECT_EQ(batches.size(), group_rows < count ? 6U : group_rows < 2 * count ? 2U : 1U);
  }
}

TEST(ReadTest, ADatasetHasTheSummaryOfEachRecording) {
  const MemoryFile file(TheSample().bytes);
  const RecordingPtr recording = OpenFile(file);
  const DatasetPtr dataset(vramscope_read_dataset(1000, nullptr));
  EXPECT_EQ(vramscope_read_dataset_head(dataset.get(), PathOf(file).c_str(), 7), 1) << Error();
  EXPECT_EQ(vramscope_read_dataset_head(dataset.get(), "none.vram", 8), -1);
  EXPECT_THAT(Error(), HasSubstr("none.vram"));
  EXPECT_EQ(vramscope_read_dataset_summary(dataset.get(), recording.get(), 7), 1) << Error();
  EXPECT_EQ(vramscope_read_dataset_summary(dataset.get(), recording.get(), 8), 1) << Error();
  EXPECT_EQ(vramscope_read_dataset_rows(dataset.get(), "recordings"), 1U);
  auto ranks = Take(dataset.get(), "ranks");
  auto parts = Take(dataset.get(), "parts");
  EXPECT_EQ(ranks["recording"], (std::vector<int64_t>{7, 7, 8, 8}));
  std::map<std::pair<int64_t, int64_t>, int64_t> sums;
  for (size_t i = 0; i < parts["pid"].size(); ++i)
    sums[{parts["recording"][i], parts["pid"][i]}] += parts["bytes"][i];
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ((sums[{ranks["recording"][i], ranks["pid"][i]}]), ranks["peak_bytes"][i]);
  EXPECT_EQ(vramscope_read_dataset_rows(dataset.get(), "ranks"), 0U);
  ArrowArrayStream stream{};
  EXPECT_EQ(vramscope_read_dataset_take(dataset.get(), "no such", &stream), nullptr);
  EXPECT_EQ(Error(), "a dataset has no table 'no such'");
}

// Anything at all may be in a file: what comes is an answer or an error.
TEST(ReadTest, HostileFiles) {
  Random random(7);
  const auto model = tables::testing::TakeApart(TheSample().bytes);
  ASSERT_TRUE(model);
  int opened = 0;
  for (int i = 0; i < 200; ++i) {
    tables::testing::FileModel damaged = *model;
    tables::testing::Mutate(&damaged, &random);
    std::string bytes = tables::testing::PutTogether(damaged);
    if (i % 4 == 0 && !bytes.empty())
      bytes.resize(random() % bytes.size());
    const MemoryFile file(bytes);
    const DatasetPtr heads(vramscope_read_dataset(100, nullptr));
    vramscope_read_dataset_head(heads.get(), PathOf(file).c_str(), 0);
    const RecordingPtr recording = OpenFile(file);
    if (recording == nullptr) {
      EXPECT_NE(Error(), "");
      continue;
    }
    ++opened;
    const char* const by[] = {"line", "category", "lifetime", "device", "thread"};
    vramscope_window window{sizeof window, INT64_MIN, INT64_MAX, by, 5, nullptr, 0};
    const CursorPtr cursor(vramscope_read_allocations(recording.get(), &window));
    while (AnswerPtr(vramscope_read_next(cursor.get())) != nullptr) {
    }
    for (const char* const name : {"sites", "accounts", "strings", "devices", "session"})
      AnswerPtr(vramscope_read_table(recording.get(), name));
    AnswerPtr(vramscope_read_report(recording.get(), nullptr));
    AnswerPtr(vramscope_read_iterations(recording.get()));
    AnswerPtr(vramscope_read_timeline(recording.get(), 3));
    const DatasetPtr dataset(vramscope_read_dataset(100, nullptr));
    int added = 0;
    while ((added = vramscope_read_dataset_detail(dataset.get(), recording.get())) == 0)
      Take(dataset.get(), "allocations");
    EXPECT_EQ(added == 1, Error().empty());
    vramscope_read_dataset_summary(dataset.get(), recording.get(), 0);
  }
  EXPECT_GT(opened, 50);
}

}  // namespace
}  // namespace vramscope::read
