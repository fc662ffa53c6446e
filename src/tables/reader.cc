// SPDX-License-Identifier: Apache-2.0
#include "tables/reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/coding.h"
#include "format/enums.h"
#include "format/layout.h"
#include "tables/file_layout.h"
#include "tables/frame_codec.h"
#include "tables/table_checks.h"
#include "tables/table_codec.h"
#include "util/budget.h"
#include "util/file.h"
#include "util/on_threads.h"

namespace vramscope::tables {
namespace {

using util::Status;

constexpr size_t kFramesWorthAThread = 16;
// Of a recording whose frames are kept: 16 MB.
constexpr uint64_t kMostKeptAllocations = 1 << 18;
// Of one block: what is read at once.
constexpr uint32_t kMaxBlockBytes = 256u << 20;

class FileRecording : public Recording {
 public:
  FileRecording(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  FileRecording(const FileRecording&) = delete;
  FileRecording& operator=(const FileRecording&) = delete;
  ~FileRecording() override { close(fd_); }

  Status Load();
  Status LoadHead();

  size_t frame_count() const override { return frames_.size(); }
  const FrameZone& zone(size_t frame) const override { return zones_[frame]; }
  Status Read(size_t frame, uint32_t wanted, AllocationFrame* out) const override;
  void KeepFrames() const {
    keeps_frames_ = tables_.session.allocation_count <= kMostKeptAllocations;
  }

 private:
  struct LoadState {
    explicit LoadState(uint64_t file_bytes)
        : budget(file_bytes), allocations(file_bytes, kBaseAllocations, kAllocationsPerFileByte) {}
    util::Budget budget;
    util::Budget allocations;
    std::vector<uint64_t> words;
    std::vector<uint8_t> block;
    std::string text;
    std::vector<std::string> session;
  };

  Status Decode(size_t frame, uint32_t wanted, AllocationFrame* out) const;
  Status LoadHeader();
  Status LoadIndex(std::vector<IndexEntry>* index);
  Status AddFrame(const IndexEntry& entry, LoadState* state);
  Status LeaveOutDamagedFrames();
  Status IsWhole(const IndexEntry& frame, bool* whole) const;
  Status LoadTable(const IndexEntry& entry, LoadState* state);
  Status CheckNamedTexts() const;
  template <class Row>
  Status LoadRows(const IndexEntry& entry,
                  const BlockHeaders& headers,
                  std::vector<Row>* rows,
                  bool* begun,
                  LoadState* state);
  template <class Take>
  Status LoadTexts(const IndexEntry& entry,
                   const BlockHeaders& headers,
                   LoadState* state,
                   const Take& take);
  void TakeSession(const std::vector<std::string>& texts);
  Status ReadBytes(uint64_t offset, size_t size, void* out) const;
  Status Damaged(const char* what) const {
    return Status::Error(path_ + ": is damaged (" + what + "): copy it again, or record again");
  }

  const int fd_;
  const std::string path_;
  uint64_t file_bytes_ = 0;
  uint64_t header_bytes_ = 0;
  std::vector<IndexEntry> frames_;
  std::vector<FrameZone> zones_;
  uint64_t tables_begun_ = 0;  // by position in Tables::ForEach
  mutable std::atomic<bool> keeps_frames_{false};
  mutable std::mutex kept_mutex_;
  mutable std::vector<std::unique_ptr<AllocationFrame>> kept_;  // null: not read yet
};

Status FileRecording::ReadBytes(uint64_t offset, size_t size, void* out) const {
  auto* to = static_cast<uint8_t*>(out);
  while (size != 0) {
    const ssize_t got = pread(fd_, to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return Status::Error(path_ + ": cannot be read: " + util::ErrnoText(errno));
    if (got == 0)
      return Status::Error(path_ + ": became shorter during reading: run the command again");
    to += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return {};
}

Status FileRecording::LoadHeader() {
  struct stat status {};
  if (fstat(fd_, &status) != 0)
    return Status::Error(path_ + ": cannot be opened: " + util::ErrnoText(errno));
  if (!S_ISREG(status.st_mode))
    return Status::Error(path_ + ": is not a regular file");
  file_bytes_ = static_cast<uint64_t>(status.st_size);
  if (file_bytes_ == 0)
    return Status::Error(path_ + ": is empty");
  FileHeader header{};
  const size_t size = std::min<uint64_t>(file_bytes_, sizeof header);
  VRAMSCOPE_RETURN_IF_ERROR(ReadBytes(0, size, &header));
  if (size < sizeof kFileMagic || std::memcmp(header.magic, kFileMagic, sizeof kFileMagic) != 0)
    return Status::Error(path_ + ": is not a vramscope recording");
  if (size >= offsetof(FileHeader, header_bytes) && header.major == 1) {
    return Status::Error(path_ + ": was written by vramscope 0.1 in format 1." +
                         std::to_string(header.minor) +
                         ", which this version cannot read: record again");
  }
  if (size >= offsetof(FileHeader, header_bytes) && header.major > kMajorVersion) {
    return Status::Error(path_ + ": was written by a newer vramscope (format " +
                         std::to_string(header.major) + ", this one reads " +
                         std::to_string(kMajorVersion) + "): update vramscope");
  }
  if (size < sizeof header) {
    return Status::Error(path_ + ": was cut off after " + std::to_string(file_bytes_) +
                         " bytes and cannot be read: copy it again, or record again");
  }
  if (header.major != kMajorVersion ||
      header.crc != base::Crc32c(&header, offsetof(FileHeader, crc)) ||
      header.header_bytes < sizeof header) {
    return Damaged("its header");
  }
  header_bytes_ = header.header_bytes;
  return {};
}

Status FileRecording::LoadIndex(std::vector<IndexEntry>* index) {
  Trailer trailer;
  const Status cut =
      Status::Error(path_ + ": its end is missing or damaged: copy it again, or record again");
  if (file_bytes_ < header_bytes_ + sizeof trailer)
    return cut;
  VRAMSCOPE_RETURN_IF_ERROR(ReadBytes(file_bytes_ - sizeof trailer, sizeof trailer, &trailer));
  if (trailer.magic != kTrailerMagic ||
      trailer.crc != base::Crc32c(&trailer, offsetof(Trailer, crc)) ||
      trailer.file_bytes != file_bytes_) {
    return cut;
  }
  const uint64_t index_bytes = uint64_t{trailer.index_entries} * sizeof(IndexEntry);
  const uint64_t room = file_bytes_ - header_bytes_ - sizeof trailer;
  if (index_bytes > room || trailer.index_offset != file_bytes_ - sizeof trailer - index_bytes)
    return Damaged("its index");
  index->resize(trailer.index_entries);
  VRAMSCOPE_RETURN_IF_ERROR(ReadBytes(trailer.index_offset, index_bytes, index->data()));
  if (base::Crc32c(index->data(), index_bytes) != trailer.index_crc)
    return Damaged("its index");
  uint64_t offset = header_bytes_;
  for (const IndexEntry& entry : *index) {
    if (entry.offset != offset || entry.bytes < sizeof(BlockHeader) ||
        entry.bytes > trailer.index_offset - offset || entry.bytes > kMaxBlockBytes ||
        entry.rows > kMaxBlockRows) {
      return Damaged("its index");
    }
    offset += entry.bytes;
  }
  if (offset != trailer.index_offset)
    return Damaged("its index");
  return {};
}

Status FileRecording::AddFrame(const IndexEntry& entry, LoadState* state) {
  if (!state->allocations.Charge("allocations", entry.rows))
    return state->allocations.Refusal(path_);
  if (entry.rows == 0 || entry.min_begin_ns > entry.max_begin_ns ||
      entry.min_end_ns > entry.max_end_ns || entry.min_begin_ns > entry.min_end_ns ||
      entry.max_begin_ns > entry.max_end_ns) {
    return Damaged("its index");
  }
  FrameZone zone;
  zone.rows = entry.rows;
  zone.min_begin_ns = entry.min_begin_ns;
  zone.max_begin_ns = entry.max_begin_ns;
  zone.min_end_ns = entry.min_end_ns;
  zone.max_end_ns = entry.max_end_ns;
  zone.accounts = entry.accounts;
  BoundTimes(&zone);
  frames_.push_back(entry);
  zones_.push_back(zone);
  tables_.session.allocation_count += entry.rows;
  return {};
}

Status FileRecording::IsWhole(const IndexEntry& frame, bool* whole) const {
  thread_local std::vector<uint8_t> t_block;
  t_block.resize(frame.bytes);
  VRAMSCOPE_RETURN_IF_ERROR(ReadBytes(frame.offset, frame.bytes, t_block.data()));
  BlockHeaders headers;
  *whole = headers.Parse(t_block, frame) && headers.PayloadsHold(t_block);
  return {};
}

// Here and not when a question needs them, so that every answer is about the same allocations, and
// says which are missing.
Status FileRecording::LeaveOutDamagedFrames() {
  const size_t threads = frames_.size() >= kFramesWorthAThread ? 2 : 1;
  std::vector<uint8_t> whole(frames_.size());
  const auto check_each = [&](size_t first) {
    for (size_t i = first; i < frames_.size(); i += threads) {
      bool is_whole = false;
      VRAMSCOPE_RETURN_IF_ERROR(IsWhole(frames_[i], &is_whole));
      whole[i] = is_whole ? 1 : 0;
    }
    return Status();
  };
  VRAMSCOPE_RETURN_IF_ERROR(util::OnThreads(threads, check_each));
  size_t kept = 0;
  uint64_t lost = 0;
  for (size_t i = 0; i < frames_.size(); ++i) {
    if (whole[i] == 0) {
      lost += frames_[i].rows;
      continue;
    }
    frames_[kept] = frames_[i];
    zones_[kept++] = zones_[i];
  }
  frames_.resize(kept);
  zones_.resize(kept);
  if (lost != 0) {
    tables_.session.allocation_count -= lost;
    const StringId name = tables_.strings.Add(
        format::LossName(static_cast<uint64_t>(format::Loss::kDamagedAllocations)));
    tables_.losses.push_back({name, lost, 0});
  }
  return {};
}

template <class Row>
Status FileRecording::LoadRows(const IndexEntry& entry,
                               const BlockHeaders& headers,
                               std::vector<Row>* rows,
                               bool* begun,
                               LoadState* state) {
  if (!state->budget.Charge(TableOf<Row>::kName, entry.rows, sizeof(Row)))
    return state->budget.Refusal(path_);
  const bool is_dictionary = !*begun && rows->size() == 1;
  if (!*begun)
    rows->clear();
  *begun = true;
  const size_t before = rows->size();
  rows->resize(before + entry.rows);
  if (!DecodeRows<Row>(headers, state->block, std::span(*rows).subspan(before), &state->words))
    return Damaged(TableOf<Row>::kName);
  if (is_dictionary) {
    // Row 0 says "none", whatever the file says.
    rows->resize(std::max<size_t>(rows->size(), 1));
    rows->front() = Row{};
  }
  return {};
}

template <class Take>
Status FileRecording::LoadTexts(const IndexEntry& entry,
                                const BlockHeaders& headers,
                                LoadState* state,
                                const Take& take) {
  const BlockHeaders::Column* sizes = headers.Find(kTextSizes);
  const BlockHeaders::Column* bytes = headers.Find(kTextBytes);
  if (sizes == nullptr || bytes == nullptr || sizes->header.values != entry.rows)
    return Damaged("texts");
  if (!state->budget.Charge("texts", entry.rows, sizeof(uint64_t)) ||
      !state->budget.Charge("bytes of text", bytes->header.values)) {
    return state->budget.Refusal(path_);
  }
  const std::span<const uint8_t> block = state->block;
  state->words.resize(entry.rows);
  state->text.resize(bytes->header.values);
  if (!DecodeColumn(sizes->header, block.subspan(sizes->offset, sizes->header.bytes),
                    state->words.data()) ||
      !DecodeText(bytes->header, block.subspan(bytes->offset, bytes->header.bytes),
                  state->text.data())) {
    return Damaged("texts");
  }
  std::string_view rest = state->text;
  for (const uint64_t size : state->words) {
    if (size > rest.size())
      return Damaged("texts");
    take(rest.substr(0, std::min<size_t>(size, kMaxTextBytes)));
    rest.remove_prefix(size);
  }
  return rest.empty() ? Status() : Damaged("texts");
}

Status FileRecording::LoadTable(const IndexEntry& entry, LoadState* state) {
  state->block.resize(entry.bytes);
  VRAMSCOPE_RETURN_IF_ERROR(ReadBytes(entry.offset, entry.bytes, state->block.data()));
  BlockHeaders headers;
  if (!headers.Parse(state->block, entry))
    return Damaged("a table");
  if (entry.table == kStringsBlock)
    return LoadTexts(entry, headers, state,
                     [this](std::string_view text) { tables_.strings.Add(text); });
  if (entry.table == kSessionBlock)
    return LoadTexts(entry, headers, state,
                     [&](std::string_view text) { state->session.emplace_back(text); });
  Status status;
  unsigned position = 0;
  Tables::ForEach(tables_, [&]<class Row>(std::vector<Row>& rows) {
    const uint64_t bit = uint64_t{1} << position++;
    if (TableOf<Row>::kNumber != entry.table)
      return;
    bool begun = (tables_begun_ & bit) != 0;
    status = LoadRows(entry, headers, &rows, &begun, state);
    tables_begun_ |= bit;
  });
  return status;
}

Status FileRecording::CheckNamedTexts() const {
  util::Budget budget(file_bytes_);
  (void)budget.Charge("bytes of text, as often as its rows name them,", NamedTextBytes(tables_));
  return budget.IsOver() ? budget.Refusal(path_) : Status();
}

void FileRecording::TakeSession(const std::vector<std::string>& texts) {
  Session& session = tables_.session;
  const auto number = [](const std::string& text) {
    int64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  for (size_t i = 0; i + 1 < texts.size(); i += 2) {
    const std::string& key = texts[i];
    const std::string& value = texts[i + 1];
    if (key == "name")
      session.name = value;
    else if (key == "version")
      session.version = value;
    else if (key == "begin_ns")
      session.begin_ns = number(value);
    else if (key == "end_ns")
      session.end_ns = number(value);
    else if (key == "history_ns")
      session.history_ns = number(value);
    else if (key == "begin_wall_ns")
      session.begin_wall_ns = number(value);
    else if (key == "event_count")
      session.event_count = static_cast<uint64_t>(number(value));
  }
}

Status FileRecording::Load() {
  VRAMSCOPE_RETURN_IF_ERROR(LoadHeader());
  std::vector<IndexEntry> index;
  VRAMSCOPE_RETURN_IF_ERROR(LoadIndex(&index));
  LoadState state(file_bytes_);
  for (const IndexEntry& entry : index) {
    VRAMSCOPE_RETURN_IF_ERROR(entry.table == TableOf<AllocationRow>::kNumber
                                  ? AddFrame(entry, &state)
                                  : LoadTable(entry, &state));
  }
  if (const char* table = FindBadReference(tables_); table != nullptr)
    return Damaged(table);
  VRAMSCOPE_RETURN_IF_ERROR(CheckNamedTexts());
  TakeSession(state.session);
  BoundTimes(&tables_);
  BoundWords(&tables_);
  VRAMSCOPE_RETURN_IF_ERROR(LeaveOutDamagedFrames());
  tables_.session.path = path_;
  tables_.session.finished = true;
  tables_.session.file_bytes = file_bytes_;
  return {};
}

Status FileRecording::LoadHead() {
  VRAMSCOPE_RETURN_IF_ERROR(LoadHeader());
  std::vector<IndexEntry> index;
  VRAMSCOPE_RETURN_IF_ERROR(LoadIndex(&index));
  LoadState state(file_bytes_);
  for (const IndexEntry& entry : index) {
    if (entry.table == kSessionBlock || entry.table == TableOf<ProcessRow>::kNumber)
      VRAMSCOPE_RETURN_IF_ERROR(LoadTable(entry, &state));
  }
  TakeSession(state.session);
  return {};
}

// The columns `wanted` of a frame that has all.
void CopyColumns(const AllocationFrame& from, uint32_t wanted, AllocationFrame* out) {
  const auto copy = [&](uint32_t column, const auto& values, auto* target) {
    if ((wanted & column) != 0)
      target->assign(values.begin(), values.end());
    else
      target->clear();
  };
  out->rows = from.rows;
  copy(kBeginNs, from.begin_ns, &out->begin_ns);
  copy(kEndNs, from.end_ns, &out->end_ns);
  copy(kAllocNs, from.alloc_ns, &out->alloc_ns);
  copy(kAddress, from.address, &out->address);
  copy(kBytes, from.bytes, &out->bytes);
  copy(kRoundingBytes, from.rounding_bytes, &out->rounding_bytes);
  copy(kSite, from.site, &out->site);
  copy(kSegment, from.segment, &out->segment);
  copy(kShape, from.shape, &out->shape);
  copy(kShape, from.shapes, &out->shapes);
}

Status FileRecording::Read(size_t frame, uint32_t wanted, AllocationFrame* out) const {
  if (!keeps_frames_)
    return Decode(frame, wanted, out);
  const std::scoped_lock lock(kept_mutex_);
  kept_.resize(frames_.size());
  std::unique_ptr<AllocationFrame>& kept = kept_[frame];
  if (kept == nullptr) {
    auto whole = std::make_unique<AllocationFrame>();
    VRAMSCOPE_RETURN_IF_ERROR(Decode(frame, kAllColumns | kShape, whole.get()));
    kept = std::move(whole);
  }
  CopyColumns(*kept, wanted, out);
  return {};
}

Status FileRecording::Decode(size_t frame, uint32_t wanted, AllocationFrame* out) const {
  const IndexEntry& entry = frames_[frame];
  thread_local std::vector<uint8_t> t_block;
  t_block.resize(entry.bytes);
  VRAMSCOPE_RETURN_IF_ERROR(ReadBytes(entry.offset, entry.bytes, t_block.data()));
  BlockHeaders headers;
  bool ok = headers.Parse(t_block, entry) && DecodeFrame(headers, t_block, entry.rows, wanted, out);
  if (ok) {
    BoundTimes(zones_[frame], out);
    ok = FrameMakesSense(*out, wanted, zones_[frame], tables_);
  }
  if (!ok) {
    return Status::Error(path_ + ": is damaged: " + std::to_string(entry.rows) +
                         " of its allocations cannot be read");
  }
  return {};
}

util::Result<int> OpenFile(const std::string& path) {
  // A FIFO must not make it wait.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return Status::Error(path + ": cannot be opened: " + util::ErrnoText(errno));
  return fd;
}

// Takes over `fd`.
util::Result<std::unique_ptr<Recording>> Load(int fd, const std::string& path) {
  auto recording = std::make_unique<FileRecording>(fd, path);
  VRAMSCOPE_RETURN_IF_ERROR(recording->Load());
  return std::unique_ptr<Recording>(std::move(recording));
}

}  // namespace

util::Result<std::unique_ptr<Recording>> Open(const std::string& path) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const int fd, OpenFile(path));
  return Load(fd, path);
}

util::Result<std::unique_ptr<Recording>> OpenHead(const std::string& path) {
  VRAMSCOPE_ASSIGN_OR_RETURN(const int fd, OpenFile(path));
  auto recording = std::make_unique<FileRecording>(fd, path);
  VRAMSCOPE_RETURN_IF_ERROR(recording->LoadHead());
  return std::unique_ptr<Recording>(std::move(recording));
}

util::Result<std::unique_ptr<Recording>> OpenDescriptor(int fd, const std::string& path) {
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0)
    return Status::Error(path + ": cannot be opened: " + util::ErrnoText(errno));
  return Load(own, path);
}

void KeepFrames(const Recording& recording) {
  if (const auto* file = dynamic_cast<const FileRecording*>(&recording))
    file->KeepFrames();
}

std::string LiveFormOf(const std::string& path) {
  struct stat form {
  }, live{}, session{};
  const bool exists = stat(path.c_str(), &form) == 0;
  if (exists && S_ISDIR(form.st_mode))
    return path;
  const std::string directory = path + ".d";
  if ((!exists && errno != ENOENT) || stat(directory.c_str(), &live) != 0 || !S_ISDIR(live.st_mode))
    return "";
  if (!exists)
    return directory;
  // The session file is written when a recording begins, the finished file when it ends.
  if (lstat((directory + "/" + format::kSessionFile).c_str(), &session) != 0)
    return "";
  const auto is_later = [](const timespec& a, const timespec& b) {
    return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
  };
  return is_later(session.st_mtim, form.st_mtim) ? directory : "";
}

}  // namespace vramscope::tables
