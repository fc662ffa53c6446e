// SPDX-License-Identifier: Apache-2.0
// Writes the pickle of torch.cuda.memory._dump_snapshot(): the state at an instant ("segments",
// with their blocks) and the events before it ("device_traces"). Its readers,
// https://pytorch.org/memory_viz and torch.cuda._memory_viz, start from the state and undo the
// events, one by one.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "format/memory_words.h"
#include "output/export/export.h"
#include "output/export/live_stacks.h"
#include "output/export/pickle.h"
#include "output/export/row_changes.h"
#include "output/export/snapshot_state.h"
#include "output/names.h"
#include "query/core/instant.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/report.h"
#include "tables/row_of.h"

namespace vramscope::output {
namespace {

// Limits the list of devices that is made. No machine has larger numbers.
constexpr int32_t kMaxDeviceIndex = 1023;
// PyTorch's small pool has segments of 2 MiB.
constexpr uint64_t kSmallSegmentBytes = uint64_t{2} << 20;

// Of hostile figures the end lies before the begin.
uint64_t EndOf(uint64_t address, uint64_t bytes) {
  uint64_t end = 0;
  return __builtin_add_overflow(address, bytes, &end) ? UINT64_MAX : end;
}

// What the small tables say happened at an instant.
struct Occurrence {
  enum class Kind : uint8_t { kStep, kComesBack, kLeaves, kRefusal };
  int64_t time_ns = 0;
  Kind kind = Kind::kStep;
  uint32_t number = 0;  // of a row of steps, checkpointed, out_of_memory
};

// A device number of the snapshot: a process on a device, with the device's bytes of no process.
struct NumberedDevice {
  uint32_t number = 0;
  tables::DeviceId device;
  tables::ProcessId process;
  bool has_rest = false;  // the device's bytes of no process, and in transit
  std::vector<bool> accounts;
};

std::vector<NumberedDevice> NumberDevices(const tables::Tables& tables) {
  std::vector<NumberedDevice> found;
  const auto find = [&](tables::DeviceId device, tables::ProcessId process) -> NumberedDevice& {
    for (NumberedDevice& known : found) {
      if (known.device == device && known.process == process)
        return known;
    }
    found.push_back({0, device, process, false, std::vector<bool>(tables.accounts.size())});
    return found.back();
  };
  for (const bool of_process : {true, false}) {
    for (uint32_t i = 1; i < tables.accounts.size(); ++i) {
      const tables::AccountRow& account = tables.accounts[i];
      if ((account.process.value != 0) != of_process)
        continue;
      // Bytes of no process are shown with the first process on the device.
      const auto first = std::find_if(found.begin(), found.end(), [&](const auto& known) {
        return known.device == account.device;
      });
      NumberedDevice& of_account =
          of_process || first == found.end() ? find(account.device, account.process) : *first;
      of_account.accounts[i] = true;
    }
  }
  std::set<uint32_t> taken;
  std::set<uint32_t> with_rest;
  std::vector<NumberedDevice*> without_number;
  for (NumberedDevice& known : found) {
    known.has_rest = with_rest.insert(known.device.value).second;
    const tables::DeviceRow& row = RowOf(tables.devices, known.device);
    const bool is_gpu = row.kind == tables::DeviceKind::kGpu;
    known.number = static_cast<uint32_t>(row.index);
    if (!is_gpu || row.index < 0 || row.index > kMaxDeviceIndex ||
        !taken.insert(known.number).second)
      without_number.push_back(&known);
  }
  uint32_t next = taken.empty() ? 0 : *taken.rbegin() + 1;
  for (NumberedDevice* const known : without_number)
    known->number = next++;
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.number < b.number; });
  return found;
}

class SnapshotExporter {
 public:
  SnapshotExporter(const tables::Recording& recording,
                   query::Instants until,
                   const ExportSink& sink)
      : recording_(recording),
        tables_(recording.tables()),
        until_(std::move(until)),
        labels_(recording),
        pickle_(sink) {}

