// SPDX-License-Identifier: Apache-2.0
#include "trace/testing/live_file_builder.h"

#include <algorithm>
#include <cstddef>
#include <fstream>

namespace vramscope::trace::testing {
namespace {

using format::ChunkHeader;
using format::FileHeader;

template <class T>
void Put(std::string* out, size_t offset, const T& value) {
  std::memcpy(out->data() + offset, &value, sizeof value);
}

}  // namespace

void LiveFileBuilder::StreamBuilder::Begin(uint64_t base_ticks, size_t need_bytes) {
  Chunk chunk;
  chunk.base_ticks = std::max<uint64_t>(base_ticks, owner_->Ticks(owner_->options_.start_ns));
  const size_t page = format::kPageBytes;
  const size_t need = (sizeof(ChunkHeader) + need_bytes + page - 1) / page * page;
  chunk.size_bytes = std::max(owner_->options_.chunk_bytes, static_cast<uint32_t>(need));
  chunk.sequence = static_cast<uint32_t>(chunks_.size());
  chunk.tid = tid_;
  owner_->chunk_order_.emplace_back(id_, chunks_.size());
  delta_ = {.time = chunk.base_ticks, .address = 0};
  chunks_.push_back(std::move(chunk));
  begun_ = true;
}

size_t LiveFileBuilder::StreamBuilder::room() const {
  return chunks_.back().size_bytes - sizeof(ChunkHeader) - chunks_.back().records.size();
}

void LiveFileBuilder::StreamBuilder::AddRaw(std::string_view bytes) {
  if (!begun_)
    Begin(0, bytes.size());
  chunks_.back().records.append(bytes);
}

void LiveFileBuilder::StreamBuilder::Seal() {
  if (begun_)
    chunks_.back().sealed = true;
  begun_ = false;
}

uint64_t LiveFileBuilder::StreamBuilder::String(std::string_view text) {
  if (text.empty())
    return 0;
  if (const auto known = strings_.find(text); known != strings_.end())
    return known->second;
  const uint64_t id = ++last_id_;
  strings_.emplace(text, id);
  Add(format::String{.id = id, .text = {text.data(), text.size()}});
  return id;
}

uint64_t LiveFileBuilder::StreamBuilder::PyCode(std::string_view file,
                                                std::string_view name,
                                                uint64_t first_line) {
  const uint64_t file_id = String(file);
  const uint64_t name_id = String(name);
  const uint64_t id = ++last_id_;
  Add(format::PyCode{.id = id, .file = file_id, .name = name_id, .first_line = first_line});
  return id;
}

uint64_t LiveFileBuilder::StreamBuilder::PyFrame(uint64_t parent,
                                                 std::string_view file,
                                                 std::string_view name,
                                                 uint64_t line) {
  const uint64_t code = PyCode(file, name, line);
  const uint64_t id = ++last_id_;
  Add(format::PyStack{.id = id, .parent = parent, .code = code, .instruction = 0});
  return id;
}

void LiveFileBuilder::StreamBuilder::Thread(uint32_t tid, std::string_view name) {
  tid_ = tid;
  Add(format::Thread{.tid = tid, .name = {name.data(), name.size()}});
}

LiveFileBuilder::StreamBuilder& LiveFileBuilder::Stream(uint32_t id) {
  StreamBuilder& stream = streams_[id];
  stream.owner_ = this;
  stream.id_ = id;
  return stream;
}

void LiveFileBuilder::AddLoss(format::Loss loss, uint64_t count) {
  lost_[static_cast<uint32_t>(loss)] += count;
}

uint64_t LiveFileBuilder::Ticks(uint64_t ns) const {
  if (options_.ticks_per_ns == 0)
    return ns;
  return static_cast<uint64_t>(static_cast<double>(ns) * options_.ticks_per_ns);
}

std::string LiveFileBuilder::Header() const {
  uint64_t end_bytes = format::kPageBytes;
  for (const auto& [stream_id, index] : chunk_order_)
    end_bytes += streams_.at(stream_id).chunks_[index].size_bytes;
  std::string out(format::kPageBytes, '\0');
  std::memcpy(out.data(), format::kFileMagic, sizeof format::kFileMagic);
  Put(&out, offsetof(FileHeader, major), options_.major);
  Put(&out, offsetof(FileHeader, minor), format::kMinorVersion);
  Put(&out, offsetof(FileHeader, writer), static_cast<uint16_t>(options_.writer));
  Put(&out, offsetof(FileHeader, header_bytes), static_cast<uint16_t>(format::kPageBytes));
  const uint32_t flags = (options_.closed_cleanly ? uint32_t{format::kClosedCleanly} : 0u) |
                         (options_.ticks_per_ns != 0 ? uint32_t{format::kTicksAreTsc} : 0u);
  Put(&out, offsetof(FileHeader, flags), format::CheckedFlags(flags));
  Put(&out, offsetof(FileHeader, pid), options_.pid);
  Put(&out, offsetof(FileHeader, parent_pid), options_.parent_pid);
  Put(&out, offsetof(FileHeader, start_ticks), Ticks(options_.start_ns));
  Put(&out, offsetof(FileHeader, start_ns), options_.start_ns);
  Put(&out, offsetof(FileHeader, start_wall_ns), options_.start_wall_ns);
  std::memcpy(out.data() + offsetof(FileHeader, lost), lost_, sizeof lost_);
  std::memcpy(out.data() + offsetof(FileHeader, lost_again), lost_, sizeof lost_);
  std::string command;
  for (const std::string& argument : options_.command)
    command += argument + '\0';
  std::memcpy(out.data() + offsetof(FileHeader, command), command.data(),
              std::min(command.size(), sizeof(FileHeader::command)));
  std::memcpy(out.data() + offsetof(FileHeader, executable), options_.executable.data(),
              std::min(options_.executable.size(), sizeof(FileHeader::executable) - 1));
  Put(&out, offsetof(FileHeader, end_bytes), end_bytes);
  Put(&out, offsetof(FileHeader, chunk_count), static_cast<uint64_t>(chunk_order_.size()));
  Put(&out, offsetof(FileHeader, crc32c),
      format::HeaderChecksum(reinterpret_cast<const uint8_t*>(out.data())));
  return out;
}

std::string LiveFileBuilder::ChunkBytes(uint32_t stream_id, size_t index) const {
  const StreamBuilder::Chunk& chunk = streams_.at(stream_id).chunks_[index];
  std::string bytes(sizeof(ChunkHeader), '\0');
  Put(&bytes, offsetof(ChunkHeader, magic), format::kChunkMagic);
  Put(&bytes, offsetof(ChunkHeader, size_bytes), chunk.size_bytes);
  Put(&bytes, offsetof(ChunkHeader, stream), stream_id);
  Put(&bytes, offsetof(ChunkHeader, sequence), chunk.sequence);
  Put(&bytes, offsetof(ChunkHeader, base_ticks), chunk.base_ticks);
  const double ns = options_.ticks_per_ns == 0
                        ? static_cast<double>(chunk.base_ticks)
                        : static_cast<double>(chunk.base_ticks) / options_.ticks_per_ns;
  Put(&bytes, offsetof(ChunkHeader, base_ns), static_cast<int64_t>(ns));
  Put(&bytes, offsetof(ChunkHeader, committed_bytes), static_cast<uint32_t>(chunk.records.size()));
  Put(&bytes, offsetof(ChunkHeader, tid), chunk.tid);
  const auto* const data = reinterpret_cast<const uint8_t*>(chunk.records.data());
  const uint64_t seal = format::ExtendSeal(0, data, static_cast<uint32_t>(chunk.records.size()));
  if (chunk.sealed) {
    Put(&bytes, offsetof(ChunkHeader, sealed), uint32_t{1});
    Put(&bytes, offsetof(ChunkHeader, crc32c), format::HighHalf(seal));
  }
  if (chunk.sealed || options_.sealed_tails)
    Put(&bytes, offsetof(ChunkHeader, seal), seal);
  Put(&bytes, offsetof(ChunkHeader, head),
      format::ChunkHead(reinterpret_cast<const uint8_t*>(bytes.data()), chunk.size_bytes));
  bytes += chunk.records;
  bytes.resize(chunk.size_bytes, '\0');
  return bytes;
}

std::string LiveFileBuilder::Bytes() const {
  std::string out = Header();
  for (const auto& [stream_id, index] : chunk_order_)
    out += ChunkBytes(stream_id, index);
  return out;
}

bool LiveFileBuilder::Write(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  out << Header();
  for (const auto& [stream_id, index] : chunk_order_)
    out << ChunkBytes(stream_id, index);
  return static_cast<bool>(out.flush());
}

}  // namespace vramscope::trace::testing
