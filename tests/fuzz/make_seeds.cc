// SPDX-License-Identifier: Apache-2.0
// Writes small whole recordings, of both forms, for the fuzzers to begin with: make_seeds DIRECTORY
// makes DIRECTORY/live_file/ and DIRECTORY/tables_file/. And unwinding tables, in
// DIRECTORY/unwind_tables/.
#include <cstdio>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "finished.h"
#include "live_seeds.h"
#include "pipeline/compact/compaction.h"
#include "pipeline/compact/planner.h"
#include "probe/stack/native/testing_tables.h"
#include "tables/testing/random_tables.h"
#include "trace/live/live_trace.h"
#include "trace/trace.h"

namespace {

namespace fs = std::filesystem;

bool WriteFile(const fs::path& path, const std::string& bytes) {
  fs::create_directories(path.parent_path());
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr)
    return false;
  const bool whole = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  return std::fclose(file) == 0 && whole;
}

bool WriteSeed(const fs::path& root, const std::string& name, const std::string& bytes) {
  const fs::path live = root / "live_file" / (name + ".vrl");
  const fs::path session = root / (name + ".vram.d");
  if (!WriteFile(live, bytes) || !WriteFile(session / "100.1.vrl", bytes))
    return false;
  auto trace = vramscope::trace::OpenTrace(session);
  const vramscope::tables::testing::MemoryFile finished;
  if (!trace || !vramscope::fuzz::Finish(**trace, finished) ||
      !WriteFile(root / "tables_file" / (name + ".vram"), finished.Bytes())) {
    return false;
  }
  fs::remove_all(session);
  return true;
}

// A recording whose older half became past, and what the launcher saw beside it.
bool WriteRingSeed(const fs::path& root) {
  using namespace vramscope;
  const fs::path session = root / "ring.vram.d";
  const std::string live = fuzz::ScopedProgram();
  if (!WriteFile(session / "101.1.vrl", live))
    return false;
  const auto opened = trace::LiveTrace::Open(session, session, {});
  if (!opened)
    return false;
  auto& trace = static_cast<trace::LiveTrace&>(**opened);
  const std::vector<compact::OldChunk> old = compact::FindOldChunks(trace);
  if (old.empty())
    return false;
  std::vector<compact::CompactionPlan> plans(1);
  plans[0].cut_ns = old[old.size() / 2].end_ns;
  compact::ChooseChunks(trace, plans.data());
  const std::vector<std::vector<int64_t>> instants(trace.devices().size(), {old[0].end_ns});
  compact::CompactionPlanner planner(trace, instants, &plans);
  if (!trace.ForEachEvent([&](std::span<const trace::Event> events) { planner.Apply(events); })
           .ok())
    return false;
  planner.Finish();
  const std::vector<uint8_t> past =
      compact::MakePastFile(trace.files()[0], *trace.context(0).clock, plans[0], &trace).bytes;
  fs::remove_all(session);
  return WriteFile(root / "live_file" / "ring.vrl",
                   live + std::string(past.begin(), past.end()) + fuzz::Launcher());
}

bool WriteTablesSeed(const fs::path& path) {
  namespace tables = vramscope::probe::testing_tables;
  const auto bytes = tables::Tables(tables::kFramePointer).bytes();
  return WriteFile(path, std::string(bytes.begin(), bytes.end()));
}

bool WriteTablesFileSeed(const fs::path& path) {
  namespace testing = vramscope::tables::testing;
  std::mt19937_64 random(1);
  const auto tables = testing::RandomTables(&random, 6);
  return WriteFile(path,
                   testing::WriteFile(tables, testing::RandomAllocations(&random, 60, 6), 20));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_seeds DIRECTORY\n");
    return 2;
  }
  const fs::path root = argv[1];
  if (!WriteSeed(root, "tensors", vramscope::fuzz::TensorProgram()) ||
      !WriteSeed(root, "driver", vramscope::fuzz::DriverProgram()) || !WriteRingSeed(root) ||
      !WriteTablesFileSeed(root / "tables_file" / "anything.vram") ||
      !WriteTablesSeed(root / "unwind_tables" / "frame_pointer")) {
    std::fprintf(stderr, "make_seeds: cannot write the seeds below %s\n", root.c_str());
    return 1;
  }
  return 0;
}