  util::Status Run(const query::Report& report) {
    std::vector<NumberedDevice> devices = NumberDevices(tables_);
    FindOccurrences();
    pickle_.BeginDict();
    pickle_.Key("device_traces");
    pickle_.BeginList();
    std::vector<std::unique_ptr<SnapshotState>> states;
    uint32_t number = 0;
    for (const NumberedDevice& device : devices) {
      for (; number < device.number; ++number) {
        pickle_.BeginList();
        pickle_.EndList();
      }
      pickle_.BeginList();
      states.push_back(std::make_unique<SnapshotState>(
          recording_, &labels_, [this](const SnapshotEvent& event) { WriteEvent(event); }));
      VRAMSCOPE_RETURN_IF_ERROR(Replay(device, states.back().get()));
      AddInTransit(report, device, states.back().get());
      WriteEnd();
      states.back()->Finish();
      pickle_.EndList();
      ++number;
    }
    pickle_.EndList();
    pickle_.Key("segments");
    pickle_.BeginList();
    for (size_t i = 0; i < devices.size(); ++i)
      WriteSegments(devices[i], *states[i]);
    pickle_.EndList();
    pickle_.Key("external_annotations");
    WriteAnnotations(devices);
    pickle_.Key("vramscope");
    WriteOrigin(devices);
    pickle_.EndDict();
    return pickle_.Finish();
  }

 private:
  void FindOccurrences() {
    using Kind = Occurrence::Kind;
    for (uint32_t i = 0; i < tables_.steps.size(); ++i)
      occurrences_.push_back({tables_.steps[i].time_ns, Kind::kStep, i});
    for (uint32_t i = 0; i < tables_.checkpointed.size(); ++i) {
      occurrences_.push_back({tables_.checkpointed[i].begin_ns, Kind::kLeaves, i});
      occurrences_.push_back({tables_.checkpointed[i].end_ns, Kind::kComesBack, i});
    }
    for (uint32_t i = 0; i < tables_.out_of_memory.size(); ++i)
      occurrences_.push_back({tables_.out_of_memory[i].time_ns, Kind::kRefusal, i});
    std::stable_sort(occurrences_.begin(), occurrences_.end(), [](const auto& a, const auto& b) {
      return std::pair(a.time_ns, a.kind) < std::pair(b.time_ns, b.kind);
    });
  }

  util::Status Replay(const NumberedDevice& device, SnapshotState* state) {
    RowChanges changes(recording_, until_, device.accounts);
    auto occurrence = occurrences_.begin();
    const auto catch_up = [&](int64_t time_ns) {
      for (; occurrence != occurrences_.end() && occurrence->time_ns < time_ns; ++occurrence) {
        if (IsCounted(device, AccountOf(*occurrence), occurrence->time_ns))
          Apply(*occurrence, state);
      }
    };
    for (;;) {
      VRAMSCOPE_ASSIGN_OR_RETURN(const auto window, changes.Next());
      if (window.empty())
        break;
      for (const RowChange& change : window) {
        if (!pickle_.ok())
          return pickle_.Finish();
        catch_up(change.time_ns);
        time_ns_ = change.time_ns;
        switch (change.kind) {
          case RowChange::Kind::kBlockEnds:
            state->EndBlock(change.row);
            break;
          case RowChange::Kind::kSegmentEnds:
            state->EndSegment(change.row);
            break;
          case RowChange::Kind::kSegmentBegins:
            state->BeginSegment(change.row);
            break;
          case RowChange::Kind::kBlockBegins:
            state->BeginBlock(change.row);
            break;
          case RowChange::Kind::kGoesOn:
            state->GoOn(change.row);
            break;
        }
      }
    }
    catch_up(INT64_MAX);
    return {};
  }

  tables::AccountId AccountOf(const Occurrence& occurrence) const {
    switch (occurrence.kind) {
      case Occurrence::Kind::kRefusal:
        return tables_.out_of_memory[occurrence.number].account;
      case Occurrence::Kind::kLeaves:
      case Occurrence::Kind::kComesBack:
        return tables_.checkpointed[occurrence.number].account;
      case Occurrence::Kind::kStep:
        break;
    }
    const uint32_t counter = tables_.steps[occurrence.number].counter.value;
    if (counter >= tables_.counters.size())
      return {};
    const uint32_t site = tables_.counters[counter].site.value;
    return site < tables_.sites.size() ? tables_.sites[site].account : tables::AccountId{};
  }

  bool IsCounted(const NumberedDevice& device, tables::AccountId account, int64_t time_ns) const {
    return account.value < device.accounts.size() && device.accounts[account.value] &&
           until_.of_account[account.value] != query::kNoTime &&
           time_ns <= until_.of_account[account.value];
  }

