// SPDX-License-Identifier: Apache-2.0
#include "query/allocator/allocator_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "query/allocator/allocator_parts.h"
#include "query/testing/allocator_program.h"

namespace vramscope::query {
namespace {

// A line of a program, and what it does in each version.
struct ProgramStep {
  std::string line;
  std::string answer;  // of the versions that `different` does not have
  std::map<std::string, std::string> different;
};
struct NamedProgram {
  std::string name;
  std::vector<ProgramStep> steps;
};

std::vector<NamedProgram> ReadPrograms() {
  std::ifstream file(VRAMSCOPE_ALLOCATOR_PROGRAMS);
  std::vector<NamedProgram> programs;
  for (std::string line; std::getline(file, line);) {
    const size_t arrow = line.find(" => ");
    if (line.rfind("## ", 0) == 0) {
      programs.push_back({line.substr(3), {}});
    } else if (arrow != std::string::npos && line.rfind("  ", 0) == 0) {
      programs.back().steps.back().different[line.substr(2, arrow - 2)] = line.substr(arrow + 4);
    } else if (arrow != std::string::npos) {
      programs.back().steps.push_back({line.substr(0, arrow), line.substr(arrow + 4), {}});
    }
  }
  return programs;
}

// The answers are those of the real allocators.
TEST(AllocatorModelTest, DoesWhatReleasedAllocatorsDid) {
  const std::vector<NamedProgram> programs = ReadPrograms();
  ASSERT_EQ(programs.size(), 27u);
  for (const char* const version : {"2.9.1", "2.13.0", "2.14.1"}) {
    for (const NamedProgram& program : programs) {
      AllocatorProgram runner;
      runner.Run(std::string("version ") + version);
      for (const ProgramStep& step : program.steps) {
        const auto different = step.different.find(version);
        EXPECT_EQ(runner.Run(step.line),
                  different == step.different.end() ? step.answer : different->second)
            << version << ", program " << program.name << ": " << step.line;
      }
    }
  }
}

TEST(AllocatorModelTest, SettingsNameWhatIsWrong) {
  AllocatorSettings settings;
  const auto error = [&](const char* text) {
    return ApplyAllocatorSettings(text, RulesOf("2.13.0"), &settings).message();
  };
  EXPECT_EQ(error("max_split_size_mb"), "'max_split_size_mb' is not KEY:VALUE");
  EXPECT_EQ(error("max_split_size_mb:19"),
            "max_split_size_mb: '19' is not a whole number of at least 20");
  EXPECT_EQ(error("expandable_segments:true"), "expandable_segments: 'true' is not True or False");
  EXPECT_EQ(error("garbage_collection_threshold:1"),
            "garbage_collection_threshold: '1' is not a number between 0 and 1");
  EXPECT_EQ(error("roundup_power2_divisions:3"),
            "roundup_power2_divisions: '3' is not a power of two");
  EXPECT_EQ(error("max_splits:3"), "'max_splits' is no setting of PyTorch's allocator");
  EXPECT_FALSE(settings.expandable_segments);
}

TEST(AllocatorModelTest, SettingsKeepSegmentsAndResetTheRest) {
  AllocatorSettings settings;
  const AllocatorRules rules = RulesOf("2.13.0");
  ASSERT_TRUE(
      ApplyAllocatorSettings(" expandable_segments:True, max_split_size_mb:64", rules, &settings)
          .ok());
  EXPECT_EQ(settings.max_split_bytes, 64 * kMebibyte);
  ASSERT_TRUE(ApplyAllocatorSettings("large_segment_size_mb:32", rules, &settings).ok());
  EXPECT_TRUE(settings.expandable_segments);
  EXPECT_EQ(settings.max_split_bytes, UINT64_MAX);
  EXPECT_EQ(settings.large_segment_bytes, 32 * kMebibyte);
  EXPECT_FALSE(
      ApplyAllocatorSettings("large_segment_size_mb:32", RulesOf("2.9.1"), &settings).ok());
}

// Few sizes and addresses, so that keys come again, and enough of them for several chunks.
TEST(AllocatorFreeBlocksTest, DoesWhatASetDoes) {
  std::mt19937 random(1);
  AllocatorFreeBlocks blocks;
  std::set<AllocatorFreeKey> expected;
  const auto same = [](const AllocatorFreeKey& a, const AllocatorFreeKey& b) {
    return a.bytes == b.bytes && a.address == b.address;
  };
  for (int i = 0; i < 20'000; ++i) {
    // It grows, and becomes empty again.
    const bool inserts = random() % 100 < (i / 2000 % 2 == 0 ? 80u : 10u);
    const AllocatorFreeKey key{512 * (random() % 40), random() % 30, nullptr};
    if (inserts) {
      blocks.Insert(key);
      expected.insert(key);
    } else {
      blocks.Erase(key);
      expected.erase(key);
    }
    const uint64_t bytes = 512 * (random() % 42);
    const auto found = blocks.FindFrom(bytes);
    const auto wanted = expected.lower_bound({bytes, 0, nullptr});
    ASSERT_EQ(found == blocks.end(), wanted == expected.end()) << i;
    if (wanted != expected.end()) {
      ASSERT_TRUE(same(*found, *wanted)) << i;
    }
    if (wanted != expected.begin()) {
      auto before = found;
      ASSERT_TRUE(same(*--before, *std::prev(wanted))) << i;
    }
    if (i % 100 == 0) {
      auto at = blocks.begin();
      for (const AllocatorFreeKey& each : expected) {
        ASSERT_TRUE(at != blocks.end() && same(*at, each)) << i;
        ++at;
      }
      ASSERT_TRUE(at == blocks.end()) << i;
    }
  }
}

}  // namespace
}  // namespace vramscope::query
