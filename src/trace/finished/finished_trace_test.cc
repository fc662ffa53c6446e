// SPDX-License-Identifier: Apache-2.0
#include "trace/finished/finished_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/crc32c.h"
#include "format/enums.h"
#include "trace/finished/event_codec.h"
#include "trace/finished/layout.h"
#include "trace/testing/memory_trace.h"

namespace vramscope::trace::finished {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using testing::MemoryTrace;

class FinishedTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ =
        fs::temp_directory_path() / ("vramscope_finished_test_" + std::to_string(getpid()));
    fs::create_directories(directory_);
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string Path(const std::string& name = "t.vram") const { return directory_ / name; }
  std::string Finish(Trace& trace) const {
    const auto status = WriteFinished(trace, Path());
    EXPECT_TRUE(status.ok()) << status.message();
    return *util::ReadFile(Path(), 1u << 30);
  }
  // The result is valid until the next call.
  util::Result<std::unique_ptr<Trace>> FromBytes(std::string bytes) {
    bytes_ = std::move(bytes);
    return FinishedTrace::FromBytes(
        {reinterpret_cast<const uint8_t*>(bytes_.data()), bytes_.size()}, "t.vram");
  }
  static std::vector<Event> Events(Trace& trace) {
    std::vector<Event> events;
    EXPECT_TRUE(trace
                    .ForEachEvent([&](std::span<const Event> batch) {
                      events.insert(events.end(), batch.begin(), batch.end());
                    })
                    .ok());
    return events;
  }

  fs::path directory_;
  std::string bytes_;
};

// All events that could be, with all fields that could be: more than any recording has.
void Fill(MemoryTrace* trace, size_t count) {
  trace->mutable_session().name = "unit";
  trace->mutable_session().version = "0.0.1";
  trace->mutable_session().start_ns = 123;
  trace->mutable_session().end_ns = 456;
  trace->mutable_session().start_wall_ns = 789;
  trace->mutable_session().notes = {{"python", "3.11"}, {"gr\xc3\xbc\xc3\x9f", ""}};
  trace->mutable_devices() = {{DeviceKind::kGpu, 3, "GPU-1", "H200", 1ull << 37},
                              {DeviceKind::kHost, -2, "", "host", 0}};
  trace->mutable_processes() = {{.pid = 7,
                                 .parent_pid = 1,
                                 .rank = 2,
                                 .command = "a b",
                                 .executable = "/a",
                                 .start_ns = 5,
                                 .end_ns = 9,
                                 .closed_cleanly = true,
                                 .wait_status = -1},
                                {.pid = 8,
                                 .parent_pid = 7,
                                 .rank = {},
                                 .command = "",
                                 .executable = "",
                                 .start_ns = 6,
                                 .end_ns = 8,
                                 .closed_cleanly = false,
                                 .wait_status = {}}};
  trace->mutable_threads().push_back({ProcessId{0}, 70, "main"});
  trace->mutable_threads().push_back({kNoProcess, 71, ""});
  trace->mutable_losses() = {{"frees of unknown allocations", 3, 4}};
  for (uint32_t i = 1; i < 200; ++i) {
    const StackId stack =
        trace->AddPythonStack({{"train.py", "<module>", i % 7 + 1}, {"model.py", "f", i}});
    trace->tables.AddStack(stack, FrameId{1}, i % 3 * 0x7f0000001000);
  }
  const StringId file = trace->tables.AddString("train.py");
  trace->source_lines[{file.value, 3}] = "    loss.backward()";

  std::mt19937_64 random(1);
  const auto rarely = [&](uint64_t value) { return random() % 4 == 0 ? value : 0; };
  int64_t now = -1000;
  for (size_t i = 0; i < count; ++i) {
    now += static_cast<int64_t>(random() % 3000);
    Event event;
    event.kind = static_cast<EventKind>(random() % (static_cast<uint64_t>(kLastEventKind) + 1));
    event.time_ns = now;
    event.begin_ns = now - static_cast<int64_t>(rarely(random() % 5000));
    event.end_ns = now + static_cast<int64_t>(rarely(random() % 5000));
    event.address = rarely(1) != 0 ? random() : (random() % 100) << 20;
    event.size = rarely(random()) + random() % 3 * 512;
    event.value = rarely(random());
    event.value2 = rarely(random() % 1000);
    event.detail = rarely(random());
    event.context = random() % 3;
    event.stack = StackId{static_cast<uint32_t>(random() % trace->stack_count())};
    event.native_stack = StackId{static_cast<uint32_t>(rarely(random() % trace->stack_count()))};
    event.api = StringId{static_cast<uint32_t>(random() % trace->string_count())};
    event.name = StringId{static_cast<uint32_t>(rarely(random() % trace->string_count()))};
    event.scope = StringId{static_cast<uint32_t>(rarely(random() % trace->string_count()))};
    event.sequence = rarely(random());
    event.thread = ThreadId{static_cast<uint32_t>(random() % 3)};
    event.flags = static_cast<uint32_t>(rarely(random() & 0xff));
    event.process = random() % 5 == 0 ? kNoProcess : ProcessId{static_cast<uint16_t>(random() % 2)};
    event.device = DeviceId{static_cast<int16_t>(static_cast<int>(random() % 3) - 1)};
    event.subkind = static_cast<uint8_t>(random() % 4);
    trace->events.push_back(event);
  }
  trace->mutable_session().event_count = count;
}

