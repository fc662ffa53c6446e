// SPDX-License-Identifier: Apache-2.0
#include "pipeline/compact/compaction.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "format/decoder.h"
#include "pipeline/compact/past_chunks.h"

namespace vramscope::compact {
namespace {

// When the last record of a chunk was written at the latest; none if it may not be all there.
std::optional<int64_t> EndOf(const trace::LiveTrace& trace,
                             size_t file,
                             const std::vector<trace::ChunkRef>& stream,
                             size_t chunk) {
  const trace::LiveFile& of = trace.files()[file];
  const bool is_over = !of.is_launcher() && !trace.is_running(of.pid());
  const bool is_last = chunk + 1 == stream.size();
  if (!stream[chunk].whole || (is_last ? !is_over : !stream[chunk].sealed))
    return std::nullopt;
  // The last chunk of a process ends somewhere before the present: no more records follow.
  if (is_last)
    return trace.context(file).clock->ToNs(stream[chunk].base_ticks);
  const int64_t end_ns = trace.context(file).clock->ToNs(stream[chunk + 1].base_ticks);
  return end_ns <= trace.until_ns() ? std::optional(end_ns) : std::nullopt;
}

// The first tick that is not earlier.
uint64_t TicksAt(const trace::TickClock& clock, int64_t ns, uint64_t low) {
  uint64_t high = low;
  for (uint64_t step = 1 << 20; clock.ToNs(high) < ns && step < uint64_t{1} << 53; step *= 2)
    high = low + step;
  while (low < high) {
    const uint64_t middle = low + (high - low) / 2;
    if (clock.ToNs(middle) < ns)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

void AddRange(uint64_t begin, uint64_t end, std::map<uint64_t, uint64_t>* ranges) {
  auto next = ranges->upper_bound(begin);
  if (next != ranges->begin() && std::prev(next)->second >= begin) {
    --next;
    begin = next->first;
    end = std::max(end, next->second);
    next = ranges->erase(next);
  }
  while (next != ranges->end() && next->first <= end) {
    end = std::max(end, next->second);
    next = ranges->erase(next);
  }
  (*ranges)[begin] = end;
}

// `any`: chunks of the file were chosen.
void CountRecords(const trace::LiveFile& file, bool any, CompactionPlan* plan) {
  for (size_t i = 0; i < plan->streams.size(); ++i) {
    StreamPlan& of = plan->streams[i];
    if (!any)
      of.chunks = 0;
    for (size_t j = 0; j < of.chunks; ++j) {
      const auto records = file.Records(file.streams()[i][j]);
      const uint8_t* in = records.data();
      const uint8_t* const end = in + records.size();
      uint32_t count = 0;
      for (format::RawRecord raw; in != end && format::NextRecord(&in, end, &raw);)
        ++count;
      of.chunk_records.push_back(count);
      of.records += count;
    }
    of.keep.resize(of.records);
  }
}

void WriteHeader(const trace::LiveFile& file, uint64_t chunk_count, std::vector<uint8_t>* bytes) {
  const auto original = file.Header();
  std::copy(original.begin(), original.end(), bytes->begin());
  auto* const header = reinterpret_cast<format::FileHeader*>(bytes->data());
  header->minor = format::kMinorVersion;
  header->header_bytes = format::kPageBytes;
  header->writer = static_cast<uint16_t>(format::WriterKind::kPast);
  header->flags =
      format::CheckedFlags((header->flags & format::kTicksAreTsc) | format::kClosedCleanly);
  header->end_bytes = bytes->size();
  header->chunk_count = chunk_count;
  for (size_t i = 0; i < format::kLossSlots; ++i)
    header->lost[i] = header->lost_again[i] = header->lost_by_others[i] = 0;
  header->refused = header->gave_up = 0;
  header->crc32c = format::HeaderChecksum(bytes->data());
}

}  // namespace

std::vector<OldChunk> FindOldChunks(const trace::LiveTrace& trace) {
  std::vector<OldChunk> old;
  for (size_t i = 0; i < trace.files().size(); ++i) {
    for (const std::vector<trace::ChunkRef>& stream : trace.files()[i].streams()) {
      for (size_t j = 0; j < stream.size(); ++j) {
        if (stream[j].in_past)
          continue;
        const std::optional<int64_t> end_ns = EndOf(trace, i, stream, j);
        if (!end_ns)
          break;
        old.push_back({*end_ns, stream[j].size_bytes});
      }
    }
  }
  std::sort(old.begin(), old.end(),
            [](const OldChunk& a, const OldChunk& b) { return a.end_ns < b.end_ns; });
  return old;
}

void ChooseChunks(const trace::LiveTrace& trace, CompactionPlan* plan) {
  const trace::LiveFile& file = trace.files()[plan->file];
  const trace::TickClock& clock = *trace.context(plan->file).clock;
  bool any = false;
  for (const std::vector<trace::ChunkRef>& stream : file.streams()) {
    StreamPlan& of = plan->streams.emplace_back();
    if (stream.front().stream == format::kPastStream)
      continue;
    for (const trace::ChunkRef& chunk : stream) {
      if (!chunk.in_past && (!EndOf(trace, plan->file, stream, of.chunks) ||
                             clock.ToNs(chunk.base_ticks) >= plan->cut_ns))
        break;
      any = any || !chunk.in_past;
      ++of.chunks;
    }
  }
  CountRecords(file, any, plan);
}

std::vector<CompactionPlan> ChooseOldest(const std::vector<trace::LiveFile>& files,
                                         uint64_t bytes,
                                         int64_t until_ns) {
  struct Candidate {
    int64_t end_ns;
    uint32_t size_bytes;
    size_t file, stream;
    bool operator<(const Candidate& other) const { return end_ns < other.end_ns; }
  };
  std::vector<Candidate> candidates;
  std::vector<CompactionPlan> plans(files.size());
  for (size_t i = 0; i < files.size(); ++i) {
    plans[i].file = i;
    plans[i].streams.resize(files[i].streams().size());
    if (files[i].is_launcher())
      continue;
    for (size_t j = 0; j < files[i].streams().size(); ++j) {
      const std::vector<trace::ChunkRef>& stream = files[i].streams()[j];
      for (size_t k = 0; k < stream.size() && stream[k].stream != format::kPastStream; ++k) {
        if (stream[k].in_past) {
          ++plans[i].streams[j].chunks;
        } else if (!stream[k].whole || !stream[k].sealed || k + 1 == stream.size()) {
          break;
        } else {
          candidates.push_back({stream[k + 1].base_ns, stream[k].size_bytes, i, j});
        }
      }
    }
  }
  std::stable_sort(candidates.begin(), candidates.end());
  std::vector<bool> any(files.size());
  for (const Candidate& next : candidates) {
    if (bytes == 0 || next.end_ns > until_ns)
      break;
    bytes -= std::min<uint64_t>(bytes, next.size_bytes);
    any[next.file] = true;
    plans[next.file].cut_ns = next.end_ns;
    ++plans[next.file].streams[next.stream].chunks;
  }
  for (CompactionPlan& plan : plans)
    CountRecords(files[plan.file], any[plan.file], &plan);
  return plans;
}

trace::TickClock ClockOfChunks(const trace::LiveFile& file) {
  if (!file.ticks_are_tsc())
    return trace::TickClock();
  std::vector<trace::TickClock::Anchor> anchors;
  for (const std::vector<trace::ChunkRef>& stream : file.streams()) {
    for (const trace::ChunkRef& chunk : stream)
      anchors.push_back({chunk.base_ticks, chunk.base_ns});
  }
  return trace::TickClock({file.start_ticks(), file.start_ns()}, std::move(anchors), std::nullopt);
}

CompactionFile MakePastFile(const trace::LiveFile& file,
                            const trace::TickClock& clock,
                            const CompactionPlan& plan,
                            const trace::LiveTrace* trace) {
  CompactionFile past;
  past.bytes.resize(format::kPageBytes);
  past.ranges = file.compacted_ranges();
  std::map<uint32_t, uint32_t> compacted = file.compacted_chunks();
  LossSums lost;
  for (size_t i = 0; i < plan.streams.size(); ++i) {
    const std::vector<trace::ChunkRef>& chunks = file.streams()[i];
    if (plan.streams[i].chunks == 0)
      continue;
    RewriteStream(file, clock, trace, plan, i, &past.bytes, &lost);
    for (size_t j = 0; j < plan.streams[i].chunks; ++j) {
      if (chunks[j].in_past)
        continue;
      compacted[chunks[j].stream] = chunks[j].sequence + 1;
      const uint64_t begin = chunks[j].offset - sizeof(format::ChunkHeader);
      AddRange(begin, begin + chunks[j].size_bytes, &past.ranges);
    }
  }
  // Losses that an earlier past summed up.
  ForEachOfPast<format::Lost>(
      file, [&](const format::Lost& sum) { lost[sum.loss].Add(sum.count, sum.bytes); });
  lost[static_cast<uint64_t>(format::Loss::kCompacted)].Add(plan.compacted.count,
                                                            plan.compacted.bytes);
  lost[static_cast<uint64_t>(format::Loss::kDropped)].Add(plan.dropped.count, plan.dropped.bytes);

  PastChunks own(&past.bytes, format::kPastStream);
  const uint64_t cut_ticks = TicksAt(clock, plan.cut_ns, file.start_ticks());
  own.SetClock(cut_ticks, plan.cut_ns);
  for (const auto& [stream, chunks] : compacted)
    own.Append(format::PastStream{.stream = stream, .chunks = chunks});
  for (const auto& [begin, end] : past.ranges)
    own.Append(format::PastRange{.begin = begin, .end = end});
  for (const auto& [loss, sum] : lost) {
    if (sum.count != 0)
      own.Append(format::Lost{.loss = loss, .count = sum.count, .bytes = sum.bytes});
  }
  if (!file.is_launcher()) {
    own.Append(format::Past{
        .time = cut_ticks,
        .iterations = plan.iterations,
        .by_marks = plan.by_marks ? uint64_t{1} : 0,
        .knows = (plan.knows_phases ? uint64_t{1} : 0) + (plan.has_python ? uint64_t{2} : 0)});
  }
  own.End();
  // Each stream has one chunk at least, and chunks are found one behind the other.
  uint64_t count = 0;
  for (size_t at = format::kPageBytes; at < past.bytes.size(); ++count)
    at += reinterpret_cast<const format::ChunkHeader*>(past.bytes.data() + at)->size_bytes;
  WriteHeader(file, count, &past.bytes);
  return past;
}

}  // namespace vramscope::compact
