// SPDX-License-Identifier: Apache-2.0
#include "tables/writer.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/coding.h"
#include "tables/table_checks.h"
#include "tables/table_codec.h"
#include "util/budget.h"
#include "util/file.h"
#include "util/size_text.h"

namespace vramscope::tables {
namespace {

// Level 1 takes half the time of level 3, and frames become a hundredth larger.
constexpr int kFrameLevel = 1;
constexpr int kTableLevel = 3;
constexpr int kPackingNice = 8;
// Of a frame with more sites than this, it is not known whose it is.
constexpr size_t kMaxSitesOfFrame = 4096;
// A file that its reader would want larger than this is not written.
constexpr uint64_t kMostPaddingBytes = uint64_t{256} << 20;

// How large a file with these tables must be for a reader to believe them.
uint64_t LeastFileBytes(const Tables& tables, uint64_t allocations) {
  uint64_t bytes = tables.strings.size() * sizeof(uint64_t);
  for (uint32_t id = 1; id < tables.strings.size(); ++id)
    bytes += std::min(tables.strings[StringId{id}].size(), kMaxTextBytes);
  Tables::ForEach(
      tables, [&]<class Row>(const std::vector<Row>& rows) { bytes += rows.size() * sizeof(Row); });
  // The session's own facts are a few lines.
  constexpr uint64_t kSessionBytes = 64 << 10;
  return std::max(
      {util::Budget::FileBytesFor(bytes + kSessionBytes),
       util::Budget::FileBytesFor(NamedTextBytes(tables)),
       util::Budget::FileBytesFor(allocations, kBaseAllocations, kAllocationsPerFileByte)});
}

}  // namespace

Writer::Writer(int fd, std::string path) : Writer(fd, std::move(path), Options{}) {}

Writer::Writer(int fd, std::string path, Options options)
    : fd_(fd), path_(std::move(path)), options_(options), frame_encoder_(kFrameLevel) {
  // The header comes last: a file without one is not whole.
  const FileHeader nothing{};
  WriteBytes({reinterpret_cast<const uint8_t*>(&nothing), sizeof nothing});
  try {
    thread_ = std::thread([this] { PackFrames(); });
  } catch (const std::system_error&) {
    // No more threads to be had: Hand() packs.
  }
}

Writer::~Writer() {
  JoinThread();
}

size_t Writer::ClassOf(const AllocationRow& row) {
  if (row.end_ns == kNever)
    return kClasses - 1;
  const uint64_t lifetime_us =
      (static_cast<uint64_t>(row.end_ns) - static_cast<uint64_t>(row.begin_ns)) >> 10;
  return std::min<size_t>(static_cast<size_t>(std::bit_width(lifetime_us) + 1) / 2, kClasses - 2);
}

util::Status Writer::Add(const AllocationRow& row) {
  if (row.end_ns < row.begin_ns) [[unlikely]]
    Fail(util::Status::Error(path_ + ": internal error: an allocation ends before it begins"));
  std::vector<AllocationRow>& rows = open_[ClassOf(row)];
  rows.push_back(row);
  if (rows.size() < options_.rows_per_frame) [[likely]]
    return {};
  Hand(&rows);
  return status();
}

void Writer::Hand(std::vector<AllocationRow>* rows) {
  if (!thread_.joinable())
    return PackFrame(rows);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.size() < options_.frames_waiting; });
  waiting_.push_back(std::move(*rows));
  *rows = {};
  if (!reusable_.empty()) {
    *rows = std::move(reusable_.back());
    reusable_.pop_back();
  }
  lock.unlock();
  changed_.notify_all();
}

void Writer::PackFrames() {
  // Of this thread alone. All other threads wait for the one that adds rows: with fewer cores
  // than threads, packing fills the gaps. The queue is bounded, so that packing gets its turn
  // too.
  nice(kPackingNice);
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return no_more_ || !waiting_.empty(); });
    if (waiting_.empty())
      return;
    std::vector<AllocationRow> rows = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    changed_.notify_all();
    PackFrame(&rows);
    lock.lock();
    reusable_.push_back(std::move(rows));
  }
}