  void Apply(const Occurrence& occurrence, SnapshotState* state) {
    time_ns_ = occurrence.time_ns;
    switch (occurrence.kind) {
      case Occurrence::Kind::kStep: {
        const tables::StepRow& step = tables_.steps[occurrence.number];
        state->AddStep(step.counter, step.bytes);
        break;
      }
      case Occurrence::Kind::kLeaves:
      case Occurrence::Kind::kComesBack:
        state->SetCheckpointed(tables_.checkpointed[occurrence.number].account,
                               occurrence.kind == Occurrence::Kind::kLeaves);
        break;
      case Occurrence::Kind::kRefusal:
        WriteRefusal(tables_.out_of_memory[occurrence.number]);
        break;
    }
  }

  void AddInTransit(const query::Report& report,
                    const NumberedDevice& device,
                    SnapshotState* state) {
    if (!device.has_rest)
      return;
    for (const query::DeviceReport& shown : report.devices) {
      if (shown.device != device.device || shown.in_transit_bytes <= 0)
        continue;
      SnapshotLabel label;
      label.below = InBrackets(format::PartName(format::Part::kInTransit));
      label.category = format::CategoryName(format::Category::kDriver);
      state->AddInUse(labels_.Of(label), static_cast<uint64_t>(shown.in_transit_bytes));
    }
  }

  // Microseconds of the wall clock, as PyTorch writes them.
  int64_t MicrosecondsAt(int64_t time_ns) const {
    const auto since_begin =
        static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(tables_.session.begin_ns);
    return static_cast<int64_t>(since_begin +
                                static_cast<uint64_t>(tables_.session.begin_wall_ns)) /
           1000;
  }

  void WriteEvent(const SnapshotEvent& event) {
    const SnapshotLabel& label = labels_[event.label];
    pickle_.BeginDict();
    pickle_.Key("action");
    pickle_.Text(event.action);
    pickle_.Key("addr");
    pickle_.Uint(event.address);
    pickle_.Key("size");
    pickle_.Uint(event.bytes);
    pickle_.Key("stream");
    pickle_.Uint(label.stream);
    pickle_.Key("time_us");
    pickle_.Int(MicrosecondsAt(time_ns_));
    pickle_.Key("frames");
    if (event.frees) {
      pickle_.BeginList();  // where it was freed is not recorded
      pickle_.EndList();
    } else {
      WriteFrames(label.stack, label.below);
      if (std::string_view(event.action) == "alloc")
        WriteNames(label);
    }
    pickle_.EndDict();
  }

  void WriteNames(const SnapshotLabel& label) {
    pickle_.Key("category");
    pickle_.Text(label.category);
    if (!label.names.empty()) {
      pickle_.Key("user_metadata");
      pickle_.Text(label.names);
    }
  }

  void WriteRefusal(const tables::OutOfMemoryRow& refusal) {
    pickle_.BeginDict();
    pickle_.Key("action");
    pickle_.Text("oom");
    pickle_.Key("device_free");
    pickle_.Uint(FreeAt(refusal));
    pickle_.Key("size");
    pickle_.Uint(refusal.requested_bytes);
    pickle_.Key("stream");
    pickle_.Int(0);
    pickle_.Key("time_us");
    pickle_.Int(MicrosecondsAt(refusal.time_ns));
    pickle_.Key("frames");
    WriteFrames(refusal.stack.value != 0 ? refusal.stack : refusal.native_stack, "");
    pickle_.EndDict();
  }

  // By NVML's last figure before it; 0 where it has none.
  uint64_t FreeAt(const tables::OutOfMemoryRow& refusal) const {
    const tables::DeviceId device = RowOf(tables_.accounts, refusal.account).device;
    uint64_t free_bytes = 0;
    for (const tables::SampleRow& sample : tables_.samples) {
      if (sample.time_ns > refusal.time_ns)
        break;
      if (sample.device == device && device.value < tables_.devices.size()) {
        const uint64_t total_bytes = tables_.devices[device.value].total_bytes;
        free_bytes = total_bytes - std::min(total_bytes, sample.used_bytes);
      }
    }
    return free_bytes;
  }

  // PyTorch's last entry too. memory_viz needs one of category "unknown" where there are any.
  void WriteEnd() {
    pickle_.BeginDict();
    pickle_.Key("action");
    pickle_.Text("snapshot");
    pickle_.Key("addr");
    pickle_.Int(0);
    pickle_.Key("size");
    pickle_.Int(0);
    pickle_.Key("stream");
    pickle_.Int(0);
    pickle_.Key("time_us");
    pickle_.Int(MicrosecondsAt(time_ns_));
    pickle_.Key("frames");
    pickle_.BeginList();
    pickle_.EndList();
    pickle_.Key("category");
    pickle_.Text("unknown");
    pickle_.EndDict();
  }

