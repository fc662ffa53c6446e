// SPDX-License-Identifier: Apache-2.0
#include "resolve/resolve.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/enums.h"
#include "resolve/attribute/owners.h"
#include "resolve/ledger/ledger.h"
#include "resolve/naming.h"
#include "resolve/read_ahead.h"
#include "resolve/xla_operations.h"
#include "tables/imported.h"

namespace vramscope::resolve {
namespace {

using tables::StringId;
using tables::Tables;

tables::ProcessId Same(trace::ProcessId id) {
  return tables::ProcessId{id == trace::kNoProcess ? 0 : uint32_t{id.value} + 1};
}
tables::DeviceId Same(trace::DeviceId id) {
  return tables::DeviceId{static_cast<uint32_t>(id.value + 1)};
}

// Makes all tables of a recording except its allocations.
class TablesOf {
 public:
  TablesOf(trace::Trace& trace, Ledger& ledger)
      : trace_(trace),
        ledger_(ledger),
        base_(ledger.base()),
        naming_(ledger),
        names_(trace.dictionaries()) {}

  Tables Take() {
    AddSession();
    AddDevices();
    AddProcesses();
    AddFrames();
    AddCounters();  // they add sites
    AddSegments();  // the same
    AddSites();
    NameTied();
    AddSamples();
    AddHostSamples();
    AddShared();
    AddChanges();
    AddProgram();
    AddLoss(AddXlaOperations(trace_, ledger_.xla_programs(), &names_, &out_));
    AddTrust();
    names_.MoveTo(&out_);
    return std::move(out_);
  }

 private:
  void AddSession();
  void AddDevices();
  void AddProcesses();
  void AddFrames();
  void AddCounters();
  void AddSegments();
  void AddSites();
  void NameTied();
  std::string TakenOnce(const SiteKey& key, Category category) const;
  std::string FirstUse(std::string what, std::string_view module, const SiteKey& key);
  tables::StackId PlaceOfText(const std::string& text);
  tables::StackId PlaceInBackward(tables::StackId forward);
  tables::FrameId InBackward(tables::FrameId frame);
  void AddSamples();
  void AddHostSamples();
  void AddShared();
  void AddChanges();
  void AddProgram();
  void AddPhases();
  void AddGraphs();
  void AddTrust();
  void AddLoss(const trace::Loss& loss);
  // By the pricer's process number; kNoIndex: the process never used the device.
  uint32_t AccountOf(uint32_t process, trace::DeviceId device) const {
    return process == price::kNone
               ? kNoIndex
               : base_.accounts.Find(trace::ProcessId{static_cast<uint16_t>(process)}, device);
  }