void Writer::PackFrame(std::vector<AllocationRow>* rows) {
  if (rows->empty() || !status().ok())
    return rows->clear();
  Frame& frame = frames_.emplace_back();
  const std::span<const uint8_t> block = frame_encoder_.Encode(*rows, &frame.entry);
  frame.entry.offset = offset_;
  if (frame_encoder_.failed())
    Fail(util::Status::Error(path_ + ": cannot be written: out of memory"));
  WriteBytes(block);
  frame.sites = frame_encoder_.TakeSites();
  if (frame.sites.size() > kMaxSitesOfFrame)
    frame.sites = {};
  rows->clear();
}

void Writer::JoinThread() {
  if (!thread_.joinable())
    return;
  {
    const std::lock_guard lock(mutex_);
    no_more_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

util::Status Writer::Finish(const Tables& tables) {
  for (std::vector<AllocationRow>& rows : open_)
    Hand(&rows);
  JoinThread();
  if (!frames_end_)
    frames_end_ = offset_;
  offset_ = *frames_end_;
  table_blocks_.clear();
  BlockEncoder encoder(kTableLevel);
  std::vector<std::string_view> texts;
  for (uint32_t id = 1; id < tables.strings.size(); ++id)
    texts.push_back(tables.strings[StringId{id}]);
  WriteStrings(kStringsBlock, texts, &encoder);
  Tables::ForEach(tables, [&](const auto& rows) { WriteTable(rows, &encoder); });
  const Session& session = tables.session;
  const std::string begin = std::to_string(session.begin_ns), end = std::to_string(session.end_ns);
  const std::string wall = std::to_string(session.begin_wall_ns);
  const std::string events = std::to_string(session.event_count);
  const std::string history = std::to_string(session.history_ns);
  std::vector<std::string_view> facts = {
      "name", session.name,    "version", session.version, "begin_ns", begin, "end_ns",
      end,    "begin_wall_ns", wall,      "event_count",   events};
  if (session.HasPast())
    facts.insert(facts.end(), {"history_ns", history});
  WriteStrings(kSessionBlock, facts, &encoder);
  WritePadding(tables, &encoder);
  if (encoder.failed())
    Fail(util::Status::Error(path_ + ": cannot be written: out of memory"));
  WriteIndex(tables);
  WriteHeader(session.version);
  // What it wrote before may have been longer.
  if (status().ok() && ftruncate(fd_, static_cast<off_t>(offset_)) != 0)
    Fail(util::Status::Error(path_ + ": cannot be written: " + util::ErrnoText(errno)));
  return status();
}

void Writer::WriteBlock(BlockEncoder* encoder, uint16_t table, uint32_t rows) {
  IndexEntry& entry = table_blocks_.emplace_back();
  entry = {};
  entry.table = table;
  entry.rows = rows;
  entry.offset = offset_;
  const std::span<const uint8_t> block = encoder->Finish(&entry.crc);
  entry.bytes = static_cast<uint32_t>(block.size());
  WriteBytes(block);
}

template <class Row>
void Writer::WriteTable(const std::vector<Row>& rows, BlockEncoder* encoder) {
  std::vector<uint64_t> words;
  for (size_t begin = 0; begin < rows.size(); begin += kMaxBlockRows) {
    const size_t count = std::min<size_t>(rows.size() - begin, kMaxBlockRows);
    EncodeRows<Row>(std::span(rows).subspan(begin, count), &words, encoder);
    WriteBlock(encoder, TableOf<Row>::kNumber, static_cast<uint32_t>(count));
  }
}

void Writer::WriteStrings(uint16_t table,
                          const std::vector<std::string_view>& texts,
                          BlockEncoder* encoder) {
  std::vector<uint64_t> sizes;
  std::string bytes;
  const auto flush = [&] {
    const auto rows = static_cast<uint32_t>(sizes.size());
    encoder->Begin(table, rows);
    encoder->AddColumn(kTextSizes, sizes);
    encoder->AddText(kTextBytes, bytes);
    WriteBlock(encoder, table, rows);
    sizes.clear();
    bytes.clear();
  };
  for (const std::string_view text : texts) {
    if (sizes.size() == kMaxBlockRows || bytes.size() + text.size() > kTextBytesPerBlock) {
      if (!sizes.empty())
        flush();
    }
    // Nothing that is recorded is longer than a record; a block's sizes have 32 bits.
    const std::string_view kept = text.substr(0, kMaxTextBytes);
    sizes.push_back(kept.size());
    bytes.append(kept);
  }
  if (!sizes.empty())
    flush();
}

void Writer::WritePadding(const Tables& tables, BlockEncoder* encoder) {
  if (!options_.pads_for_readers)
    return;
  uint64_t allocations = 0;
  for (const Frame& frame : frames_)
    allocations += frame.entry.rows;
  const uint64_t least = LeastFileBytes(tables, allocations);
  if (least > offset_ + kMostPaddingBytes) {
    return Fail(util::Status::Error(
        path_ + ": cannot be written: its names (" + util::FormatBytes(NamedTextBytes(tables)) +
        " in lists) and rows are more than a reader accepts: record a shorter run"));
  }
  std::mt19937_64 random;  // the same noise in each file
  std::string noise;
  while (offset_ < least && status().ok()) {
    noise.resize(std::min<uint64_t>(least - offset_, kTextBytesPerBlock));
    std::generate(noise.begin(), noise.end(), [&] { return static_cast<char>(random()); });
    encoder->Begin(kPaddingBlock, 0);
    encoder->AddText(kTextBytes, noise);
    WriteBlock(encoder, kPaddingBlock, 0);
  }
}

void Writer::WriteIndex(const Tables& tables) {
  std::vector<IndexEntry> entries;
  entries.reserve(frames_.size() + table_blocks_.size());
  for (const Frame& frame : frames_) {
    entries.push_back(frame.entry);
    uint64_t accounts = frame.sites.empty() ? UINT64_MAX : 0;
    for (const uint32_t site : frame.sites) {
      if (site < tables.sites.size())
        accounts |= uint64_t{1} << (tables.sites[site].account.value % 64);
    }
    entries.back().accounts = accounts;
  }
  entries.insert(entries.end(), table_blocks_.begin(), table_blocks_.end());
  Trailer trailer{};
  trailer.index_offset = offset_;
  trailer.index_entries = static_cast<uint32_t>(entries.size());
  const std::span<const uint8_t> bytes{reinterpret_cast<const uint8_t*>(entries.data()),
                                       entries.size() * sizeof(IndexEntry)};
  trailer.index_crc = base::Crc32c(bytes.data(), bytes.size());
  WriteBytes(bytes);
  trailer.file_bytes = offset_ + sizeof trailer;
  trailer.magic = kTrailerMagic;
  trailer.crc = base::Crc32c(&trailer, offsetof(Trailer, crc));
  WriteBytes({reinterpret_cast<const uint8_t*>(&trailer), sizeof trailer});
}

void Writer::WriteHeader(const std::string& version) {
  FileHeader header{};
  std::memcpy(header.magic, kFileMagic, sizeof header.magic);
  header.major = kMajorVersion;
  header.minor = kMinorVersion;
  header.header_bytes = sizeof header;
  std::memcpy(header.version, version.data(), std::min(version.size(), sizeof header.version - 1));
  header.crc = base::Crc32c(&header, offsetof(FileHeader, crc));
  const uint64_t end = std::exchange(offset_, 0);
  WriteBytes({reinterpret_cast<const uint8_t*>(&header), sizeof header});
  offset_ = end;
}

void Writer::WriteBytes(std::span<const uint8_t> bytes) {
  if (!status().ok())
    return;
  while (!bytes.empty()) {
    const ssize_t wrote = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset_));
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0) {
      const int error = wrote < 0 ? errno : ENOSPC;
      return Fail(util::Status::Error(path_ + ": cannot be written: " + util::ErrnoText(error)));
    }
    offset_ += static_cast<uint64_t>(wrote);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
}

void Writer::Fail(util::Status status) {
  const std::lock_guard lock(mutex_);
  if (status_.ok())
    status_ = std::move(status);
}

util::Status Writer::status() {
  const std::lock_guard lock(mutex_);
  return status_;
}

}  // namespace vramscope::tables