  // Innermost first; each stack and each frame is written once.
  void WriteFrames(tables::StackId stack, const std::string& below) {
    const auto [known, is_new] = stacks_.try_emplace({stack, below}, 0);
    if (!is_new) {
      pickle_.Again(known->second);
      return;
    }
    pickle_.BeginList();
    for (size_t to = below.size(); to != 0;) {
      const size_t found = below.rfind(';', to - 1);
      const size_t from = found == std::string::npos ? 0 : found + 1;
      WriteFrame("", std::string_view(below).substr(from, to - from), 0);
      to = found == std::string::npos ? 0 : found;
    }
    for (const tables::FrameId id : query::StackFrames(recording_, stack, query::kMaxStackFrames)) {
      const auto [frame, is_first] = frames_.try_emplace(id.value, 0);
      if (!is_first) {
        pickle_.Again(frame->second);
        continue;
      }
      const tables::FrameRow& row = RowOf(tables_.frames, id);
      const std::string_view file = recording_.string(row.file);
      WriteFrame(file.empty() ? recording_.string(row.image) : file,
                 recording_.string(row.function), row.line);
      frame->second = pickle_.Remember();
    }
    pickle_.EndList();
    known->second = pickle_.Remember();
  }

  void WriteFrame(std::string_view file, std::string_view function, uint32_t line) {
    pickle_.BeginDict();
    pickle_.Key("filename");
    pickle_.Text(file);
    pickle_.Key("name");
    pickle_.Text(function.empty() ? "??" : function);
    pickle_.Key("line");
    pickle_.Int(line);
    pickle_.EndDict();
  }

  // Pieces of a reservation that lie side by side are one segment, as in PyTorch.
  void WriteSegments(const NumberedDevice& device, const SnapshotState& state) {
    const auto& ranges = state.ranges();
    for (auto first = ranges.begin(); first != ranges.end();) {
      uint64_t end = EndOf(first->first, first->second.bytes);
      auto next = std::next(first);
      while (first->second.is_mapped && next != ranges.end() && next->first == end &&
             next->second.is_mapped && next->second.segment == first->second.segment) {
        end = EndOf(end, next->second.bytes);
        ++next;
      }
      if (!state.IsCheckpointed(first->second.label))
        WriteSegment(device, state, first->first, end, first->second);
      first = next;
    }
  }

  void WriteSegment(const NumberedDevice& device,
                    const SnapshotState& state,
                    uint64_t address,
                    uint64_t end,
                    const SnapshotRange& range) {
    const SnapshotLabel& label = labels_[range.label];
    const auto first = state.blocks().lower_bound(address);
    const auto last = state.blocks().lower_bound(end);
    uint64_t used_bytes = 0;
    uint64_t requested_bytes = 0;
    for (auto block = first; block != last; ++block) {
      used_bytes += block->second.bytes;
      requested_bytes += block->second.requested_bytes;
    }
    pickle_.BeginDict();
    const auto number = [&](const char* key, uint64_t value) {
      pickle_.Key(key);
      pickle_.Uint(value);
    };
    number("device", device.number);
    number("address", address);
    number("total_size", end - address);
    number("allocated_size", used_bytes);
    number("active_size", used_bytes);
    number("requested_size", requested_bytes);
    number("stream", label.stream);
    pickle_.Key("segment_type");
    pickle_.Text(end - address > kSmallSegmentBytes ? "large" : "small");
    pickle_.Key("segment_pool_id");
    pickle_.Pair(0, label.graph_pool ? 1 : 0);
    pickle_.Key("is_expandable");
    pickle_.Bool(range.is_mapped);
    pickle_.Key("frames");
    WriteFrames(label.stack, label.below);
    pickle_.Key("blocks");
    pickle_.BeginList();
    for (auto block = first; block != last; ++block) {
      if (block->first > address)
        WriteFreeBlock(address, block->first - address);
      WriteBlock(block->first, block->second);
      address = EndOf(block->first, block->second.bytes);
    }
    if (address < end)
      WriteFreeBlock(address, end - address);
    pickle_.EndList();
    pickle_.EndDict();
  }

