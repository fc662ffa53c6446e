// SPDX-License-Identifier: Apache-2.0
#include "query/diff/diff_side.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "format/enums.h"
#include "query/core/instant.h"
#include "query/core/parallel.h"
#include "query/core/peaks.h"
#include "query/dimensions/dimensions.h"
#include "query/dimensions/fold_names.h"
#include "query/dimensions/frames.h"
#include "query/dimensions/iteration_times.h"
#include "tables/imported.h"
#include "tables/row_of.h"
#include "util/size_text.h"

namespace vramscope::query {
namespace {

using format::Category;
using format::Part;
using tables::DeviceKind;

// Names that wrappers put before a module's own: torch.compile, DistributedDataParallel.
std::string_view WithoutWrapper(std::string_view module, std::string* buffer) {
  constexpr std::string_view kCompiled = "_orig_mod.";
  constexpr std::string_view kParallel = "module.";
  if (module.starts_with(kParallel))
    module.remove_prefix(kParallel.size());
  size_t at = module.find(kCompiled);
  if (at == std::string_view::npos)
    return module;
  *buffer = module;
  for (; at != std::string::npos; at = buffer->find(kCompiled))
    buffer->erase(at, kCompiled.size());
  return *buffer;
}

// Layers that have parameters.
std::set<std::string_view> Layers(const tables::Recording& recording) {
  std::set<std::string_view> layers;
  for (const tables::SiteRow& site : recording.tables().sites) {
    if (site.category == Category::kParameter && site.module.value != 0)
      layers.insert(recording.string(site.module));
  }
  return layers;
}

// Where only this side has several models, its names of one of them begin with the model's, which
// the other side leaves out: "Net.". Empty where that is not so.
std::string PrefixOfModel(const tables::Recording& recording, const tables::Recording& other) {
  const std::set<std::string_view> wanted = Layers(other);
  std::map<std::string_view, std::set<std::string_view>> layers_of;
  for (const std::string_view layer : Layers(recording)) {
    const std::string_view model = ModelOf(layer);
    if (!model.empty() && layer.size() > model.size())
      layers_of[model].insert(layer.substr(model.size() + 1));
  }
  for (const auto& [model, layers] : layers_of) {
    if (!wanted.empty() &&
        std::includes(layers.begin(), layers.end(), wanted.begin(), wanted.end()))
      return std::string(model) + ".";
  }
  return {};
}

// Turns rows into keys. Remembers what it looked up.
class KeyMaker {
 public:
  KeyMaker(const tables::Recording& recording, DiffWords* words, DiffSide* side)
      : recording_(recording), texts_(recording), words_(*words), side_(*side) {
    const tables::Tables& tables = recording.tables();
    strings_.resize(tables.strings.size());
    places_.resize(tables.frames.size());
  }

  DiffKey Of(const tables::SiteRow& site, uint32_t device) {
    DiffKey key;
    key.device = device;
    key.category = site.category;
    const auto part = site.part;
    key.slack = format::IsSlack(part) || format::PartCategory(part) == Category::kDriver;
    if (!IsBlock(site))
      key.detail = Detail(site);
    if (format::IsSlack(part))
      return key;
    key.phase = site.phase;
    key.module = Name(site.module);
    key.parameter = Name(site.parameter);
    key.tag = site.tag.value == 0 ? 0 : words_.Of(recording_.string(site.tag));
    // What the driver has of its own goes with its calls, wherever they were made; what belongs to
    // a parameter, with its name.
    if (!key.slack && key.parameter == 0)
      key.place = Place(texts_.LineOf(site));
    return key;
  }

  // Where something was allocated, whether or not its key says so.
  uint32_t Origin(const tables::SiteRow& site) { return Place(texts_.LineOf(site)); }

  // The user's frames above the line that the key is of.
  DiffChain Callers(const tables::SiteRow& site) {
    DiffChain chain;
    const uint32_t line = texts_.LineOf(site).value;
    bool above = false;
    for (const tables::FrameId frame : StackFrames(recording_, site.place, kMaxStackFrames)) {
      if (above && IsUserFrame(recording_, frame))
        chain.push_back(Place(frame));
      above = above || frame.value == line;
    }
    return chain;
  }

