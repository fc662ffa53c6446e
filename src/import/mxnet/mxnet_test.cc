// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/units.h"
#include "import/mxnet/mxnet_tags.h"
#include "import/testing/imported.h"

namespace vramscope::imports {
namespace {

using format::Category;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Imported;
using testing::ImportText;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(MxnetTags, TheFirstWordDecides) {
  EXPECT_EQ(CategoryOfTag("optimizer_state:in_arg_weird"), Category::kOptimizerState);
  EXPECT_EQ(CategoryOfTag("head_grad:data_entry:softmax_oedge0"), Category::kGradient);
  EXPECT_EQ(CategoryOfTag("net:in_arg:dense0_weight"), Category::kParameter);
  EXPECT_EQ(CategoryOfTag("resource:temp_space (fully_connected.cc +101)"), Category::kWorkspace);
  EXPECT_EQ(CategoryOfTag("resource:cudnn_dropout_state (dropout-inl.h +256)"),
            Category::kWorkspace);
  EXPECT_EQ(CategoryOfTag("net:dense0_fwd"), Category::kActivation);
  EXPECT_EQ(CategoryOfTag("net:dense0:fwd_backward"), Category::kGradient);
  EXPECT_EQ(CategoryOfTag("data_entry:birnn_fwd_backward"), Category::kActivation);
  EXPECT_EQ(CategoryOfTag("RNN"), Category::kUnknown);
}

std::string ParameterOf(const Imported& imported, size_t row) {
  return imported.Text(imported.tables.sites[imported.rows[row].site.value].parameter);
}

TEST(MxnetCsv, EveryRowIsAnAllocationThatStays) {
  const Imported file = ImportText(
      "in_arg:a_weight,512\noptimizer_state:mean:a_weight,0.00390625\n"
      "workspace:f(int, int),128\noptimizer_state:in_arg_weird,64\n");
  ASSERT_EQ(file.error, "");
  EXPECT_EQ(file.format, "mxnet-csv");
  ASSERT_EQ(file.rows.size(), 4u);
  EXPECT_EQ(file.rows[0].bytes, 512 * kMiB);
  EXPECT_EQ(file.rows[1].bytes, 4096u);
  EXPECT_EQ(file.TagOf(file.rows[2]), "workspace:f(int, int)");
  EXPECT_EQ(file.rows[3].bytes, 64 * kMiB);
  EXPECT_EQ(file.rows[3].begin_ns, 3'000'000'000);
  EXPECT_EQ(file.rows[3].end_ns, tables::kNever);
  EXPECT_EQ(ParameterOf(file, 0), "a_weight");
  EXPECT_EQ(ParameterOf(file, 1), "a_weight");
  EXPECT_EQ(ParameterOf(file, 3), "");
  EXPECT_THAT(file.NoteOf("not in it"), HasSubstr("when memory was freed"));
  EXPECT_THAT(file.Losses(), IsEmpty());
}

TEST(MxnetCsv, RowsWithoutAFigureAreCounted) {
  const Imported file = ImportText(
      "in_arg:a,1\nin_arg:b\nin_arg:c,\nin_arg:d,nan\nin_arg:e,-1\nin_arg:f,1e300\nin_arg:g,2 MB\n",
      {}, "x.csv", "mxnet-csv");
  ASSERT_EQ(file.error, "");
  EXPECT_EQ(file.rows.size(), 1u);
  EXPECT_THAT(file.Losses(), ElementsAre(Pair("rows that are no tag and its MiB", 6u)));
}

TEST(MxnetCsv, OtherTablesOfTwoColumnsAreNone) {
  EXPECT_EQ(ImportText("name,value\nin_arg:a,1\n").format, "");
  EXPECT_EQ(ImportText("x,1\ny,2\n").format, "");
}

constexpr char kDumpHeader[] =
    "\"Attribute Name\",\"Requested Size\",\"Device\",\"Actual Size\",\"Reuse?\"\n";

TEST(MxnetDump, BlocksOfAllDevicesAndWhatNvmlSaysBeyondThem) {
  const Imported dump = ImportText(std::string(kDumpHeader) +
                                       "\"net:in_arg:w\",\"5120\",\"0\",\"8192\",\"0\"\n"
                                       "\"net:in_arg:w\",\"5120\",\"1\",\"8192\",\"0\"\n"
                                       "\"net:dense0_fwd\",\"8192\",\"0\",\"8192\",\"1\"\n"
                                       "\"nvml_amend\",\"676036608\",\"0\",\"676036608\",\"0\"\n"
                                       "\"nvml_amend\",\"285933568\",\"1\",\"285933568\",\"0\"\n",
                                   {}, "gpu_memory_profile-pid_4711.csv");
  ASSERT_EQ(dump.error, "");
  EXPECT_EQ(dump.format, "mxnet-dump");
  ASSERT_EQ(dump.rows.size(), 3u);
  EXPECT_EQ(dump.rows[0].bytes, 8192u);
  EXPECT_EQ(dump.rows[0].rounding_bytes, 3072u);
  const tables::SiteRow& site = dump.tables.sites[dump.rows[1].site.value];
  EXPECT_EQ(dump.DeviceOf(site.account), 1);
  EXPECT_EQ(dump.Text(site.scope), "net");
  EXPECT_EQ(dump.Text(site.parameter), "w");
  ASSERT_EQ(dump.tables.samples.size(), 2u);
  EXPECT_EQ(dump.tables.samples[0].used_bytes, 676036608u + 16384);
  EXPECT_EQ(dump.tables.samples[1].used_bytes, 285933568u + 8192);
  EXPECT_EQ(dump.tables.process_samples.size(), 2u);
  EXPECT_EQ(dump.tables.processes[1].pid, 4711u);
}

TEST(MxnetDump, AnAmendBelowZeroIsWrittenAsAHugeNumber) {
  const Imported dump = ImportText(std::string(kDumpHeader) +
                                   "\"a\",\"8192\",\"0\",\"8192\",\"0\"\n"
                                   "\"nvml_amend\",\"18446744073709547520\",\"0\","
                                   "\"18446744073709547520\",\"0\"\n");  // -4096
  ASSERT_EQ(dump.error, "");
  ASSERT_EQ(dump.tables.samples.size(), 1u);
  EXPECT_EQ(dump.tables.samples[0].used_bytes, 4096u);
}

TEST(MxnetDump, RowsThatContradictAreCounted) {
  const Imported dump = ImportText(std::string(kDumpHeader) +
                                   "\"a\",\"9000\",\"0\",\"8192\",\"0\"\n"
                                   "\"b\",\"1\",\"-1\",\"8192\",\"0\"\n"
                                   "\"c\",\"1\",\"0\",\"99999999999999999999\",\"0\"\n"
                                   "\"d\",\"1\",\"0\",\"9999999999999999999\",\"0\"\n"
                                   "\"e\",\"1\",\"0\"\n"
                                   "\"nvml_amend\",\"5\",\"0\",\"5\",\"0\"\n"
                                   "\"nvml_amend\",\"6\",\"0\",\"6\",\"0\"\n"
                                   "\"nvml_amend\",\"1\",\"1\",\"9999999999999999999\",\"0\"\n");
  ASSERT_EQ(dump.error, "");
  EXPECT_EQ(dump.rows.size(), 1u);
  EXPECT_THAT(dump.Losses(), ElementsAre(Pair("blocks that are smaller than their request", 1u),
                                         Pair("nvml_amend rows beyond a device's first", 1u),
                                         Pair("nvml_amend rows that make no sense", 1u),
                                         Pair("rows that are no block of memory", 4u)));
}

}  // namespace
}  // namespace vramscope::imports
