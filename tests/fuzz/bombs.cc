// SPDX-License-Identifier: Apache-2.0
#include "bombs.h"

#include <cstdint>
#include <utility>

#include "format/memory_words.h"
#include "tables/recording.h"
#include "tables/testing/random_tables.h"

namespace vramscope::fuzz {
namespace {

using tables::Tables;

constexpr int64_t kBeginNs = 1'000'000'000;
constexpr size_t kRowsPerFrame = 32768;

struct Shape {
  uint32_t sites = 1;
  uint32_t depth = 1;       // of the deepest stack
  uint32_t processes = 1;   // each with an account on each device
  uint32_t devices = 1;     // GPUs
  size_t text_bytes = 10;   // of every name there is
  uint32_t iterations = 4;  // of each process
  uint32_t other_rows = 1;  // marks, losses, notes, refusals
};

// Every site has an allocation that is never freed, of another size than its neighbours'. Sites
// have different stacks as long as there are any.
std::string Make(const Shape& shape) {
  Tables tables;
  const tables::StringId name = tables.strings.Add(std::string(shape.text_bytes, 'n'));
  const tables::HostId host{static_cast<uint32_t>(tables.hosts.size())};
  tables.hosts.push_back({.name = name, .machine = name});
  for (uint32_t i = 0; i < shape.devices; ++i) {
    tables.devices.push_back({.host = host,
                              .index = static_cast<int32_t>(i),
                              .uuid = name,
                              .name = name,
                              .total_bytes = uint64_t{80} << 30});
  }
  for (uint32_t i = 0; i < shape.processes; ++i) {
    const tables::ProcessId process{static_cast<uint32_t>(tables.processes.size())};
    tables.processes.push_back({.host = host,
                                .pid = 100 + i,
                                .rank = -1,
                                .command = name,
                                .executable = name,
                                .begin_ns = kBeginNs,
                                .end_ns = 2 * kBeginNs,
                                .exit_ns = 2 * kBeginNs});
    for (uint32_t device = 1; device <= shape.devices; ++device)
      tables.accounts.push_back({process, tables::DeviceId{device}, kBeginNs, 2 * kBeginNs});
    for (uint32_t number = 0; number < shape.iterations; ++number) {
      const int64_t begin_ns = kBeginNs + number * 100'000'000;
      tables.iterations.push_back({process, number, begin_ns, begin_ns + 100'000'000});
    }
  }
  const auto accounts = static_cast<uint32_t>(tables.accounts.size() - 1);
  tables.threads.push_back({.process = tables::ProcessId{1}, .tid = 100, .name = name});
  const tables::FrameId frame{static_cast<uint32_t>(tables.frames.size())};
  // Frames of a library, so that a search for a user frame walks the whole stack.
  tables.frames.push_back({.function = name, .file = name, .line = 7, .library = 1});
  tables.sources.push_back({.file = name, .line = 7, .text = name});
  for (uint32_t i = 0; i < shape.depth; ++i)
    tables.stacks.push_back(
        {tables::StackId{static_cast<uint32_t>(tables.stacks.size() - 1)}, frame});
  std::vector<tables::AllocationRow> allocations;
  for (uint32_t i = 0; i < shape.sites; ++i) {
    const tables::StackId stack{shape.depth - i % shape.depth};
    tables::SiteRow site;
    site.account = tables::AccountId{1 + i % accounts};
    site.category = format::Category::kActivation;
    site.owner = site.allocator = site.api = site.scope = name;
    site.module = site.module_class = site.parameter = site.tag = name;
    site.thread = tables::ThreadId{1};
    site.stack = site.place = site.native_stack = stack;
    site.allocated_bytes = 4096;
    site.allocated_count = 1;
    allocations.push_back({.begin_ns = kBeginNs + 1 + i,
                           .end_ns = tables::kNever,
                           .alloc_ns = kBeginNs + 1 + i,
                           .address = uint64_t{4096} * i,
                           .bytes = 4096,
                           .rounding_bytes = 1,
                           .site = tables::SiteId{static_cast<uint32_t>(tables.sites.size())}});
    tables.sites.push_back(site);
  }
  for (uint32_t i = 0; i < shape.other_rows; ++i) {
    tables.marks.push_back({kBeginNs + i, name, tables::ProcessId{1}});
    tables.losses.push_back({name, 1, 1});
    tables.out_of_memory.push_back({.account = tables::AccountId{1},
                                    .time_ns = kBeginNs + i,
                                    .requested_bytes = 4096,
                                    .stack = tables::StackId{1},
                                    .api = name});
  }
  for (uint32_t device = 1; device <= shape.devices; ++device)
    tables.peaks.push_back({.device = tables::DeviceId{device}, .time_ns = 2 * kBeginNs - 1});
  tables.session.name = "bomb";
  tables.session.begin_ns = kBeginNs;
  tables.session.end_ns = 2 * kBeginNs;
  return tables::testing::WriteFile(tables, allocations, kRowsPerFrame);
}

}  // namespace

std::vector<Bomb> Bombs() {
  return {
      {"500 stacks of 1,024 long frames", Make({.sites = 500, .depth = 1024, .text_bytes = 1000})},
      {"20,000 deep stacks", Make({.sites = 20'000, .depth = 20'000, .text_bytes = 4})},
      {"a name of 1 MiB 20,000 times", Make({.sites = 20'000, .text_bytes = size_t{1} << 20})},
      {"a name of 1 KiB 10,000 times", Make({.sites = 10'000, .depth = 64, .text_bytes = 1024})},
      {"a name of 1 MiB in every table",
       Make({.sites = 1000, .processes = 1000, .text_bytes = size_t{1} << 20, .other_rows = 1000})},
      {"a name of 1 KiB for 1,000 processes on 100 GPUs", Make({.sites = 100'000,
                                                                .depth = 600,
                                                                .processes = 1000,
                                                                .devices = 100,
                                                                .text_bytes = 1024})},
  };
}

}  // namespace vramscope::fuzz