  trace::Trace& trace_;
  Ledger& ledger_;
  const LedgerBase& base_;
  Naming naming_;
  Tables out_;
  // Ids of the trace stay valid; new rows are appended.
  tables::Dictionaries names_;
  bool never_resumed_ = false;  // paused from start to end
};

void TablesOf::AddSession() {
  const trace::SessionInfo& session = trace_.session();
  tables::Session& out = out_.session;
  out.path = session.path;
  out.name = session.name;
  out.version = session.version;
  out.begin_ns = ledger_.first_ns();
  out.end_ns = std::max(session.end_ns, ledger_.last_ns());
  out.begin_wall_ns = session.start_wall_ns;
  out.history_ns = session.history_ns.value_or(INT64_MIN);
  out.event_count = ledger_.event_count();
  out.file_bytes = session.file_bytes;
  bool paused = false;
  for (const auto& [key, value] : session.notes) {
    out_.notes.push_back({names_.AddText(key), names_.AddText(value)});
    const std::string options = "," + value + ",";
    paused = paused ||
             (key == tables::kOptionsNote &&
              options.find("," + std::string(tables::kPausedOption) + ",") != std::string::npos);
  }
  const std::vector<ProcessProgress>& processes = base_.progress.processes;
  never_resumed_ =
      paused && std::none_of(processes.begin(), processes.end(),
                             [](const ProcessProgress& process) { return process.resumed; });
  if (never_resumed_)
    out_.notes.push_back({names_.AddText(tables::kPausedNote), names_.AddText("yes")});
  std::string optimizers;
  for (const std::string& name : base_.iterations.optimizers())
    optimizers.append(optimizers.empty() ? "" : ", ").append(name);
  if (!optimizers.empty())
    out_.notes.push_back({names_.AddText(tables::kOptimizersNote), names_.AddText(optimizers)});
  tables::HostRow host;
  host.name = names_.AddText(session.host);
  host.realtime_offset_ns = session.start_wall_ns - session.start_ns;
  out_.hosts.push_back(host);
}

void TablesOf::AddDevices() {
  for (size_t i = 0; i < trace_.devices().size(); ++i) {
    const trace::Device& device = trace_.devices()[i];
    const trace::DeviceId id{static_cast<int16_t>(i)};
    tables::DeviceRow row;
    row.host = tables::HostId{1};
    row.kind = device.kind;
    row.index = device.index;
    row.uuid = names_.AddText(device.uuid);
    row.name = names_.AddText(device.name);
    row.total_bytes = device.total_bytes;
    row.reading_offset_bytes = ledger_.prices()[i].reading_offset.value_or(0);
    row.shared = ledger_.prices()[i].has_others ? 1 : 0;
    out_.devices.push_back(row);
    tables::AccountRow account;
    account.device = Same(id);
    account.begin_ns = INT64_MIN;
    account.end_ns = tables::kNever;
    out_.accounts.push_back(account);
  }
  for (const Account& account : base_.accounts.all())
    out_.accounts.push_back(
        {Same(account.process), Same(account.device), account.begin_ns, account.end_ns});
  for (size_t i = 0; i < ledger_.prices().size(); ++i) {
    for (const price::Checkpointed& span : ledger_.prices()[i].checkpointed) {
      const uint32_t account = AccountOf(span.process, trace::DeviceId{static_cast<int16_t>(i)});
      if (account != kNoIndex)
        out_.checkpointed.push_back({base_.accounts.RowOf(account), span.begin_ns, span.end_ns});
    }
  }
}

void TablesOf::AddProcesses() {
  for (size_t i = 0; i < trace_.processes().size(); ++i) {
    const trace::Process& process = trace_.processes()[i];
    const trace::ProcessId id{static_cast<uint16_t>(i)};
    const ProcessProgress& state = base_.progress.processes[i];
    const ProcessIterations& iterations = base_.iterations.of(id);
    tables::ProcessRow row;
    row.host = tables::HostId{1};
    row.pid = process.pid;
    row.parent_pid = process.parent_pid;
    row.rank = process.rank.value_or(-1);
    row.command = names_.AddText(process.command);
    row.executable = names_.AddText(process.executable);
    row.begin_ns = process.start_ns;
    row.end_ns = std::max(process.end_ns, state.last_ns);
    row.exit_ns = state.exit_ns;
    row.wait_status = process.wait_status.value_or(-1);
    row.closed_cleanly = process.closed_cleanly ? 1 : 0;
    row.began_late = state.began_late ? 1 : 0;
    row.iterations_by = iterations.by;
    out_.processes.push_back(row);
    for (int64_t number = iterations.first; number < iterations.count(); ++number) {
      out_.iterations.push_back(
          {Same(id), number, iterations.BeginOf(number), iterations.EndOf(number)});
    }
  }
  for (size_t i = 1; i < trace_.threads().size(); ++i) {
    const trace::Thread& thread = trace_.threads()[i];
    out_.threads.push_back({Same(thread.process), thread.tid, names_.AddText(thread.name)});
  }
}

void TablesOf::AddFrames() {
  std::unordered_map<uint64_t, bool> lines;
  names_.EditFrames([&](tables::FrameRow& frame) {
    frame.library = IsUserFrame(trace_, frame) ? 0 : 1;
    const uint64_t line = uint64_t{frame.file.value} << 32 | frame.line;
    if (frame.line == 0 || !lines.try_emplace(line, true).second)
      return;
    const std::string_view text = trace_.SourceLine(frame.file, frame.line);
    if (!text.empty())
      out_.sources.push_back({frame.file, frame.line, names_.AddText(text)});
  });
  std::sort(out_.sources.begin(), out_.sources.end(), [](const auto& a, const auto& b) {
    return std::pair(a.file, a.line) < std::pair(b.file, b.line);
  });
}

void TablesOf::AddCounters() {
  for (const Counter& counter : base_.counters.all()) {
    tables::CounterRow row;
    row.segment = counter.segment;
    row.context = counter.context;
    if (row.segment.value != 0) {
      row.site = ledger_.writer().segment(row.segment).site;
    } else {
      SiteKey key;
      key.account = (counter.account == kNoIndex ? Accounts::RowOfDevice(counter.device)
                                                 : base_.accounts.RowOf(counter.account))
                        .value;
      key.owner = counter.owner;
      key.part = counter.part;
      key.category = key.without_phases = PartCategory(counter.part);
      key.estimated = counter.estimated;
      key.api = counter.api;
      key.thread = counter.thread;
      key.stack = counter.stack;
      key.native = counter.native;
      row.site = ledger_.writer().AddSite(key, counter.trigger, counter.alloc_ns);
    }
    out_.counters.push_back(row);
  }
  for (const CounterStep& step : base_.counters.steps())
    out_.steps.push_back({tables::CounterId{step.counter + 1}, step.time_ns, step.bytes});
  std::stable_sort(out_.steps.begin(), out_.steps.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
}

// Only segments that were divided into blocks.
void TablesOf::AddSegments() {
  out_.segments = ledger_.writer().segments();
}

void TablesOf::AddSites() {
  for (size_t i = 1; i < ledger_.writer().sites().size(); ++i) {
    const Site& site = ledger_.writer().sites()[i];
    const tables::SiteId id{static_cast<uint32_t>(i)};
    const SiteKey& key = site.key;
    const tables::AccountRow& account = out_.accounts[key.account];
    const trace::ProcessId process =
        account.process.value == 0
            ? trace::kNoProcess
            : trace::ProcessId{static_cast<uint16_t>(account.process.value - 1)};
    tables::SiteRow row;
    row.account = tables::AccountId{key.account};
    row.backing = key.holding == Holding::kBacking ? 1 : 0;
    row.part = key.part;
    row.unbacked = static_cast<uint8_t>(key.unbacked);
    // Names are more precise than the part, except for free memory and slack.
    Category category = PartCategory(key.part);
    if (category == Category::kUnknown && process != trace::kNoProcess)
      category = base_.phases.Knows(process) ? key.category : key.without_phases;
    row.category = category;
    row.phase = key.phase;
    row.estimated = key.estimated;
    row.owner = names_.AddText(OwnerName(key.owner));
    if (key.holding == Holding::kBlock)
      row.allocator = row.owner;
    row.api = key.api;
    row.trigger = names_.AddText(ledger_.writer().TriggerOf(id));
    row.thread = key.thread;
    row.stream = key.stream;
    row.stack = key.stack;
    row.native_stack = key.native;
    row.forward_stack = key.forward;
    row.stands_for = tables::DeviceId{key.stands_for};
    row.maker = tables::ProcessId{key.maker};
    row.scope = key.scope;
    const tables::StackId place = naming_.Place(key);
    row.place = place.value != 0 && place == key.forward ? PlaceInBackward(place) : place;
    std::string once = TakenOnce(key, category);
    if (process != trace::kNoProcess && !once.empty()) {
      const Named named{process, site.alloc_ns, key};
      row.place = PlaceOfText(FirstUse(std::move(once), naming_.text(naming_.Module(named)), key));
      row.tag = names_.AddText(naming_.text(naming_.Tag(named)));
    } else if (process != trace::kNoProcess) {
      const Named named{process, site.alloc_ns, key};
      row.module = names_.AddText(naming_.text(naming_.Module(named)));
      row.module_class = names_.AddText(naming_.text(naming_.ModuleType(named)));
      row.parameter = names_.AddText(naming_.text(naming_.Parameter(named)));
      row.tag = names_.AddText(naming_.text(naming_.Tag(named)));
      row.communicator = names_.AddText(naming_.text(naming_.Communicator(named)));
    }
    row.allocated_bytes = site.allocated_bytes;
    row.allocated_count = site.allocated_count;
    out_.sites.push_back(row);
  }
}

// A tied parameter has several names. Its gradient and its state have only one of them.
void TablesOf::NameTied() {
  std::map<std::pair<uint32_t, std::string>, StringId> tied;  // by process and name
  const auto each = [&](auto function) {
    for (size_t i = 1; i < out_.sites.size(); ++i) {
      tables::SiteRow& row = out_.sites[i];
      const uint32_t names = ledger_.writer().sites()[i].key.names;
      if (row.parameter.value != 0 && !base_.names.set(names).is_flat)
        function(row, row.category, out_.accounts[row.account.value].process);
    }
  };
  each([&](const tables::SiteRow& row, Category category, tables::ProcessId process) {
    if (category != Category::kParameter)
      return;
    std::vector<std::string> names = Naming::NamesOf(names_.text(row.parameter));
    for (size_t i = 0; names.size() > 1 && i < names.size(); ++i)
      tied.try_emplace({process.value, std::move(names[i])}, row.parameter);
  });
  each([&](tables::SiteRow& row, Category category, tables::ProcessId process) {
    if (category != Category::kGradient && category != Category::kOptimizerState)
      return;
    const auto found = tied.find({process.value, std::string(names_.text(row.parameter))});
    if (found != tied.end())
      row.parameter = found->second;
  });
}

// A text for memory without a layer or line: the driver's own, and libraries' workspaces, which
// serve all their calls. "" for other memory.
std::string TablesOf::TakenOnce(const SiteKey& key, Category category) const {
  if (category == Category::kDriver)
    return std::string("CUDA ") + format::PartName(key.part);
  if (category == Category::kWorkspace && CategoryOfOwner(key.owner) == Category::kWorkspace)
    return std::string(OwnerName(key.owner)) + " workspace";
  return {};
}

// "cuBLAS workspace (first used by blocks.0.attention)", or "... at train.py:12)".
std::string TablesOf::FirstUse(std::string what, std::string_view module, const SiteKey& key) {
  if (!module.empty())
    return what + " (first used by " + std::string(module) + ")";
  size_t left = trace_.dictionaries().stack_count();  // a damaged trace may hold a cycle
  for (tables::StackId at = naming_.Place(key); at.value != 0 && left-- > 0;) {
    const tables::StackRow& entry = trace_.stack(at);
    const tables::FrameRow& frame = trace_.frame(entry.frame);
    const std::string_view file = trace_.string(frame.file);
    if (frame.line != 0 && IsUserFrame(trace_, frame)) {
      return what + " (first used at " + std::string(file.substr(file.rfind('/') + 1)) + ":" +
             std::to_string(frame.line) + ")";
    }
    at = entry.parent;
  }
  return what;
}

// A call site that consists of a text.
tables::StackId TablesOf::PlaceOfText(const std::string& text) {
  tables::FrameRow frame;
  frame.kind = tables::FrameKind::kNative;
  frame.function = names_.AddText(text);
  return names_.AddStack({}, names_.AddFrame(frame));
}

// The forward's stack with its line marked, because its backward allocated the memory.
tables::StackId TablesOf::PlaceInBackward(tables::StackId forward) {
  std::vector<tables::StackId> inner;                 // further in than the user's frame
  size_t left = trace_.dictionaries().stack_count();  // a damaged trace may hold a cycle
  tables::StackId user = forward;
  while (user.value != 0 && left-- > 0 &&
         !IsUserFrame(trace_, trace_.frame(trace_.stack(user).frame))) {
    inner.push_back(user);
    user = trace_.stack(user).parent;
  }
  if (user.value == 0) {
    inner.clear();
    user = forward;
  }
  const tables::StackRow& marked = trace_.stack(user);
  tables::StackId place = names_.AddStack(marked.parent, InBackward(marked.frame));
  for (size_t i = inner.size(); i-- > 0;)
    place = names_.AddStack(place, trace_.stack(inner[i]).frame);
  return place;
}

tables::FrameId TablesOf::InBackward(tables::FrameId frame) {
  tables::FrameRow row = names_.frame(frame);
  row.function = names_.AddText("backward of " + std::string(names_.text(row.function)));
  return names_.AddFrame(row);
}

void TablesOf::AddSamples() {
  for (size_t i = 0; i < ledger_.prices().size(); ++i) {
    const trace::DeviceId device{static_cast<int16_t>(i)};
    const price::DeviceInput& input = base_.prices.input(i);
    const price::DevicePrices& prices = ledger_.prices()[i];
    for (size_t j = 0; j < input.samples.size(); ++j) {
      const price::DeviceSample& sample = input.samples[j];
      const price::SampleResult& said = prices.samples[j];
      out_.samples.push_back({Same(device), sample.when.time_ns, sample.when.begin_ns,
                              sample.when.end_ns, static_cast<uint64_t>(sample.used_bytes),
                              said.ledger_bytes, said.low_bytes, said.high_bytes,
                              base_.prices.repeats(i)[j],
                              static_cast<uint8_t>(said.counted ? 1 : 0)});
    }
    for (size_t j = 0; j < input.figures.size(); ++j) {
      const price::ProcessSample& figure = input.figures[j];
      const price::Compared& said = prices.figures[j];
      const uint32_t account = AccountOf(figure.process, device);
      if (account != kNoIndex && figure.when.time_ns >= base_.accounts[account].begin_ns)
        out_.process_samples.push_back({base_.accounts.RowOf(account), figure.when.time_ns,
                                        figure.when.begin_ns, figure.when.end_ns,
                                        static_cast<uint64_t>(figure.used_bytes), said.ledger_bytes,
                                        said.low_bytes, said.high_bytes});
    }
  }
  std::stable_sort(out_.samples.begin(), out_.samples.end(),
                   [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; });
  std::stable_sort(out_.process_samples.begin(), out_.process_samples.end(),
                   [](const auto& a, const auto& b) { return a.account < b.account; });
}

void TablesOf::AddShared() {
  ledger_.objects().shared().ForEach([&](const SharedMemory::Uses& memory) {
    const auto maker = std::find_if(memory.uses.begin(), memory.uses.end(),
                                    [](const SharedMemory::Use& use) { return use.made; });
    for (const SharedMemory::Use& use : memory.uses) {
      const uint32_t account = base_.accounts.Find(use.holder.process, use.device);
      if (account == kNoIndex)
        continue;
      SiteKey key;
      key.stack = use.stack;
      key.native = use.native;
      tables::SharedRow row;
      row.account = base_.accounts.RowOf(account);
      row.begin_ns = use.begin_ns;
      row.end_ns = use.end_ns;
      row.bytes = memory.bytes != 0 ? memory.bytes : use.size;
      row.place = naming_.Place(key);
      if (maker != memory.uses.end()) {
        row.maker = Same(maker->holder.process);
        if (!use.made && maker->end_ns < use.end_ns) {
          row.kept_ns = std::max(maker->end_ns, use.begin_ns);
          row.maker_ended = maker->is_over ? 1 : 0;
        }
      }
      out_.shared.push_back(row);
    }
  });
}

void TablesOf::AddHostSamples() {
  const auto number = [](uint64_t value) {
    return static_cast<uint32_t>(std::min<uint64_t>(value, UINT32_MAX));
  };
  const std::span<const trace::HostSample> samples = trace_.host_samples();
  for (size_t i = 0; i < samples.size(); ++i) {
    const trace::HostSample& sample = samples[i];
    out_.host_samples.push_back({sample.time_ns, number(sample.processes), sample.resident_bytes,
                                 sample.shared_bytes, number(sample.largest_pid),
                                 sample.largest_bytes, sample.limit_bytes, sample.used_bytes,
                                 sample.kills, ledger_.pinned_at_samples()[i]});
  }
}

// Changes at the same instant are one change.
void TablesOf::AddChanges() {
  for (size_t i = 0; i < ledger_.prices().size(); ++i) {
    const price::DevicePrices& prices = ledger_.prices()[i];
    const tables::DeviceId device = Same(trace::DeviceId{static_cast<int16_t>(i)});
    int64_t time_ns = INT64_MIN;
    int64_t bytes = 0;
    const auto note = [&](int64_t at_ns, int64_t moved) {
      if (at_ns != time_ns && bytes != 0)
        out_.changes.push_back({device, time_ns});
      bytes = (at_ns == time_ns ? bytes : 0) + moved;
      time_ns = at_ns;
    };
    auto step = prices.steps.begin();
    for (const price::Move& move : base_.prices.input(i).moves) {
      for (; step != prices.steps.end() && step->when.time_ns <= move.when.time_ns; ++step)
        note(step->when.time_ns, step->bytes);
      const int64_t sign = move.bytes < 0 ? -1 : 1;
      note(move.when.time_ns,
           move.array == price::kNone ? move.bytes : sign * prices.arrays[move.array].bytes);
    }
    for (; step != prices.steps.end(); ++step)
      note(step->when.time_ns, step->bytes);
    note(INT64_MAX, 0);
    for (const price::Checkpointed& span : prices.checkpointed) {
      out_.changes.push_back({device, span.begin_ns});
      if (span.end_ns != price::kNever)
        out_.changes.push_back({device, span.end_ns});
    }
  }
  const auto place = [](const tables::ChangeRow& row) {
    return std::pair(row.time_ns, row.device);
  };
  const auto is_before = [&](const auto& a, const auto& b) { return place(a) < place(b); };
  const auto is_same = [&](const auto& a, const auto& b) { return place(a) == place(b); };
  if (!std::is_sorted(out_.changes.begin(), out_.changes.end(), is_before))
    std::sort(out_.changes.begin(), out_.changes.end(), is_before);
  out_.changes.erase(std::unique(out_.changes.begin(), out_.changes.end(), is_same),
                     out_.changes.end());
}

void TablesOf::AddProgram() {
  for (const MarkRecord& mark : ledger_.marks())
    out_.marks.push_back({mark.time_ns, mark.name, Same(mark.process)});
  for (const NvtxCounters::Counter& counter : ledger_.nvtx_counters().counters)
    out_.nvtx_counters.push_back({Same(counter.process), Same(counter.device), counter.name});
  out_.nvtx_samples = ledger_.nvtx_counters().samples;
  out_.out_of_memory = ledger_.out_of_memory();
  AddPhases();
  AddGraphs();
}

// By process, each phase until the next one of its process.
void TablesOf::AddPhases() {
  std::map<uint32_t, std::vector<tables::PhaseRow>> processes;
  for (const Phases::EnginePhase& phase : base_.phases.engine_phases()) {
    std::vector<tables::PhaseRow>& rows = processes[phase.process.value];
    if (!rows.empty())
      rows.back().end_ns = phase.begin_ns;
    rows.push_back({Same(phase.process), names_.AddText(phase.name), phase.begin_ns,
                    std::max(phase.begin_ns, ledger_.last_ns())});
  }
  for (const auto& [process, rows] : processes) {
    for (const tables::PhaseRow& row : rows) {
      if (row.name.value != 0)
        out_.phases.push_back(row);
    }
  }
}

void TablesOf::AddGraphs() {
  for (const Captures::Entry& entry : ledger_.captures().all()) {
    const int64_t end_ns = entry.end_ns != 0 ? entry.end_ns : ledger_.last_ns();
    out_.graphs.push_back({Same(entry.process), entry.size, entry.stack, entry.begin_ns,
                           std::max(entry.begin_ns, end_ns)});
  }
  std::stable_sort(out_.graphs.begin(), out_.graphs.end(),
                   [](const auto& a, const auto& b) { return a.process.value < b.process.value; });
}

void TablesOf::AddLoss(const trace::Loss& loss) {
  if (loss.count == 0)
    return;
  const StringId name = names_.AddText(loss.name);
  for (tables::LossRow& known : out_.losses) {
    if (known.name == name) {
      known.count += loss.count;
      known.bytes += loss.bytes;
      return;
    }
  }
  out_.losses.push_back({name, loss.count, loss.bytes});
}

void TablesOf::AddTrust() {
  for (const trace::Loss& loss : trace_.losses())
    AddLoss(loss);
  AddLoss(base_.progress.unknown_frees);
  AddLoss(base_.progress.inherited_frees);
  AddLoss(base_.progress.double_allocs);
  // A recording that was always paused has no memory to name.
  if (!never_resumed_)
    AddLoss(base_.progress.unknown_names);
  trace::Loss not_measured{format::LossName(static_cast<uint64_t>(format::Loss::kNoReading))};
  for (const price::DevicePrices& prices : ledger_.prices())
    not_measured.count += prices.contexts_not_measured;
  AddLoss(not_measured);
  trace::Loss unlisted{"phases of inference engines not listed"};
  unlisted.count = base_.phases.unlisted_phases();
  AddLoss(unlisted);
  trace::Loss captures{"captures of CUDA graphs not listed"};
  captures.count = ledger_.captures().unlisted();
  AddLoss(captures);
  // Except named ones, such as parameters.
  trace::Loss before{"CPU tensors from before the start are not counted"};
  for (const Account& account : base_.accounts.all()) {
    const bool is_cpu = trace_.devices()[static_cast<size_t>(account.device.value)].kind ==
                        tables::DeviceKind::kCpu;
    before.count += is_cpu && base_.progress.processes[account.process.value].had_torch ? 1U : 0U;
  }
  AddLoss(before);
  const Violations& found = base_.progress.violations;
  const auto add = [&](tables::InvariantKind kind, uint64_t count, const std::string& first) {
    if (count != 0)
      out_.violations.push_back({kind, count, names_.AddText(first)});
  };
  add(tables::InvariantKind::kFreedTwice, found.freed_twice, found.first_freed_twice);
  add(tables::InvariantKind::kOutsideSegment, found.outside_segment, found.first_outside_segment);
  add(tables::InvariantKind::kOverfullSegment, found.overfull_segments, found.first_overfull);
}

}  // namespace

util::Result<Tables> Resolve(trace::Trace& trace,
                             tables::AllocationSink& sink,
                             const std::function<void(double)>& progress) {
  Ledger ledger(trace, sink);
  const int64_t begin_ns = trace.session().start_ns;
  const int64_t end_ns = trace.session().end_ns;
  VRAMSCOPE_RETURN_IF_ERROR(ForEachEventReadAhead(trace, [&](std::span<const trace::Event> events) {
    ledger.Apply(events);
    if (progress && !events.empty() && end_ns > begin_ns) {
      const auto done = static_cast<double>(events.back().time_ns - begin_ns);
      progress(std::clamp(done / static_cast<double>(end_ns - begin_ns), 0.0, 1.0));
    }
  }));
  ledger.Finish();
  VRAMSCOPE_RETURN_IF_ERROR(ledger.writer().status());
  return TablesOf(trace, ledger).Take();
}

}  // namespace vramscope::resolve