 private:
  // Of a layer or a parameter.
  uint32_t Name(tables::StringId id) {
    if (id.value == 0 || id.value >= strings_.size())
      return 0;
    uint32_t& known = strings_[id.value];
    if (known == 0) {
      std::string buffer;
      std::string_view name = recording_.string(id);
      if (!side_.model_prefix.empty() && name.starts_with(side_.model_prefix))
        name.remove_prefix(side_.model_prefix.size());
      known = words_.Of(WithoutWrapper(name, &buffer)) + 1;
    }
    return known - 1;
  }

  uint32_t Detail(const tables::SiteRow& site) {
    std::string text;
    for (const std::string& level : texts_.TreePath(site))
      text += (text.empty() ? "" : " / ") + level;
    return words_.Of(text);
  }

  // A line is known by its function and its text: others may have come before it.
  uint32_t Place(tables::FrameId frame) {
    if (frame.value == 0 || frame.value >= places_.size())
      return 0;
    uint32_t& known = places_[frame.value];
    if (known != 0)
      return known;
    const tables::FrameRow& row = recording_.tables().frames[frame.value];
    const std::string_view source = SourceOf(recording_, frame);
    const std::string shown = FormatFrame(recording_, frame);
    known = words_.Of(source.empty() ? shown
                                     : std::string(recording_.string(row.function)) + "\n" +
                                           std::string(source));
    side_.lines.try_emplace(known, shown);
    return known;
  }

  const tables::Recording& recording_;
  DimensionValues texts_;
  DiffWords& words_;
  DiffSide& side_;
  std::vector<uint32_t> strings_;  // by StringId: word + 1
  std::vector<uint32_t> places_;   // by FrameId
};

// By DeviceId: index into DiffSide::devices.
std::vector<std::optional<uint32_t>> Places(const DiffSide& side) {
  std::vector<std::optional<uint32_t>> places(side.recording->tables().devices.size());
  for (uint32_t i = 0; i < side.devices.size(); ++i)
    places[side.devices[i].id.value] = i;
  return places;
}

bool IsOfOthers(const Leaf& leaf) {
  return leaf.site.part == Part::kOtherProcesses;
}

util::Result<DiffSums> SumsAt(const Instants& at,
                              DiffWords* words,
                              DiffSide* side,
                              std::map<DiffKey, std::map<DiffChain, uint64_t>>* callers = nullptr,
                              DiffSums* unbacked = nullptr) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto live, ReadLiveSet(*side->recording, at));
  const auto places = Places(*side);
  KeyMaker keys(*side->recording, words, side);
  DiffSums sums;
  const auto counts = [&](const Leaf& leaf) {
    return places[leaf.device.value] && !IsOfOthers(leaf) && side->subject.Has(leaf.process) &&
           leaf.bytes != 0;
  };
  if (unbacked != nullptr) {
    ForEachUnbackedLeaf(*side->recording, live, [&](const Leaf& leaf) {
      if (!counts(leaf))
        return;
      DiffSum& sum = (*unbacked)[keys.Of(leaf.site, *places[leaf.device.value])];
      sum.bytes += leaf.bytes;
      sum.count += leaf.count;
    });
  }
  ForEachLeaf(*side->recording, live, [&](const Leaf& leaf) {
    if (!counts(leaf))
      return;
    const DiffKey key = keys.Of(leaf.site, *places[leaf.device.value]);
    DiffSum& sum = sums[key];
    sum.bytes += leaf.bytes;
    sum.count += leaf.count;
    if (key.parameter != 0 && !key.slack)
      sum.origin = keys.Origin(leaf.site);
    if (callers != nullptr && key.place != 0)
      (*callers)[key][keys.Callers(leaf.site)] += leaf.bytes;
  });
  return sums;
}

uint64_t Total(const DiffSums& sums) {
  uint64_t total = 0;
  for (const auto& [key, sum] : sums)
    total += sum.bytes;
  return total;
}

