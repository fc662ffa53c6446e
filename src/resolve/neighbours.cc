// SPDX-License-Identifier: Apache-2.0
// Others than recorded processes may use the device too. What they take or give back between two
// readings stands in the row of whoever called meanwhile, and again NVML's figure of that process
// says what is its own. Its figures form a series like the readings, with nobody else's memory in
// it:
//
//   device's readings      100 |-- context --| 750    of which somebody else took 110
//   row                      0                 650
//   figure of the process    0                 540
//   gap: figure less rows    0                -110    grew by what the row has too little
//
// What the gap grew since the last figure goes to a row that was priced meanwhile: to one where
// nothing showed or the device's figure sank, else to that of the longest bracket. It comes from
// the row `other processes`, as far as that has as much, so that the device's total stays as it
// was measured. The kernel module's own memory is in no figure of a process either: as much as
// that may be is taken for it.
//
// Where nobody else is on the device nothing of this happens, nor where NVML does not list the
// process. A figure that came late, or was one of a moment between, is corrected by the next one:
// brackets are kept until a figure agrees.
#include <algorithm>

#include "resolve/ledger.h"

namespace vramscope::resolve {
namespace {

constexpr size_t kMaxBrackets = 128;
// Figures may be rounded to the driver's pages, and others' memory comes in these too.
constexpr int64_t kFigureStep = 2 << 20;
// What NVML may list of a process that has nothing.
constexpr int64_t kNearlyNothing = 4 << 20;
// The kernel module has 9 MiB for a process with a context on an H200.
constexpr int64_t kLargestRm = 32 << 20;

// Whether its rows may have that much too much because the kernel module's part is in them still.
bool MayBeRm(const Space& space, int64_t growth) {
  return space.rm_wanted && growth < 0 && growth > -kLargestRm;
}

}  // namespace

void Ledger::OnStranger(const trace::Event& event) {
  if (ValidDevice(event.device) && event.size > static_cast<uint64_t>(kNearlyNothing))
    devices_[static_cast<size_t>(event.device.value)].stranger_ns = event.time_ns;
}

// Processes of other containers and those that only draw are not listed: they are known by what
// they had before.
bool Ledger::HasStrangers(const DeviceState& device, int64_t since_ns) const {
  const bool listed = device.stranger_ns != INT64_MIN && device.stranger_ns >= since_ns;
  return listed ||
         (device.baseline_item != kNoIndex && slow_items_[device.baseline_item].bytes >= kLargestRm);
}

// Whether others used the device at that time or later, and NVML tells recorded ones from them.
bool Ledger::IsShared(const DeviceState& device, int64_t since_ns) const {
  return HasStrangers(device, since_ns) &&
         std::any_of(processes_.begin(), processes_.end(), [&](const ProcessState& process) {
           const auto figure = process.figures.find(device.id.value);
           return figure != process.figures.end() &&
                  figure->second > static_cast<uint64_t>(kNearlyNothing);
         });
}

void Ledger::AddBracket(uint32_t space, const Bracket& bracket) {
  std::vector<Bracket>& brackets = spaces_[space].brackets;
  if (brackets.size() == kMaxBrackets)
    brackets.erase(brackets.begin());
  brackets.push_back(bracket);
}

// Readings from there on were not clear: what they priced is priced anew.
void Ledger::DropBrackets(const DeviceState& device, int64_t from_ns) {
  for (Space& space : spaces_) {
    if (space.device == device.id)
      std::erase_if(space.brackets,
                    [&](const Bracket& bracket) { return bracket.reading_ns >= from_ns; });
  }
}

// From here on the rows that were priced are right but for the gap, whosever that is.
void Ledger::Agree(Space& space, int64_t gap) {
  space.brackets.clear();
  space.figure_gap = gap;
  space.agreed_ns = space.rm_pending_until_ns;
}

// Whether the figure is that of a process that goes on, or of one that at least has not given back
// yet what the figure has more than the rows; and without memory that the ledger may count with
// another one.
bool Ledger::IsTelling(const Space& space, int64_t growth) const {
  const ProcessState& process = processes_[space.process.value];
  const bool goes_on =
      process.torn_down ? space.rm_pending_until_ns <= process.teardown_ns : !process.ended;
  if ((!goes_on && growth < 0) || space.away || space.rm_pending_used <= kNearlyNothing ||
      (process.began_late && !space.before_settled))
    return false;
  return std::none_of(shared_.begin(), shared_.end(), [&](const SharedMemory& memory) {
    return std::any_of(
        memory.holders.begin(), memory.holders.end(),
        [&](const SharedMemory::Holder& holder) { return holder.process == space.process; });
  });
}

// A look at the process's figure in a quiet moment. True where it changed rows, and nothing of it
// can be the kernel module's.
bool Ledger::CommitFigure(DeviceState& device, Space& space) {
  int64_t growth = space.rm_pending_used - space.rm_pending_total - space.figure_gap;
  int64_t moved = 0;
  if (IsShared(device, space.agreed_ns)) {
    if (!IsTelling(space, growth))
      return false;
    moved = MakeGood(device, space, growth);
    growth -= moved;
    space.rm_pending_total += moved;
  }
  const bool agrees = growth > -kFigureStep && growth < kFigureStep;
  if (!agrees && MayBeRm(space, growth))
    return false;
  if (moved == 0)
    Agree(space, space.figure_gap + (agrees ? 0 : growth));
  else if (!agrees)
    space.figure_gap += growth;
  space.rm_wanted &= moved == 0;
  return moved != 0;
}

// Returns by how much the rows of the process grew.
int64_t Ledger::MakeGood(DeviceState& device, Space& space, int64_t growth) {
  int64_t moved = 0;
  const auto move = [&](const Bracket& bracket, int64_t bytes) {
    const int64_t there = MoveFromOthers(device, bracket, bytes);
    // It may have been another one's: earlier or later than it stands in the rows now.
    WidenOverlapping(space.samples, space.brackets.front().begin_ns, bracket.end_ns, there);
    WidenOverlapping(space.samples, bracket.begin_ns, space.brackets.back().end_ns, -there);
    return there;
  };
  // What was taken back from rows for calls that never give any back was others' doing.
  for (const Bracket& bracket : space.brackets) {
    for (size_t i = bracket.taken_begin; bracket.sank && i < bracket.taken_end; ++i)
      moved += move(bracket, std::max<int64_t>(-slow_log_[i].bytes, 0));
  }
  int64_t left = growth - moved;
  if ((left > -kFigureStep && left < kFigureStep) || MayBeRm(space, left))
    return moved;
  std::vector<const Bracket*> order;
  for (const Bracket& bracket : space.brackets)
    order.push_back(&bracket);
  std::stable_sort(order.begin(), order.end(), [&](const Bracket* a, const Bracket* b) {
    const auto fits = [&](const Bracket* bracket) {
      return left > 0 ? bracket->sank : slow_log_[bracket->log_index].bytes >= -left;
    };
    if (fits(a) != fits(b))
      return fits(a);
    return a->end_ns - a->begin_ns > b->end_ns - b->begin_ns;
  });
  for (const Bracket* bracket : order)
    left -= left == 0 ? 0 : move(*bracket, left);
  return growth - left;
}

// The row of a bracket gets bytes of other processes', or they get some of it. Returns what it got.
int64_t Ledger::MoveFromOthers(DeviceState& device, const Bracket& bracket, int64_t bytes) {
  const int64_t total_before = device.total;
  int64_t left = bytes;
  const auto change = [&](size_t log_index, int64_t of_it) {
    const uint32_t item = slow_log_[log_index].item;
    CorrectEntry(device, log_index, of_it, bracket.end_ns);
    left -= of_it;
    const auto correct = [&](std::vector<SlowChange>& assigned) {
      for (SlowChange& entry : assigned)
        entry.bytes += entry.item == item ? of_it : 0;
    };
    correct(device.readings.assigned);
    for (PastReading& past : device.readings.past)
      correct(past.assigned);
  };
  if (bytes < 0) {
    const SlowChange& entry = slow_log_[bracket.log_index];
    const int64_t has = std::min(entry.bytes, slow_items_[entry.item].bytes);
    change(bracket.log_index, std::max(bytes, -std::max<int64_t>(has, 0)));
  } else {
    for (size_t i = bracket.taken_end; i-- > bracket.taken_begin;)
      change(i, std::min(left, std::max<int64_t>(-slow_log_[i].bytes, 0)));
    change(bracket.log_index, left);
  }
  if (bracket.others_log_index) {
    const int64_t others = slow_items_[slow_log_[*bracket.others_log_index].item].bytes;
    CorrectEntry(device, *bracket.others_log_index,
                 std::max(left - bytes, -std::max<int64_t>(others, 0)), bracket.end_ns);
  }
  if (const int64_t gap = total_before - device.total; gap != 0) {
    ReadingSeries& series = device.readings;
    const auto is_behind = [&](int64_t base_ns) {
      return base_ns != INT64_MAX && base_ns >= bracket.reading_ns;
    };
    series.last_gap += gap;
    series.base_gap += is_behind(series.base_begin_ns) ? gap : 0;
    for (PastReading& past : series.past)
      past.base_gap += is_behind(past.base_begin_ns) ? gap : 0;
  }
  return bytes - left;
}

// What a row was given, or gave back, was more or less: from then on it is so everywhere.
void Ledger::CorrectEntry(DeviceState& device, size_t log_index, int64_t bytes, int64_t from_ns) {
  if (bytes == 0)
    return;
  SlowChange& entry = slow_log_[log_index];
  SlowItem& item = slow_items_[entry.item];
  Space* space = item.space == kNoIndex ? nullptr : &spaces_[item.space];
  entry.bytes += bytes;
  item.bytes += bytes;
  Add(device, space, item.part, bytes);
  if (space != nullptr) {
    const int64_t since_ns = std::max(from_ns, item.alloc_ns);
    for (auto sample = space->samples.rbegin();
         sample != space->samples.rend() && sample->end_ns >= since_ns; ++sample)
      sample->ledger += bytes;
  }
  for (auto sample = device.samples.rbegin();
       sample != device.samples.rend() && sample->begin_ns >= from_ns; ++sample)
    sample->ledger += bytes;
}

}  // namespace vramscope::resolve