bool Same(const Event& a, const Event& b) {
  return a.time_ns == b.time_ns && a.begin_ns == b.begin_ns && a.end_ns == b.end_ns &&
         a.address == b.address && a.size == b.size && a.value == b.value && a.value2 == b.value2 &&
         a.detail == b.detail && a.context == b.context && a.stack == b.stack &&
         a.native_stack == b.native_stack && a.api == b.api && a.name == b.name &&
         a.scope == b.scope && a.sequence == b.sequence && a.thread == b.thread &&
         a.flags == b.flags && a.process == b.process && a.device == b.device && a.kind == b.kind &&
         a.subkind == b.subkind;
}

TEST_F(FinishedTest, KeepsEverything) {
  MemoryTrace trace;
  Fill(&trace, 150'000);
  double last_progress = 0;
  ASSERT_TRUE(WriteFinished(trace, Path(), [&](double share) {
                EXPECT_GE(share, last_progress);
                last_progress = share;
              }).ok());
  EXPECT_EQ(last_progress, 1.0);
  auto opened = OpenTrace(Path());
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  Trace& back = **opened;

  const SessionInfo& session = back.session();
  EXPECT_TRUE(session.finished);
  EXPECT_EQ(session.path, Path());
  EXPECT_EQ(session.name, "unit");
  EXPECT_EQ(session.version, "0.0.1");
  EXPECT_EQ(session.start_ns, 123);
  EXPECT_EQ(session.end_ns, 456);
  EXPECT_EQ(session.start_wall_ns, 789);
  EXPECT_EQ(session.event_count, 150'000u);
  EXPECT_EQ(session.notes, trace.session().notes);
  ASSERT_EQ(back.devices().size(), 2u);
  EXPECT_EQ(back.devices()[0].index, 3);
  EXPECT_EQ(back.devices()[0].uuid, "GPU-1");
  EXPECT_EQ(back.devices()[0].name, "H200");
  EXPECT_EQ(back.devices()[0].total_bytes, 1ull << 37);
  EXPECT_EQ(back.devices()[1].kind, DeviceKind::kHost);
  EXPECT_EQ(back.devices()[1].index, -2);
  ASSERT_EQ(back.processes().size(), 2u);
  EXPECT_EQ(back.processes()[0].pid, 7u);
  EXPECT_EQ(back.processes()[0].rank, 2);
  EXPECT_EQ(back.processes()[0].command, "a b");
  EXPECT_EQ(back.processes()[0].wait_status, -1);
  EXPECT_TRUE(back.processes()[0].closed_cleanly);
  EXPECT_FALSE(back.processes()[1].rank.has_value());
  EXPECT_FALSE(back.processes()[1].wait_status.has_value());
  EXPECT_EQ(back.processes()[1].end_ns, 8);
  ASSERT_EQ(back.threads().size(), 3u);
  EXPECT_EQ(back.threads()[1].name, "main");
  EXPECT_EQ(back.threads()[2].process, kNoProcess);
  ASSERT_EQ(back.losses().size(), 1u);
  EXPECT_EQ(back.losses()[0].bytes, 4u);
  ASSERT_EQ(back.stack_count(), trace.stack_count());
  ASSERT_EQ(back.frame_count(), trace.frame_count());
  ASSERT_EQ(back.string_count(), trace.string_count());
  for (uint32_t i = 0; i < back.stack_count(); ++i) {
    EXPECT_EQ(back.stack(StackId{i}).parent, trace.stack(StackId{i}).parent);
    EXPECT_EQ(back.stack(StackId{i}).frame, trace.stack(StackId{i}).frame);
    EXPECT_EQ(back.stack(StackId{i}).object, trace.stack(StackId{i}).object);
  }
  for (uint32_t i = 0; i < back.frame_count(); ++i) {
    EXPECT_EQ(back.frame(FrameId{i}).line, trace.frame(FrameId{i}).line);
    EXPECT_EQ(back.frame(FrameId{i}).function, trace.frame(FrameId{i}).function);
  }
  EXPECT_EQ(back.SourceLine(trace.tables.AddString("train.py"), 3), "    loss.backward()");
  EXPECT_EQ(back.SourceLine(trace.tables.AddString("train.py"), 4), "");

  for (int pass = 0; pass < 2; ++pass) {
    const auto events = Events(back);
    ASSERT_EQ(events.size(), trace.events.size());
    for (size_t i = 0; i < events.size(); ++i)
      ASSERT_TRUE(Same(events[i], trace.events[i])) << i;
  }
}

TEST_F(FinishedTest, KeepsAnEmptyRecording) {
  MemoryTrace trace;
  const std::string bytes = Finish(trace);
  auto back = FromBytes(bytes);
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(Events(**back).empty());
  EXPECT_TRUE((*back)->losses().empty());
}

// A training loop: 400 blocks an iteration, 12 stacks, time stamps that never repeat.
TEST_F(FinishedTest, PacksATrainingLoopIntoThreeBytesAnEvent) {
  MemoryTrace trace;
  for (uint32_t i = 1; i <= 12; ++i)
    trace.AddPythonStack({{"a.py", "f", i}});
  trace.mutable_devices() = {{DeviceKind::kGpu, 0, "", "", 0}};
  trace.mutable_processes() = {{.pid = 1}};
  std::mt19937_64 random(3);
  int64_t now = 0;
  for (int iteration = 0; iteration < 250; ++iteration) {
    for (int i = 0; i < 800; ++i) {
      now += 3000 + static_cast<int64_t>(random() % 1000);
      Event event;
      event.time_ns = event.begin_ns = event.end_ns = now;
      const uint64_t block = static_cast<uint64_t>(i < 400 ? i : 799 - i);
      event.kind = i < 400 ? EventKind::kBlockAlloc : EventKind::kBlockFree;
      event.address = 0x7f0000000000 + block * 7919 * 512;
      event.size = 512 * (1 + block * 31 % 97);
      event.process = ProcessId{0};
      event.device = DeviceId{0};
      if (i < 400)
        event.stack = StackId{static_cast<uint32_t>(1 + i % 12)};
      trace.events.push_back(event);
    }
  }
  EXPECT_LT(Finish(trace).size(), 3 * trace.events.size());
}

TEST_F(FinishedTest, EveryTruncationKeepsWhatIsBeforeIt) {
  MemoryTrace trace;
  Fill(&trace, 300);
  const std::string bytes = Finish(trace);
  ASSERT_LT(bytes.size(), 60'000u);
  size_t last_count = 0;
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    auto back = FromBytes(bytes.substr(0, cut));
    if (!back.ok()) {
      EXPECT_EQ(last_count, 0u);
      EXPECT_THAT(back.status().message(), HasSubstr("t.vram: "));
      EXPECT_EQ(back.status().message().find('\n'), std::string::npos);
      continue;
    }
    const size_t count = Events(**back).size();
    EXPECT_GE(count, last_count) << cut;
    last_count = count;
    bool has_damage = false;
    for (const Loss& loss : (*back)->losses())
      has_damage |= loss.name == "damaged bytes skipped";
    EXPECT_TRUE(has_damage) << cut;
  }
  EXPECT_EQ(last_count, 300u);
}

TEST_F(FinishedTest, RandomDamageIsSkippedAndCounted) {
  MemoryTrace trace;
  Fill(&trace, 5000);
  const std::string good = Finish(trace);
  std::mt19937_64 random(5);
  for (int round = 0; round < 600; ++round) {
    std::string bytes = good;
    for (int flip = 0; flip <= round % 8; ++flip) {
      bytes[random() % bytes.size()] ^= static_cast<char>(1 + random() % 255);
    }
    auto back = FromBytes(bytes);
    if (!back.ok())
      continue;
    const auto events = Events(**back);
    for (const Event& event : events) {
      EXPECT_LT(event.stack.value, std::max<size_t>((*back)->stack_count(), 1));
      EXPECT_TRUE(event.process == kNoProcess || event.process.value < (*back)->processes().size());
      EXPECT_LT(event.thread.value, (*back)->threads().size());
    }
  }
}

// Damage that the checksums do not see: content that a writer with a bug, or somebody, made.
TEST_F(FinishedTest, ContentIsCheckedToo) {
  MemoryTrace trace;
  Fill(&trace, 2000);
  Finish(trace);
  FrameReader reader;
  auto mapped = util::MappedFile::Open(Path());
  ASSERT_TRUE(reader.Open(mapped->bytes(), "t").ok());
  std::mt19937_64 random(9);
  EventDecoder decoder({.strings = 10, .stacks = 10, .threads = 2, .processes = 1, .devices = 1});
  for (const FrameRef& frame : reader.frames()) {
    if (frame.type != FrameType::kEvents)
      continue;
    EventEncoder encoder;
    ColumnSetWriter writer;
    encoder.Encode(trace.events, &writer);
    std::vector<uint8_t> raw;
    writer.TakeBytes(&raw);
    for (int round = 0; round < 2000; ++round) {
      std::vector<uint8_t> bytes = raw;
      for (int flip = 0; flip <= round % 5; ++flip) {
        bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
      }
      ColumnSetReader columns;
      if (!columns.Parse(bytes))
        continue;
      std::vector<Event> events;
      (void)decoder.Decode(columns, frame.rows, 0, &events);
      for (const Event& event : events) {
        EXPECT_LT(event.stack.value, 10u);
        EXPECT_LT(event.name.value, 10u);
        EXPECT_TRUE(event.process == kNoProcess || event.process.value == 0);
        EXPECT_TRUE(event.device == kNoDevice || event.device.value == 0);
      }
    }
  }
}

TEST_F(FinishedTest, ErrorsAreOneClearLine) {
  EXPECT_EQ(FromBytes("").status().message(), "t.vram: is empty");
  EXPECT_EQ(FromBytes("PK\x03\x04 a zip, say").status().message(),
            "t.vram: is not a vramscope trace");
  MemoryTrace trace;
  std::string bytes = Finish(trace);
  bytes[offsetof(FileHeader, major)] = 2;
  EXPECT_EQ(FromBytes(bytes).status().message(),
            "t.vram: was written by a newer vramscope (format 2, this one reads up to 1): update "
            "vramscope");
  EXPECT_THAT(FromBytes(bytes.substr(0, 20)).status().message(),
              HasSubstr("cut off after 20 bytes"));
  EXPECT_FALSE(WriteFinished(trace, Path("no/such/directory.vram")).ok());
}

TEST_F(FinishedTest, SkipsFramesOfANewerMinorVersion) {
  MemoryTrace trace;
  Fill(&trace, 100);
  const std::string bytes = Finish(trace);
  // Without its index the file is scanned; put a frame of an unknown type between the others.
  FrameReader reader;
  ASSERT_TRUE(
      reader.Open({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, "t").ok());
  const FrameRef& second = reader.frames()[1];
  FrameHeader header;
  std::memcpy(&header, bytes.data() + reader.frames()[0].offset, sizeof header);
  header.type = 999;
  header.header_crc = base::Crc32c(&header, offsetof(FrameHeader, header_crc));
  std::string unknown(reinterpret_cast<const char*>(&header), sizeof header);
  unknown += bytes.substr(reader.frames()[0].offset + sizeof header, header.stored_bytes);
  std::string patched = bytes;
  patched.insert(second.offset, unknown);
  auto back = FromBytes(patched);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(Events(**back).size(), 100u);
  EXPECT_EQ((*back)->session().name, "unit");
}

// An encoder writes whatever kind it is given, so this is what a newer writer leaves.
TEST_F(FinishedTest, LeavesOutEventsOfANewerMinorVersion) {
  MemoryTrace trace;
  Fill(&trace, 1000);
  for (size_t i = 0; i < trace.events.size(); i += 10)
    trace.events[i].kind = static_cast<EventKind>(static_cast<int>(kLastEventKind) + 1);
  auto back = FromBytes(Finish(trace));
  ASSERT_TRUE(back.ok());
  const auto events = Events(**back);
  ASSERT_EQ(events.size(), 900u);
  for (size_t i = 0; i < events.size(); ++i)
    ASSERT_TRUE(Same(events[i], trace.events[i + 1 + i / 9])) << i;
}

}  // namespace
}  // namespace vramscope::trace::finished