// The devices that recorded processes had memory on, of each the bytes at its peak.
util::Status FindDevices(const Instants& peak, DiffSide* side) {
  const tables::Tables& tables = side->recording->tables();
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto live, ReadLiveSet(*side->recording, peak));
  std::vector<uint64_t> bytes(tables.devices.size());
  std::vector<bool> recorded(tables.devices.size());
  uint64_t unrecorded_bytes = 0;
  ForEachLeaf(*side->recording, live, [&](const Leaf& leaf) {
    if (IsOfOthers(leaf)) {
      side->others_bytes += leaf.bytes;
      unrecorded_bytes += leaf.bytes;
      return;
    }
    if (!side->subject.Has(leaf.process))
      return;
    bytes[leaf.device.value] += leaf.bytes;
    if (leaf.process.value == 0)
      unrecorded_bytes += leaf.bytes;
    else if (leaf.bytes > 0)
      recorded[leaf.device.value] = true;
  });
  std::vector<DiffSide::Device> found;
  for (uint32_t i = 1; i < tables.devices.size(); ++i) {
    const tables::DeviceRow& row = tables.devices[i];
    const auto kind = row.kind;
    if (recorded[i])
      found.push_back({DeviceMark(kind, row.index), kind, tables::DeviceId{i}, bytes[i]});
  }
  const bool sampled = tables::IsSampled(*side->recording);
  if (found.empty() && sampled && unrecorded_bytes > 0) {
    return util::Status::Error(side->path + ": the " + util::FormatBytes(unrecorded_bytes) +
                               " at its peak belong to no recorded process, so nothing can be "
                               "compared: record the program with `vramscope run`");
  }
  if (found.empty()) {
    return util::Status::Error(
        side->path + (sampled
                          ? ": no GPU memory was in use during sampling: nothing can be compared"
                          : ": nothing was allocated in this recording: nothing can be compared; "
                            "`vramscope run --cpu` records CPU tensors"));
  }
  // GPUs if there are any; otherwise CPU tensors; otherwise pinned memory.
  const auto has = [&](DeviceKind kind) {
    return std::any_of(found.begin(), found.end(), [&](const auto& d) { return d.kind == kind; });
  };
  const DeviceKind main = has(DeviceKind::kGpu)   ? DeviceKind::kGpu
                          : has(DeviceKind::kCpu) ? DeviceKind::kCpu
                                                  : DeviceKind::kHost;
  for (DiffSide::Device& device : found)
    (device.kind == main ? side->devices : side->others).push_back(std::move(device));
  return {};
}

void AddAllocated(DiffWords* words, DiffSide* side) {
  const tables::Tables& tables = side->recording->tables();
  const auto places = Places(*side);
  KeyMaker keys(*side->recording, words, side);
  for (size_t i = 1; i < tables.sites.size(); ++i) {
    const tables::SiteRow& site = tables.sites[i];
    const tables::AccountRow& account = RowOf(tables.accounts, site.account);
    const uint32_t device = account.device.value;
    if (!side->subject.Has(account.process))
      continue;
    if (site.backing != 0 || site.allocated_count == 0 || device >= places.size() ||
        !places[device] || format::IsSlack(site.part))
      continue;
    const DiffKey key = keys.Of(site, *places[device]);
    DiffSum& sum = side->allocated[key];
    sum.bytes += site.allocated_bytes;
    sum.count += site.allocated_count;
    DiffSum& calls = side->calls[WithoutLifetime(key)];
    calls.bytes += site.allocated_bytes;
    calls.count += site.allocated_count;
    if (key.module != 0)
      side->modules.insert((*words)[key.module]);
    if (site.allocator.value != 0)
      side->allocators.emplace(side->recording->string(site.allocator));
  }
}

// "AdamW" of the frame "AdamW.step" in torch/optim/adamw.py; before Python 3.11 the file's name.
// For recordings that do not say which classes stepped: the AdamW of newer PyTorch has Adam's
// step().
std::string OptimizerOf(const tables::Recording& recording, const tables::FrameRow& frame) {
  const std::string_view file = recording.string(frame.file);
  const std::string_view function = recording.string(frame.function);
  if (frame.kind != tables::FrameKind::kPython || file.find("/optim/") == std::string_view::npos)
    return {};
  constexpr std::string_view kStep = ".step";
  if (function.ends_with(kStep))
    return std::string(function.substr(0, function.size() - kStep.size()));
  if (function != "step")
    return {};
  const std::string_view base = Basename(file);
  return std::string(base.substr(0, base.find('.')));
}