  void WriteBlock(uint64_t address, const SnapshotBlock& block) {
    const SnapshotLabel& label = labels_[block.label];
    pickle_.BeginDict();
    pickle_.Key("address");
    pickle_.Uint(address);
    pickle_.Key("size");
    pickle_.Uint(block.bytes);
    pickle_.Key("requested_size");
    pickle_.Uint(block.requested_bytes);
    pickle_.Key("state");
    pickle_.Text("active_allocated");
    pickle_.Key("frames");
    WriteFrames(label.stack, label.below);
    WriteNames(label);
    pickle_.EndDict();
  }

  void WriteFreeBlock(uint64_t address, uint64_t bytes) {
    pickle_.BeginDict();
    pickle_.Key("address");
    pickle_.Uint(address);
    pickle_.Key("size");
    pickle_.Uint(bytes);
    pickle_.Key("requested_size");
    pickle_.Int(0);
    pickle_.Key("state");
    pickle_.Text("inactive");
    pickle_.Key("frames");
    pickle_.BeginList();
    pickle_.EndList();
    pickle_.EndDict();
  }

  // Iterations and marks, on the devices of their process.
  void WriteAnnotations(const std::vector<NumberedDevice>& devices) {
    pickle_.BeginList();
    const auto annotate = [&](uint32_t device, std::string_view name, const char* stage,
                              int64_t time_ns) {
      pickle_.BeginDict();
      pickle_.Key("stage");
      pickle_.Text(stage);
      pickle_.Key("name");
      pickle_.Text(name);
      pickle_.Key("device");
      pickle_.Uint(device);
      pickle_.Key("time_us");
      pickle_.Int(MicrosecondsAt(time_ns));
      pickle_.EndDict();
    };
    for (const NumberedDevice& device : devices) {
      for (const tables::IterationRow& iteration : tables_.iterations) {
        if (iteration.process != device.process || !pickle_.ok())
          continue;
        const std::string name = "iteration " + std::to_string(iteration.number);
        annotate(device.number, name, "START", iteration.begin_ns);
        annotate(device.number, name, "END", iteration.end_ns);
      }
      for (const tables::MarkRow& mark : tables_.marks) {
        if (mark.process != device.process || !pickle_.ok())
          continue;
        annotate(device.number, recording_.string(mark.name), "START", mark.time_ns);
        annotate(device.number, recording_.string(mark.name), "END", mark.time_ns);
      }
    }
    pickle_.EndList();
  }

  // Which device each number is.
  void WriteOrigin(const std::vector<NumberedDevice>& devices) {
    pickle_.BeginDict();
    pickle_.Key("name");
    pickle_.Text(tables_.session.name);
    pickle_.Key("devices");
    pickle_.BeginList();
    for (const NumberedDevice& known : devices) {
      const tables::DeviceRow& row = RowOf(tables_.devices, known.device);
      pickle_.BeginDict();
      pickle_.Key("device");
      pickle_.Uint(known.number);
      pickle_.Key("kind");
      pickle_.Text(DeviceKindName(row.kind));
      pickle_.Key("index");
      pickle_.Int(row.index);
      pickle_.Key("name");
      pickle_.Text(recording_.string(row.name));
      pickle_.Key("total_bytes");
      pickle_.Uint(row.total_bytes);
      pickle_.Key("pid");
      pickle_.Uint(PidOf(recording_, known.process));
      pickle_.EndDict();
    }
    pickle_.EndList();
    pickle_.EndDict();
  }

  const tables::Recording& recording_;
  const tables::Tables& tables_;
  query::Instants until_;
  SnapshotLabels labels_;
  PickleWriter pickle_;
  std::vector<Occurrence> occurrences_;  // in order of time
  int64_t time_ns_ = 0;                  // of the event being written
  std::map<std::pair<tables::StackId, std::string>, uint32_t>
      stacks_;  // where they can be had again
  std::map<uint32_t, uint32_t> frames_;
};

}  // namespace

util::Status ExportTorchSnapshot(const tables::Recording& recording,
                                 const ExportOptions& options,
                                 const ExportSink& sink) {
  query::ReportQuery query;
  query.at = options.at;
  query.by = {query::Dimension::kCategory};
  VRAMSCOPE_ASSIGN_OR_RETURN(const query::Report report, query::MakeReport(recording, query));
  VRAMSCOPE_ASSIGN_OR_RETURN(query::Instants until, query::ResolveInstant(recording, options.at));
  return SnapshotExporter(recording, std::move(until), sink).Run(report);
}

}  // namespace vramscope::output