void AddFrames(DiffSide* side) {
  const std::string_view stepped = tables::NoteOf(*side->recording, tables::kOptimizersNote);
  if (!stepped.empty())
    side->optimizers.insert(std::string(stepped));
  for (const tables::FrameRow& frame : side->recording->tables().frames) {
    if (frame.kind != tables::FrameKind::kPython || frame.file.value == 0)
      continue;
    side->functions.insert(std::string(side->recording->string(frame.file)) + " " +
                           std::string(side->recording->string(frame.function)));
    if (!stepped.empty())
      continue;
    if (std::string optimizer = OptimizerOf(*side->recording, frame); !optimizer.empty())
      side->optimizers.insert(std::move(optimizer));
  }
}

// Memory that is named, and that no allocator gave: a mapped file, shared memory.
void AddOutside(DiffSide* side) {
  const std::string name =
      format::LossName(static_cast<uint64_t>(format::Loss::kNamesWithoutMemory));
  for (const tables::LossRow& loss : side->recording->tables().losses) {
    if (side->recording->string(loss.name) == name)
      side->outside_bytes += loss.bytes;
  }
}

// What was allocated at the peak of the first device.
util::Status AddPeakPlace(const Instants& peak, DiffWords* words, DiffSide* side) {
  const tables::Recording& recording = *side->recording;
  const tables::Tables& tables = recording.tables();
  int64_t time_ns = kNoTime;
  std::vector<bool> counts(tables.accounts.size());
  for (size_t i = 1; i < tables.accounts.size(); ++i) {
    counts[i] = tables.accounts[i].device == side->devices[0].id &&
                tables.accounts[i].process.value != 0 &&
                side->subject.Has(tables.accounts[i].process);
    if (counts[i])
      time_ns = std::max(time_ns, peak.of_account[i]);
  }
  std::vector<size_t> frames;
  for (size_t i = 0; i < recording.frame_count(); ++i) {
    const tables::FrameZone& zone = recording.zone(i);
    if (zone.min_begin_ns <= time_ns && time_ns <= zone.max_begin_ns)
      frames.push_back(i);
  }
  uint32_t found = 0;
  VRAMSCOPE_RETURN_IF_ERROR(ForEachFrame(
      recording, frames, tables::kBeginNs | tables::kSite, 1,
      [&](size_t, const tables::AllocationFrame& frame) {
        for (size_t i = 0; i < frame.rows; ++i) {
          const uint32_t site = frame.site[i];
          if (frame.begin_ns[i] == time_ns && site < tables.sites.size() &&
              tables.sites[site].account.value < counts.size() &&
              counts[tables.sites[site].account.value] && tables.sites[site].backing == 0)
            found = site;
        }
      }));
  const tables::SiteRow& site = tables.sites[found];
  side->peak_phase = site.phase;
  side->peak_place = KeyMaker(recording, words, side).Origin(site);
  return {};
}

// Ranks that have a device in common: the instant at which it was fullest says nothing of any of
// them.
bool SharesDevice(const DiffSubject& subject) {
  if (!subject.rank)
    return false;
  const tables::Tables& tables = subject.recording->tables();
  std::vector<bool> own(tables.devices.size());
  std::vector<bool> other(tables.devices.size());
  for (const tables::AccountRow& account : tables.accounts) {
    const uint32_t process = account.process.value;
    if (process == 0 || process >= tables.processes.size() || account.device.value >= own.size() ||
        tables.processes[process].rank < 0)
      continue;
    (subject.Has(account.process) ? own : other)[account.device.value] = true;
  }
  for (size_t i = 1; i < own.size(); ++i) {
    if (own[i] && other[i])
      return true;
  }
  return false;
}

// Of the whole run, or of an iteration.
util::Result<Instants> AtPeakOf(const DiffSubject& subject, std::optional<int64_t> iteration) {
  const tables::Recording& recording = *subject.recording;
  if (!SharesDevice(subject)) {
    return ResolveInstant(
        recording, iteration ? Instant{Instant::Kind::kIteration, 0, *iteration, ""} : Instant{});
  }
  const tables::Tables& tables = recording.tables();
  TimeSpan span;
  if (iteration) {
    span = {INT64_MAX, INT64_MIN};
    const IterationTimes times(tables);
    for (uint32_t i = 1; i < tables.processes.size(); ++i) {
      const ProcessIterations& of = times.Of(tables::ProcessId{i});
      if (!subject.Has(tables::ProcessId{i}) || *iteration >= of.count())
        continue;
      span.from_ns = std::min(span.from_ns, of.BeginOf(*iteration));
      span.to_ns = std::max(span.to_ns, of.EndOf(*iteration));
    }
  }
  const auto peaks = FindPeaks(recording, std::vector<TimeSpan>(tables.devices.size(), span),
                               [&](tables::ProcessId process) { return subject.Has(process); });
  if (!peaks.ok())
    return peaks.status();
  return AtPeaks(tables, *peaks);
}

}  // namespace

DiffKey WithoutLifetime(DiffKey key) {
  if (IsPassing(key.category))
    key.category = Category::kUnknown;
  return key;
}

uint32_t DiffWords::Of(std::string_view text) {
  const auto [found, added] =
      numbers_.try_emplace(std::string(text), static_cast<uint32_t>(texts_.size()));
  if (added)
    texts_.emplace_back(text);
  return found->second;
}

util::Result<DiffSide> ReadSide(const DiffSubject& subject,
                                const tables::Recording& other,
                                DiffWords* words) {
  DiffSide side;
  const tables::Recording& recording = *subject.recording;
  side.model_prefix = PrefixOfModel(recording, other);
  const tables::Tables& tables = recording.tables();
  side.subject = subject;
  side.recording = &recording;
  side.path = tables.session.path.empty() ? "the recording" : tables.session.path;
  VRAMSCOPE_ASSIGN_OR_RETURN(const auto peak, AtPeakOf(subject, std::nullopt));
  VRAMSCOPE_RETURN_IF_ERROR(FindDevices(peak, &side));
  VRAMSCOPE_ASSIGN_OR_RETURN(side.peak, SumsAt(peak, words, &side, &side.callers, &side.unbacked));
  Instants first = AllAt(tables, kNoTime);
  for (size_t i = 1; i < tables.accounts.size(); ++i) {
    const uint32_t process = tables.accounts[i].process.value;
    if (process != 0 && process < tables.processes.size() &&
        tables.processes[process].begin_ns != 0)
      first.of_account[i] = tables.processes[process].begin_ns;
  }
  VRAMSCOPE_ASSIGN_OR_RETURN(side.start, SumsAt(first, words, &side));
  AddAllocated(words, &side);
  AddFrames(&side);
  AddOutside(&side);
  const IterationTimes times(tables);
  for (uint32_t i = 1; i < tables.processes.size(); ++i) {
    if (subject.Has(tables::ProcessId{i}))
      side.iteration_count = std::max(side.iteration_count, times.Of(tables::ProcessId{i}).count());
  }
  VRAMSCOPE_RETURN_IF_ERROR(AddPeakPlace(peak, words, &side));
  return side;
}

util::Status ReadIterations(const std::vector<int64_t>& numbers, DiffWords* words, DiffSide* side) {
  const tables::Recording& recording = *side->recording;
  const tables::Tables& tables = recording.tables();
  const IterationTimes times(tables);
  for (const int64_t number : numbers) {
    DiffSide::IterationState state;
    state.number = number;
    Instants end = AllAt(tables, kNoTime);
    for (size_t i = 1; i < tables.accounts.size(); ++i) {
      const ProcessIterations& of = times.Of(tables.accounts[i].process);
      if (number < of.count())
        end.of_account[i] = of.EndOf(number);
    }
    VRAMSCOPE_ASSIGN_OR_RETURN(auto sums, SumsAt(end, words, side));
    state.end = std::move(sums);
    state.end_bytes = Total(state.end);
    side->iterations.push_back(std::move(state));
  }
  // A peak within an iteration takes a sweep through it: a few are enough.
  const size_t step = std::max<size_t>(1, (side->iterations.size() + 1) / 4);
  for (size_t i = 0; i < side->iterations.size(); ++i) {
    DiffSide::IterationState& state = side->iterations[i];
    if (i % step != 0 && i + 1 != side->iterations.size())
      continue;
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto at, AtPeakOf(side->subject, state.number));
    VRAMSCOPE_ASSIGN_OR_RETURN(const auto sums, SumsAt(at, words, side));
    state.peak_bytes = Total(sums);
  }
  return {};
}

}  // namespace vramscope::query
